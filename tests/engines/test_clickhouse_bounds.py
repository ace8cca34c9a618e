"""Contributions are bounded in ClickHouse as they are in DuckDB, and one unit's rows move statistics by no more than derived."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from engines.test_bounds import (
    LARGEST,
    POLICY,
    QUERIES,
    SCOPES,
    Row,
    extreme_rows,
    require_the_same_of_wide_numbers,
    require_within,
    rows,
    statistics,
)
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.clickhouse.values import emit_constant
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.aggregates import Moment
from dpsql.planning.build_clamps import ClampScope
from dpsql.planning.statistics import ROWS, UNITS
from dpsql.policy.request.query import Query

World = tuple[Connection, Callable[[Sequence[Row]], None]]


@pytest.fixture(scope="module")
def world(clickhouse: Any) -> Iterator[World]:
    """A connection to a table, and what fills it anew."""

    def hold(held: Sequence[Row]) -> None:
        clickhouse.query("TRUNCATE TABLE bounds.t")
        if held:
            listed = ", ".join(f"({', '.join(map(emit_constant, row))})" for row in held)
            clickhouse.query(f"INSERT INTO bounds.t VALUES {listed}")

    clickhouse.query("DROP DATABASE IF EXISTS bounds")
    clickhouse.query("CREATE DATABASE bounds")
    declared = (
        "u Nullable(Int32), k Nullable(Int32), s Nullable(String), x Nullable(Float64), n Nullable(Int64)"
    )
    clickhouse.query(f"CREATE TABLE bounds.t ({declared}) ENGINE = MergeTree ORDER BY tuple()")
    clickhouse.query("USE bounds")
    with dpsql.connect(clickhouse, policy=POLICY, ledger=":memory:") as con:
        yield con, hold


def exact(world: World, sql: str, held: Sequence[Row]) -> Any:
    con, hold = world
    hold(held)
    (part,) = plan_and_match(con.engine, Query(sql, epsilon=Fraction(10**15))).releases
    return part, statistics(con, part)


@pytest.mark.parametrize("sql", QUERIES)
def test_unit_moves_statistics_within_their_sensitivity(world: World, sql: str) -> None:
    """Without a unit, each vector differs by at most its l1 sensitivity; groups and rows of others stay as they are."""
    for seed in range(examples(12, 3)):
        chance = random.Random(f"{sql} {seed}")
        others = [row for unit in range(4) for row in rows(chance, unit)]
        both = [*others, *rows(chance, 9), *rows(chance, 9)]
        chance.shuffle(both)
        part, with_one = exact(world, sql, both)
        chance.shuffle(others)
        _, without = exact(world, sql, others)
        require_within(part, with_one, without, (sql, seed))


def test_bound_is_attained(world: World) -> None:
    """A unit of many rows and groups counts with as many as may, and a value where no row of its group counts."""
    _, found = exact(world, QUERIES[1], [(9, k, "a", 5.0, 7) for k in (0, 1, 2) for _ in range(5)])
    assert sum(group[ROWS] for group in found.values()) == 3
    assert sum(group[UNITS] for group in found.values()) <= 2
    _, found = exact(world, QUERIES[3], [(9, k, f"v{k}", 1.0, 1) for k in (0, 1, 2)])
    assert sum(group[ROWS] for group in found.values()) == 2
    assert sum(group[Moment.DISTINCT, 0] for group in found.values()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("most", LARGEST)
def test_64_bits_are_used_where_they_suffice(
    world: World, clickhouse: Any, monkeypatch: pytest.MonkeyPatch, most: int, scope: ClampScope
) -> None:
    """Histograms of clamps and sums are those of Int128, at the ends of bounds and for units that exceed theirs."""
    _, hold = world
    hold(extreme_rows(most))
    clickhouse.query("USE bounds")
    require_the_same_of_wide_numbers(
        clickhouse, most, monkeypatch, "dpsql.backends.clickhouse.dialect.fits_int64", scope
    )
