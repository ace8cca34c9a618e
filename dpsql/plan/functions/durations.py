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

from dpsql.plan.expressions import Expr, Function, Literal
from dpsql.plan.functions.dates import (
    LENGTHS,
    MONTHS,
    UNITS,
    compute_bucket_start,
    compute_unit_index,
    find_end_timestamp,
    find_timestamp_pair,
    iterate_timestamps,
    map_interval,
    shift_timestamp,
    to_interval,
)
from dpsql.plan.functions.signatures import INTEGER, NUMBER, TEMPORAL, IntervalRule, make_fixed_rule
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


def _get_interval_constructor(unit: str) -> str:
    """Return the engine's function that makes an interval of this unit."""
    return f"TO_{_PLURALS.get(unit, f'{unit.upper()}S')}"


def _emit_date_cast(sql: str) -> str:
    return f"TRY_CAST(TRY_CAST(TRY({sql}) AS TIMESTAMP) AS DATE)"


def _make_difference_rule(unit: str) -> IntervalRule:
    """Build the units from one moment to another: the difference of two numbers that never fall with time."""

    def derive_unit_numbers(argument: Expr, of: Interval) -> Interval:
        low, high = (find_end_timestamp(argument.type, end) for end in (of.low, of.high))
        return Interval(
            None if low is None else compute_unit_index(unit, low),
            None if high is None else compute_unit_index(unit, high),
        )

    # Before 1970 the engine's weeks do not begin on Mondays.
    slack = Interval(-1, 1) if unit == "week" else Interval(0, 0)

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return derive_unit_numbers(arguments[1], of[1]) - derive_unit_numbers(arguments[0], of[0]) + slack

    return derive_interval


