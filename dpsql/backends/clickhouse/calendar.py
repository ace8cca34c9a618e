"""How ClickHouse computes dates: by arithmetic on microseconds, since its own calendar is that of the years 1900 to 2299.

Claim: each function is defined for every day and moment of the years 1 to 9999, and is the one of the proleptic Gregorian calendar.
Why: microseconds of these years have 58 bits, and all that is computed of them 64, except sums with a number of the query, which
have 128. Divisors are constants. Counted from the first of March of the year 0, no day is negative, so that quotients are
rounded down; a year begins with March, so that the day that not every year has is its last.
Source: Richards 2013, "Calendars", in Urban and Seidelmann, "Explanatory supplement to the Astronomical Almanac", section 15.11;
ISO 8601-1:2019, section 5.2.3 (weeks).
"""

from __future__ import annotations

import datetime as dt
from types import MappingProxyType

from dpsql.backends.clickhouse import values
from dpsql.backends.clickhouse.values import (
    bind_arguments,
    count_microseconds,
    emit_constant,
    emit_wide_double,
)
from dpsql.backends.function_spellings import (
    DAY,
    MONDAY,
    WITHIN_CALENDAR,
    CallSpelling,
    Spelling,
    Spellings,
    TypeSpelling,
    define_full_differences,
    define_month_units,
    define_strftime,
    define_time_buckets,
    define_years_truncations,
)
from dpsql.plan.types import Type

