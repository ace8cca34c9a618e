"""Aggregates that are computed from means, counts, medians and listed values give DuckDB's values without noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.api.connection import Connection
from tests.sql.study import clinic, prepare, study


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    """The clinic, without noise."""
    with study() as opened:
        yield opened


def _is_near(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(_is_near, ours, theirs))
    if isinstance(ours, float) and theirs is not None:
        return math.isclose(ours, float(theirs), rel_tol=1e-2, abs_tol=1e-6)
    return bool(ours == theirs)


ANSWERED = [
    "SELECT SKEWNESS(age), KURTOSIS(age), KURTOSIS_POP(cost), SEM(age), SKEWNESS(cost) FILTER (WHERE age > 40) FROM visits",
    "SELECT plan, REGR_AVGX(age, cost), REGR_AVGY(age, cost), REGR_SXX(age, cost), REGR_SYY(age, cost) FROM visits GROUP BY plan ORDER BY plan",
    "SELECT REGR_SXY(age, cost), REGR_SXY(cost, age) FILTER (WHERE plan = 'A') FROM visits",
    "SELECT SKEWNESS(n), KURTOSIS(n), SEM(n), WAVG(n, region) FROM (SELECT region, plan, COUNT(*) AS n FROM visits GROUP BY region, plan)",
    "SELECT COUNT(s), COUNT(k) FROM (SELECT SKEWNESS(cost) AS s, KURTOSIS(cost) AS k FROM visits GROUP BY patient_id)",
    "SELECT MAD(age), MAD(cost), COUNT(*) FROM visits WHERE plan = 'A'",
    "SELECT MAD(age) FILTER (WHERE cost > 500) FROM visits",
    "WITH v AS (SELECT * FROM visits WHERE age > 30) SELECT MAD(v.age) FROM v JOIN regions r ON v.region = r.id",
    "SELECT MODE(note), ENTROPY(plan), ENTROPY(region), ENTROPY(age > 40) FROM visits",
    "SELECT plan, WAVG(age, cost), WEIGHTED_AVG(cost, age) FROM visits GROUP BY plan ORDER BY plan",
    "SELECT LIST(DISTINCT plan ORDER BY plan), COUNT(*) FROM visits",
    "SELECT LIST(DISTINCT note ORDER BY note DESC), ARRAY_AGG(DISTINCT region ORDER BY region NULLS FIRST) FROM visits",
    "SELECT LIST(DISTINCT note ORDER BY note) FILTER (WHERE note IS NOT NULL AND cost > 10) FROM visits WHERE plan = 'A'",
    "SELECT STRING_AGG(DISTINCT note, ', ' ORDER BY note), LISTAGG(DISTINCT plan ORDER BY plan DESC) FROM visits",
    "SELECT LIST(DISTINCT UPPER(plan) ORDER BY UPPER(plan)) AS kinds FROM visits HAVING COUNT(*) > 3",
]


@pytest.mark.parametrize("sql", ANSWERED)
def test_derived_aggregates_are_those_of_duckdb(connection: Connection, sql: str) -> None:
    """Quantiles are as near as the grid that they are selected from, and sums of powers as their lattice."""
    ours, theirs = connection.query(sql).rows, clinic().execute(sql).fetchall()
    assert len(ours) == len(theirs)
    assert all(
        _is_near(a, b)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine, other, strict=True)
    )


def test_nobody_has_no_shape(connection: Connection) -> None:
    """Without rows there are no moments, no list and no text, and the entropy is zero."""
    sql = "SELECT SKEWNESS(age), KURTOSIS(age), SEM(age), MODE(note), ENTROPY(plan), LIST(DISTINCT note) FROM visits WHERE cost < -1"
    assert connection.query(sql).rows == (*clinic().execute(sql).fetchall(),)


TRANSLATED = [
    ("postgres", "SELECT rank(45) WITHIN GROUP (ORDER BY age) FROM visits", "SELECT 1 + COUNT(*) FROM visits WHERE age < 45"),
    ("postgres", "SELECT rank(45) WITHIN GROUP (ORDER BY age DESC) FROM visits", "SELECT 1 + COUNT(*) FROM visits WHERE age > 45 OR age IS NULL"),
    ("postgres", "SELECT dense_rank(45) WITHIN GROUP (ORDER BY age DESC) FROM visits", "SELECT 2 + COUNT(DISTINCT age) FROM visits WHERE age > 45"),
    ("postgres", "SELECT percent_rank(45) WITHIN GROUP (ORDER BY age) FROM visits", "SELECT COUNT_IF(age < 45) / COUNT(*) FROM visits"),
    ("postgres", "SELECT cume_dist(45) WITHIN GROUP (ORDER BY age) FROM visits", "SELECT (COUNT_IF(age <= 45) + 1) / (COUNT(*) + 1) FROM visits"),
    ("postgres", "SELECT percentile_cont(ARRAY[0.1, 0.5]) WITHIN GROUP (ORDER BY age DESC) FROM visits", "SELECT QUANTILE_CONT(age, [0.9, 0.5]) FROM visits"),
    ("postgres", "SELECT array_agg(DISTINCT note ORDER BY note DESC) FROM visits", "SELECT LIST(DISTINCT note ORDER BY note DESC NULLS FIRST) FROM visits"),
    ("bigquery", "SELECT APPROX_QUANTILES(age, 2) FROM visits", "SELECT QUANTILE_DISC(age, [0, 0.5, 1]) FROM visits"),
    ("bigquery", "SELECT ARRAY_AGG(DISTINCT note IGNORE NULLS ORDER BY note) FROM visits", "SELECT LIST(DISTINCT note ORDER BY note) FILTER (WHERE note IS NOT NULL) FROM visits"),
    ("bigquery", "SELECT k, COUNT(*) FROM (SELECT patient_id, ARRAY_AGG(note ORDER BY seen DESC LIMIT 1)[OFFSET(0)] AS k FROM visits GROUP BY 1) GROUP BY k ORDER BY k", "SELECT k, COUNT(*) FROM (SELECT patient_id, LIST(note ORDER BY seen DESC)[1] AS k FROM visits GROUP BY 1) GROUP BY k ORDER BY k NULLS FIRST"),
    ("bigquery", "SELECT k, COUNT(*) FROM (SELECT patient_id, ARRAY_AGG(note IGNORE NULLS ORDER BY seen)[SAFE_OFFSET(0)] AS k FROM visits GROUP BY 1) GROUP BY k ORDER BY k", "SELECT k, COUNT(*) FROM (SELECT patient_id, (LIST(note ORDER BY seen) FILTER (WHERE note IS NOT NULL))[1] AS k FROM visits GROUP BY 1) GROUP BY k ORDER BY k"),
    ("bigquery", "SELECT ANY_VALUE(plan HAVING MIN c) FROM (SELECT plan, SUM(cost) AS c FROM visits GROUP BY plan)", "SELECT ARG_MIN(plan, c) FROM (SELECT plan, SUM(cost) AS c FROM visits GROUP BY plan)"),
    ("snowflake", "SELECT LISTAGG(DISTINCT plan) WITHIN GROUP (ORDER BY plan) FROM visits", "SELECT 'ABC'"),
    ("snowflake", "SELECT SKEW(age), KURTOSIS(age), HLL(patient_id) FROM visits", "SELECT SKEWNESS(age), KURTOSIS(age), 60 FROM visits"),
    ("spark", "SELECT sort_array(collect_set(note)) FROM visits", "SELECT LIST(DISTINCT note ORDER BY note) FILTER (WHERE note IS NOT NULL) FROM visits"),
    ("spark", "SELECT percentile_approx(age, array(0.25, 0.5), 1000), mean(age), kurtosis(age) FROM visits", "SELECT QUANTILE_DISC(age, [0.25, 0.5]), AVG(age), KURTOSIS_POP(age) FROM visits"),
    ("spark", "SELECT skewness(age) FROM visits", "SELECT AVG(((age - m) / s) ** 3) FROM visits, (SELECT AVG(age) AS m, STDDEV_POP(age) AS s FROM visits)"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "sql", "means"), TRANSLATED)
def test_aggregates_of_other_dialects_have_their_meaning(dialect: str, sql: str, means: str) -> None:
    """What DuckDB writes in another way gives the same values."""
    with study(dialect) as opened:
        ours = opened.query(sql).rows
    theirs = clinic().execute(means).fetchall()
    assert len(ours) == len(theirs)
    assert all(
        _is_near(a, b)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine, other, strict=True)
    )


REFUSED = [
    ("SELECT LIST(note) FROM visits", "aggregate"),
    ("SELECT LIST(DISTINCT note ORDER BY cost) FROM visits", "aggregate"),
    ("SELECT plan, LIST(DISTINCT note) FROM visits GROUP BY plan", "aggregate"),
    ("SELECT LIST(DISTINCT patient_id) FROM visits", "group_by_unit"),
    ("SELECT STRING_AGG(DISTINCT note, plan) FROM visits", "constant"),
    ("SELECT ENTROPY(note) FROM visits", "aggregate"),
    ("SELECT MODE(cost) FROM visits", "mode"),
    ("SELECT plan, MAD(cost) FROM visits GROUP BY plan", "aggregate"),
]


@pytest.mark.parametrize(("sql", "code"), REFUSED)
def test_what_would_show_single_rows_is_refused(connection: Connection, sql: str, code: str) -> None:
    """A list without DISTINCT has a value for each private row."""
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(connection, sql)
    assert refused.value.code == code
