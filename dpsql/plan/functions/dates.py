"""Functions of dates and timestamps, and the arithmetic of moments behind them."""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from dpsql.plan.expressions import Expr, Function
from dpsql.plan.functions.growth import bound_formatted_text, make_fixed_size_rule
from dpsql.plan.functions.signatures import (
    TEMPORAL,
    TEXT,
    IntervalRule,
    expand_interval,
    make_constant_rule,
    make_fixed_rule,
)
from dpsql.plan.interval import End, Interval, find_position, get_timestamp_at
from dpsql.plan.types import Type, Value

# The engine's calendar in Python: units of time, where they start, and how far apart two timestamps are.
#
# A DATE counts as its ordinal and a TIMESTAMP as microseconds since 1970 (`plan.interval`). Python's calendar
# has the years 1 to 9999, as the columns that are read. What lies outside of it is not bounded.


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


# Parts, names and truncations of dates and timestamps.
#
# The engine's date arithmetic can leave its range at the far ends, so each function stands in TRY. They
# count as strict, because columns are read within the years 1 to 9999: a row for which one of them gives
# NULL all the same is left out where its key cannot be NULL.


_TOTAL = "TRY gives NULL where the engine's calendar ends"
_EXAMPLE = "TIMESTAMP '2024-02-29 12:34:56'"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_DAY_OF_1970 = 719_163
_DAY_OF_JULIAN_0 = -1_721_425
MOST_FORMAT = 100
"""Most characters of a format."""


def _make_yearly_rule(number: Callable[[dt.datetime], int]) -> IntervalRule:
    """Build a number of each moment that never falls as time goes on."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        low, high = (find_end_timestamp(arguments[0].type, end) for end in (of[0].low, of[0].high))
        return Interval(None if low is None else number(low), None if high is None else number(high))

    return derive_interval


def _get_iso_year(at: dt.datetime) -> int:
    return at.isocalendar().year


def _compute_year_week(at: dt.datetime) -> int:
    year, week, _ = at.isocalendar()
    return year * 100 + week


def _make_elapsed_time_rule(scale: int, origin: int) -> IntervalRule:
    """Build the rule of the time since midnight, in units of which a day has `scale`."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        ends_ = (
            None if end is None else (_to_days(arguments[0].type, end) - origin) * scale
            for end in (of[0].low, of[0].high)
        )
        return expand_interval(Interval(*ends_))

    return derive_interval


def _to_days(kind: Type, end: Fraction) -> Fraction:
    """Return a position in days; January 1 of the year 1 is day 1."""
    return end if kind is Type.DATE else end / 86_400_000_000 + _DAY_OF_1970


