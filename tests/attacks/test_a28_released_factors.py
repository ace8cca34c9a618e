"""A28, released values as factors: noise made enormous, so that one person's product leaves its range.

A count at a tiny ε is as large as an analyst wants. Divided, it passes as a small number, and as a factor of a
person's value it decides whether a product overflows. A released value enters private rows within the interval
that the plan derived for it, and no query asks for less than the policy's least ε.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from worlds import assert_within, cells, observed, person, prepared, world, written_by

from dpsql.analysis.intervals import RELEASED, derive_interval
from dpsql.api.connection import Connection
from dpsql.engine import lookups
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Literal, Scalar
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PublicSubquery, Values
from dpsql.plan.steps import list_steps
from dpsql.plan.types import Type

FACTOR = "SELECT COUNT(*) // 1000 AS m FROM people"
QUESTIONS = (
    f"SELECT COUNT(*) FROM people v, ({FACTOR}) r WHERE v.age * r.m * 100 > 5",
    f"SELECT COUNT(*) FROM people WHERE age * ({FACTOR}) * 1000 > 5",
    f"SELECT SUM(LEAST(GREATEST(age - r.m, -5), 5)) FROM people, ({FACTOR}) r",
)


@pytest.fixture(scope="module")
def worlds() -> tuple[Connection, Connection]:
    """Neighbours that differ in one person, who is old."""
    rows = [person(who, age=1) for who in range(9)]
    return world(*rows, person(17, age=110)), world(*rows)


def enormous(_: Any, around: Interval) -> Any:
    """The largest value that the interval has, or what 64 bits hold: what noise may come to."""
    return int(around.high) if around.high is not None else 2**62


@pytest.mark.parametrize("sql", QUESTIONS)
def test_released_value_makes_no_statement_fail(sql: str, worlds: tuple[Connection, Connection]) -> None:
    """The query is answered at the least ε for any value of the factor in its interval."""
    for connection in worlds:
        assert observed(connection, sql, epsilon=1e-6)[0].error is None
        with mock.patch.object(lookups, "_clip_value", enormous):
            assert observed(connection, sql, epsilon=1e-6, replay=False)[0].error is None


def test_unbounded_factor_reveals_a_person(worlds: tuple[Connection, Connection]) -> None:
    """The attack works with products of 64 bits and a factor as the noise has made it: one age alone fails."""
    with (
        mock.patch.object(lookups, "_clip_value", return_value=10**15),
        written_by(lambda call: call.function.sql),
    ):
        found = [observed(connection, QUESTIONS[0], epsilon=1e-6, replay=False)[0] for connection in worlds]
    errors = [outcome.error for outcome in found]
    assert [error and error[0] for error in errors] == ["BackendError", None]


@pytest.mark.parametrize(
    ("value", "around", "expected"),
    [
        (10**17, Interval(-(2**55), 2**55), 2**55),
        (-(10**17), Interval(-(2**55), 2**55), -(2**55)),
        (7, Interval(0, 5), 5),
        (1e300, Interval(0, 2), 2.0),
        (float("inf"), Interval(), None),
        (float("nan"), Interval(0, 2), None),
        (1e300, Interval(), 1e300),
        (True, Interval(0, 0), True),
        ("text", Interval(), "text"),
        (None, Interval(0, 1), None),
    ],
)
def test_released_value_is_clamped_to_its_interval(value: Any, around: Interval, expected: Any) -> None:
    """Numbers are moved to the nearest end; what is no number has no place to go."""
    assert lookups._clip_value(value, around) == expected
    assert not isinstance(expected, float) or type(lookups._clip_value(value, around)) is float


def test_released_factor_is_clamped_to_its_interval(town: Connection) -> None:
    """A count that its noise has made enormous enters as the end of a released count's interval."""
    (step, *_) = [step for step in list_steps(prepared(town, QUESTIONS[1]).outer) if isinstance(step, Scalar)]
    (answer, *_) = [
        step for step in list_steps(prepared(town, QUESTIONS[0]).outer) if isinstance(step, PublicSubquery)
    ]
    column = derive_interval(answer.columns[0])
    assert lookups.to_constants(step, [(10**18,)]) == Literal(RELEASED // 1000, Type.INTEGER)
    rows = lookups.to_constants(answer, [(10**18,), (-(10**18),)])
    assert isinstance(rows, Values)
    assert [row[0] for row in rows.rows] == [column.high, column.low]


AGES = "SELECT city, MIN(age) AS low, AVG(age) AS mean, 2 * MAX(age) AS high, SUM(age) AS total FROM people GROUP BY city"


def test_value_within_a_column_interval_is_clamped_to_it(town: Connection) -> None:
    """A minimum and an average of ages are clamped to the ages' interval; a total may be anything."""
    sql = f"SELECT SUM(p.age - m.low), SUM(p.age - m.mean), SUM(p.age - m.high) FROM people p JOIN ({AGES}) m USING (city)"
    plan = prepared(town, sql)
    (answer,) = [step for step in list_steps(plan.outer) if isinstance(step, PublicSubquery)]
    far = [("Kiel", 10**9, 1e9, 10**9, 10**9), ("Bonn", -(10**9), float("nan"), None, -(10**9))]
    rows = lookups.to_constants(answer, far)
    assert isinstance(rows, Values)
    assert rows.rows == (("Kiel", 110, 110.0, 220, 10**9), ("Bonn", 0, None, None, -(10**9)))
    known = [str(measure.interval) for part in plan.releases for measure in part.plan.analysis.measures]
    assert {"[-110, 110]", "[-220, 110]"} <= set(known)


@pytest.mark.parametrize("drawn", [-1e300, 0.0, 110.0, 1e300, float("nan"), None])
def test_one_person_moves_a_sum_within_its_bound_for_any_draw(
    worlds: tuple[Connection, Connection], drawn: float | None
) -> None:
    """The sum of what people are above an average moves by no more than was derived before the average was released."""
    plan = prepared(worlds[0], "SELECT SUM(age - (SELECT AVG(age) FROM people)) FROM people")
    (step,) = [step for step in list_steps(plan.outer) if isinstance(step, Scalar)]
    last = plan.releases[-1].with_values({step: lookups.to_constants(step, [(drawn,)])})
    held = replace(plan, releases=(last,))
    moved = assert_within(held, *(cells(connection, held) for connection in worlds))
    assert moved > 0 or drawn != 0.0


@pytest.mark.parametrize(
    ("values", "entering"),
    [
        ((10**18, 10**17, 5), (None, None, 5)),
        ((10**18, 2**55, 5), (None, 2**55, 5)),
        ((10**18, 10**18, -(10**18)), (2**55, 2**55, -(2**55))),
        ((10**18, None, 7), (2**55, None, 7)),
        ((True, "a", 10**18), (True, "a", 2**55)),
    ],
)
def test_distinct_values_never_merge(values: tuple[Any, ...], entering: tuple[Any, ...]) -> None:
    """Noisy values may be group keys of an answer, and a row that is joined to two of them would count twice."""
    assert tuple(lookups._clip_column(values, Interval(-(2**55), 2**55))) == entering


@pytest.mark.parametrize("epsilon", [1e-18, 1e-7, 9.99e-7])
def test_loss_below_the_minimum_is_refused(epsilon: float, town: Connection) -> None:
    """The refusal precedes any charge; the policy's own minimum holds, too."""
    with pytest.raises(QueryRejected) as caught:
        town.query("SELECT COUNT(*) FROM people", epsilon=epsilon)
    assert caught.value.code == "epsilon_floor"
    strict = world(person(1), min_epsilon=0.01)
    with pytest.raises(QueryRejected, match=r"min_epsilon of 0\.01"):
        strict.query("SELECT COUNT(*) FROM people", epsilon=0.009)
    assert strict.query("SELECT COUNT(*) FROM people", target_error=1e6).receipt.target is not None
