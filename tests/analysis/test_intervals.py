"""What conditions say of the columns that they compare, and bounds that are none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worlds import close_all, prepared, world

import dpsql
from dpsql.plan.interval import Interval


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@pytest.mark.parametrize(
    ("condition", "age", "cost"),
    [
        ("age < cost", Interval(0, 100), Interval(0, 100)),
        ("age <= cost", Interval(0, 100), Interval(0, 100)),
        ("cost > age", Interval(0, 100), Interval(0, 100)),
        ("cost < age", Interval(0, 110), Interval(-5, 100)),
        ("cost >= age + 90", Interval(0, 110), Interval(90, 100)),
        ("age = cost", Interval(0, 100), Interval(0, 100)),
        ("age <> cost", Interval(0, 110), Interval(-5, 100)),
        ("cost < 20 AND 7 < age", Interval(8, 110), Interval(-5, 20)),
        ("age < 18 AND age > 2", Interval(3, 17), Interval(-5, 100)),
        ("age < 17.5 AND age > 2.5", Interval(2.5, 17.5), Interval(-5, 100)),
    ],
)
def test_comparison_narrows_both_sides(condition: str, age: Interval, cost: Interval) -> None:
    """Each of two compared columns lies where the other allows: age in [0, 110], cost in [-5, 100]."""
    plan = prepared(world(), f"SELECT SUM(age), SUM(cost) FROM people WHERE {condition}")
    assert [measure.interval for measure in plan.plan.analysis.measures] == [age, cost]


@pytest.mark.parametrize(
    ("quotient", "expected"),
    [
        ("cost / age", Interval(-100, 100)),
        ("age / age", Interval(0, 110)),
        ("age / (age - 3)", Interval(-110, 110)),
    ],
)
def test_quotient_is_no_larger_than_the_dividend(quotient: str, expected: Interval) -> None:
    """Division by zero gives NULL; two non-negative whole numbers give a non-negative quotient."""
    plan = prepared(world(), f"SELECT SUM({quotient}) FROM people")
    assert [measure.interval for measure in plan.plan.analysis.measures] == [expected]


@pytest.mark.parametrize(("limit", "answered"), [("1e149", True), ("1e151", False), ("1e300", False)])
@pytest.mark.parametrize("sign", ["", "-"])
def test_bounds_that_overflow_arithmetic_are_ignored(limit: str, sign: str, *, answered: bool) -> None:
    """A sum whose terms could be so large that their squares overflow is refused as if it had no bounds."""
    sql = f"SELECT SUM({sign}LEAST(GREATEST(free, 0), {limit})) FROM people"
    if answered:
        prepared(world(), sql)
        return
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(world(), sql)
    assert caught.value.code == "unbounded"


@pytest.mark.parametrize(
    "aggregate",
    [
        "MIN(MAKE_TIMESTAMP(4611686018427387904))",
        "MEDIAN(MAKE_TIMESTAMP(age * 100000000000000000))",
    ],
)
def test_bounds_beyond_what_a_result_can_hold_are_none(aggregate: str) -> None:
    """A moment whose bounds both lie after the year 9999 is refused as if it had none."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(world(), f"SELECT {aggregate} FROM people")
    assert caught.value.code == "unbounded"
