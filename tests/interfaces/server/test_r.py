"""The page for R runs as it stands, against a server: DBI, a driver, and what dbplyr writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import PASSWORD, Served

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "r.md"
STAND_INS = {
    "RPostgres::Postgres()": "RPostgreSQL::PostgreSQL()",
    'dbname = "hie"': 'dbname = "clinic"',
    'host = "localhost"': 'host = "127.0.0.1"',
}
"""Debian's driver, and the study of the tests."""


def test_page_for_r_runs(shared: Served, tmp_path: Path) -> None:
    """All blocks in one session; what is printed has rows and intervals, and rows of persons are refused."""
    r = shutil.which("Rscript")
    packages = ("RPostgreSQL", "dbplyr")
    if r is None or not all(list(Path("/usr/lib/R").glob(f"*/{name}")) for name in packages):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no R with RPostgreSQL and dbplyr")
    blocks = re.findall(r"(?ms)^```r\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    program = "\n".join(blocks)
    for said, stands_in in STAND_INS.items():
        assert said in program
        program = program.replace(said, stands_in)
    (tmp_path / "page.R").write_text(
        program.replace("port = 5439", f"port = {shared.port}"), encoding="utf-8"
    )
    ran = subprocess.run(
        [r, "--vanilla", str(tmp_path / "page.R")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "DPSQL_PASSWORD": PASSWORD},
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r'\[1\] "visits" +"wards"', ran.stdout)
    assert "n_low" in ran.stdout
    assert len(re.findall(r"(?m)^\d +[AB] +\d+", ran.stdout)) >= 6
    assert "±95%" in ran.stderr
