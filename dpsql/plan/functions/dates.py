"""Parts, names and truncations of dates and timestamps.

The engine's date arithmetic can leave its range at the far ends, so each function stands in TRY. They
count as strict, because columns are read within the years 1 to 9999: a row for which one of them gives
NULL all the same is left out where its key cannot be NULL.
"""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from dpsql.plan.expressions import Expr, Function
from dpsql.plan.functions.enclosures import IntervalRule, expand_interval, make_constant_rule
from dpsql.plan.functions.growth import bound_formatted_text, make_fixed_size_rule
from dpsql.plan.functions.moments import (
    UNITS,
    find_end_timestamp,
    find_timestamp_pair,
    iterate_timestamps,
    map_interval,
    truncate_timestamp,
)
from dpsql.plan.functions.signatures import TEMPORAL, TEXT, make_fixed_rule
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

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