def _make_full_difference_rule(unit: str) -> IntervalRule:
    """Return the rule for full units: as many as unit boundaries are crossed, or one fewer, counted from zero."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        begun = _make_difference_rule(unit)(arguments, of)
        low, high = begun.low, begun.high
        return Interval(
            low if low is None or low <= 0 else low - 1, high if high is None or high >= 0 else high + 1
        )

    return derive_interval


def _define_difference(unit: str) -> Function:
    return Function(
        f"date_diff_{unit}",
        f"DATE_DIFF('{unit}', t, u)",
        make_fixed_rule(Type.INTEGER, TEMPORAL, TEMPORAL),
        f"TRY(DATE_DIFF('{unit}', TRY_CAST({{0}} AS TIMESTAMP), TRY_CAST({{1}} AS TIMESTAMP)))",
        _TOTAL,
        interval=_make_difference_rule(unit),
        example=(
            f"DATE_DIFF('{unit}', DATE '2024-02-29', DATE '2024-03-01')",
            str(compute_unit_index(unit, _LATER) - compute_unit_index(unit, _EARLIER)),
        ),
    )


def _define_full_difference(unit: str) -> Function:
    days = {"day": "1"} | {short: str(dt.timedelta(days=1) // LENGTHS[short]) for short in list(LENGTHS)[2:]}
    return Function(
        f"date_sub_{unit}",
        f"DATE_SUB('{unit}', t, u)",
        make_fixed_rule(Type.INTEGER, TEMPORAL, TEMPORAL),
        f"TRY(DATE_SUB('{unit}', TRY_CAST({{0}} AS TIMESTAMP), TRY_CAST({{1}} AS TIMESTAMP)))",
        _TOTAL,
        interval=_make_full_difference_rule(unit),
        example=(f"DATE_SUB('{unit}', DATE '2024-02-29', DATE '2024-03-01')", days.get(unit, "0")),
    )


def _make_addition_rule(unit: str) -> IntervalRule:
    """Build the later the moment and the more the units, the later the result."""

    def shift_end(kind: Type, at: End, count: End) -> dt.datetime | None:
        start = find_end_timestamp(kind, at)
        try:
            return None if start is None or count is None else shift_timestamp(unit, start, int(count))
        except (ValueError, OverflowError):
            return None

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        kind = arguments[0].type
        low, high = shift_end(kind, of[0].low, of[1].low), shift_end(kind, of[0].high, of[1].high)
        if kind is Type.TIMESTAMP and unit in MONTHS:
            # Of two timestamps moved to the last day of a month, the one on the later day may have the earlier time.
            low = None if low is None else dt.datetime.combine(low, dt.time.min)
            high = None if high is None else dt.datetime.combine(high, dt.time.max)
        return to_interval(low, high)

    return derive_interval


def _define_addition(unit: str) -> Function:
    return Function(
        f"plus_{unit}",
        f"t + INTERVAL (n) {unit.upper()}",
        make_fixed_rule(Type.TIMESTAMP, TEMPORAL, INTEGER),
        f"TRY(TRY_CAST({{0}} AS TIMESTAMP) + TRY({_get_interval_constructor(unit)}({{1}})))",
        _TOTAL,
        interval=_make_addition_rule(unit),
        example=(
            f"DATE '2024-02-29' + INTERVAL 1 {unit.upper()}",
            str(shift_timestamp(unit, _EARLIER, 1)).removesuffix("000"),
        ),
    )


def _make_day_shift_rule(sign: int, first: int) -> IntervalRule:
    def derive_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        days = of[first] + (of[1 - first] if sign > 0 else -of[1 - first])
        return Interval(_limit_to_calendar(days.low), _limit_to_calendar(days.high))

    return derive_interval


def _limit_to_calendar(day: End) -> End:
    return day if day is not None and 1 <= day <= dt.date.max.toordinal() else None


def _derive_days_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return of[0] - of[1]


def _get_count(argument: Expr) -> int:
    if not isinstance(argument, Literal) or not isinstance(argument.value, int):
        raise TypeError("a stretch has a constant number of units")
    return argument.value


def _find_bucket_error(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and 1 <= values[0] <= MOST_UNITS
    return None if fits else f"the bucket must have between 1 and {MOST_UNITS:,} units"


def _define_time_bucket(unit: str, kind: Type) -> Function:
    """Return the entry for moments, or for days."""
    of_days = kind is Type.DATE

    def to_result(at: dt.datetime) -> dt.date:
        return at.date() if of_days else at

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return map_interval(
            lambda at: to_result(compute_bucket_start(unit, _get_count(arguments[0]), at)),
            arguments[1].type,
            of[1],
        )

    def iterate_values(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Iterable[Value] | None:
        known = find_timestamp_pair(kind, derive_interval(arguments, of))
        return (
            None
            if known is None
            else map(to_result, iterate_timestamps(unit, _get_count(arguments[0]), *known))
        )

    plain = f"TIME_BUCKET({_get_interval_constructor(unit)}({{0}}), TRY_CAST({{1}} AS {kind.value}))"
    return Function(
        f"time_bucket_{unit}{'_of_days' if of_days else ''}",
        f"TIME_BUCKET(INTERVAL (n) {unit.upper()}, t)",
        make_fixed_rule(kind, INTEGER, (kind,)),
        _emit_date_cast(plain) if of_days else f"TRY({plain})",
        _TOTAL,
        interval=derive_interval,
        strict=True,
        literals=frozenset({0}),
        check=_find_bucket_error,
        values=iterate_values,
        names=(f"time_bucket {unit}",),
        example=(
            f"TIME_BUCKET(INTERVAL (5) {unit.upper()}, {kind.value} '2024-02-29')",
            str(to_result(compute_bucket_start(unit, 5, _EARLIER))),
        ),
    )


def _derive_date_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Return the interval from the first to the last day of the years."""
    low, high = (_find_year(end) for end in (of[0].low, of[0].high))
    return to_interval(
        None if low is None else dt.date(low, 1, 1), None if high is None else dt.date(high, 12, 31)
    )


def _find_year(end: End) -> int | None:
    return int(end) if end is not None and dt.MINYEAR <= end <= dt.MAXYEAR else None


def _derive_timestamp_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Return the interval from the first moment of the first year to the end of the last one, since hour 24 is allowed."""
    low, high = _find_year(of[0].low), _find_year(None if of[0].high is None else of[0].high + 1)
    return to_interval(
        None if low is None else dt.datetime(low, 1, 1),  # noqa: DTZ001  (SQL timestamps have no zone)
        None if high is None else dt.datetime(high, 1, 1),  # noqa: DTZ001  (SQL timestamps have no zone)
    )


def _make_from_number_rule(scale: int) -> IntervalRule:
    """Return the rule for microseconds since 1970 from a unit of `scale` microseconds."""

    def derive_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        return Interval(*(None if end is None else end * scale for end in (of[0].low, of[0].high)))

    return derive_interval


def _make_to_number_rule(scale: Fraction) -> IntervalRule:
    """Return the rule for whole units since 1970; a microsecond has `scale` of them."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        moments = map_interval(lambda at: at, arguments[0].type, of[0])
        return moments.map(lambda low: math.floor(low * scale), lambda high: math.ceil(high * scale))

    return derive_interval


def _define_epoch_function(name: str, scale: Fraction, example: str, sql: str) -> Function:
    return Function(
        name,
        f"{name.upper()}(t)",
        make_fixed_rule(Type.INTEGER, TEMPORAL),
        sql,
        _TOTAL,
        interval=_make_to_number_rule(scale),
        names=(name,),
        example=(f"{name.upper()}(TIMESTAMP '1970-01-01 00:00:01.5')", example),
    )


