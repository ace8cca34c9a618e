"""The documented differences from DuckDB: each is one, its answer has a notice of it, and the reference lists it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from differential.documented import DIFFERENCES
from differential.oracle import Answer, answer, compared, plainly
from differential.world import World, open_world

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One database for all statements of this file."""
    with open_world() as opened:
        yield opened


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_prints_a_notice(world: World, name: str) -> None:
    """Its statement differs from DuckDB's answer, which is forgiven for its notice alone."""
    sql = DIFFERENCES[name].example
    ours, theirs = answer(world, sql), plainly(world, sql)
    assert isinstance(ours, Answer)
    assert name in ours.told
    assert compared(sql, replace(ours, told=frozenset({name})), theirs) is None
    assert compared(sql, replace(ours, told=frozenset()), theirs) is not None


def test_reference_lists_the_differences() -> None:
    """The table of the page has just these."""
    found = re.findall(r"^\| \*\*(.+?)\*\* \|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == list(DIFFERENCES)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT kind, COUNT(*) FROM visits GROUP BY kind",
        "SELECT kind, COUNT(*) FROM visits WHERE cost > 1000 GROUP BY kind HAVING COUNT(*) > 0",
        "SELECT SUM(lvl), COUNT(lvl), MIN(lvl) FROM visits WHERE cost > 1000",
        "SELECT kind, SUM(lvl) FROM visits GROUP BY kind",
        "SELECT COUNT(*) FILTER (WHERE lvl > 7) FROM visits",
    ],
)
def test_answer_without_differences_prints_no_notice(world: World, sql: str) -> None:
    """A notice stands where there is something to tell."""
    ours = answer(world, sql)
    assert isinstance(ours, Answer)
    assert not ours.told


def test_names_types_and_order_are_compared() -> None:
    """A name, a type, an order or a NULL that differs is a find."""
    right = Answer(("k0", "n0"), [("a", 1), ("b", 2)])
    assert compared("", right, right) is None
    for wrong, kind in (
        (Answer(("k0", "n1"), right.rows), "names"),
        (Answer(right.names, [("a", 1.0), ("b", 2.0)]), "types"),
        (Answer(right.names, [("b", 2), ("a", 1)]), "mismatch"),
        (Answer(right.names, [("a", 1), ("b", None)]), "mismatch"),
        (Answer(right.names, [("a", 1), ("b", 2), ("c", 0)]), "mismatch"),
        (Answer(right.names, [("a", 1), ("a", 1), ("b", 2)]), "mismatch"),
    ):
        found = compared("", wrong, right, ordered=True)
        assert found is not None
        assert found.kind == kind
    unordered = compared("", Answer(right.names, [("a", 1), ("b", 2), ("c", 0)]), right)
    assert unordered is not None, "a group of nobody is forgiven for its notice alone"