_BEGIN, _END = map(count_microseconds, (dt.datetime.min, dt.datetime.max))  # noqa: DTZ901  (SQL timestamps have no zone)
_MARCH = 719_468
"""The days from the first of March of the year 0 to 1970."""
_ERA = 146_097
"""The days of 400 years."""
_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000
_UNITS = {
    "day": DAY,
    "hour": _HOUR,
    "minute": _MINUTE,
    "second": _SECOND,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""The microseconds of units of time of one length."""
_NAMED = "a text of every day of the calendar"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)


# Whole numbers of microseconds, days, months and years.


def _emit_microseconds(place: int) -> str:
    """Emit the microseconds since 1970 of a day or moment."""
    return f"CAST({{{place}}} AS Int64)"


def _emit_remainder(number: str, unit: int) -> str:
    """Emit the remainder of a division that is rounded down."""
    return f"CAST(positiveModulo({number}, {unit}) AS Int64)"


def _emit_units(number: str, unit: int) -> str:
    """Emit the quotient of a division that is rounded down."""
    return bind_arguments(f"intDiv(a - {_emit_remainder('a', unit)}, {unit})", number)


def _emit_days(place: int) -> str:
    """Emit the days since 1970 of a day or moment."""
    return _emit_units(_emit_microseconds(place), DAY)


def _emit_day_of_era(body: str, days: str) -> str:
    """Emit a text over `a`, the day of its 400 years, `b`, the number of these, and `c`, the year among them."""
    year = "intDiv(a - intDiv(a, 1460) + intDiv(a, 36524) - intDiv(a, 146096), 365)"
    inner = bind_arguments(body, "a", "b", year)
    outer = bind_arguments(inner, f"a % {_ERA}", f"intDiv(a, {_ERA})")
    return bind_arguments(outer, f"{days} + {_MARCH}")


_DAY_OF_YEAR = "(a - (365 * c + intDiv(c, 4) - intDiv(c, 100)))"
_MONTH = f"intDiv(5 * {_DAY_OF_YEAR} + 2, 153)"
"""The month of a year that begins with March, from 0."""


def _emit_month_number(days: str) -> str:
    """Emit the months since the January of the year 0."""
    return _emit_day_of_era(f"CAST((b * 400 + c) * 12 + {_MONTH} + 2 AS Int64)", days)


def _emit_year(days: str) -> str:
    return f"intDiv({_emit_month_number(days)}, 12)"


def _emit_month(days: str) -> str:
    return f"({_emit_month_number(days)} % 12 + 1)"


def _emit_day_of_month(days: str) -> str:
    return _emit_day_of_era(
        bind_arguments("CAST(a - intDiv(153 * b + 2, 5) + 1 AS Int64)", _DAY_OF_YEAR, _MONTH), days
    )


def _emit_first_day(months: str) -> str:
    """Emit the days from 1970 to the first day of a month, counted from the January of the year 0."""
    body = (
        f"CAST(intDiv(a, 400) * {_ERA} + (a % 400) * 365 + intDiv(a % 400, 4) - intDiv(a % 400, 100)"
        f" + intDiv(153 * b + 2, 5) - {_MARCH} AS Int64)"
    )
    return bind_arguments(bind_arguments(body, "intDiv(a - 2, 12)", "(a - 2) % 12"), months)


def _emit_day(days: str) -> str:
    """Emit the day of days since 1970, which are within the calendar."""
    return f"reinterpret(CAST(({days}) * {DAY} AS Int64), '{values.DAY}')"


def _emit_moment(microseconds: str) -> str:
    """Emit the moment of microseconds since 1970, which are within the calendar."""
    return f"reinterpret(CAST({microseconds} AS Int64), '{values.MOMENT}')"


def _emit_within_calendar(number: str, kind: str = values.MOMENT) -> str:
    """Emit the moment, or the day, of a whole number of microseconds of any size; NULL beyond the calendar."""
    fits = bind_arguments(f"CASE WHEN a BETWEEN {_BEGIN} AND {_END} THEN a END", number)
    return f"reinterpret(accurateCastOrNull({fits}, 'Int64'), '{kind}')"


def _emit_sum(first: str, number: str, unit: int) -> str:
    """Emit a number and as many times a unit, in 128 bits."""
    return f"CAST({first} AS Int128) + CAST({number} AS Int128) * {unit}"


# Parts of dates.


def _define_part(text: str) -> Spelling:
    return Spelling(f"CAST({text} AS Int64)", WITHIN_CALENDAR)


def _emit_week_start(days: str) -> str:
    return bind_arguments(f"a - {_emit_remainder('a + 3', 7)}", days)


def _emit_clock(unit: int, of: int) -> str:
    """Emit how many units have passed of a longer one."""
    return f"intDiv({_emit_remainder(_emit_microseconds(0), of)}, {unit})"


_THURSDAY = f"({_emit_week_start(_emit_days(0))} + 3)"
_ISO_YEAR = _emit_year(_THURSDAY)
_WEEK = bind_arguments(f"intDiv(a - {_emit_first_day('b * 12')}, 7) + 1", _THURSDAY, _ISO_YEAR)
_FIELDS = {
    "year": _emit_year(_emit_days(0)),
    "month": _emit_month(_emit_days(0)),
    "day": _emit_day_of_month(_emit_days(0)),
    "hour": _emit_clock(_HOUR, DAY),
    "minute": _emit_clock(_MINUTE, _HOUR),
    "second": _emit_clock(_SECOND, _MINUTE),
}


def _emit_padded_field(field: str, digits: int) -> str:
    return f"leftPad(toString({_FIELDS[field]}), {digits}, '0')"


def _emit_concatenation(parts: list[str]) -> str:
    """Concatenate texts of one moment, NULL if it is NULL."""
    listed = ", ".join(["''", *parts])
    return f"CASE WHEN {{0}} IS NOT NULL THEN concat({listed}) END"


def _define_name_lookup(names: tuple[str, ...], place: str) -> Spelling:
    listed = ", ".join(f"'{name}'" for name in names)
    return Spelling(f"CASE WHEN {{0}} IS NOT NULL THEN [{listed}][{place}] END", _NAMED)


# Moments: truncated, moved, and told apart.


def _define_truncation(unit: int) -> Spelling:
    """Truncate to a unit of time that divides a day."""
    begun = bind_arguments(f"a - {_emit_remainder('a', unit)}", _emit_microseconds(0))
    return Spelling(_emit_moment(begun), WITHIN_CALENDAR)


def _emit_first_moment(days: str) -> str:
    return _emit_moment(f"({days}) * {DAY}")


def _define_month_truncation(months: int) -> Spelling:
    begun = bind_arguments(f"a - a % {months}", _emit_month_number(_emit_days(0)))
    return Spelling(_emit_first_moment(_emit_first_day(begun)), WITHIN_CALENDAR)


def _define_years_truncation(years: int) -> Spelling:
    """Find the first moment of the span of `years` in which a moment lies; the year 0 is none of the calendar."""
    begun = bind_arguments(f"nullIf(a - a % {years}, 0)", _emit_year(_emit_days(0)))
    return Spelling(_emit_within_calendar(f"{_emit_first_day(f'({begun}) * 12')} * {DAY}"), WITHIN_CALENDAR)


def _define_addition(unit: int) -> Spelling:
    return Spelling(_emit_within_calendar(_emit_sum(_emit_microseconds(0), "{1}", unit)), WITHIN_CALENDAR)


def _define_month_addition(times: int) -> Spelling:
    """Add years and months; the time of day stays, and so does the day, if the month has it."""
    most = 120_000 // times
    number = bind_arguments(f"CASE WHEN a BETWEEN {-most} AND {most} THEN a END", "{1}")
    months = bind_arguments(
        "CASE WHEN a BETWEEN 12 AND 119999 THEN a END",
        f"{_emit_month_number(_emit_days(0))} + ({number}) * {times}",
    )
    day = f"LEAST(b, {_emit_first_day('a + 1')} - {_emit_first_day('a')})"
    moved = f"({_emit_first_day('a')} + {day} - 1) * {DAY} + {_emit_remainder('c', DAY)}"
    at = bind_arguments(
        f"CASE WHEN a IS NOT NULL THEN {moved} END", months, _FIELDS["day"], _emit_microseconds(0)
    )
    return Spelling(_emit_within_calendar(at), WITHIN_CALENDAR)


def _define_day_shift(day: int, number: str) -> Spelling:
    moved = _emit_sum(_emit_microseconds(day), number, DAY)
    return Spelling(_emit_within_calendar(moved, values.DAY), WITHIN_CALENDAR)


def _define_difference(unit: int) -> Spelling:
    """Count how often the clock passes the beginning of a unit."""
    first, last = (_emit_units(_emit_microseconds(place), unit) for place in (0, 1))
    return Spelling(f"({last} - {first})", WITHIN_CALENDAR)


def _define_month_difference(times: int) -> Spelling:
    first, last = (f"intDiv({_emit_month_number(_emit_days(place))}, {times})" for place in (0, 1))
    return Spelling(f"({last} - {first})", WITHIN_CALENDAR)


def _define_full_difference(unit: int) -> Spelling:
    return Spelling(f"intDiv({_emit_microseconds(1)} - {_emit_microseconds(0)}, {unit})", WITHIN_CALENDAR)


def _emit_bucket(width: int) -> str:
    """Emit the beginning of a bucket of microseconds, one of which begins at `MONDAY`."""
    begun = bind_arguments(f"a - CAST(positiveModulo(a - {MONDAY}, {width}) AS Int64)", _emit_microseconds(1))
    return _emit_within_calendar(begun)


def _emit_month_bucket(width: int) -> str:
    """Emit the beginning of a bucket of months, one of which begins with the year 2000."""
    begun = bind_arguments(
        f"a - CAST(positiveModulo(a - {2000 * 12}, {width}) AS Int64)", _emit_month_number(_emit_days(1))
    )
    fits = bind_arguments("CASE WHEN a BETWEEN 12 AND 119999 THEN a END", begun)
    return _emit_within_calendar(f"{_emit_first_day(fits)} * {DAY}")


_BUCKETS: dict[str, CallSpelling] = {
    name: bucket
    for name, bucket in define_time_buckets(_emit_bucket, _emit_month_bucket, values.MOMENT).items()
    if not name.endswith("_of_days")
}
_NEXT_MONTH = _emit_first_day(f"({_emit_month_number(_emit_days(0))} + 1)")
_THIS_MONTH = _emit_first_day(_emit_month_number(_emit_days(0)))
_TEXT = _emit_concatenation(
    [
        _emit_padded_field("year", 4),
        "'-'",
        _emit_padded_field("month", 2),
        "'-'",
        _emit_padded_field("day", 2),
    ]
)

DATE_SPELLINGS: Spellings = MappingProxyType(
    {
        **{name: _define_part(text) for name, text in _FIELDS.items()},
        "quarter": _define_part(f"intDiv({_emit_month(_emit_days(0))} + 2, 3)"),
        "week": _define_part(_WEEK),
        "doy": _define_part(
            bind_arguments(f"a - {_emit_first_day('b * 12')} + 1", _emit_days(0), _FIELDS["year"])
        ),
        "dow": _define_part(_emit_remainder(f"{_emit_days(0)} + 4", 7)),
        "isodow": _define_part(f"{_emit_remainder(f'{_emit_days(0)} + 3', 7)} + 1"),
        "isoyear": _define_part(_ISO_YEAR),
        "yearweek": _define_part(f"{_ISO_YEAR} * 100 + {_WEEK}"),
        "millisecond": _define_part(_emit_clock(1_000, _MINUTE)),
        "microsecond": _define_part(_emit_clock(1, _MINUTE)),
        "decade": _define_part(f"intDiv({_FIELDS['year']}, 10)"),
        "century": _define_part(f"intDiv({_FIELDS['year']} + 99, 100)"),
        "millennium": _define_part(f"intDiv({_FIELDS['year']} + 999, 1000)"),
        "era": _define_part("CASE WHEN {0} IS NOT NULL THEN 1 END"),
        "epoch": Spelling(
            f"({emit_wide_double(_emit_microseconds(0))} / {emit_constant(1e6)})", WITHIN_CALENDAR
        ),
        "epoch_us": _define_part(_emit_microseconds(0)),
        "epoch_ms": _define_part(
            bind_arguments("intDiv(a + CASE WHEN a < 0 THEN -500 ELSE 500 END, 1000)", _emit_microseconds(0))
        ),
        "epoch_ns": Spelling("accurateCastOrNull(CAST({0} AS Int128) * 1000, 'Int64')", WITHIN_CALENDAR),
        "isinf_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN FALSE END", WITHIN_CALENDAR),
        "isfinite_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN TRUE END", WITHIN_CALENDAR),
        **{
            f"date_trunc_{unit}": _define_month_truncation(months)
            for unit, months in {"month": 1, "quarter": 3, "year": 12}.items()
        },
        "date_trunc_week": Spelling(_emit_first_moment(_emit_week_start(_emit_days(0))), WITHIN_CALENDAR),
        **{f"date_trunc_{unit}": _define_truncation(worth) for unit, worth in _UNITS.items()},
        **define_years_truncations(_define_years_truncation),
        "strftime": define_strftime(_emit_padded_field, _emit_concatenation, emit_constant),
        **_BUCKETS,
        "dayname": _define_name_lookup(_DAYS, f"{_emit_remainder(f'{_emit_days(0)} + 3', 7)} + 1"),
        "monthname": _define_name_lookup(_MONTHS, _FIELDS["month"]),
        "last_day": Spelling(_emit_day(f"{_NEXT_MONTH} - 1"), WITHIN_CALENDAR),
        "days_in_month": _define_part(f"{_NEXT_MONTH} - {_THIS_MONTH}"),
        "days_between": Spelling(f"({_emit_days(0)} - {_emit_days(1)})", WITHIN_CALENDAR),
        **{f"date_diff_{unit}": _define_difference(worth) for unit, worth in _UNITS.items()},
        **define_month_units("date_diff", _define_month_difference),
        **define_full_differences(_define_full_difference),
        "plus_days": _define_day_shift(0, "{1}"),
        "days_plus": _define_day_shift(1, "{0}"),
        "minus_days": _define_day_shift(0, "negate(CAST({1} AS Int128))"),
        **define_month_units("plus", _define_month_addition),
        **{f"plus_{unit}": _define_addition(worth) for unit, worth in {"week": 7 * DAY, **_UNITS}.items()},
        "make_timestamp_us": Spelling(_emit_within_calendar("{0}"), WITHIN_CALENDAR),
        **{
            name: Spelling(_emit_within_calendar("CAST({0} AS Int128) * 1000"), WITHIN_CALENDAR)
            for name in ("make_timestamp_ms", "from_epoch_ms")
        },
        "cast_date": TypeSpelling(
            {Type.DATE: "{0}", Type.TIMESTAMP: _emit_day(_emit_days(0))},
            "every moment of the calendar has its day",
        ),
        "cast_timestamp": TypeSpelling(
            {Type.DATE: f"CAST({{0}} AS {values.MOMENT})", Type.TIMESTAMP: "{0}"},
            "every day of the calendar has its first moment",
        ),
    }
)
"""Spellings of the functions of days and moments, by the names of entries."""

DAY_TEXT = _TEXT
"""The template of the text of a day."""
