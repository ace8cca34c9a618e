"""`dpsql engines`: the versions, their verification, and the certificate that only a whole success writes."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from interfaces.cli.conftest import Run

from dpsql.verification.law import Law, LawBroken


def test_versions_are_shown(run: Run) -> None:
    """The installed versions, and the ranges."""
    ran = run("engines", "show")
    assert ran.code == 0
    assert "duckdb" in ran.out
    assert "reviewed: DuckDB 1.4.0 to" in ran.out


def test_unknown_law_is_an_error(run: Run) -> None:
    """The laws are listed."""
    ran = run("engines", "verify", "--only", "nothing")
    assert ran.code == 2
    assert "lattice points" in ran.err


def test_failed_verification_writes_no_certificate(run: Run, tmp_path: Path) -> None:
    """The command ends with an error and names what is broken; a law by itself writes none either."""
    path = tmp_path / "engines.json"
    with mock.patch("dpsql.verification.laws.LAWS", (Law("duckdb", "x", "y", lambda: (("part", fail),)),)):
        ran = run("engines", "verify", "--certificate", path)
    assert ran.code != 0
    assert "BROKEN" in ran.out
    assert "no certificate was written" in ran.err
    assert not path.exists()
    with mock.patch(
        "dpsql.verification.laws.LAWS", (Law("duckdb", "x", "y", lambda: (("part", lambda: None),)),)
    ):
        assert run("engines", "verify", "--certificate", path, "--only", "x").code == 0
        assert not path.exists()
        assert run("engines", "verify", "--certificate", path).code == 0
    assert path.exists()
    with mock.patch("dpsql.verification.laws.LAWS", (Law("duckdb", "x", "y", lambda: (("part", fail),)),)):
        assert run("engines", "verify", "--certificate", path, "--only", "x").code != 0
    assert not path.exists()


def fail() -> None:
    raise LawBroken("it does not hold")
