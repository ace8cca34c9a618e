"""Windows, quantiles and choices within a unit on Spark: exactly what DuckDB has, or refused.

Several stand in one statement, and Spark reads several files, in tasks some of which are tried twice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from engines import sparks, unit_rows
from engines.test_fixtures import Pair
from engines.test_spark_fixtures import exact
from engines.test_unit_rows import prepared

import dpsql
from tests.sql.study import NO_NOISE

pytestmark = sparks.WARNINGS


@pytest.fixture(scope="module")
def pair(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with unit_rows.database() as source:
        sparks.load(source, spark, tmp_path_factory.mktemp("unit_rows"), "unit_rows")
    spark.catalog.setCurrentDatabase("unit_rows")
    options: dict[str, Any] = {"ledger": ":memory:", "epsilon": NO_NOISE}
    policy = copy.deepcopy(unit_rows.POLICY)
    del policy["tables"]["t"]["columns"]["uid"]
    with (
        dpsql.connect(unit_rows.database(), policy=policy, **options) as ours,
        dpsql.connect(spark, policy=policy, **options) as theirs,
    ):
        yield Pair(ours, theirs)


def some(values: tuple[str, ...], many: int) -> list[tuple[str, ...]]:
    """The values, so many at a time."""
    return [values[at : at + many] for at in range(0, len(values), many)]


@pytest.mark.slow
@pytest.mark.sampled(100)
@pytest.mark.parametrize("windows", some((*unit_rows.WINDOWS, *unit_rows.VALUED), 2))
def test_windows_match_duckdb(pair: Pair, windows: tuple[str, ...]) -> None:
    """Whatever rows are equal in order, and whatever values are special, sums of windows' values are DuckDB's."""
    sql = unit_rows.of_windows(windows)
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))


@pytest.mark.slow
@pytest.mark.sampled(100)
@pytest.mark.parametrize("aggregates", some(unit_rows.AGGREGATES, 2))
def test_aggregates_of_a_unit_match_duckdb(pair: Pair, aggregates: tuple[str, ...]) -> None:
    """Sums of aggregates of each unit's rows are DuckDB's."""
    sql = unit_rows.of_groups(aggregates)
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        *(unit_rows.of_windows((window,)) for window in unit_rows.FRAMES),
        unit_rows.of_groups(("QUANTILE_CONT(x, 0.3)",)),
    ],
)
def test_unsupported_frames_and_quantiles_are_refused(pair: Pair, sql: str) -> None:
    """Frames that Spark does not have, and quantiles that processors round differently; nothing is charged."""
    prepared(pair.duckdb, sql)
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(pair.other, sql)
    assert caught.value.code == "engine"
