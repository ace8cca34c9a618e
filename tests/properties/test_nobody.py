"""Aggregates of nobody are NULL, as in SQL, wherever a count beside them says so; quantiles are in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**9, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "lvl": {"type": "integer", "bounds": [0, 100]},
                "cost": {"type": "double", "bounds": [-50, 50]},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
                "k": {"type": "varchar", "values": ["a", "b", "c"], "nullable": False},
            },
        }
    },
}


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    """A thousand people in two of three groups."""
    found = duckdb.connect()
    found.execute(
        """CREATE TABLE t AS SELECT i AS id, i % 6 AS lvl, (i % 40)::DOUBLE AS cost, DATE '2024-01-01' AS day,
           CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS k FROM range(1000) AS r(i)"""
    )
    return found


@pytest.fixture(scope="module")
def con(engine: duckdb.DuckDBPyConnection) -> Iterator[Connection]:
    """The same, privately."""
    with dpsql.connect(engine, policy=POLICY, ledger=":memory:", epsilon=1) as opened:
        yield opened


ALL = "AVG(lvl), MIN(lvl), MEDIAN(cost), MAX(day), QUANTILE_DISC(lvl, 0.3), SUM(cost), AVG(lvl + cost)"
OF_NOBODY = [
    f"SELECT COUNT(*), {ALL} FROM t WHERE lvl = 77",
    f"SELECT COUNT(DISTINCT id), {ALL} FROM t WHERE lvl = 77",
    "SELECT COUNT(lvl), MIN(lvl), MAX(lvl) FROM t WHERE lvl = 77",
    "SELECT COUNT(*) FILTER (WHERE lvl = 77), MAX(lvl) FILTER (WHERE lvl = 77), AVG(lvl) FILTER (WHERE lvl = 77) FROM t",
    "PIVOT (SELECT k, lvl FROM t WHERE k = 'a') ON lvl IN (1, 7) USING COUNT(*) AS n, MAX(lvl) AS m GROUP BY k",
    "SELECT MAX(lvl) + 1, COALESCE(MIN(lvl), -1), COUNT(*) FROM t WHERE lvl = 77",
    "SELECT SUM(m), COUNT(m), MAX(m) FROM (SELECT k, MAX(lvl) AS m, COUNT(*) AS n FROM t WHERE k = 'c' GROUP BY k) WHERE n >= 0",
    "SELECT AVG(lvl), MEDIAN(lvl) FROM t WHERE lvl = 77",
    "SELECT COUNT(*) FILTER (WHERE lvl = 77), MAX(lvl) FILTER (WHERE k = 'a'), COUNT(*) FILTER (WHERE k = 'a') FROM t",
]


@pytest.mark.parametrize("sql", OF_NOBODY)
def test_nulls_of_empty_groups_match_duckdb(
    sql: str, con: Connection, engine: duckdb.DuckDBPyConnection
) -> None:
    """NULL stands where DuckDB has it, and nowhere else, with hardly any noise."""
    expected = engine.execute(sql).fetchall() or [(None, 0, None)]
    for number in range(3):
        found = con.query(sql, epsilon=10**5 + number).rows
        assert [tuple(map(_rounded, row)) for row in found] == [tuple(map(_rounded, row)) for row in expected]


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def test_mean_of_nobody_alone_is_null(con: Connection) -> None:
    """Its count has noise of a fraction of a row, which is above zero in half of all cases."""
    for number in range(6):
        rows = con.query("SELECT k, AVG(cost) FROM t WHERE lvl = 77 GROUP BY k", epsilon=10**4 + number).rows
        assert [mean for _, mean in rows] == [None] * 3


@pytest.mark.parametrize("count", ["COUNT(*)", "COUNT(DISTINCT id)", "COUNT(lvl)"])
def test_shown_count_decides_on_null(count: str, con: Connection) -> None:
    """A mean, quantile or sum shown with a count that is not above zero is NULL, for any draw."""
    seen = set()
    for number in range(15):
        result = con.query(
            f"SELECT k, {count} AS n, AVG(lvl) AS a, MIN(lvl) AS b, MEDIAN(lvl) AS c, SUM(lvl) AS s "
            "FROM t WHERE lvl = 77 GROUP BY k",
            epsilon=1 + number / 1000,
        )
        for _, n, *values in result.rows:
            seen.add(n <= 0)
            assert n > 0 or values == [None] * 4
            assert n <= 0 or None not in values[1:3]
    assert seen == {True, False}


def test_quantiles_do_not_cross(con: Connection) -> None:
    """MIN <= quantiles <= MEDIAN <= MAX holds at any noise, and each is in its interval."""
    sql = (
        "SELECT k, MAX(cost), QUANTILE_CONT(cost, 0.9), MEDIAN(cost), QUANTILE_DISC(cost, 0.25), MIN(cost), "
        "DP_INTERVAL_LOW(MEDIAN(cost)), DP_INTERVAL_HIGH(MEDIAN(cost)), MIN(lvl), MAX(lvl) FROM t GROUP BY k"
    )
    for number in range(10):
        result = con.query(sql, epsilon=0.01 + number / 10**5)
        for row, ends in zip(result.rows, result.intervals(0.95), strict=True):
            values = list(row[1:6])
            assert values == sorted(values, reverse=True)
            assert row[6] <= row[3] <= row[7]
            assert row[8] <= row[9]
            assert ends[3] is not None
            assert ends[3][0] <= row[3] <= ends[3][1]


def test_uncounted_quantile_prints_a_notice(con: Connection) -> None:
    """A quantile alone over rows that a condition or a group may leave none of has a notice; with a count of its values it has none."""
    notice = "over no values it is a random value"
    for sql in (
        "SELECT MEDIAN(lvl) FROM t WHERE lvl = 77",
        "SELECT k, MAX(lvl) AS m FROM t GROUP BY k",
        "SELECT MAX(lvl) FILTER (WHERE k = 'c') FROM t",
    ):
        assert any(notice in each for each in con.query(sql).notices)
        beside = "COUNT(lvl) FILTER (WHERE k = 'c')" if "FILTER" in sql else "COUNT(lvl)"
        counted = sql.replace(" FROM", f", {beside} FROM")
        assert not any(notice in each for each in con.query(counted).notices)
    assert not any(notice in each for each in con.query("SELECT MEDIAN(lvl) FROM t").notices)
