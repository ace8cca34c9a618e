"""Windows, quantiles and choices within a unit on ClickHouse: exactly what DuckDB has, or refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from engines import clicks, unit_rows
from engines.test_fixtures import Pair
from engines.test_spark_fixtures import exact
from engines.test_unit_rows import prepared

import dpsql
from tests.sql.study import NO_NOISE


@pytest.fixture(scope="module")
def pair(clickhouse: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with unit_rows.database() as source:
        clicks.load(source, clickhouse, tmp_path_factory.mktemp("unit_rows"), "unit_rows")
    options: dict[str, Any] = {"ledger": ":memory:", "epsilon": NO_NOISE}
    policy = copy.deepcopy(unit_rows.POLICY)
    for name in ("uid", "h"):
        del policy["tables"]["t"]["columns"][name]
    with (
        dpsql.connect(unit_rows.database(), policy=policy, **options) as ours,
        dpsql.connect(clickhouse, policy=policy, **options) as theirs,
    ):
        yield Pair(ours, theirs)


def of_read_columns(texts: tuple[str, ...]) -> list[str]:
    """Those that read no BLOB."""
    return [text for text in texts if "(h" not in text and " h" not in text]


def is_refused(window: str) -> bool:
    """Whether a window is one of those that the reference of engines leaves out; no rank depends on a frame."""
    return "IGNORE NULLS" in window or ("EXCLUDE" in window and not window.startswith("RANK"))


WINDOWS = of_read_columns((*unit_rows.WINDOWS, *unit_rows.VALUED, *unit_rows.FRAMES))


@pytest.mark.parametrize("window", [text for text in WINDOWS if not is_refused(text)])
def test_windows_match_duckdb(pair: Pair, window: str) -> None:
    """Whatever rows are equal in order, and whatever values are special, sums of a window's values are DuckDB's."""
    sql = unit_rows.of_windows((window,))
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))


@pytest.mark.parametrize("window", [text for text in WINDOWS if is_refused(text)])
def test_windows_without_a_spelling_are_refused(pair: Pair, window: str) -> None:
    """ClickHouse has no EXCLUDE, and no LAG with an offset that is computed, by which NULL would be ignored."""
    sql = unit_rows.of_windows((window,))
    prepared(pair.duckdb, sql)
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(pair.other, sql)
    assert caught.value.code == "engine"


@pytest.mark.parametrize("aggregate", of_read_columns(unit_rows.AGGREGATES))
@pytest.mark.parametrize("key", ["k", "yes"])
def test_aggregates_of_a_unit_match_duckdb(pair: Pair, aggregate: str, key: str) -> None:
    """Sums of aggregates of each unit's rows are DuckDB's, by a key that may be NULL."""
    sql = unit_rows.of_groups((aggregate,), key)
    assert exact(pair.other, prepared(pair.other, sql)) == exact(pair.duckdb, prepared(pair.duckdb, sql))
