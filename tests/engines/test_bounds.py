"""Contributions are bounded in PostgreSQL as they are in DuckDB, and one unit's rows move statistics by no more than derived.

The worlds are small and drawn: units with more rows and groups than count, NULL, NaN and duplicates.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from engines.loading import database, grant
from postgres import Server
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.aggregates import Moment
from dpsql.planning.build_clamps import BY_GROUP, BY_NORM, BY_SUM, ClampScope
from dpsql.planning.statistics import ROWS, UNITS
from dpsql.policy.request.query import Query

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "u",
            "rows_per_unit": 3,
            "max_groups": 2,
            "columns": {
                "k": {"type": "integer", "values": [0, 1, 2]},
                "s": {"type": "varchar"},
                "x": {"type": "double", "bounds": [-2, 5]},
                "n": {"type": "integer", "bounds": [0, 7]},
            },
        }
    },
}
QUERIES = [
    "SELECT COUNT(*), SUM(x), COUNT(x) FROM t",
    "SELECT k, COUNT(*), SUM(n), SUM(x) FROM t GROUP BY k",
    "SELECT s, COUNT(*), SUM(n) FROM t GROUP BY s",
    "SELECT k, COUNT(DISTINCT s) FROM t GROUP BY k",
    "SELECT k, s, SUM(x * n) FROM t WHERE x < 4 GROUP BY k, s",
    "SELECT AVG(m) FROM (SELECT u, MAX(n) AS m FROM t GROUP BY u) AS w",
    "SELECT SUM(m) FROM (SELECT u, k, SUM(x) AS m FROM t GROUP BY u, k) AS w WHERE k > 0",
    "SELECT t.k, COUNT(*) FROM t JOIN t AS v ON t.u = v.u AND t.n = v.n GROUP BY t.k",
    "SELECT k, MEDIAN(x) FROM t GROUP BY k",
]
Row = tuple[int | None, int | None, str | None, float | None, int | None]


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[tuple[Connection, psycopg.Connection[Any]]]:
    with database(server, "bounds") as (url, owner):
        owner.execute("CREATE TABLE t (u integer, k integer, s text, x double precision, n bigint)")
        grant(owner)
        with dpsql.connect(url, policy=POLICY, ledger=":memory:") as con:
            yield con, owner


def rows(chance: random.Random, unit: int) -> list[Row]:
    """Up to eight rows of a unit."""
    return [
        (
            unit,
            chance.choice([0, 1, 2, 3, None]),
            chance.choice(["a", "A", "b", "", None]),
            chance.choice([-9.0, -2.0, 0.3, 5.0, float("inf"), float("nan"), None]),
            chance.choice([-1, 0, 3, 7, 99, None]),
        )
        for _ in range(chance.randrange(9))
    ]


def hold(owner: psycopg.Connection[Any], stored: Sequence[Row]) -> None:
    owner.execute("TRUNCATE t")
    with owner.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s)", stored)


Statistics = dict[tuple[Any, ...], dict[Any, int]]


def statistics(con: Connection, part: PreparedRelease) -> Statistics:
    """The exact moments of each group."""
    statement, keys = part.statement, len(part.statement.keys)
    found, backend = {}, con.engine.backend
    with backend.stage_tables(statement.held_queries):
        read = backend.run_statement(statement.sql).reveal()
    for row in read:
        moments = zip(statement.moments.values(), row[keys:], strict=False)
        found[tuple(row[:keys])] = {name: int(value or 0) for name, value in moments}
    return found


@pytest.mark.parametrize("sql", QUERIES)
def test_unit_moves_statistics_within_their_sensitivity(world: tuple[Connection, Any], sql: str) -> None:
    """Without a unit, each vector differs by at most its l1 sensitivity; groups and rows of others stay as they are."""
    con, owner = world
    (part,) = plan_and_match(con.engine, Query(sql, epsilon=Fraction(10**15))).releases
    for seed in range(examples(20, 3)):
        chance = random.Random(f"{sql} {seed}")
        others = [row for unit in range(4) for row in rows(chance, unit)]
        one = rows(chance, 9) + rows(chance, 9)
        both = [*others, *one]
        chance.shuffle(both)
        hold(owner, both)
        with_one = statistics(con, part)
        chance.shuffle(others)
        hold(owner, others)
        require_within(part, with_one, statistics(con, part), (sql, seed))


def require_within(part: PreparedRelease, with_one: Statistics, without: Statistics, case: object) -> None:
    """Each vector differs by at most its l1 sensitivity."""
    for measured in part.plan.vectors:
        moved = sum(
            abs(
                sum(
                    times * (ours.get(name, 0) - theirs.get(name, 0)) for name, times in component.combination
                )
            )
            for keys in with_one.keys() | without.keys()
            for ours, theirs in [(with_one.get(keys, {}), without.get(keys, {}))]
            for component in measured.vector.components
        )
        assert moved <= measured.sensitivity.l1, (case, measured.vector.name)


def test_bound_is_attained(world: tuple[Connection, Any]) -> None:
    """A unit of many rows and groups counts with as many as may: the bounds are no looser, and not tighter."""
    con, owner = world
    hold(owner, [(9, k, "a", 5.0, 7) for k in (0, 1, 2) for _ in range(5)])
    (part,) = plan_and_match(con.engine, Query(QUERIES[1], epsilon=Fraction(10**15))).releases
    found = statistics(con, part)
    assert sum(group[ROWS] for group in found.values()) == 3
    assert sum(group[UNITS] for group in found.values()) <= 2


def test_value_counts_in_a_group_without_counted_rows(world: tuple[Connection, Any]) -> None:
    """Whether a row counts does not decide whether its value does: that would be another bound."""
    con, owner = world
    hold(owner, [(9, k, f"v{k}", 1.0, 1) for k in (0, 1, 2)])
    (part,) = plan_and_match(con.engine, Query(QUERIES[3], epsilon=Fraction(10**15))).releases
    found = statistics(con, part)
    assert sum(group[ROWS] for group in found.values()) == 2
    assert sum(group[Moment.DISTINCT, 0] for group in found.values()) == 3


LARGEST = [7, 2**20, 2**24, 75_000_000, 2**31, 2**40, 10**15]
"""Bounds with which products of contributions come to need more than 64 bits: at first those of means, then squares.

