"""Intervals follow a released value through subqueries, unions, grouping sets, and what is computed of it.

The interval of a noisy COUNT or SUM, or of one with a factor and a shift, has the value in its middle. Noise is drawn for each, so that the interval
of another row, or of another aggregate, would not.
"""

from __future__ import annotations

import pytest

import dpsql

N = "COUNT(*) AS n, SUM(cost) AS cost"
TRACED = {
    "grouping sets": f"SELECT plan, {N} FROM visits GROUP BY ROLLUP (plan) ORDER BY n DESC",
    "a subquery": f"SELECT cost, n FROM (SELECT plan, {N} FROM visits GROUP BY plan ORDER BY cost LIMIT 2) ORDER BY plan",
    "a condition on a common table": f"WITH t AS (SELECT plan, {N} FROM visits GROUP BY plan) SELECT n FROM t WHERE n > 0 ORDER BY cost",
    "a union": f"SELECT plan, {N} FROM visits GROUP BY plan UNION ALL SELECT 'all', {N} FROM visits ORDER BY cost",
    "unions within unions": f"""
        SELECT a FROM (SELECT COUNT(*) AS a FROM visits UNION ALL
            (SELECT n FROM (SELECT plan, {N} FROM visits GROUP BY ROLLUP (plan)) WHERE plan IS NULL OR plan = 'A')
            UNION ALL SELECT SUM(cost) FROM visits GROUP BY plan)
        ORDER BY a LIMIT 4 OFFSET 1""",
    "factors and shifts": f"""
        SELECT n * 2 + 1 AS a, 100 - n AS b, -cost / 1000 AS c, 3 * (cost - 5) AS d
        FROM (SELECT plan, {N} FROM visits GROUP BY ROLLUP (plan)) ORDER BY plan DESC""",
    "a window beside it": f"SELECT n, RANK() OVER (ORDER BY cost) AS place FROM (SELECT plan, {N} FROM visits GROUP BY plan)",
}
DERIVED = {
    "two aggregates": "SELECT SUM(cost) / COUNT(*) AS mean FROM visits",
    "no linear function": "SELECT ABS(COUNT(*)), 1 / COUNT(*), COUNT(*) * COUNT(*) FROM visits",
    "a subquery": f"SELECT cost / n AS mean FROM (SELECT plan, {N} FROM visits GROUP BY plan ORDER BY cost LIMIT 2)",
    "a union": f"SELECT cost - n AS d FROM (SELECT {N} FROM visits UNION ALL SELECT {N} FROM visits GROUP BY plan)",
    "grouping sets": "SELECT STDDEV(cost) FROM visits GROUP BY ROLLUP (plan)",
}
UNTRACED = {
    "another release": "SELECT COUNT(*) / (SELECT COUNT(*) FROM visits) FROM visits",
    "distinct rows": f"SELECT DISTINCT n FROM (SELECT plan, {N} FROM visits GROUP BY plan)",
    "a union of distinct rows": "SELECT COUNT(*) FROM visits UNION SELECT SUM(cost) FROM visits",
    "groups of groups": f"SELECT MAX(n) FROM (SELECT plan, {N} FROM visits GROUP BY plan)",
    "a join": f"WITH t AS (SELECT plan, {N} FROM visits GROUP BY plan) SELECT a.n FROM t a JOIN t b ON a.plan = b.plan",
}


@pytest.mark.parametrize("sql", TRACED.values(), ids=TRACED)
def test_the_interval_is_that_of_the_value(con: dpsql.Connection, sql: str) -> None:
    """Each noisy cell has the middle of its interval as its value, and a scale that fits its width.

    Counts are whole numbers less than one from it, so that totals are the sums of their parts; one is doubled.
    """
    result = con.query(sql, epsilon=0.5)
    noisy = 0
    assert len(result) > 1
    for row, scales, intervals in zip(result.rows, result.scales, result.intervals(0.95), strict=True):
        for value, scale, ends in zip(row, scales, intervals, strict=True):
            if ends is None:
                assert scale is None
                continue
            noisy += 1
            assert isinstance(value, (int, float))
            assert scale is not None
            assert sum(ends) / 2 == pytest.approx(value, abs=2)
            assert 1.5 * scale < (ends[1] - ends[0]) / 2 < 2.5 * scale
    assert noisy >= len(result)


@pytest.mark.parametrize("sql", DERIVED.values(), ids=DERIVED)
def test_derived_values_have_intervals_around_them(con: dpsql.Connection, sql: str) -> None:
    """A cell computed from one released row has an interval around its value, and no scale.

    At ε = 0.5 noise made the variance of a group so negative, in one of a thousand runs, that the deviation was surely 0.
    """
    result = con.query(sql, epsilon=2)
    assert len(result) > 0
    assert set(sum(result.scales, ())) == {None}
    for row, intervals in zip(result.rows, result.intervals(), strict=True):
        for value, ends in zip(row, intervals, strict=True):
            assert isinstance(value, (int, float))
            assert ends is not None
            assert ends[0] <= value <= ends[1]
            assert ends[0] < ends[1]


@pytest.mark.parametrize("sql", UNTRACED.values(), ids=UNTRACED)
def test_values_of_several_origins_have_no_interval(con: dpsql.Connection, sql: str) -> None:
    """Neither interval nor scale, rather than ones that are too narrow."""
    result = con.query(sql, epsilon=0.5)
    assert set(sum(result.scales, ())) == {None}
    assert set(sum(result.intervals(), ())) == {None}
