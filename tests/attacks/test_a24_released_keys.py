"""A24, answers among private rows: a released row meets at most one private row's key, whatever was released."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import pytest
from attacks.naive import Naive
from worlds import connected, engine_of, observed, person, prepared, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query

FIRST = 2**60
KEYS = 20
WARDS = "(SELECT ward, COUNT(*) AS n FROM stays GROUP BY ward) AS w"
LARGEST = 2**55
LARGE = {"epsilon": 50_000, "delta": 1e-6}
PUBLIC = {"copies": {"public": True}}


def hospital(first: int) -> Connection:
    """One row that is a privacy unit of its own, and four thousand stays in twenty wards with long numbers."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        f"CREATE TABLE stays AS SELECT i AS id, CAST({first} AS BIGINT) + i % {KEYS} AS ward FROM range(4000) AS r(i)"
    )
    opened.execute("CREATE TABLE people AS SELECT 1.0 AS free, 3 AS age")
    stays = {"unit": "id", "rows_per_unit": 1, "columns": {"ward": {"type": "integer"}}}
    people = {
        "unit": "row",
        "columns": {"free": {"type": "double"}, "age": {"type": "integer", "bounds": [0, 110]}},
    }
    tables = {"stays": stays, "people": people}
    return connected(opened, {"budget": {"epsilon": 5_000, "delta": 1e-6}, "tables": tables})


@pytest.mark.parametrize(
    "key", [f"age * 0 + {LARGEST}", f"age * 0 - {LARGEST}", "age * 0 + {}", "free * 0 + {}e0", "free"]
)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("first", [2**54, FIRST])
def test_one_row_matches_one_released_row(first: int, join: str, key: str) -> None:
    """Keys that are too long, or equal once they are converted, repeat nobody's row: one counts as one."""
    sql = f"SELECT COUNT(*) FROM people {join} {WARDS} ON {key.format(first)} = w.ward"
    connection = hospital(first)
    try:
        ((count,),) = connection.query(sql, epsilon=900).rows
    except dpsql.QueryRejected as refusal:
        assert refusal.code == "join"  # noqa: PT017  (a refusal is as good as the right count)
        return
    assert count in (0, 1)


def test_careless_engine_counts_a_row_for_each_key() -> None:
    """The attack works where keys are compared by rounding: one person is counted twenty times."""
    setup = [f"CREATE TABLE wards AS SELECT CAST({FIRST} AS BIGINT) + i AS ward FROM range({KEYS}) AS r(i)"]
    sql = f"SELECT COUNT(*) FROM people JOIN wards ON free * 0 + {float(FIRST)!r} = ward"
    ours, theirs = (Naive(world(*people, setup=setup)) for people in ([], [person(99)]))
    assert theirs.number(sql) - ours.number(sql) > KEYS / 2


COPIES = f"CREATE TABLE copies AS SELECT 1 AS one, i AS number FROM range({KEYS}) AS r(i)"
VALUES_WITHIN = {
    "number < (SELECT MAX(number) + 1 FROM copies)": KEYS,
    "number >= (SELECT AVG(number) FROM copies)": KEYS // 2,
    "number = (SELECT MIN(number) FROM copies WHERE number > (SELECT MIN(number) FROM copies))": 1,
    "number < (SELECT COUNT(*) + 1000 FROM people)": None,
    "number IN (SELECT number FROM copies WHERE number < (SELECT 1000 + SUM(age) FROM people))": None,
    "number < (SELECT n + 1000 FROM (SELECT COUNT(*) AS n FROM people) AS counted LIMIT 1)": None,
}
"""Conditions on public rows with how many of these one private row is joined to; None where that is released."""


