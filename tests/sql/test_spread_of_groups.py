"""Variances, correlations and medians of exact groups: of one unit's rows, of released rows and of public rows."""

from __future__ import annotations

import itertools

import pytest

from dpsql.api.connection import Connection
from tests.sql.study import clinic

CALLS = (
    "VAR_POP(age)",
    "VAR_SAMP(cost)",
    "STDDEV_POP(cost)",
    "STDDEV(age)",
    "COVAR_POP(age, cost)",
    "COVAR_SAMP(cost, age)",
    "CORR(age, cost)",
    "REGR_R2(cost, age)",
    "MEDIAN(cost)",
    "MEDIAN(age) FILTER (WHERE urgent)",
)
"""With NULLs: of some patients no value is left, of others one."""
OTHERS = (
    "SELECT COUNT(v), COUNT(i) FROM (SELECT REGR_SLOPE(cost, age) AS v, REGR_INTERCEPT(cost, age) AS i FROM visits GROUP BY patient_id) WHERE v > 0",
    "SELECT STDDEV(n), VAR_POP(n), MEDIAN(n), CORR(n, s) FROM (SELECT plan, urgent, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY plan, urgent)",
    "SELECT STDDEV(price), MEDIAN(price), CORR(price, price), VAR_SAMP(id) FROM plans, regions",
    "SELECT country, STDDEV(id), MEDIAN(id) FROM regions GROUP BY country",
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("by", ["patient_id", "patient_id, urgent"])
def test_spread_over_a_unit_s_rows_matches_duckdb(connection: Connection, call: str, by: str) -> None:
    """The value of each unit is DuckDB's; and it has bounds, since it is added up."""
    _assert_alike(
        connection, f"SELECT SUM(v), COUNT(v), COUNT(*) FROM (SELECT {call} AS v FROM visits GROUP BY {by})"
    )


@pytest.mark.parametrize("sql", OTHERS)
def test_spread_over_released_and_public_rows_matches_duckdb(connection: Connection, sql: str) -> None:
    """The spread of released groups and of public rows is DuckDB's."""
    _assert_alike(connection, sql)


DISTINCT = (
    "SELECT VAR_POP(DISTINCT age), VAR_SAMP(DISTINCT age), STDDEV_POP(DISTINCT cost), VARIANCE(DISTINCT cost) FROM visits",
    "SELECT plan, STDDEV(DISTINCT age), VAR_SAMP(DISTINCT age) FILTER (WHERE cost > 100) FROM visits GROUP BY plan",
    "SELECT VAR_POP(DISTINCT age) FROM visits WHERE age > 1000",
    "SELECT SUM(v), COUNT(v) FROM (SELECT VAR_SAMP(DISTINCT cost) AS v FROM visits GROUP BY patient_id)",
    "SELECT SUM(v), COUNT(v) FROM (SELECT STDDEV_POP(DISTINCT age) AS v FROM visits GROUP BY patient_id, urgent)",
    "SELECT VAR_POP(DISTINCT id % 2), STDDEV(DISTINCT id) FROM regions",
    "SELECT STDDEV(DISTINCT n) FROM (SELECT plan, urgent, COUNT(*) AS n FROM visits GROUP BY plan, urgent)",
)


@pytest.mark.parametrize("sql", DISTINCT)
def test_spread_of_distinct_values_matches_duckdb(connection: Connection, sql: str) -> None:
    """Each value counts once: across units, of a unit's rows, of released and of public ones."""
    _assert_alike(connection, sql)


def _assert_alike(connection: Connection, sql: str) -> None:
    ours = sorted(connection.query(sql).rows, key=str)
    with clinic() as plain:
        theirs = sorted(plain.execute(sql).fetchall(), key=str)
    assert len(ours) == len(theirs)
    for mine, its in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert mine == (pytest.approx(its, rel=1e-6, abs=1e-6) if isinstance(its, float) else its)