The square of what a unit of 40 rows contributes is just below 2^63 with 75 million."""
SCOPES = {"by norm": BY_NORM, "by sum": BY_SUM, "by group": BY_GROUP}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("most", LARGEST)
def test_64_bits_are_used_where_they_suffice(
    world: tuple[Connection, Any], monkeypatch: pytest.MonkeyPatch, most: int, scope: ClampScope
) -> None:
    """Histograms of clamps and sums are those of NUMERIC, at the ends of bounds and for units that exceed theirs."""
    _, owner = world
    hold(owner, extreme_rows(most))
    url = world[0].engine.backend._url
    require_the_same_of_wide_numbers(
        url, most, monkeypatch, "dpsql.backends.postgres.dialect.fits_int64", scope
    )


def extreme_rows(most: int, least: int = -(2**63)) -> list[Row]:
    """Rows at the ends of the bounds `most` and `-most` and beyond, of units within their bound of rows and beyond."""
    chance = random.Random(most)
    ends = [least, -most, -1, 0, most // 3, most, -least - 1, None]
    stored: list[Row] = [
        (
            unit,
            chance.choice([0, 1, 2, None]),
            "",
            chance.choice([-9.0, 0.3, 5.0, float("nan")]),
            chance.choice(ends),
        )
        for unit in range(12)
        for _ in range(chance.choice([1, 5, 40, 70]))
    ]
    # One has the greatest contribution to a single group, and one the least.
    return [*stored, *((unit, 1, "", 5.0, end) for unit, end in ((20, most), (21, -most)) for _ in range(40))]


def require_the_same_of_wide_numbers(
    database: Any, most: int, monkeypatch: pytest.MonkeyPatch, fits: str, scope: ClampScope
) -> None:
    """Asserts that a statement gives the same where `fits` holds of no number, so that all are of a wide type."""
    monkeypatch.setattr("dpsql.planning.choose._list_clamp_scopes", lambda *_: (scope,))
    monkeypatch.setattr("dpsql.planning.choose._iterate_unclamped", lambda *_: ())
    columns = {
        **POLICY["tables"]["t"]["columns"],
        "k": {"type": "integer", "values": [0, 1, 2]},
        "n": {"type": "integer", "bounds": [-most, most]},
    }
    # Sums over groups are limited where noise is of l1 norms.
    loss = {"accountant": "pure", "delta": 0} if scope == BY_SUM else {"accountant": "zcdp", "delta": 1e-6}
    policy = {
        **POLICY,
        "budget": {"epsilon": 10, **loss},
        "tables": {"t": {"unit": "u", "rows_per_unit": 40, "columns": columns}},
    }
    found = []
    for suffices in (True, False):
        if not suffices:
            for place in ("dpsql.backends.dialect.fits_int64", fits):
                monkeypatch.setattr(place, lambda _: False)
        with dpsql.connect(database, policy=policy, ledger=":memory:") as con:
            (part,) = plan_and_match(
                con.engine,
                Query("SELECT k, COUNT(*), SUM(n), SUM(x) FROM t GROUP BY k", epsilon=Fraction(1, 10)),
            ).releases
            rows = con.engine.backend.run_statement(part.statement.sql).reveal()
            found.append((part.statement.sql, sorted((list(map(in_order, row)) for row in rows), key=str)))
    (narrow, ours), (wide, theirs) = found
    assert any(
        (clamp.across_groups, clamp.euclidean) == (scope.across_groups, scope.euclidean)
        for clamp in part.plan.clamps
    )
    assert narrow != wide
    assert ours == theirs


def in_order(value: Any) -> Any:
    """The intervals of a histogram in their order, or another value."""
    return sorted(value) if isinstance(value, list) else value
