"""Lattices: they enclose the bounds that they are made for, and clamped values stay on them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Declared, assert_neighbours_within, close_all, world

from dpsql.analysis.release_analysis import BITS, DECIMAL_BITS, LEAST_EXPONENT, Lattice
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.lattice import emit_lattice_point

ENDS = st.fractions(min_value=-(10**20), max_value=10**20) | st.floats(-1e150, 1e150).map(Fraction)


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@given(ENDS, ENDS, st.booleans())
def test_lattice_encloses_its_interval_within_a_step(a: Fraction, b: Fraction, integral: bool) -> None:
    """Each end is rounded outward, to a multiple of the step, which is a power of two that is fine enough."""
    low, high = min(a, b), max(a, b)
    lattice = Lattice.from_interval(Interval(low, high), integral=integral)
    step = Fraction(2) ** lattice.exponent
    assert lattice.step == step
    assert low - step < lattice.low * step <= low
    assert high <= lattice.high * step < high + step
    assert lattice.interval == Interval(lattice.low * step, lattice.high * step)
    coarse = max(abs(lattice.low), abs(lattice.high)) > 2 ** (BITS - 1)
    assert coarse or lattice.exponent in (LEAST_EXPONENT, 0)


@given(ENDS, ENDS, st.integers(0, 18))
def test_decimal_lattice_has_steps_of_the_last_digit(a: Fraction, b: Fraction, digits: int) -> None:
    """Its step is 10^-digits, or 10^-digits times a power of two where there would be too many steps."""
    low, high = min(a, b), max(a, b)
    lattice = Lattice.from_interval(Interval(low, high), integral=False, digits=digits)
    assert lattice.step == Fraction(2) ** lattice.exponent / 10**digits
    assert low - lattice.step < lattice.low * lattice.step <= low
    assert high <= lattice.high * lattice.step < high + lattice.step
    assert lattice.exponent == 0 or max(abs(low), abs(high)) * 10**digits > 2**BITS


@pytest.mark.parametrize("digits", [1, 2, 4, 9, 18])
@pytest.mark.parametrize("most", [2**BITS, 2**DECIMAL_BITS], ids=["summed", "ranked"])
def test_decimal_has_its_own_lattice_point(digits: int, most: int) -> None:
    """Read as the nearest DOUBLE, each decimal within the bounds has its own point, and one beyond them that of the end."""
    chance = random.Random(digits)
    ends = (-most // 3, most - 7)
    lattice = Lattice.from_interval(
        Interval(*(Fraction(end, 10**digits) for end in ends)),
        integral=False,
        bits=DECIMAL_BITS,
        digits=digits,
    )
    text = emit_lattice_point(DUCKDB_COMPILER, Column("t", "x", ColumnInfo(Type.DOUBLE, "")), lattice, "x")
    wholes = [
        *ends,
        0,
        1,
        -1,
        *(chance.randint(*ends) for _ in range(300)),
        *(chance.randint(-9, 99) for _ in range(50)),
    ]
    beyond = [ends[0] - 1, ends[1] + 1, 10**15, -(10**15)]
    with duckdb.connect() as plain:
        plain.execute(f"CREATE TABLE t (m BIGINT, x DECIMAL(38, {digits}))")
        rows = ", ".join(f"({m}, {Decimal(m).scaleb(-digits):f})" for m in (*wholes, *beyond))
        plain.execute(f"INSERT INTO t VALUES {rows}")
        found = plain.execute(f"SELECT m, {text} FROM (SELECT m, CAST(x AS DOUBLE) AS x FROM t)").fetchall()
    assert found == [(m, max(ends[0], min(ends[1], m))) for m in (*wholes, *beyond)]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize(
    "bounds",
    [
        (-0.1, 0.3),
        (0.7, 1.1),
        (1e-9, 1e9 + 0.1),
        (-1e-300, 1e-310),
        (-0.26, 0.74, "DECIMAL(9, 1)"),
        (0.015, 0.3, "DECIMAL(18, 2)"),
        (-1e9, 7e8 + 0.1, "DECIMAL(38, 9)"),
    ],
    ids=str,
)
def test_value_at_an_inexact_bound_stays_within(bounds: tuple[Any, ...], unit: str, neighbors: str) -> None:
    """Bounds that binary fractions cannot say move a sum by no more than was derived, from end to end."""
    low, high, engine = (*bounds, "DOUBLE")[:3]
    columns: Declared = {"id": ("INTEGER", None), "x": (engine, {"type": "double", "bounds": [low, high]})}
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
