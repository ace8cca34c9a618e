"""Windows, quantiles and choices within a unit on PostgreSQL: exactly what DuckDB has, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from engines import unit_rows
from engines.loading import database, grant, load
from engines.test_fixtures import Pair, exact
from postgres import Server

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.policy.request.query import Query
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.per_unit_aggregates import build_quantile_place
from tests.sql.study import NO_NOISE

_OPTIONS: dict[str, Any] = {"ledger": ":memory:", "epsilon": NO_NOISE}


@pytest.fixture(scope="module")
def pair(server: Server) -> Iterator[Pair]:
    with database(server, "unit_rows") as (url, owner), unit_rows.database() as source:
        load(source, owner)
        grant(owner)
        with (
            dpsql.connect(unit_rows.database(), policy=unit_rows.POLICY, **_OPTIONS) as ours,
            dpsql.connect(url, policy=unit_rows.POLICY, **_OPTIONS) as theirs,
        ):
            yield Pair(ours, theirs)


def prepared(connection: Connection, sql: str) -> QueryRun:
    """A query that is told exactly."""
    return plan_and_match(connection.engine, Query(sql, epsilon=Fraction(NO_NOISE)))


@pytest.mark.parametrize("window", [*unit_rows.WINDOWS, *unit_rows.VALUED, *unit_rows.FRAMES])
def test_windows_match_duckdb(pair: Pair, window: str) -> None:
    """Whatever rows are equal in order, and whatever values are special, sums of a window's values are DuckDB's."""
    sql = unit_rows.of_windows((window,))
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))


@pytest.mark.parametrize("aggregate", [*unit_rows.AGGREGATES, *unit_rows.UUIDS])
@pytest.mark.parametrize("key", ["k", "yes"])
def test_aggregates_of_a_unit_match_duckdb(pair: Pair, aggregate: str, key: str) -> None:
    """Sums of aggregates of each unit's rows are DuckDB's, by a key that may be NULL."""
    sql = unit_rows.of_groups((aggregate,), key)
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))


def test_frames_that_ignore_nulls_and_exclude_rows_are_refused(pair: Pair) -> None:
    """The values of such a frame do not follow one another; nothing is charged."""
    prepared(pair.duckdb, unit_rows.of_windows((unit_rows.EXCLUDED,)))
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(pair.other, unit_rows.of_windows((unit_rows.EXCLUDED,)))
    assert caught.value.code == "engine"


@pytest.mark.parametrize(
    "value",
    [
        *("QUANTILE_CONT(x, 0.25)", "QUANTILE_CONT(n, 0.3)", "QUANTILE_CONT(raw, 0.25)"),
        "QUANTILE_DISC(x, 0.1234567)",
    ],
)
def test_quantiles_with_inexact_last_digits_are_refused(pair: Pair, value: str) -> None:
    """Interpolation is rounded by the processor; long ranks do not fit whole numbers."""
    prepared(pair.duckdb, unit_rows.of_groups((value,)))
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(pair.other, unit_rows.of_groups((value,)))
    assert caught.value.code == "engine"


def test_places_of_quantiles_match_duckdb() -> None:
    """For every number of values up to 200, the place of a quantile is the one that DuckDB takes."""
    ranks = [
        Fraction(rank) for rank in ("0", "1", "0.5", "0.1", "0.07", "0.3", "0.333333", "0.29", "0.999999")
    ]
    counts = Column("n", "n", ColumnInfo(Type.INTEGER, "", Interval(1, 200)))
    places = ", ".join(DUCKDB_COMPILER.emit_expression(build_quantile_place(counts, rank)) for rank in ranks)
    taken = ", ".join(f"QUANTILE_DISC(v, {float(rank)!r})" for rank in ranks)
    rows = "(SELECT n, UNNEST(RANGE(1, n + 1)) AS v FROM RANGE(1, 201) AS n(n)) AS n"
    found = duckdb.sql(f"SELECT n, {places} FROM RANGE(1, 201) AS n(n) ORDER BY n").fetchall()
    assert found == duckdb.sql(f"SELECT n, {taken} FROM {rows} GROUP BY n ORDER BY n").fetchall()
