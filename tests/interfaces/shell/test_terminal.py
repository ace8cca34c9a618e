"""The real `dpsql shell` in a real terminal."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect


class Shell:
    """`dpsql shell` in a pseudo-terminal of so many columns, with settings, history and ledger of its own."""

    def __init__(self, database: Path, folder: Path, columns: int = 120, **more: str) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm",
            "XDG_STATE_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            **more,
        }
        arguments = [
            "-m",
            "dpsql",
            "shell",
            str(database),
            "-e",
            "1",
            "-l",
            str(folder / "s.ledger"),
            "--new-ledger",
        ]
        self.child = pexpect.spawn(
            sys.executable,
            arguments,
            env=environment,  # type: ignore[arg-type]
            encoding="utf-8",
            timeout=60,
            dimensions=(40, columns),
        )

    def asked(self, text: str, *expected: str) -> str:
        """Types a line, waits for these texts and the next prompt, and returns what was printed, without colours."""
        self.child.send(f"{text}\r")
        printed = ""
        for each in (*expected, "left)>"):
            self.child.expect_exact(each)
            printed += f"{self.child.before}{self.child.after}"
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)


def test_a_session_in_a_terminal(study: tuple[Path, Path], tmp_path: Path) -> None:
    """Banner, prompt, an answer over two lines, a command, a refusal, Ctrl-D; nothing else is printed."""
    shell = Shell(study[0], tmp_path)
    child = shell.child
    try:
        child.expect_exact("protects each patient")
        child.expect_exact("left)>")
        shell.asked("SELECT COUNT(*) AS n\rFROM visits;", "charged to visits")
        shell.asked("\\budget", "accountant")
        shell.asked("SELECT cost FROM visits;", "hint:")
        child.send("\x04")
        child.expect(pexpect.EOF)
    finally:
        child.close()
    assert child.exitstatus == 0
    assert (tmp_path / "dpsql" / "history").stat().st_mode & 0o777 == 0o600


def test_answers_fit_the_terminal(study: tuple[Path, Path], tmp_path: Path) -> None:
    """A wide answer is a table where it fits, else lines; a long list goes through the pager; a steep price is asked first."""
    (tmp_path / "dpsql").mkdir()
    (tmp_path / "dpsql" / "config.toml").write_text('theme = "none"\nask_above = 0.5\n')
    shell = Shell(study[0], tmp_path, 80, PAGER="sed s/^/paged:/")
    sql = "SELECT plan, AVG(cost) AS the_average_cost_of_visits, COUNT(*) AS the_number_of_visits FROM visits GROUP BY plan"
    try:
        shell.child.expect_exact("left)>")
        shell.child.send(f"{sql};\r")
        shell.child.expect_exact("Run it? [y/N]")
        shell.asked("y", "charged to visits")
        for columns in (60, 80, 200):
            shell.child.setwinsize(20, columns)
            answer = shell.asked("\\g", "nothing was charged")
            assert ("─ row 3 ─" in answer) == (columns < 80)
            if columns < 80:
                assert re.search(r"the_number_of_visits +[\d.,]+ ± [\d.,]+", answer)
            else:
                assert re.search(
                    r"plan +the_average_cost_of_visits +±95% +the_number_of_visits +±95%", answer
                )
        shell.asked("\\?", "paged:")
    finally:
        shell.child.close()