@pytest.mark.parametrize("unit", ["row", "id"])
@pytest.mark.parametrize("condition", VALUES_WITHIN)
def test_subquery_over_public_rows_repeats_no_private_row(condition: str, unit: str) -> None:
    """A subquery's value over public rows is known before one row is joined to them, or it is refused."""
    connection = world(person(99), unit=unit, setup=[COPIES], tables=PUBLIC, budget=LARGE)
    for join, kept in (("JOIN", 0), ("LEFT JOIN", 1)):
        joined = f"people {join} (SELECT one FROM copies WHERE {condition}) AS c ON age - 29 = one"
        sql = f"SELECT COUNT(*) FROM {joined}"
        times = VALUES_WITHIN[condition]
        if times is None:
            outcome, _ = observed(connection, sql)
            assert outcome.error is not None
            assert outcome.error[1] == "join"
            continue
        ((count,),) = connection.query(sql, epsilon=5_000).rows
        assert count == max(times, kept)
        plan = prepared(connection, sql).plan
        bound = plan.analysis.bound.rows
        assert bound == max(times, kept) * (1 if unit == "row" else 2)
        assert plan.vectors[0].sensitivity.l1 == (plan.clamps[0].points[0] if plan.clamps else bound)


@pytest.mark.parametrize("replay", [True, False])
def test_changed_lookup_value_repeats_no_row(*, replay: bool) -> None:
    """A value computed in a lookup is enforced when it is computed again, where each row is a unit."""
    sql = f"SELECT COUNT(*) FROM people JOIN (SELECT one FROM copies WHERE {next(iter(VALUES_WITHIN))}) AS c ON age - 29 = one"
    connection = world(person(99), unit="row", setup=[COPIES], tables=PUBLIC, budget=LARGE)
    engine_of(connection).execute("CREATE TABLE all_copies AS FROM copies")
    engine_of(connection).execute("DELETE FROM copies WHERE number > 0")
    plan = plan_and_match(connection.engine, Query(sql, epsilon=Fraction(5_000), replay=replay))
    engine_of(connection).execute("INSERT INTO copies SELECT * FROM all_copies WHERE number > 0")
    ((count,),) = answer_query(connection.engine, plan).rows
    assert count == plan.plan.vectors[0].sensitivity.l1 == 1


def test_careless_engine_reads_an_unknown_value_as_null() -> None:
    """The attack works where an unknown value is NULL: none of the rows, of which one person has twenty."""
    sql = "SELECT COUNT(*) FROM people JOIN copies ON age - 29 = one AND number < {}"
    ours, theirs = (Naive(world(*people, setup=[COPIES])) for people in ([], [person(99)]))
    (known,) = engine_of(theirs.connection).execute(sql.format("CAST(NULL AS BIGINT)")).fetchall()[0]
    assert known == 0
    bounded = sql.format("(SELECT MAX(number) + 1 FROM copies)")
    assert theirs.number(bounded, 100) - ours.number(bounded, 100) > KEYS / 2


VALUES_BESIDE = [
    "SELECT COUNT(*) AS n, (SELECT SUM(cost) FROM people) AS total FROM people",
    "SELECT city, COUNT(*) AS n, (SELECT SUM(cost) FROM people) AS total FROM people GROUP BY city",
    "SELECT city, AVG(age), (SELECT COUNT(*) FROM people) FROM people GROUP BY city HAVING COUNT(*) > (SELECT COUNT(*) FROM people) / 9",
    "SELECT member, SUM(cost) FROM people GROUP BY member ORDER BY (SELECT AVG(age) FROM people), 2",
]


@pytest.mark.parametrize("sql", VALUES_BESIDE)
def test_each_cell_keeps_its_own_noise(sql: str) -> None:
    """A query with two releases is answered, and each cell's interval follows its own noise."""
    connection = world(*(person(who, age=who % 90) for who in range(200)))
    result = connection.query(sql, epsilon=20)
    noisy = [index for index, scale in enumerate(result.scales[0]) if scale is not None]
    assert noisy
    for values, ends in zip(result.rows, result.intervals(), strict=True):
        for index in noisy:
            low, high = ends[index] or (0.0, 0.0)
            value: Any = values[index]
            assert value is None or low <= value <= high


def test_filter_drops_no_argument_of_an_aggregate() -> None:
    """FILTER after an aggregate with more arguments than are known: refused as it is without FILTER."""
    town = world(person(1))
    for call in ("COUNT(age, cost)", "SUM(cost ORDER BY id)", "VAR_POP(age, cost)"):
        for sql in (f"SELECT {call} FROM people", f"SELECT {call} FILTER (WHERE age > 3) FROM people"):
            outcome, _ = observed(town, sql)
            assert outcome.error is not None
            assert outcome.error[0] == "QueryRejected"
