"""Lattices: they enclose the bounds that they are made for, and clamped values stay on them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Declared, assert_neighbours_within, close_all, world

from dpsql.analysis.lattice import BITS, LEAST_EXPONENT, Lattice
from dpsql.plan.interval import Interval

ENDS = st.fractions(min_value=-(10**20), max_value=10**20) | st.floats(-1e150, 1e150).map(Fraction)


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@given(ENDS, ENDS, st.booleans())
def test_a_lattice_encloses_its_interval_by_less_than_a_step(
    a: Fraction, b: Fraction, integral: bool
) -> None:
    """Each end is rounded outward, to a multiple of the step, which is a power of two that is fine enough."""
    low, high = min(a, b), max(a, b)
    lattice = Lattice.of(Interval(low, high), integral=integral)
    step = Fraction(2) ** lattice.exponent
    assert lattice.step == step
    assert low - step < lattice.low * step <= low
    assert high <= lattice.high * step < high + step
    assert lattice.interval == Interval(lattice.low * step, lattice.high * step)
    coarse = max(abs(lattice.low), abs(lattice.high)) > 2 ** (BITS - 1)
    assert coarse or lattice.exponent in (LEAST_EXPONENT, 0)


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("bounds", [(-0.1, 0.3), (0.7, 1.1), (1e-9, 1e9 + 0.1), (-1e-300, 1e-310)], ids=str)
def test_a_value_at_a_bound_that_is_no_multiple_of_the_step_stays_within(
    bounds: tuple[float, float], unit: str, neighbors: str
) -> None:
    """Bounds that binary fractions cannot say move a sum by no more than was derived, from end to end."""
    low, high = bounds
    columns: Declared = {"id": ("INTEGER", None), "x": ("DOUBLE", {"type": "double", "bounds": list(bounds)})}
    moved = set()
    for value, other in ((low, high), (high, low)):
        ours = [{"id": 9, "x": other}] if neighbors == "replace" else []
        before, after = (
            world({"id": 5, "x": low}, *rows, columns=columns, unit=unit, neighbors=neighbors)
            for rows in (ours, [{"id": 9, "x": value}])
        )
        for aggregates in ("SUM(x)", "AVG(x), COUNT(*)"):
            moved.add(assert_neighbours_within(before, after, f"SELECT {aggregates} FROM people"))
    assert max(moved) > 0