def _define_timestamp_function(name: str, word: str, scale: int, example: str) -> Function:
    """Return the engine's own function makes moments that lie before its calendar, on which it ends later."""
    count = "{0}" if scale == 1 else f"TRY({{0}} * {scale})"
    return Function(
        name,
        f"{word}(n)",
        make_fixed_rule(Type.TIMESTAMP, INTEGER),
        f"TRY(TIMESTAMP '1970-01-01' + TO_MICROSECONDS({count}))",
        _TOTAL,
        interval=_make_from_number_rule(scale),
        names=(word.lower(),),
        example=(f"{word}(1500000)", example),
    )


def _define_date_function(
    name: str,
    signature: str,
    takes: tuple[tuple[Type, ...], ...],
    sql: str,
    interval: IntervalRule,
    **more: Any,
) -> Function:
    return Function(
        name,
        signature,
        make_fixed_rule(Type.DATE, *takes),
        _emit_date_cast(sql),
        _TOTAL,
        interval=interval,
        **more,
    )


DURATION_FUNCTIONS = (
    *map(_define_difference, UNITS),
    *map(_define_full_difference, UNITS),
    *map(_define_addition, UNITS),
    *(_define_time_bucket(unit, Type.TIMESTAMP) for unit in BUCKETS),
    *(_define_time_bucket(unit, Type.DATE) for unit in BUCKETS_OF_DAYS),
    _define_date_function(
        "plus_days",
        "d + n",
        (_DAY, INTEGER),
        "{0} + TRY_CAST({1} AS INTEGER)",
        _make_day_shift_rule(1, first=0),
        names=("+", "date_add"),
        example=("DATE '2024-02-29' + 1", "2024-03-01"),
    ),
    _define_date_function(
        "days_plus",
        "n + d",
        (INTEGER, _DAY),
        "TRY_CAST({0} AS INTEGER) + {1}",
        _make_day_shift_rule(1, first=1),
        names=("+",),
        example=("1 + DATE '2024-02-29'", "2024-03-01"),
    ),
    _define_date_function(
        "minus_days",
        "d - n",
        (_DAY, INTEGER),
        "{0} - TRY_CAST({1} AS INTEGER)",
        _make_day_shift_rule(-1, first=0),
        names=("-",),
        example=("DATE '2024-03-01' - 1", "2024-02-29"),
    ),
    Function(
        "days_between",
        "d - e",
        make_fixed_rule(Type.INTEGER, _DAY, _DAY),
        "TRY(DATE_DIFF('day', {1}, {0}))",
        "days that are not finite give NULL",
        interval=_derive_days_interval,
        names=("-",),
        example=("DATE '2024-03-01' - DATE '2024-02-28'", "2"),
    ),
    _define_date_function(
        "make_date",
        "MAKE_DATE(y, m, d)",
        (INTEGER, INTEGER, INTEGER),
        "MAKE_DATE({0}, {1}, {2})",
        _derive_date_interval,
        names=("make_date",),
        example=("MAKE_DATE(2024, 2, 30)", "NULL"),
    ),
    Function(
        "make_timestamp",
        "MAKE_TIMESTAMP(y, m, d, h, n, s)",
        make_fixed_rule(Type.TIMESTAMP, *([INTEGER] * 5), NUMBER),
        "TRY(MAKE_TIMESTAMP({0}, {1}, {2}, {3}, {4}, {5}))",
        "TRY gives NULL where there is no such moment",
        interval=_derive_timestamp_interval,
        names=("make_timestamp",),
        example=("MAKE_TIMESTAMP(2024, 2, 29, 12, 34, 56.5)", "2024-02-29 12:34:56.5"),
    ),
    _define_timestamp_function("make_timestamp_us", "MAKE_TIMESTAMP", 1, "1970-01-01 00:00:01.5"),
    _define_timestamp_function("make_timestamp_ms", "MAKE_TIMESTAMP_MS", 1_000, "1970-01-01 00:25:00"),
    _define_timestamp_function("from_epoch_ms", "EPOCH_MS", 1_000, "1970-01-01 00:25:00"),
    _define_epoch_function("epoch_us", Fraction(1), "1500000", _MICROSECONDS),
    # The engine's own functions can fail while it plans, by the least and the largest value of a column.
    _define_epoch_function(
        "epoch_ms", Fraction(1, 1_000), "1500", f"(TRY(ROUND({_MICROSECONDS}, -3)) // 1000)"
    ),
    _define_epoch_function("epoch_ns", Fraction(1_000), "1500000000", f"TRY({_MICROSECONDS} * 1000)"),
)
