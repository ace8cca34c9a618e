"""A13, bounds made by the analyst: what noise is calibrated to comes from literals and the policy alone."""

from __future__ import annotations

from typing import Any

import pytest
from attacks.naive import Naive
from worlds import (
    COLUMNS,
    Refused,
    Row,
    assert_neighbours_within,
    assert_within,
    cells,
    engine_of,
    joined_by,
    observed,
    person,
    prepared,
    world,
)

import dpsql

RICH = person(99, cost=97.25, age=109, free=5e8, word="73")


class Obliging(Naive):
    """Calibrates the noise of a sum to whatever its bounds come to, and says how wide the noise is."""

    def clamped_sum(self, low: str, high: str, epsilon: float = 1.0) -> tuple[float, float]:
        """The noisy sum of costs within the bounds, and the scale of its noise."""
        (ends,) = engine_of(self.connection).execute(f"SELECT {low}, {high}").fetchall()
        self.bound = max(map(abs, ends))
        noisy = self.number(f"SELECT SUM(LEAST(GREATEST(cost, {low}), {high})) FROM people", epsilon)
        return noisy, self.bound / epsilon


def test_bound_from_the_data_is_read_off_the_noise(rows: list[Row]) -> None:
    """The attack works on an obliging engine: the scale of the noise is the highest cost to the last digit."""
    highest = "(SELECT MAX(cost) FROM people)"
    _, without = Obliging(world(*rows)).clamped_sum("0", highest)
    _, with_rich = Obliging(world(*rows, RICH)).clamped_sum("0", highest)
    assert with_rich == RICH["cost"]
    assert without < with_rich


RELEASED = [
    "(SELECT MAX(cost) FROM people)",
    "(SELECT QUANTILE_CONT(cost, 0.99) FROM people)",
]
FROM_DATA = [
    "(SELECT MAX(p.cost) FROM people AS p WHERE p.age >= people.age)",
    "(SELECT rank FROM regions WHERE name = city)",
    "MAX(cost)",
    "MAX(cost) OVER ()",
    "ANY_VALUE(cost)",
    "getvariable('bound')",
    "LIST_MAX([cost, 1])",
    "stats(cost)",
]
PLACES = [
    "SELECT SUM(LEAST(GREATEST(free, 0), {})) FROM people",
    "SELECT SUM(GREATEST(LEAST(free, 100), {})) FROM people",
    "SELECT AVG(CASE WHEN free BETWEEN 0 AND {} THEN free END) FROM people",
    "SELECT SUM(free) FROM people WHERE free >= 0 AND free <= {}",
    "SELECT SUM(CASE WHEN free > {0} THEN {0} ELSE free END) FROM people",
    "SELECT SUM(free / {}) FROM people",
    "SELECT SUM(ROUND(free, {})) FROM people",
    "SELECT SUM(free) FROM people WHERE free IN (0, {})",
]


@pytest.mark.parametrize("bound", FROM_DATA)
def test_bound_that_reads_the_data_is_refused(bound: str, refused: Refused) -> None:
    """Subqueries, aggregates, windows, variables and statistics as a bound: refused wherever one stands."""
    for place in PLACES:
        refused(place.format(bound))


@pytest.mark.parametrize("bound", RELEASED)
def test_released_bound_is_calibrated_to_its_policy_interval(
    bound: str, town: dpsql.Connection, rows: list[Row]
) -> None:
    """An allowed released bound has a data-independent plan; other released bounds are refused."""
    planned = 0
    for place in PLACES:
        sql = place.format(bound)
        plans = set()
        for connection in (town, world(*rows, RICH)):
            try:
                plans.add(str(connection.explain(sql)))
            except dpsql.QueryRejected as error:
                plans.add(error.code)
        (plan,) = plans
        planned += "Release" in plan
    assert planned == 2


UNBOUNDED = [
    "LEAST(free, cost)",
    "GREATEST(LEAST(free, cost), 0)",
    "LEAST(GREATEST(free, 0), age, cost)",
    "LEAST(GREATEST(free, 0), CAST(word AS DOUBLE))",
    "LEAST(GREATEST(free, 0), NULLIF(100, age))",
    "LEAST(GREATEST(free, 0), COALESCE(NULL, free))",
    "COALESCE(free, 0)",
    "NULLIF(free, 1e9)",
    "CASE WHEN free < 100 OR age > 3 THEN free ELSE 0 END",
    "CASE WHEN NOT free > 100 THEN free END",
    "CASE WHEN free > 0 THEN 0 ELSE free END",
    "CASE WHEN (free < 100) = (age > 3) AND free > 0 THEN free END",
    "CASE WHEN free <> 5 THEN free END",
    "CASE WHEN free BETWEEN 0 AND cost * free THEN free END",
    "free * 0",
    "free - free",
    "1 / free",
    "ROUND(free) - free",
    "CAST(word AS DOUBLE)",
]
"""None has two ends that follow from literals and declared bounds."""


