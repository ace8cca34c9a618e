"""The documents are true: what they point to exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import dpsql

ROOT = Path(__file__).parents[2]


def test_privacy_names_existing_tests() -> None:
    """Each rule of PRIVACY.md is held by tests that exist, and each test holds something."""
    rows = [
        line
        for line in (ROOT / "PRIVACY.md").read_text().splitlines()
        if line.startswith("| ") and "`tests/" in line
    ]
    assert len(rows) >= 9
    for row in rows:
        for name in re.findall(r"`(tests/[\w/.]+)`", row):
            assert (ROOT / name).is_file(), f"{name}, which PRIVACY.md names, does not exist"
            assert "def test_" in (ROOT / name).read_text()


def test_versions_agree() -> None:
    """The package and its metadata have one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == dpsql.__version__


def test_files_are_short() -> None:
    """A file of over 400 lines wants to be two."""
    long = [path for path in (ROOT / "dpsql").rglob("*.py") if len(path.read_text().splitlines()) > 400]
    assert not long


def test_sqlglot_is_pinned_to_what_was_read() -> None:
    """A new minor release of the parser may add arguments to nodes, so it is admitted by hand."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (pin,) = (item for item in dependencies if item.startswith("sqlglot"))
    assert re.fullmatch(r"sqlglot>=(\d+)\.(\d+),<\1\.(\d+)", pin)
