"""The engine's calendar in Python: units of time, where they start, and how far apart two timestamps are.

A DATE counts as its ordinal and a TIMESTAMP as microseconds since 1970 (`plan.interval`). Python's calendar
has the years 1 to 9999, as the columns that are read. What lies outside of it is not bounded.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from dpsql.plan.interval import End, Interval, find_position, get_timestamp_at
from dpsql.plan.types import Type

TimestampPair = tuple[dt.datetime, dt.datetime]

MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1_200, "millennium": 12_000}
"""The number of months in each unit that is made of months."""
LENGTHS = {
    "week": dt.timedelta(weeks=1),
    "day": dt.timedelta(days=1),
    "hour": dt.timedelta(hours=1),
    "minute": dt.timedelta(minutes=1),
    "second": dt.timedelta(seconds=1),
    "millisecond": dt.timedelta(milliseconds=1),
    "microsecond": dt.timedelta(microseconds=1),
}
"""The units of constant length."""
UNITS = (*reversed(MONTHS), *LENGTHS)

_SHORT = {
    "year": "yr y years yrs",
    "quarter": "quarters",
    "month": "mon months mons",
    "week": "weeks w weekofyear",
    "day": "days d dayofmonth",
    "hour": "hr h hours hrs",
    "minute": "min m minutes mins",
    "second": "sec s seconds secs",
    "millisecond": "milliseconds ms msec msecs",
    "microsecond": "microseconds us usec usecs",
    "decade": "decades dec decs",
    "century": "cent centuries c",
    "millennium": "mil millenniums millennia mils",
    "dow": "dayofweek weekday",
    "doy": "dayofyear",
}
SPELLINGS = {short: unit for unit, shorts in _SHORT.items() for short in (unit, *shorts.split())}
"""The engine's name of each unit or part of time."""

_MIDNIGHT = dt.time()
_ORIGIN_OF_MONTHS = 2000 * 12
_ORIGIN = dt.datetime(2000, 1, 3)  # noqa: DTZ001  (SQL timestamps have no zone)


def convert_position(kind: Type, at: Fraction) -> dt.datetime:
    """Return the timestamp at a position on the line of a DATE or TIMESTAMP interval."""
    if kind is Type.DATE:
        return dt.datetime.fromordinal(math.floor(at))
    return get_timestamp_at(at)


def find_end_timestamp(kind: Type, end: End) -> dt.datetime | None:
    """Return the timestamp at an end of an interval, or None for an unbounded end."""
    if end is None or kind is Type.NULL:
        return None
    try:
        return convert_position(kind, end)
    except (ValueError, OverflowError):
        return None


def find_timestamp_pair(kind: Type, interval: Interval) -> TimestampPair | None:
    """Find the timestamps at both ends of an interval that is bounded."""
    low, high = find_end_timestamp(kind, interval.low), find_end_timestamp(kind, interval.high)
    return None if low is None or high is None else (low, high)


def to_interval(low: dt.date | None, high: dt.date | None) -> Interval:
    """Return the interval of the days or moments from `low` to `high`."""
    return Interval(
        None if low is None else find_position(low), None if high is None else find_position(high)
    )


def truncate_timestamp(unit: str, at: dt.datetime) -> dt.datetime:
    """Compute DATE_TRUNC in Python. Raises ValueError if the unit starts before the year 1.

    >>> truncate_timestamp("week", dt.datetime(2026, 11, 21)), truncate_timestamp("decade", dt.datetime(2026, 11, 21))
    (datetime.datetime(2026, 11, 16, 0, 0), datetime.datetime(2020, 1, 1, 0, 0))
    """
    months = MONTHS.get(unit)
    if months is not None:
        # Centuries are counted from the year 0, as the engine does.
        month = (at.year * 12 + at.month - 1) // months * months
        return dt.datetime(month // 12, month % 12 + 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)
    if unit == "week":
        return dt.datetime.combine(at.date() - dt.timedelta(days=at.weekday()), _MIDNIGHT)
    day = dt.datetime.combine(at, _MIDNIGHT)
    return day + (at - day) // LENGTHS[unit] * LENGTHS[unit]


def iterate_timestamps(unit: str, count: int, first: dt.datetime, last: dt.datetime) -> Iterator[dt.datetime]:
    """Yield the moments from `first` to `last` in steps of `count` units."""
    at = first
    try:
        while at <= last:
            yield at
            at = shift_timestamp(unit, at, count)
    except OverflowError:
        return


def shift_timestamp(unit: str, at: dt.datetime, count: int) -> dt.datetime:
    """Return the moment `count` units later; a day that the month lacks is its last.

    Raises OverflowError outside of the calendar.

    >>> shift_timestamp("month", dt.datetime(2024, 1, 31), 1)
    datetime.datetime(2024, 2, 29, 0, 0)
    """
    if unit in LENGTHS:
        return at + LENGTHS[unit] * count
    month = at.year * 12 + at.month - 1 + MONTHS[unit] * count
    year, month = month // 12, month % 12 + 1
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        raise OverflowError("outside of the calendar")
    return at.replace(year=year, month=month, day=min(at.day, calendar.monthrange(year, month)[1]))


def compute_unit_index(unit: str, at: dt.datetime) -> int:
    """Compute the number of the unit that a moment lies in: DATE_DIFF is the difference of two of these.

    >>> compute_unit_index("month", dt.datetime(2024, 3, 1)) - compute_unit_index("month", dt.datetime(2024, 2, 29))
    1
    """
    if unit in MONTHS:
        return (at.year * 12 + at.month - 1) // MONTHS[unit]
    if unit == "week":
        return (at.toordinal() - 1) // 7
    return (at - dt.datetime.min) // LENGTHS[unit]  # noqa: DTZ901  (SQL timestamps have no zone)


def compute_bucket_start(unit: str, count: int, at: dt.datetime) -> dt.datetime:
    """Compute TIME_BUCKET in Python: the start of the bucket of `count` units that holds a timestamp.

    Raises ValueError or OverflowError where it starts before the year 1.

    >>> compute_bucket_start("day", 7, dt.datetime(2026, 11, 21)), compute_bucket_start("month", 2, dt.datetime(2026, 12, 21))
    (datetime.datetime(2026, 11, 16, 0, 0), datetime.datetime(2026, 11, 1, 0, 0))
    """
    if unit in LENGTHS:
        width = LENGTHS[unit] * count
        return _ORIGIN + (at - _ORIGIN) // width * width
    width_in_months = MONTHS[unit] * count
    past = at.year * 12 + at.month - 1 - _ORIGIN_OF_MONTHS
    month = _ORIGIN_OF_MONTHS + past // width_in_months * width_in_months
    return dt.datetime(month // 12, month % 12 + 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def map_interval(rule: Callable[[dt.datetime], dt.date], kind: Type, interval: Interval) -> Interval:
    """Return the image of an interval under an increasing function; beyond the calendar it is unbounded."""

    def map_end(at: End) -> dt.date | None:
        start = find_end_timestamp(kind, at)
        try:
            return None if start is None else rule(start)
        except (ValueError, OverflowError):
            return None

    return to_interval(map_end(interval.low), map_end(interval.high))