@pytest.mark.parametrize("expression", UNBOUNDED)
def test_nullable_or_nan_column_is_no_bound(expression: str, refused: Refused) -> None:
    """A NULL is skipped by LEAST and a NaN passes a comparison, so what they bound is not bounded: refused."""
    for aggregate in ("SUM", "AVG"):
        assert refused(f"SELECT {aggregate}({expression}) FROM people") == "unbounded"


BOUNDED = [
    "LEAST(GREATEST(free, 0), 100)",
    "GREATEST(LEAST(free, 100), 0)",
    "LEAST(GREATEST(free, 100), 0)",
    "LEAST(GREATEST(free, -1e-3), 1e-3)",
    "CASE WHEN free BETWEEN 0 AND 100 THEN free ELSE 50 END",
    "CASE WHEN free >= 0 AND free <= cost THEN free END",
    "CASE WHEN free IN (1, 2, 3) THEN free END",
    "CASE WHEN age > 100 AND cost > 90 THEN cost ELSE 0 END",
    "LEAST(GREATEST(free, 0), cost, 7)",
    "LEAST(cost, age)",
    "COALESCE(cost, age)",
    "cost * cost - age / 3",
    "ABS(cost) / (age + 1)",
    "CAST(LEAST(GREATEST(CAST(word AS DOUBLE), 0), 80) AS INTEGER)",
]
SPECIALS: list[Row] = [
    RICH,
    person(99, cost="nan", free="nan", age=None, word="nan"),
    person(99, cost="inf", free="-inf", age=2**31 - 1, word="inf"),
    person(99, cost="-inf", free="inf", age=-(2**31), word="-1e308"),
    person(99, cost=None, free=1e308, age=0, word="1e308"),
    person(99, cost=-5, free=-1e308, age=110, word=None),
    person(99, cost=50, free=2, age=None, word="5e-324"),
]


@pytest.mark.parametrize("expression", BOUNDED)
def test_literal_bound_holds_for_any_rows(expression: str, rows: list[Row]) -> None:
    """No special value of one person moves an accepted bounded statistic beyond its bound."""
    connection = world(*rows)
    plan = prepared(connection, f"SELECT SUM({expression}), COUNT({expression}) FROM people")
    before = cells(connection, plan)
    moved = set()
    for special in SPECIALS:
        with joined_by(connection, [special] * 3):
            moved.add(assert_within(plan, before, cells(connection, plan)))
    assert max(moved) > 0


@pytest.mark.parametrize("expression", BOUNDED[:4])
def test_noise_follows_the_literals_only(expression: str, rows: list[Row]) -> None:
    """The plan, the noise and EXPLAIN are the same on neighbours; a narrower literal narrows them."""
    sql = f"SELECT SUM({expression}) FROM people"
    ours, theirs = world(*rows), world(*rows, RICH)
    assert str(ours.explain(sql)) == str(theirs.explain(sql))
    assert observed(ours, sql)[0] == observed(theirs, sql)[0]
    assert ours.query(sql).scales == theirs.query(sql).scales


def test_narrower_literal_means_less_noise(rows: list[Row]) -> None:
    """The noise follows the bounds that the query writes: nine times as wide, nine times the noise."""
    connection = world(*rows)
    narrow, wide = (
        connection.query(f"SELECT SUM(LEAST(GREATEST(free, 0), {high})) FROM people").scales[0][0]
        for high in (1, 9)
    )
    assert narrow is not None
    assert wide == pytest.approx(9 * narrow, rel=1e-3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "100", True, 10**400])
def test_parameter_is_a_literal_or_refused(value: Any) -> None:
    """A bound passed as a parameter is a finite number, else nothing is answered."""
    connection = world(person(1))
    with pytest.raises(dpsql.Error):
        connection.query("SELECT SUM(LEAST(GREATEST(free, 0), ?)) FROM people", [value])
    assert len(connection.query("SELECT SUM(LEAST(GREATEST(free, 0), ?)) FROM people", [100])) == 1


def test_declared_bounds_are_enforced(rows: list[Row]) -> None:
    """A value far outside its column's bounds counts as the bound, in the sum and in what follows from it."""
    columns = COLUMNS | {"cost": ("DOUBLE", {"type": "double", "bounds": [0, 10]})}
    before, after = world(*rows, columns=columns), world(*rows, person(99, cost=1e300), columns=columns)
    for sql in ("SELECT SUM(cost) FROM people", "SELECT AVG(cost * cost), COUNT(*) FROM people"):
        assert assert_neighbours_within(before, after, sql) > 0
