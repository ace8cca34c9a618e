"""How PostgreSQL computes what is of days, moments and times of day, each with the reason why no row makes it fail.

As for `functions`: what leaves the calendar, which is of the years 1 to 9999, stands in a branch of a CASE that excludes it.

Claim: what is written is defined for every value of the arguments' types, and within the calendar.
Source: PostgreSQL 15 manual, sections 9.9 (date/time functions) and 4.2.14; DuckDB's documentation, "Date Functions".
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.backends.function_spellings import (
    DEFINED,
    MONDAY,
    WITHIN_CALENDAR,
    Spelling,
    Spellings,
    define_full_differences,
    define_month_units,
    define_strftime,
    define_time_buckets,
    define_years_truncations,
)
from dpsql.backends.postgres.values import (
    REAL,
    bind_arguments,
    emit_bigint_or_null,
    emit_constant,
    emit_timestamp,
)
from dpsql.plan.types import Type


def _define_part(field: str) -> Spelling:
    return Spelling(f"CAST(TRUNC(EXTRACT({field} FROM {emit_timestamp(0)})) AS BIGINT)", WITHIN_CALENDAR)


def _define_time_part(field: str) -> Spelling:
    return Spelling(f"CAST(TRUNC(EXTRACT({field} FROM {{0}})) AS BIGINT)", DEFINED)


def _define_truncation(unit: str) -> Spelling:
    return Spelling(f"DATE_TRUNC('{unit}', {emit_timestamp(0)})", WITHIN_CALENDAR)


_FIRST, _LAST = "DATE '0001-01-01'", "DATE '9999-12-31'"
_BEGIN, _END = "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"


def _emit_month_number(moment: str) -> str:
    return f"CAST(EXTRACT(YEAR FROM {moment}) * 12 + EXTRACT(MONTH FROM {moment}) AS BIGINT)"


def _define_month_addition(times: int) -> Spelling:
    """Add years and months, as many as keep the month within the calendar."""
    fits = f"CAST(b AS NUMERIC) * {times} + {_emit_month_number('a')} BETWEEN 13 AND {9999 * 12 + 12}"
    body = f"CASE WHEN {fits} THEN a + MAKE_INTERVAL(months => CAST(b * {times} AS INTEGER)) END"
    return Spelling(bind_arguments(body, emit_timestamp(0), "{1}"), WITHIN_CALENDAR)


def _define_day_addition(times: int) -> Spelling:
    fits = f"CAST(b AS NUMERIC) * {times} BETWEEN {_FIRST} - CAST(a AS DATE) AND {_LAST} - CAST(a AS DATE)"
    body = f"CASE WHEN {fits} THEN a + MAKE_INTERVAL(days => CAST(b * {times} AS INTEGER)) END"
    return Spelling(bind_arguments(body, emit_timestamp(0), "{1}"), WITHIN_CALENDAR)


def _define_second_addition(seconds: int) -> Spelling:
    fits = (
        f"CAST(b AS NUMERIC) * {seconds} BETWEEN EXTRACT(EPOCH FROM {_BEGIN}) - EXTRACT(EPOCH FROM a) "
        f"AND EXTRACT(EPOCH FROM {_END}) - EXTRACT(EPOCH FROM a)"
    )
    whole, rest = (f"{part}(CAST(b AS NUMERIC) * {seconds}, 86400)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({whole} AS INTEGER)) + MAKE_INTERVAL(secs => CAST({rest} AS {REAL}))"
    body = f"CASE WHEN {fits} THEN a + ({added}) END"
    return Spelling(bind_arguments(body, emit_timestamp(0), "{1}"), WITHIN_CALENDAR)


def _define_day_shift(day: str, number: str, sign: str) -> Spelling:
    """Add a number of days to a day."""
    fits = f"{sign}CAST(b AS NUMERIC) BETWEEN {_FIRST} - a AND {_LAST} - a"
    return Spelling(
        bind_arguments(f"CASE WHEN {fits} THEN a + {sign}CAST(b AS INTEGER) END", day, number),
        WITHIN_CALENDAR,
    )


def _define_difference(unit: str, seconds: int) -> Spelling:
    """Count how often the clock passes the beginning of a unit."""
    parts = (f"EXTRACT(EPOCH FROM DATE_TRUNC('{unit}', {emit_timestamp(place)}))" for place in (1, 0))
    return Spelling(f"CAST(DIV({' - '.join(parts)}, {seconds}) AS BIGINT)", WITHIN_CALENDAR)


def _define_subsecond_difference(micros: int) -> Spelling:
    """Count how many multiples of `micros` microseconds the clock passes from one moment to the other."""
    parts = (
        f"FLOOR(EXTRACT(EPOCH FROM {emit_timestamp(place)}) * {1_000_000 // micros})" for place in (1, 0)
    )
    return Spelling(f"CAST({' - '.join(parts)} AS BIGINT)", WITHIN_CALENDAR)


def _define_from_microseconds(number: str) -> Spelling:
    """Convert microseconds since 1970 to a moment within the calendar."""
    low, high = (f"EXTRACT(EPOCH FROM {end}) * 1000000" for end in (_BEGIN, _END))
    days, rest = (f"{part}(a, 86400000000)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({days} AS INTEGER), secs => CAST({rest} AS {REAL}) / 1000000)"
    body = f"CASE WHEN a BETWEEN {low} AND {high} THEN TIMESTAMP '1970-01-01' + ({added}) END"
    return Spelling(bind_arguments(body, number), WITHIN_CALENDAR)


def _define_full_difference(micros: int) -> Spelling:
    """Count the whole units of time between two moments."""
    between = f"EXTRACT(EPOCH FROM {emit_timestamp(1)}) - EXTRACT(EPOCH FROM {emit_timestamp(0)})"
    return Spelling(f"CAST(DIV(({between}) * 1000000, {micros}) AS BIGINT)", WITHIN_CALENDAR)


def _define_microsecond_addition(unit: int) -> Spelling:
    low, high = (f"(EXTRACT(EPOCH FROM {end}) - EXTRACT(EPOCH FROM a)) * 1000000" for end in (_BEGIN, _END))
    days, rest = (f"{part}(CAST(b AS NUMERIC) * {unit}, 86400000000)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({days} AS INTEGER), secs => CAST({rest} AS {REAL}) / 1000000)"
    body = f"CASE WHEN CAST(b AS NUMERIC) * {unit} BETWEEN {low} AND {high} THEN a + {added} END"
    return Spelling(bind_arguments(body, emit_timestamp(0), "{1}"), WITHIN_CALENDAR)


def _define_years_truncation(years: int) -> Spelling:
    """Find the first moment of the span of `years` in which a moment lies, as of its decade."""
    begun = f"DIV(CAST(EXTRACT(YEAR FROM a) AS NUMERIC), {years}) * {years}"
    body = f"CASE WHEN {begun} >= 1 THEN MAKE_TIMESTAMP(CAST({begun} AS INTEGER), 1, 1, 0, 0, 0) END"
    return Spelling(bind_arguments(body, emit_timestamp(0)), WITHIN_CALENDAR)


def _emit_bucket(width: int) -> str:
    """Emit the beginning of a bucket of microseconds, one of which begins at `MONDAY`."""
    since = f"CAST(EXTRACT(EPOCH FROM {emit_timestamp(1)}) * 1000000 AS BIGINT)"
    begun = bind_arguments(f"CAST(a - MOD(MOD(a - {MONDAY}, {width}) + {width}, {width}) AS NUMERIC)", since)
    return _define_from_microseconds(begun).sql


def _emit_month_bucket(width: int) -> str:
    """Emit the beginning of a bucket of months, one of which begins with the year 2000."""
    begun = bind_arguments(
        f"a - MOD(MOD(a - {2000 * 12}, {width}) + {width}, {width})",
        f"({_emit_month_number(emit_timestamp(1))} - 1)",
    )
    day = "MAKE_DATE(CAST(a / 12 AS INTEGER), CAST(a % 12 + 1 AS INTEGER), 1)"
    return bind_arguments(f"CASE WHEN a BETWEEN 12 AND {9999 * 12 + 11} THEN {day} END", begun)


def _emit_padded_field(field: str, digits: int) -> str:
    return f"LPAD(CAST(TRUNC(EXTRACT({field} FROM {emit_timestamp(0)})) AS TEXT), {digits}, '0')"


def _emit_concatenation(parts: list[str]) -> str:
    """Concatenate texts of one moment, NULL if it is NULL."""
    text = " || ".join(parts or ["''"])
    return f'CASE WHEN {{0}} IS NOT NULL THEN ({text}) COLLATE "C" END'


def _define_month_difference(times: int) -> Spelling:
    begun = [
        f"FLOOR(CAST({_emit_month_number(emit_timestamp(place))} - 1 AS NUMERIC) / {times})"
        for place in (1, 0)
    ]
    return Spelling(f"CAST({' - '.join(begun)} AS BIGINT)", WITHIN_CALENDAR)


_DAYS_OF_MONTH = "EXTRACT(DAY FROM MAKE_DATE(CAST(a AS INTEGER), CAST(b AS INTEGER), 1) + INTERVAL '1 month' - INTERVAL '1 day')"

MOMENTS: Spellings = MappingProxyType(
    {
        # moments of numbers
        "make_timestamp_us": _define_from_microseconds("CAST({0} AS NUMERIC)"),
        **dict.fromkeys(
            ("make_timestamp_ms", "from_epoch_ms"), _define_from_microseconds("CAST({0} AS NUMERIC) * 1000")
        ),
        "epoch_ns": Spelling(
            emit_bigint_or_null(f"CAST(EXTRACT(EPOCH FROM {emit_timestamp(0)}) * 1000000000 AS NUMERIC)"),
            WITHIN_CALENDAR,
        ),
        # parts of dates
        **{
            name: _define_part(field)
            for name, field in {
                **{
                    name: name for name in ("year", "quarter", "month", "week", "day", "doy", "dow", "isodow")
                },
                **{name: name for name in ("hour", "minute", "second", "decade", "century", "millennium")},
                "isoyear": "isoyear",
                "millisecond": "milliseconds",
                "microsecond": "microseconds",
            }.items()
        },
        "era": Spelling(
            f"CAST(CASE WHEN {emit_timestamp(0)} IS NOT NULL THEN 1 END AS BIGINT)", WITHIN_CALENDAR
        ),
        "dayname": Spelling(
            f"TO_CHAR({emit_timestamp(0)}, 'FMDay')", "the English names, whatever the language of the server"
        ),
        "monthname": Spelling(
            f"TO_CHAR({emit_timestamp(0)}, 'FMMonth')",
            "the English names, whatever the language of the server",
        ),
        "yearweek": Spelling(
            f"CAST(EXTRACT(isoyear FROM {emit_timestamp(0)}) * 100 + EXTRACT(week FROM {emit_timestamp(0)}) AS BIGINT)",
            WITHIN_CALENDAR,
        ),
        "epoch": Spelling(f"CAST(EXTRACT(epoch FROM {emit_timestamp(0)}) AS {REAL})", WITHIN_CALENDAR),
        "epoch_us": Spelling(
            f"CAST(EXTRACT(epoch FROM {emit_timestamp(0)}) * 1000000 AS BIGINT)", WITHIN_CALENDAR
        ),
        "time_hour": _define_time_part("hour"),
        "time_minute": _define_time_part("minute"),
        "time_second": _define_time_part("second"),
        "time_millisecond": _define_time_part("milliseconds"),
        "time_microsecond": _define_time_part("microseconds"),
        **{
            f"date_trunc_{unit}": _define_truncation(unit)
            for unit in (
                *("year", "quarter", "month", "week"),
                *("day", "hour", "minute", "second"),
            )
        },
        **define_years_truncations(_define_years_truncation),
        "strftime": define_strftime(_emit_padded_field, _emit_concatenation, emit_constant),
        **define_time_buckets(_emit_bucket, _emit_month_bucket, "TIMESTAMP"),
        "date_trunc_millisecond": _define_truncation("milliseconds"),
        "date_trunc_microsecond": _define_truncation("microseconds"),
        "last_day": Spelling(
            f"CAST(DATE_TRUNC('month', {emit_timestamp(0)}) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
            WITHIN_CALENDAR,
        ),
        "days_in_month": Spelling(
            f"CAST(EXTRACT(day FROM DATE_TRUNC('month', {emit_timestamp(0)}) + INTERVAL '1 month' - INTERVAL '1 day') AS BIGINT)",
            WITHIN_CALENDAR,
        ),
        # distances of dates
        "days_between": Spelling("CAST(CAST({0} AS DATE) - CAST({1} AS DATE) AS BIGINT)", WITHIN_CALENDAR),
        "date_diff_day": _define_difference("day", 86_400),
        "date_diff_hour": _define_difference("hour", 3_600),
        "date_diff_minute": _define_difference("minute", 60),
        "date_diff_second": _define_difference("second", 1),
        "date_diff_millisecond": _define_subsecond_difference(1_000),
        "date_diff_microsecond": _define_subsecond_difference(1),
        **define_month_units("date_diff", _define_month_difference),
        **define_full_differences(_define_full_difference),
        "plus_days": _define_day_shift("{0}", "{1}", ""),
        "days_plus": _define_day_shift("{1}", "{0}", ""),
        "minus_days": _define_day_shift("{0}", "{1}", "-"),
        **define_month_units("plus", _define_month_addition),
        "plus_week": _define_day_addition(7),
        "plus_day": _define_day_addition(1),
        "plus_hour": _define_second_addition(3_600),
        "plus_minute": _define_second_addition(60),
        "plus_second": _define_second_addition(1),
        "plus_millisecond": _define_microsecond_addition(1_000),
        "plus_microsecond": _define_microsecond_addition(1),
        "make_date": Spelling(
            bind_arguments(
                f"CASE WHEN a BETWEEN 1 AND 9999 AND b BETWEEN 1 AND 12 THEN CASE WHEN c BETWEEN 1 AND {_DAYS_OF_MONTH} "
                "THEN MAKE_DATE(CAST(a AS INTEGER), CAST(b AS INTEGER), CAST(c AS INTEGER)) END END",
                "{0}",
                "{1}",
                "{2}",
            ),
            WITHIN_CALENDAR,
            takes=frozenset({Type.INTEGER}),
        ),
        "epoch_ms": Spelling(
            f"CAST(ROUND(EXTRACT(EPOCH FROM {emit_timestamp(0)}) * 1000) AS BIGINT)", WITHIN_CALENDAR
        ),
    }
)
"""Spellings by the names of entries."""
