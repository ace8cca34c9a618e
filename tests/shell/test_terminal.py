"""The real `dpsql shell` in a real terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect


def test_a_session_in_a_terminal(study: tuple[Path, Path], tmp_path: Path) -> None:
    """Banner, prompt, an answer over two lines, a command, a refusal, Ctrl-D; nothing else is printed."""
    database, _ = study
    environment = {
        **os.environ,
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        "XDG_STATE_HOME": str(tmp_path),
    }
    arguments = ["-m", "dpsql.cli", "shell", str(database), "-e", "1", "-l", str(tmp_path / "s.ledger")]
    child = pexpect.spawn(
        sys.executable, arguments, env=environment, encoding="utf-8", timeout=60, dimensions=(40, 120)
    )
    try:
        child.expect_exact("protects each patient")
        child.expect_exact("left)>")
        child.send("SELECT COUNT(*) AS n\rFROM visits;\r")
        child.expect_exact("charged to visits")
        child.expect_exact("left)>")
        child.send("\\budget\r")
        child.expect_exact("accountant")
        child.expect_exact("left)>")
        child.send("SELECT cost FROM visits;\r")
        child.expect_exact("hint:")
        child.expect_exact("left)>")
        child.send("\x04")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0
    assert (tmp_path / "dpsql" / "history").stat().st_mode & 0o777 == 0o600
