"""What a unit adds to a sum, against plain Python: of all its rows, or of no more than count, with NULLs among them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from properties.worlds import DEFAULT, World, policy

from dpsql.sql.compile.columns import name_total, name_value_count

BOUND = 2
"""The rows of a unit that count."""
SHIFTS = (0, 2, -7, -3)
"""What is added to a number from 0 to 5: the sums' intervals begin or end at 0, are on either side of it, or hold it."""


def added(values: Sequence[int | None], shift: int, *, counted: bool) -> int:
    """The total of a unit with these values of i.

    It is clamped to what as many rows as count can add up to: those with a value, where these are counted, else all.
    """
    known = [value + shift for value in values if value is not None]
    low, high = shift, 5 + shift
    if not counted:
        low, high = min(low, 0), max(high, 0)
    rows = min(len(known) if counted else len(values), BOUND)
    return min(max(sum(known), rows * low), rows * high)


@pytest.mark.parametrize("group", ["", " GROUP BY k"], ids=["of all rows", "by group"])
@pytest.mark.parametrize("counted", [False, True], ids=["alone", "beside a count"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_unit_total_sums_the_counted_rows(shift: int, counted: bool, group: str) -> None:
    """The total holds for a unit with one to three rows, and for one with NULLs only."""
    world = World(policy(rows=BOUND))
    beside = f", COUNT(i + {shift})" * counted
    statement = world.prepare(f"SELECT SUM(i + {shift}){beside} FROM t{group}").statement
    assert (name_value_count(0) in statement.columns) == counted
    other = [DEFAULT._replace(u=2, i=None)] * 2
    for size in (1, 2, 3):
        for values in itertools.product((None, 0, 1, 5), repeat=size):
            world.hold([*(DEFAULT._replace(i=value) for value in values), *other])
            (row, *_) = world.engine.backend.run_statement(statement.sql).reveal()
            assert statement.label_row(row)[name_total(0)] == added(values, shift, counted=counted), values
