"""The page of theorems is true: what it says to live in the code does, and each test that it names exists."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/theorems.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (?!---)", line)]


@cache
def named_tests(path: str) -> frozenset[str]:
    """The names of the tests of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(dpsql[\w.]*)`", PAGE))))
def test_named_code_exists(name: str) -> None:
    """Each dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return
    pytest.fail(f"{name} does not exist")


def test_each_row_names_an_existing_test() -> None:
    """Definitions, mechanisms, theorems and errors have a test each, except for those listed as absent."""
    rows = [
        row
        for row in ROWS
        if "examples/" not in row[-1] and row[0] not in ("definition", "mechanism", "theorem", "printed")
    ]
    rows = [row for row in rows if row[0] != "example"]
    assert len(rows) > 50
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row[-1])
        assert named or row[2] == "not in dpsql yet", row[0]
        for path, function in named:
            assert (ROOT / path).is_file(), path
            assert not function or function in named_tests(path), f"{path}::{function}"


def test_every_earlier_mechanism_of_the_library_is_listed() -> None:
    """The page has the mechanisms of the texts and their building blocks; the rest came later."""
    from dpsql.privacy.mechanisms import LIBRARY

    later = {
        "UnaryEncoding",
        "DiscreteGaussianMechanism",
        "CubeMechanism",
        "PermuteAndFlipMechanism",
        "ReportNoisyMax",
    }
    assert {
        entry.__name__ for entry in LIBRARY if f"dpsql.privacy.mechanisms.{entry.__name__}" not in PAGE
    } == later
