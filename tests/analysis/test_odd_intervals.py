"""Intervals and domains of queries that nobody would write: a refusal or an answer, never another error."""

from __future__ import annotations

import datetime as dt

import pytest
from worlds import observed, person, prepared, world

HUGE = " * ".join(["1e308"] * 20)
ODD = [
    f"SELECT SUM({HUGE} * age) FROM people",
    f"SELECT SUM(age / 3 - {HUGE}) FROM people",
    "SELECT SUM(CASE 1e18 WHEN NULL THEN HOUR(DATE_TRUNC('day', DATE_TRUNC('week', NULL))) END) FROM people",
    "SELECT COUNT(*) FROM people WHERE NULL = 1e18 AND EXTRACT(year FROM NULL) > 3",
]


@pytest.mark.parametrize("sql", ODD)
def test_ends_beyond_every_float_and_calendar_are_handled(sql: str) -> None:
    """An interval beyond the largest float, or of NULL, ends in a refusal or an answer of dpsql's own."""
    outcome, _ = observed(world(person(1)), sql)
    assert outcome.error is None or outcome.error[0] == "QueryRejected"
    assert len(str(outcome.error)) < 2_000


def test_case_of_days_and_moments_has_one_form() -> None:
    """CASE over a DATE and a TIMESTAMP is a TIMESTAMP: each key stands once, and holds its rows."""
    connection = world(*(person(who, day="2020-02-29") for who in range(50)))
    sql = "SELECT CASE WHEN age > 3 THEN day ELSE DATE_TRUNC('month', day) END AS k, COUNT(*) FROM people GROUP BY k"
    domains = prepared(connection, sql).plan.analysis.domains
    assert domains is not None
    assert len(domains[0]) == len(set(map(str, domains[0]))) == 366 + 1
    counts = dict(connection.query(sql, epsilon=40).rows)
    assert counts[dt.datetime(2020, 2, 29)] > 40  # type: ignore[operator]
