"""A35: fifty tiny charges to skew boxes of a table's partition columns make every later charge slow, for good.

Where what is spent is kept apart exactly, each skew box cuts through all that were charged before. What is kept is
bounded instead, and who fills it with tiny charges takes from others no more than these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.ledger.budget_state import AccountKey
from dpsql.privacy.accounting.partitions.boxes import Box
from dpsql.privacy.accounting.partitions.grid import (
    EVERYWHERE,
    MOST_CELLS,
    MOST_RANGES,
    compute_complement,
    intersect_ranges,
)

TINY, ASKED, ENDS = Fraction(1, 10**6), 25, 10_000
COLUMNS = ("a", "b", "c")
POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 2, "accountant": "pure"},
    "tables": {
        "visits": {
            "unit": "row",
            "partition": list(COLUMNS),
            "columns": {name: {"type": "integer", "bounds": [0, ENDS]} for name in COLUMNS},
        }
    },
}


@pytest.fixture
def con() -> Any:
    """A connection to rows with three partition columns."""
    database = duckdb.connect()
    database.execute("CREATE TABLE visits AS SELECT i AS a, i AS b, i AS c FROM range(100) t(i)")
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", analyst="eve") as connection:
        yield connection


def skew(rng: random.Random) -> dict[str, tuple[int, int]]:
    """Ends of each column that nobody asked for before."""
    return {name: tuple(sorted(rng.sample(range(ENDS), 2))) for name in COLUMNS}  # type: ignore[misc]


def test_stored_cells_stay_few_and_others_keep_their_budget(con: Any) -> None:
    """After many tiny queries about skew boxes there are few cells, and the other half stays separate."""
    con.query("SELECT COUNT(*) FROM visits WHERE a <= 5000", epsilon=1)
    rng = random.Random(1)
    for _ in range(ASKED):
        said = " AND ".join(f"{name} BETWEEN {low} AND {high}" for name, (low, high) in skew(rng).items())
        con.query(f"SELECT COUNT(*) FROM visits WHERE {said}", epsilon=TINY)
    ledger = con.engine.ledger
    parts = ledger._book.compute_balance(ledger._journal.chain, AccountKey("visits")).parts
    assert 8 < len(parts.cells) <= MOST_CELLS
    for name, _ in next(iter(parts.cells)).sides:
        assert sum(map(len, {dict(box.sides).get(name, EVERYWHERE) for box in parts.cells})) <= MOST_RANGES
    assert con.budget()["visits"].spent.loss_fraction <= 1 + ASKED * TINY
    con.query("SELECT COUNT(*) FROM visits WHERE a > 5000", epsilon=2 - ASKED * TINY)


def split_exactly(cells: list[Box], box: Box) -> list[Box]:
    """The disjoint boxes that a ledger would keep, if it added each charge to exactly its places."""
    found, rest = list[Box](), [box]
    for cell in cells:
        shared = cell.intersect_box(box)
        found += [cell] if shared is None else [shared, *subtract_box(cell, box)]
        rest = [piece for part in rest for piece in subtract_box(part, cell)]
    return found + rest


def subtract_box(box: Box, other: Box) -> Iterator[Box]:
    """Disjoint boxes that cover the part of a box outside of the other."""
    if box.intersect_box(other) is None:
        yield box
        return
    rest = dict(box.sides)
    for name, ranges in other.sides:
        own = rest.get(name, EVERYWHERE)
        if outside := intersect_ranges(own, compute_complement(ranges)):
            yield Box.from_sides({**rest, name: outside})
        rest[name] = intersect_ranges(own, ranges)


def test_exact_cells_grow_without_end() -> None:
    """The attack works where all cells are kept: each charge cuts through those before it."""
    rng, cells, found = random.Random(1), list[Box](), []
    for _ in range(14):
        cells = split_exactly(cells, Box.from_sides({name: (ends,) for name, ends in skew(rng).items()}))
        found.append(len(cells))
    assert found[-1] > 5 * MOST_CELLS
    assert found[-1] > 3 * found[6]
