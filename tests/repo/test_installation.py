"""What documents and errors tell people to install is what can be installed today, by one constant."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dpsql.version import CLIENT_DISTRIBUTION, DISTRIBUTION, VERSION

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "client" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "dpsql").rglob("*.py"),
    ]
)
OWN = re.compile(r"(?:dpsql(?:-client)?|\./client|\.)(?:\[\w+\])?")


def find_installed(text: str) -> set[str]:
    """The first arguments of `pip install` that are dpsql or its client, without extras.

    >>> sorted(find_installed("`pip install 'dpsql[plot]' numpy`, or pip install ./client && dpsql demo"))
    ['./client', 'dpsql']
    """
    words = [word.strip("'\",;:)`") for word in re.findall(r"pip install (?:-\S+ )*(\S+)", text)]
    return {word.partition("[")[0] for word in words if OWN.fullmatch(word)}


def test_documents_install_what_exists() -> None:
    """A release changes two names in `dpsql/version.py`, and this test lists what else says the former."""
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in DOCUMENTS
        if (found := find_installed(path.read_text(encoding="utf-8")) - {DISTRIBUTION, CLIENT_DISTRIBUTION})
    }
    assert wrong == {}


@pytest.mark.parametrize(
    "text", ["pip install dpsql", "pip install 'dpsql[server]'", "`pip install dpsql-client`, then"]
)
def test_a_name_without_a_package_is_found(text: str) -> None:
    """The test would notice it."""
    assert find_installed(text) - {DISTRIBUTION, CLIENT_DISTRIBUTION}


def test_license_is_the_same_everywhere() -> None:
    """Both wheels, the citation and the text; and the citation's version."""
    licenses = {
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["license"]
        for folder in (".", "client")
    }
    assert licenses == {"Apache-2.0"}
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert "license: Apache-2.0" in citation
    assert f"version: {VERSION}" in citation