_RULES: Mapping[str, IntervalRule] = {
    "year": _make_yearly_rule(lambda at: at.year),
    "quarter": make_constant_rule(Interval(1, 4)),
    "month": make_constant_rule(Interval(1, 12)),
    "week": make_constant_rule(Interval(1, 53)),
    "day": make_constant_rule(Interval(1, 31)),
    "doy": make_constant_rule(Interval(1, 366)),
    "dow": make_constant_rule(Interval(0, 6)),
    "isodow": make_constant_rule(Interval(1, 7)),
    "hour": make_constant_rule(Interval(0, 23)),
    "minute": make_constant_rule(Interval(0, 59)),
    "second": make_constant_rule(Interval(0, 59)),
    "millisecond": make_constant_rule(Interval(0, 59_999)),
    "microsecond": make_constant_rule(Interval(0, 59_999_999)),
    "decade": _make_yearly_rule(lambda at: at.year // 10),
    "century": _make_yearly_rule(lambda at: (at.year - 1) // 100 + 1),
    "millennium": _make_yearly_rule(lambda at: (at.year - 1) // 1000 + 1),
    "isoyear": _make_yearly_rule(_get_iso_year),
    "yearweek": _make_yearly_rule(_compute_year_week),
    "era": make_constant_rule(Interval(0, 1)),
    "epoch": _make_elapsed_time_rule(86_400, _DAY_OF_1970),
    "julian": _make_elapsed_time_rule(1, _DAY_OF_JULIAN_0),
}
PARTS = tuple(_RULES)
"""The parts that EXTRACT supports."""
_REAL = {"epoch", "julian"}
_NAMES = {
    "week": ("week", "weekofyear"),
    "day": ("day", "dayofmonth"),
    "doy": ("dayofyear",),
    "dow": ("dayofweek", "weekday"),
}
_VALUES = {
    "year": "2024", "quarter": "1", "month": "2", "week": "9", "day": "29", "doy": "60", "dow": "4", "isodow": "4",
    "hour": "12", "minute": "34", "second": "56", "millisecond": "56000", "microsecond": "56000000",
    "decade": "202", "century": "21", "millennium": "3", "isoyear": "2024", "yearweek": "202409", "era": "1",
    "epoch": "1709210096.0", "julian": "2460370.5242592595",
}  # fmt: skip


def _define_part(name: str, interval: IntervalRule) -> Function:
    result = Type.DOUBLE if name in _REAL else Type.INTEGER
    return Function(
        name,
        f"EXTRACT({name} FROM t)",
        make_fixed_rule(result, TEMPORAL),
        f"CAST(TRY(EXTRACT({name} FROM TRY_CAST({{0}} AS TIMESTAMP))) AS {result.value})",
        _TOTAL,
        interval=interval,
        strict=True,
        names=_NAMES.get(name, (name,)),
        example=(f"EXTRACT({name} FROM {_EXAMPLE})", _VALUES[name]),
    )


def _define_time_part(name: str) -> Function:
    return Function(
        f"time_{name}",
        f"{name.upper()}(time)",
        make_fixed_rule(Type.INTEGER, (Type.TIME,)),
        f"CAST(TRY(EXTRACT({name} FROM {{0}})) AS BIGINT)",
        "a time of day has each of its parts",
        interval=_RULES[name],
        strict=True,
        names=(name,),
        example=(f"{name.upper()}(TIME '12:34:56')", _VALUES[name]),
    )


def _define_truncation(unit: str) -> Function:
    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return map_interval(lambda at: truncate_timestamp(unit, at), arguments[0].type, of[0])

    def iterate_values(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Iterable[Value] | None:
        known = find_timestamp_pair(Type.TIMESTAMP, derive_interval(arguments, of))
        return None if known is None else iterate_timestamps(unit, 1, *known)

    return Function(
        f"date_trunc_{unit}",
        f"DATE_TRUNC('{unit}', t)",
        make_fixed_rule(Type.TIMESTAMP, TEMPORAL),
        f"TRY(DATE_TRUNC('{unit}', TRY_CAST({{0}} AS TIMESTAMP)))",
        _TOTAL,
        interval=derive_interval,
        strict=True,
        values=iterate_values,
        example=(
            f"DATE_TRUNC('{unit}', {_EXAMPLE})",
            str(truncate_timestamp(unit, dt.datetime(2024, 2, 29, 12, 34, 56))),  # noqa: DTZ001  (SQL timestamps have no zone)
        ),
    )


def _define_name_function(name: str, words: tuple[str, ...], example: str) -> Function:
    return Function(
        name,
        f"{name.upper()}(t)",
        make_fixed_rule(Type.VARCHAR, TEMPORAL),
        f"TRY({name.upper()}(TRY_CAST({{0}} AS TIMESTAMP)))",
        _TOTAL,
        strict=True,
        size=make_fixed_size_rule(16),
        values=lambda _, __: words,
        names=(name,),
        example=(f"{name.upper()}({_EXAMPLE})", example),
    )


def compute_month_end(at: dt.datetime) -> dt.date:
    """Compute the last day of a moment's month."""
    return at.date().replace(day=calendar.monthrange(at.year, at.month)[1])


def _iterate_last_days(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Iterable[Value] | None:
    known = find_timestamp_pair(arguments[0].type, of[0])
    if known is None:
        return None
    low, high = known
    return map(compute_month_end, iterate_timestamps("month", 1, truncate_timestamp("month", low), high))


def _find_format_error(values: tuple[Value, ...]) -> str | None:
    text = str(values[0])
    return (
        f"the format must have between 1 and {MOST_FORMAT} characters"
        if not 0 < len(text) <= MOST_FORMAT
        else None
    )


def _find_strptime_format_error(values: tuple[Value, ...]) -> str | None:
    text = str(values[0]).replace("%%", "")
    if any(code in text for code in ("%z", "%Z", "%n")):
        return "a TIMESTAMP has no zone and no nanoseconds, so %z, %Z and %n are not supported"
    return _find_format_error(values)


DATE_FUNCTIONS = (
    *(_define_part(name, interval) for name, interval in _RULES.items()),
    *map(_define_time_part, ("hour", "minute", "second", "millisecond", "microsecond")),
    *(_define_truncation(unit) for unit in UNITS),
    _define_name_function("dayname", _DAYS, "Thursday"),
    _define_name_function("monthname", _MONTHS, "February"),
    Function(
        "last_day",
        "LAST_DAY(t)",
        make_fixed_rule(Type.DATE, TEMPORAL),
        "TRY_CAST(TRY_CAST(TRY(LAST_DAY(TRY_CAST({0} AS TIMESTAMP))) AS TIMESTAMP) AS DATE)",
        _TOTAL,
        interval=lambda arguments, of: map_interval(compute_month_end, arguments[0].type, of[0]),
        strict=True,
        values=_iterate_last_days,
        names=("last_day",),
        example=("LAST_DAY(DATE '2024-02-03')", "2024-02-29"),
    ),
    Function(
        "days_in_month",
        "DAYS_IN_MONTH(t)",
        make_fixed_rule(Type.INTEGER, TEMPORAL),
        "DAY(TRY(LAST_DAY(TRY_CAST({0} AS TIMESTAMP))))",
        _TOTAL,
        interval=make_constant_rule(Interval(28, 31)),
        strict=True,
        names=("days_in_month",),
        example=("DAYS_IN_MONTH(DATE '2024-02-03')", "29"),
    ),
    Function(
        "strftime",
        "STRFTIME(t, 'format')",
        make_fixed_rule(Type.VARCHAR, TEMPORAL, TEXT),
        "TRY(STRFTIME(TRY_CAST({0} AS TIMESTAMP), {1}))",
        "the format is a constant that was tried before",
        literals=frozenset({1}),
        check=_find_format_error,
        checked_by_engine=True,
        size=bound_formatted_text,
        names=("strftime",),
        example=("STRFTIME(DATE '2024-02-29', '%Y-%m')", "2024-02"),
    ),
    Function(
        "strptime",
        "STRPTIME(s, 'format')",
        make_fixed_rule(Type.TIMESTAMP, TEXT, TEXT),
        "TRY_CAST(TRY_STRPTIME({0}, {1}) AS TIMESTAMP)",
        "text that is not so formatted gives NULL; the format is a constant that was tried before",
        literals=frozenset({1}),
        check=_find_strptime_format_error,
        checked_by_engine=True,
        names=("strptime", "try_strptime"),
        example=("STRPTIME('29.2.2024', '%d.%m.%Y')", "2024-02-29 00:00:00"),
    ),
)
