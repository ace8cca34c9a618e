"""Contributions are bounded in Spark as they are in DuckDB, and one unit's rows move statistics by no more than derived."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from engines import sparks
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
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.aggregates import Moment
from dpsql.planning.build_clamps import ClampScope
from dpsql.planning.statistics import ROWS, UNITS
from dpsql.policy.request.query import Query

pytestmark = [*sparks.WARNINGS, pytest.mark.slow]
SCHEMA = pyarrow.schema(
    [
        ("u", pyarrow.int32()),
        ("k", pyarrow.int32()),
        ("s", pyarrow.string()),
        ("x", pyarrow.float64()),
        ("n", pyarrow.int32()),
    ]
)
World = tuple[Connection, Callable[[Sequence[Row]], None]]


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A connection to a table, and what fills it anew, in two files."""
    folder = tmp_path_factory.mktemp("bounds") / "t"

    def hold(held: Sequence[Row]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for part in range(2):
            series = [list(column) for column in zip(*held[part::2], strict=True)] or [[]] * len(SCHEMA)
            table = pyarrow.table(
                [pyarrow.array(column, kind.type) for column, kind in zip(series, SCHEMA, strict=True)],
                SCHEMA,
            )
            pyarrow.parquet.write_table(table, folder / f"{random.getrandbits(64)}.parquet")

    spark.sql("CREATE SCHEMA IF NOT EXISTS bounds")
    spark.catalog.setCurrentDatabase("bounds")
    hold([])
    spark.sql("DROP TABLE IF EXISTS t")
    spark.sql(f"CREATE TABLE t (u INT, k INT, s STRING, x DOUBLE, n INT) USING parquet LOCATION '{folder}'")
    with dpsql.connect(spark, policy=POLICY, ledger=":memory:") as con:
        yield con, hold


def exact(world: World, sql: str, held: Sequence[Row]) -> Any:
    con, hold = world
    hold(held)
    (part,) = plan_and_match(con.engine, Query(sql, epsilon=Fraction(10**15))).releases
    with con.engine.backend.open_snapshot():  # which looks for the files anew
        return part, statistics(con, part)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sql", QUERIES)
def test_unit_moves_statistics_within_their_sensitivity(world: World, sql: str) -> None:
    """Without a unit, each vector differs by at most its l1 sensitivity; groups and rows of others stay as they are."""
    for seed in range(examples(8, 1)):
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


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("most", [size for size in LARGEST if size < 2**31])
def test_64_bits_are_used_where_they_suffice(
    world: World, spark: Any, monkeypatch: pytest.MonkeyPatch, most: int, scope: ClampScope
) -> None:
    """Histograms of clamps and sums are those of DECIMAL, at the ends of bounds and for units that exceed theirs."""
    _, hold = world
    hold(extreme_rows(most, -(2**31)))
    spark.catalog.setCurrentDatabase("bounds")
    require_the_same_of_wide_numbers(
        spark, most, monkeypatch, "dpsql.backends.spark.dialect.fits_int64", scope
    )
