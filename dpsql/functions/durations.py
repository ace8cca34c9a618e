"""Date arithmetic: adding intervals, differences, time buckets, and timestamps made of numbers.

The engine's date arithmetic can leave its range at the far ends, so each function stands in TRY. A DATE that
is computed here is one that TIMESTAMP holds too, so that the two always compare.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dpsql.functions.enclosures import Rule
from dpsql.functions.moments import (
    LENGTHS,
    MONTHS,
    UNITS,
    at_end,
    between,
    bucket,
    ends,
    every,
    index,
    mapped,
    shifted,
)
from dpsql.functions.signatures import INTEGER, NUMBER, TEMPORAL, fixed
from dpsql.plan.expr import Expr, Function, Literal
from dpsql.plan.interval import End, Interval
from dpsql.plan.types import Type, Value

_TOTAL = "TRY gives NULL where the engine's calendar ends"
_DAY = (Type.DATE,)
_MICROSECONDS = "TRY(EPOCH_US(TRY_CAST({0} AS TIMESTAMP)))"
_PLURALS = {"century": "CENTURIES", "millennium": "MILLENNIA"}
MOST_UNITS = 100_000
"""Most units in a stretch of TIME_BUCKET."""
BUCKETS_OF_DAYS = ("year", "quarter", "month", "week", "day")
"""The units that a stretch of TIME_BUCKET can have."""
BUCKETS = (*BUCKETS_OF_DAYS, "hour", "minute", "second")
_EARLIER, _LATER = dt.datetime(2024, 2, 29), dt.datetime(2024, 3, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def _to(unit: str) -> str:
    """The engine's function that makes an interval of this unit."""
    return f"TO_{_PLURALS.get(unit, f'{unit.upper()}S')}"


def _day(sql: str) -> str:
    return f"TRY_CAST(TRY_CAST(TRY({sql}) AS TIMESTAMP) AS DATE)"


def _apart(unit: str) -> Rule:
    """The units from one moment to another: the difference of two numbers that never fall with time."""

    def numbers(argument: Expr, of: Interval) -> Interval:
        low, high = (at_end(argument.type, end) for end in (of.low, of.high))
        return Interval(
            None if low is None else index(unit, low), None if high is None else index(unit, high)
        )

    # Before 1970 the engine's weeks do not begin on Mondays.
    slack = Interval(-1, 1) if unit == "week" else Interval(0, 0)

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return numbers(arguments[1], of[1]) - numbers(arguments[0], of[0]) + slack

    return interval


def _full(unit: str) -> Rule:
    """Full units are as many as units begun, or one fewer, counted from zero."""

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        begun = _apart(unit)(arguments, of)
        low, high = begun.low, begun.high
        return Interval(
            low if low is None or low <= 0 else low - 1, high if high is None or high >= 0 else high + 1
        )

    return interval


def _difference(unit: str) -> Function:
    return Function(
        f"date_diff_{unit}",
        f"DATE_DIFF('{unit}', t, u)",
        fixed(Type.INTEGER, TEMPORAL, TEMPORAL),
        f"TRY(DATE_DIFF('{unit}', TRY_CAST({{0}} AS TIMESTAMP), TRY_CAST({{1}} AS TIMESTAMP)))",
        _TOTAL,
        interval=_apart(unit),
        example=(
            f"DATE_DIFF('{unit}', DATE '2024-02-29', DATE '2024-03-01')",
            str(index(unit, _LATER) - index(unit, _EARLIER)),
        ),
    )


