"""Planted faults fit the source and name tests that exist; faults are found on the syntax tree."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.core import CORE
from tests.mutants.fault import Fault, StaleError
from tests.mutants.faults import FAULTS
from tests.mutants.selection import UnknownChangesError, changed_files, selected
from tests.mutants.syntax_places import definitions

ROOT = Path(__file__).parents[2]
MODULE = """
import os

LIMIT = 3


class Sum:
    step: int = 1

    @property
    def total(self):
        return sum(self.rows)

    @total.setter
    def total(self, rows):
        self.rows = rows

    def bounded(self, low=0, high=10):
        rows = [
            min(row, high)  # above
            for row in self.rows
        ]
        if not rows:
            return low
        elif low > high:
            return high

        def inner(low):
            return low + 1  # inner

        return len(rows), self.note("é", low) or self.note("e", low), f"{low} to {high}"


def bounded(low=0):
    low += 1
    low *= 2
    return low
"""


def planted(where: str, old: str, new: str) -> str:
    """The example's text with a fault in it."""
    return Fault("name", f"dpsql.example:{where}" if where else "dpsql.example", old, new, "", "").planted(
        MODULE
    )


def test_no_fault_is_stale() -> None:
    """Each fault finds its code exactly once."""
    stale = []
    for fault in sorted(FAULTS, key=lambda fault: fault.file):
        path = ROOT / fault.file
        try:
            fault.planted(path.read_text(encoding="utf-8") if path.is_file() else "")
        except (StaleError, SyntaxError) as error:
            stale.append(f"{fault.name}: {error}")
    assert stale == []


def test_names_are_unique() -> None:
    """No two faults have one name."""
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []


def test_core_names_faults() -> None:
    """The core is 82 faults, each of which is there."""
    assert len(CORE) == len(set(CORE)) == 82
    assert set(CORE) - {fault.name for fault in FAULTS} == set()


def test_tests_of_faults_exist() -> None:
    """Each fault names a test function of a test file; whether the function has the case is seen when it runs."""
    functions: dict[str, set[str]] = {}
    missing = []
    for test in sorted({fault.test.partition("[")[0] for fault in FAULTS}):
        file, *names = test.split("::")
        path = ROOT / file
        if file not in functions:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            functions[file] = {name for name, _ in definitions(text)}
        if ".".join(names) not in functions[file] - {""}:
            missing.append(test)
    assert missing == []


@pytest.mark.parametrize(
    ("where", "old", "new", "text", "other"),
    [
        pytest.param("", "LIMIT = 3", "LIMIT = 4", "LIMIT = 3", "LIMIT = 4", id="a statement of the module"),
        pytest.param("", "3", "4", "LIMIT = 3", "LIMIT = 4", id="an expression of the module"),
        pytest.param("Sum", "int", "float", "step: int", "step: float", id="an annotation in a class"),
        pytest.param("Sum.bounded", "0", "1", "low=0, high", "low=1, high", id="a default of a method"),
        pytest.param("bounded", "0", "1", "bounded(low=0):", "bounded(low=1):", id="a default of a function"),
        pytest.param("Sum.bounded", "len( rows )", "0", "len(rows)", "0", id="other layout"),
        pytest.param(
            "Sum.bounded", 'self.note("e", low)', "0", 'self.note("e", low)', "0", id="behind an accent"
        ),
        pytest.param("Sum.bounded", "f'{low} to {high}'", "''", 'f"{low} to {high}"', '""', id="an f-string"),
        pytest.param(
            "Sum.bounded.inner", "low + 1", "low", "low + 1  # inner", "low", id="a function in a method"
        ),
        pytest.param("Sum.total", "sum(self.rows)", "0", "sum(self.rows)", "0", id="a getter"),
        pytest.param(
            "Sum.total", "self.rows = rows", "", "self.rows = rows", "pass", id="all that a setter does"
        ),
        pytest.param("bounded", "low += 1\nlow *= 2", "low += 1", "low *= 2", "", id="two statements"),
        pytest.param("bounded", "low *= 2", "", "low *= 2", "", id="a statement less"),
        pytest.param(
            "Sum.bounded",
            "[min(row, high) for row in self.rows]",
            "self.rows",
            "[\n            min(row, high)  # above\n            for row in self.rows\n        ]",
            "self.rows",
            id="an expression of several lines",
        ),
    ],
)
def test_planting_replaces_one_place(where: str, old: str, new: str, text: str, other: str) -> None:
    """The planted module equals one whose text was edited; lines keep their numbers."""
    assert MODULE.count(text) == 1
    changed = planted(where, old, new)
    assert ast.dump(ast.parse(changed)) == ast.dump(ast.parse(MODULE.replace(text, other)))
    assert changed.count("\n") == MODULE.count("\n")


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        pytest.param("Sum.bounded", "low", "0", id="several places"),
        pytest.param("Sum.bounded", "low + 1", "low", id="in a function within"),
        pytest.param("", "low", "0", id="in a function of the module"),
        pytest.param("Sum.bounded", "sum(self.rows)", "0", id="in another function"),
        pytest.param("Sum.bounds", "low", "0", id="no such definition"),
        pytest.param("Sum.bounded", "len( rows )", "len(rows)", id="no change"),
        pytest.param("Sum.bounded", "if low > high:\n    return high", "pass", id="elif"),
        pytest.param("Sum.bounded", '" to "', '""', id="a piece of an f-string"),
        pytest.param("Sum.bounded", "", "return low", id="nothing"),
    ],
)
def test_other_places_are_stale(where: str, old: str, new: str) -> None:
    """A fault whose code is not there exactly once is not planted."""
    with pytest.raises(StaleError):
        planted(where, old, new)


def test_selections_add_up() -> None:
    """All faults are planted unless some are selected; the core, changed modules and names go together."""
    assert selected(FAULTS) == list(FAULTS)
    core = selected(FAULTS, core=True)
    assert {fault.name for fault in core} == set(CORE)
    inside, outside = core[0], next(fault for fault in FAULTS if fault.name not in CORE)
    assert selected(FAULTS, names=[outside.name]) == [outside]
    assert selected(FAULTS, changed=[]) == []
    changed = selected(FAULTS, changed=[outside.file])
    assert changed == [fault for fault in FAULTS if fault.file == outside.file]
    both = selected(FAULTS, core=True, changed=[outside.file], names=[inside.name])
    assert both == [fault for fault in FAULTS if fault in core or fault in changed]


def test_changed_modules_are_those_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of dpsql that differ from the ref, committed or not; an unknown ref or no git is an error that says so."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(UnknownChangesError):
        changed_files(tmp_path, "HEAD")
    if shutil.which("git") is None:
        return
    repository = tmp_path / "project"
    (repository / "dpsql").mkdir(parents=True)
    for name in ("dpsql/left.py", "dpsql/edited.py", "dpsql/removed.py", "other.py"):
        (repository / name).write_text("x = 1\n", encoding="utf-8")
    _git(repository, "init", "--quiet")
    _git(repository, "add", ".")
    _git(repository, "commit", "--quiet", "--message", "one")
    (repository / "other.py").write_text("x = 2\n", encoding="utf-8")
    (repository / "dpsql" / "edited.py").write_text("x = 2\n", encoding="utf-8")
    _git(repository, "mv", "dpsql/removed.py", "dpsql/moved.py")
    assert changed_files(repository, "HEAD") == {"dpsql/edited.py", "dpsql/removed.py", "dpsql/moved.py"}
    for ref in ("nowhere", "--stat"):
        with pytest.raises(UnknownChangesError):
            changed_files(repository, ref)


def _git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)
