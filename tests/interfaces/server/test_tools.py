"""Other tools that send catalog queries: the JDBC driver, and pgcli with its completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from .conftest import PASSWORD, Served

DRIVER = Path("/usr/share/java/postgresql.jar")


def test_jdbc_lists_tables_and_runs_queries_with_parameters(shared: Served) -> None:
    """What DatabaseMetaData says, a question with parameters in text and binary, rows by a portal, and a refusal."""
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None or not DRIVER.is_file():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Java, or no driver")
    ran = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", str(DRIVER), str(Path(__file__).with_name("Ask.java")), str(shared.port)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PGPASSWORD": PASSWORD},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = [line.split("|") for line in ran.stdout.splitlines()]

    def of(kind: str) -> list[list[str]]:
        return [rest for first, *rest in said if first == kind]

    assert of("product") == [["PostgreSQL"]]
    assert ["public"] in of("schema")
    assert of("table") == [
        ["visits", "private: it protects each patient; the unit column is patient_id"],
        ["wards", "public"],
    ]
    assert dict(of("column")) == {
        "plan": "text",
        "ward": "text",
        "cost": "float8",
        "days": "int8",
        "day": "date",
    }
    assert of("keys") == [["false"]]
    first, *again = of("row")
    assert first[0] == "A"
    assert first[3:] == ["int8", "float8"]
    assert again == [first, first]
    assert any("±95%" in text for (text,) in of("told"))
    assert any("charged to visits" in text for (text,) in of("told"))
    assert of("ward") == [["north", "10", "1"], ["south", "20", "1"]]
    assert of("refused") == [["42803"]]


@pytest.mark.deep
def test_pgcli_completes_names_of_the_policy_and_runs_queries(shared: Served, tmp_path: Path) -> None:
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", "pgcli.main", "-h", "127.0.0.1", "-p", str(shared.port), "-u", "ana", "-d", "clinic", "--less-chatty"],
        env={**os.environ, **home, "PGPASSWORD": PASSWORD, "PAGER": "cat", "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        encoding="utf-8", timeout=60, dimensions=(40, 160),
    )  # fmt: skip
    try:
        terminal.expect("clinic>")
        terminal.sendline("SET dpsql.epsilon = 0.5;")
        terminal.expect("SET")
        terminal.expect("clinic>")
        terminal.send("SELECT COUNT(*) AS n FROM vis")
        # The menu has what the catalogue says, once pgcli has read it, and is drawn anew after a key.
        while terminal.expect(["visits", pexpect.TIMEOUT], timeout=1):
            terminal.send("\bs")
        terminal.send("its WHERE da")
        while terminal.expect(["days", pexpect.TIMEOUT], timeout=1):
            terminal.send("\ba")
        terminal.sendline("ys > 0;")
        terminal.expect("±95%")
        terminal.expect("charged to visits")
        terminal.expect("SELECT 1")
        terminal.sendline("\\d visits")
        terminal.expect("double precision")
        terminal.sendline("\\q")
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
