"""Dates of other dialects are computed as their manuals define, on each day that is tried: compared with Python's calendar."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pytest

from dpsql.api.connection import Connection

DAYS_OF_WEEK = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
EDGES = (
    dt.date(2, 1, 1), dt.date(1969, 12, 28), dt.date(1969, 12, 29), dt.date(1970, 1, 4), dt.date(1970, 1, 5),
    dt.date(2000, 2, 29), dt.date(2024, 2, 29), dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(9999, 12, 1),
)  # fmt: skip
"""Ends of the calendar and of years, leap days, and the days around 1970."""


def draw_days(seed: int, count: int) -> list[dt.date]:
    """Days of all years, and the edges."""
    drawn = random.Random(seed)
    return [
        *EDGES,
        *(dt.date.fromordinal(drawn.randrange(400, dt.date.max.toordinal() - 40)) for _ in range(count)),
    ]


def compute(connection: Connection, dialect: str, items: Sequence[str]) -> list[Any]:
    """The values of constant expressions of a dialect."""
    (row,) = connection.query(f"SELECT {', '.join(items)}", dialect=dialect).rows
    return list(row)


def find_first_day(day: dt.date, start: int) -> dt.date:
    """The first day of the week of a day, when weeks begin on `start`."""
    return day - dt.timedelta(days=(day.weekday() - start) % 7)


@pytest.mark.parametrize("start", range(7))
def test_bigquery_weeks_begin_on_the_given_day(connection: Connection, start: int) -> None:
    """DATE_TRUNC, DATE_DIFF and EXTRACT of WEEK(day), the last counted from the first such day of the year."""
    days = draw_days(start, 60)
    unit = f"WEEK({DAYS_OF_WEEK[start]})"
    cut = compute(connection, "bigquery", [f"DATE_TRUNC(DATE '{day}', {unit})" for day in days])
    assert cut == [find_first_day(day, start) for day in days]
    pairs = list(zip(days, reversed(days), strict=True))
    weeks = compute(connection, "bigquery", [f"DATE_DIFF(DATE '{x}', DATE '{y}', {unit})" for x, y in pairs])
    assert weeks == [(find_first_day(x, start) - find_first_day(y, start)).days // 7 for x, y in pairs]
    numbers = compute(connection, "bigquery", [f"EXTRACT({unit} FROM DATE '{day}')" for day in days])
    for day, number in zip(days, numbers, strict=True):
        starts = [dt.date(day.year, 1, 1) + dt.timedelta(days=n) for n in range(day.timetuple().tm_yday)]
        assert number == sum(1 for each in starts if each.weekday() == start)


def test_tsql_weeks_begin_on_sunday(connection: Connection) -> None:
    """DATEDIFF counts Sundays, DATEPART numbers weeks from that of January 1, and 0 is the first day of 1900."""
    days = [day for day in draw_days(7, 60) if day.year > 1]
    items = [f"DATEDIFF(week, 0, CAST('{day}' AS DATE))" for day in days]
    sunday = find_first_day(dt.date(1900, 1, 1), 6)
    assert compute(connection, "tsql", items) == [(find_first_day(day, 6) - sunday).days // 7 for day in days]
    numbers = compute(connection, "tsql", [f"DATEPART(week, CAST('{day}' AS DATE))" for day in days])
    for day, number in zip(days, numbers, strict=True):
        january = find_first_day(dt.date(day.year, 1, 1), 6)
        assert number == (find_first_day(day, 6) - january).days // 7 + 1


def test_beginnings_of_units_in_tsql(connection: Connection) -> None:
    """DATEADD(u, DATEDIFF(u, 0, x), 0) is the beginning of the unit, as a moment."""
    items = [
        f"DATEADD({unit}, DATEDIFF({unit}, 0, CAST('2024-05-17' AS DATE)), 0)"
        for unit in ("month", "qq", "yy", "dd")
    ]
    assert compute(connection, "tsql", items) == [
        dt.datetime(2024, 5, 1), dt.datetime(2024, 4, 1), dt.datetime(2024, 1, 1), dt.datetime(2024, 5, 17),
    ]  # fmt: skip


def test_spark_counts_whole_units(connection: Connection) -> None:
    """DATEDIFF with a unit counts whole units, toward zero, as java.time does."""
    items = [
        "datediff(WEEK, DATE'2026-01-01', DATE'2026-01-20')", "datediff(MONTH, DATE'2026-01-31', DATE'2026-02-28')",
        "datediff(MONTH, DATE'2026-02-28', DATE'2026-01-31')", "datediff(YEAR, DATE'2026-01-31', DATE'2020-02-28')",
        "datediff(QUARTER, DATE'2026-01-31', DATE'2026-10-30')",
    ]  # fmt: skip
    assert compute(connection, "spark", items) == [2, 0, 0, -5, 2]