def _full_difference(unit: str) -> Function:
    days = {"day": "1"} | {short: str(dt.timedelta(days=1) // LENGTHS[short]) for short in list(LENGTHS)[2:]}
    return Function(
        f"date_sub_{unit}",
        f"DATE_SUB('{unit}', t, u)",
        fixed(Type.INTEGER, TEMPORAL, TEMPORAL),
        f"TRY(DATE_SUB('{unit}', TRY_CAST({{0}} AS TIMESTAMP), TRY_CAST({{1}} AS TIMESTAMP)))",
        _TOTAL,
        interval=_full(unit),
        example=(f"DATE_SUB('{unit}', DATE '2024-02-29', DATE '2024-03-01')", days.get(unit, "0")),
    )


def _later(unit: str) -> Rule:
    """The later the moment and the more the units, the later the result."""

    def end(kind: Type, at: End, count: End) -> dt.datetime | None:
        start = at_end(kind, at)
        try:
            return None if start is None or count is None else shifted(unit, start, int(count))
        except (ValueError, OverflowError):
            return None

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        kind = arguments[0].type
        low, high = end(kind, of[0].low, of[1].low), end(kind, of[0].high, of[1].high)
        if kind is Type.TIMESTAMP and unit in MONTHS:
            # Of two moments that come to the last day of a month, the later day may have the earlier time.
            low = None if low is None else dt.datetime.combine(low, dt.time.min)
            high = None if high is None else dt.datetime.combine(high, dt.time.max)
        return between(low, high)

    return interval


def _addition(unit: str) -> Function:
    return Function(
        f"plus_{unit}",
        f"t + INTERVAL (n) {unit.upper()}",
        fixed(Type.TIMESTAMP, TEMPORAL, INTEGER),
        f"TRY(TRY_CAST({{0}} AS TIMESTAMP) + TRY({_to(unit)}({{1}})))",
        _TOTAL,
        interval=_later(unit),
        example=(
            f"DATE '2024-02-29' + INTERVAL 1 {unit.upper()}",
            str(shifted(unit, _EARLIER, 1)).removesuffix("000"),
        ),
    )


def _days_later(sign: int, first: int) -> Rule:
    def interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        days = of[first] + (of[1 - first] if sign > 0 else -of[1 - first])
        return Interval(_within(days.low), _within(days.high))

    return interval


def _within(day: End) -> End:
    return day if day is not None and 1 <= day <= dt.date.max.toordinal() else None


def _days(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] - of[1]


def _count(argument: Expr) -> int:
    if not isinstance(argument, Literal) or not isinstance(argument.value, int):
        raise TypeError("a stretch has a constant number of units")
    return argument.value


def _stretch(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and 1 <= values[0] <= MOST_UNITS
    return None if fits else f"between 1 and {MOST_UNITS:,} units"


def _bucket(unit: str, kind: Type) -> Function:
    """The entry for moments, or for days."""
    of_days = kind is Type.DATE

    def result(at: dt.datetime) -> dt.date:
        return at.date() if of_days else at

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return mapped(lambda at: result(bucket(unit, _count(arguments[0]), at)), arguments[1].type, of[1])

    def values(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Iterable[Value] | None:
        known = ends(kind, interval(arguments, of))
        return None if known is None else map(result, every(unit, _count(arguments[0]), *known))

    plain = f"TIME_BUCKET({_to(unit)}({{0}}), TRY_CAST({{1}} AS {kind.value}))"
    return Function(
        f"time_bucket_{unit}{'_of_days' if of_days else ''}",
        f"TIME_BUCKET(INTERVAL (n) {unit.upper()}, t)",
        fixed(kind, INTEGER, (kind,)),
        _day(plain) if of_days else f"TRY({plain})",
        _TOTAL,
        interval=interval,
        strict=True,
        literals=frozenset({0}),
        check=_stretch,
        values=values,
        names=(f"time_bucket {unit}",),
        example=(
            f"TIME_BUCKET(INTERVAL (5) {unit.upper()}, {kind.value} '2024-02-29')",
            str(result(bucket(unit, 5, _EARLIER))),
        ),
    )


def _years(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """From the first to the last day of the years."""
    low, high = (_year(end) for end in (of[0].low, of[0].high))
    return between(
        None if low is None else dt.date(low, 1, 1), None if high is None else dt.date(high, 12, 31)
    )


def _year(end: End) -> int | None:
    return int(end) if end is not None and dt.MINYEAR <= end <= dt.MAXYEAR else None


def _moments_of_years(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """From the first moment of the first year to that of the one after the last: hour 24 is allowed."""
    low, high = _year(of[0].low), _year(None if of[0].high is None else of[0].high + 1)
    return between(
        None if low is None else dt.datetime(low, 1, 1),  # noqa: DTZ001  (SQL timestamps have no zone)
        None if high is None else dt.datetime(high, 1, 1),  # noqa: DTZ001  (SQL timestamps have no zone)
    )


def _from_number(scale: int) -> Rule:
    """Microseconds since 1970, of which a unit has `scale`."""

    def interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return Interval(*(None if end is None else end * scale for end in (of[0].low, of[0].high)))

    return interval


def _to_number(scale: Fraction) -> Rule:
    """Units since 1970, of which a microsecond has `scale`, rounded to a whole number."""

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        moments = mapped(lambda at: at, arguments[0].type, of[0])
        return moments.map(lambda low: math.floor(low * scale), lambda high: math.ceil(high * scale))

    return interval


def _number(name: str, scale: Fraction, example: str, sql: str) -> Function:
    return Function(
        name,
        f"{name.upper()}(t)",
        fixed(Type.INTEGER, TEMPORAL),
        sql,
        _TOTAL,
        interval=_to_number(scale),
        names=(name,),
        example=(f"{name.upper()}(TIMESTAMP '1970-01-01 00:00:01.5')", example),
    )


def _of_number(name: str, word: str, scale: int, example: str) -> Function:
    """The engine's own function makes moments that lie before its calendar, on which it ends later."""
    count = "{0}" if scale == 1 else f"TRY({{0}} * {scale})"
    return Function(
        name,
        f"{word}(n)",
        fixed(Type.TIMESTAMP, INTEGER),
        f"TRY(TIMESTAMP '1970-01-01' + TO_MICROSECONDS({count}))",
        _TOTAL,
        interval=_from_number(scale),
        names=(word.lower(),),
        example=(f"{word}(1500000)", example),
    )


def _day_function(
    name: str, signature: str, takes: tuple[tuple[Type, ...], ...], sql: str, interval: Rule, **more: Any
) -> Function:
    return Function(name, signature, fixed(Type.DATE, *takes), _day(sql), _TOTAL, interval=interval, **more)


ENTRIES = (
    *map(_difference, UNITS),
    *map(_full_difference, UNITS),
    *map(_addition, UNITS),
    *(_bucket(unit, Type.TIMESTAMP) for unit in BUCKETS),
    *(_bucket(unit, Type.DATE) for unit in BUCKETS_OF_DAYS),
    _day_function(
        "plus_days",
        "d + n",
        (_DAY, INTEGER),
        "{0} + TRY_CAST({1} AS INTEGER)",
        _days_later(1, first=0),
        names=("+", "date_add"),
        example=("DATE '2024-02-29' + 1", "2024-03-01"),
    ),
    _day_function(
        "days_plus",
        "n + d",
        (INTEGER, _DAY),
        "TRY_CAST({0} AS INTEGER) + {1}",
        _days_later(1, first=1),
        names=("+",),
        example=("1 + DATE '2024-02-29'", "2024-03-01"),
    ),
    _day_function(
        "minus_days",
        "d - n",
        (_DAY, INTEGER),
        "{0} - TRY_CAST({1} AS INTEGER)",
        _days_later(-1, first=0),
        names=("-",),
        example=("DATE '2024-03-01' - 1", "2024-02-29"),
    ),
    Function(
        "days_between",
        "d - e",
        fixed(Type.INTEGER, _DAY, _DAY),
        "TRY(DATE_DIFF('day', {1}, {0}))",
        "days that are not finite give NULL",
        interval=_days,
        names=("-",),
        example=("DATE '2024-03-01' - DATE '2024-02-28'", "2"),
    ),
    _day_function(
        "make_date",
        "MAKE_DATE(y, m, d)",
        (INTEGER, INTEGER, INTEGER),
        "MAKE_DATE({0}, {1}, {2})",
        _years,
        names=("make_date",),
        example=("MAKE_DATE(2024, 2, 30)", "NULL"),
    ),
    Function(
        "make_timestamp",
        "MAKE_TIMESTAMP(y, m, d, h, n, s)",
        fixed(Type.TIMESTAMP, *([INTEGER] * 5), NUMBER),
        "TRY(MAKE_TIMESTAMP({0}, {1}, {2}, {3}, {4}, {5}))",
        "TRY gives NULL where there is no such moment",
        interval=_moments_of_years,
        names=("make_timestamp",),
        example=("MAKE_TIMESTAMP(2024, 2, 29, 12, 34, 56.5)", "2024-02-29 12:34:56.5"),
    ),
    _of_number("make_timestamp_us", "MAKE_TIMESTAMP", 1, "1970-01-01 00:00:01.5"),
    _of_number("make_timestamp_ms", "MAKE_TIMESTAMP_MS", 1_000, "1970-01-01 00:25:00"),
    _of_number("from_epoch_ms", "EPOCH_MS", 1_000, "1970-01-01 00:25:00"),
    _number("epoch_us", Fraction(1), "1500000", _MICROSECONDS),
    # The engine's own functions can fail while it plans, by the least and the largest value of a column.
    _number("epoch_ms", Fraction(1, 1_000), "1500", f"(TRY(ROUND({_MICROSECONDS}, -3)) // 1000)"),
    _number("epoch_ns", Fraction(1_000), "1500000000", f"TRY({_MICROSECONDS} * 1000)"),
)
