"""How PostgreSQL computes what is of days, moments and times of day, each with the reason why no row makes it fail.

As for `functions`: what leaves the calendar, which is of the years 1 to 9999, stands in a branch of a CASE that excludes it.

Claim: what is written is defined for every value of the arguments' types, and within the calendar.
Source: PostgreSQL 15 manual, sections 9.9 (date/time functions) and 4.2.14; DuckDB's documentation, "Date Functions".
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.backends.postgres.held import CALENDAR, held, moment, narrowed
from dpsql.backends.postgres.values import REAL, constant
from dpsql.backends.spellings import DEFINED, ByCall, Spelling, Spellings
from dpsql.backends.time_formats import FORMATTED, PARTS, formatted
from dpsql.backends.time_units import MONDAY, bucket_width, buckets, whole_units
from dpsql.plan.expr import Call
from dpsql.plan.types import Type


def _field(field: str) -> Spelling:
    return Spelling(f"CAST(TRUNC(EXTRACT({field} FROM {moment(0)})) AS BIGINT)", CALENDAR)


def _of_time(field: str) -> Spelling:
    return Spelling(f"CAST(TRUNC(EXTRACT({field} FROM {{0}})) AS BIGINT)", DEFINED)


def _truncated(unit: str) -> Spelling:
    return Spelling(f"DATE_TRUNC('{unit}', {moment(0)})", CALENDAR)


_FIRST, _LAST = "DATE '0001-01-01'", "DATE '9999-12-31'"
_BEGIN, _END = "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"


def _months(moment: str) -> str:
    return f"CAST(EXTRACT(YEAR FROM {moment}) * 12 + EXTRACT(MONTH FROM {moment}) AS BIGINT)"


def _plus_months(times: int) -> Spelling:
    """Years and months, of which there are as many as keep the month within the calendar."""
    fits = f"CAST(b AS NUMERIC) * {times} + {_months('a')} BETWEEN 13 AND {9999 * 12 + 12}"
    body = f"CASE WHEN {fits} THEN a + MAKE_INTERVAL(months => CAST(b * {times} AS INTEGER)) END"
    return Spelling(held(body, moment(0), "{1}"), CALENDAR)


def _plus_days(times: int) -> Spelling:
    fits = f"CAST(b AS NUMERIC) * {times} BETWEEN {_FIRST} - CAST(a AS DATE) AND {_LAST} - CAST(a AS DATE)"
    body = f"CASE WHEN {fits} THEN a + MAKE_INTERVAL(days => CAST(b * {times} AS INTEGER)) END"
    return Spelling(held(body, moment(0), "{1}"), CALENDAR)


def _plus_seconds(seconds: int) -> Spelling:
    fits = (
        f"CAST(b AS NUMERIC) * {seconds} BETWEEN EXTRACT(EPOCH FROM {_BEGIN}) - EXTRACT(EPOCH FROM a) "
        f"AND EXTRACT(EPOCH FROM {_END}) - EXTRACT(EPOCH FROM a)"
    )
    whole, rest = (f"{part}(CAST(b AS NUMERIC) * {seconds}, 86400)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({whole} AS INTEGER)) + MAKE_INTERVAL(secs => CAST({rest} AS {REAL}))"
    body = f"CASE WHEN {fits} THEN a + ({added}) END"
    return Spelling(held(body, moment(0), "{1}"), CALENDAR)


def _shifted(day: str, number: str, sign: str) -> Spelling:
    """A day and a number of days."""
    fits = f"{sign}CAST(b AS NUMERIC) BETWEEN {_FIRST} - a AND {_LAST} - a"
    return Spelling(held(f"CASE WHEN {fits} THEN a + {sign}CAST(b AS INTEGER) END", day, number), CALENDAR)


def _difference(unit: str, seconds: int) -> Spelling:
    """How often the clock passes the beginning of a unit."""
    parts = (f"EXTRACT(EPOCH FROM DATE_TRUNC('{unit}', {moment(place)}))" for place in (1, 0))
    return Spelling(f"CAST(DIV({' - '.join(parts)}, {seconds}) AS BIGINT)", CALENDAR)


def _clock_between(micros: int) -> Spelling:
    """How many multiples of `micros` microseconds the clock passes from one moment to the other."""
    parts = (f"FLOOR(EXTRACT(EPOCH FROM {moment(place)}) * {1_000_000 // micros})" for place in (1, 0))
    return Spelling(f"CAST({' - '.join(parts)} AS BIGINT)", CALENDAR)


def _of_micros(number: str) -> Spelling:
    """The moment of microseconds since 1970 within the calendar."""
    low, high = (f"EXTRACT(EPOCH FROM {end}) * 1000000" for end in (_BEGIN, _END))
    days, rest = (f"{part}(a, 86400000000)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({days} AS INTEGER), secs => CAST({rest} AS {REAL}) / 1000000)"
    body = f"CASE WHEN a BETWEEN {low} AND {high} THEN TIMESTAMP '1970-01-01' + ({added}) END"
    return Spelling(held(body, number), CALENDAR)


def _whole_units(micros: int) -> Spelling:
    """How many whole units of time are between two moments."""
    between = f"EXTRACT(EPOCH FROM {moment(1)}) - EXTRACT(EPOCH FROM {moment(0)})"
    return Spelling(f"CAST(DIV(({between}) * 1000000, {micros}) AS BIGINT)", CALENDAR)


def _plus_micros(unit: int) -> Spelling:
    low, high = (f"(EXTRACT(EPOCH FROM {end}) - EXTRACT(EPOCH FROM a)) * 1000000" for end in (_BEGIN, _END))
    days, rest = (f"{part}(CAST(b AS NUMERIC) * {unit}, 86400000000)" for part in ("DIV", "MOD"))
    added = f"MAKE_INTERVAL(days => CAST({days} AS INTEGER), secs => CAST({rest} AS {REAL}) / 1000000)"
    body = f"CASE WHEN CAST(b AS NUMERIC) * {unit} BETWEEN {low} AND {high} THEN a + {added} END"
    return Spelling(held(body, moment(0), "{1}"), CALENDAR)


def _first_of_years(years: int) -> Spelling:
    """The first moment of the span of `years` in which a moment lies, as of its decade."""
    begun = f"DIV(CAST(EXTRACT(YEAR FROM a) AS NUMERIC), {years}) * {years}"
    body = f"CASE WHEN {begun} >= 1 THEN MAKE_TIMESTAMP(CAST({begun} AS INTEGER), 1, 1, 0, 0, 0) END"
    return Spelling(held(body, moment(0)), CALENDAR)


def _bucket(unit: int, kind: str) -> ByCall:
    """The beginning of a bucket of microseconds, `unit` times the number in the call, one of which begins at `MONDAY`."""

    def made(call: Call) -> str | None:
        width = bucket_width(call, unit)
        if width is None:
            return None
        since = f"CAST(EXTRACT(EPOCH FROM {moment(1)}) * 1000000 AS BIGINT)"
        begun = held(f"CAST(a - MOD(MOD(a - {MONDAY}, {width}) + {width}, {width}) AS NUMERIC)", since)
        return f"CAST({_of_micros(begun).sql} AS {kind})"

    return ByCall(made, CALENDAR)


def _bucket_of_months(unit: int, kind: str) -> ByCall:
    """The beginning of a bucket of months, `unit` times the number in the call, one of which begins with the year 2000."""

    def made(call: Call) -> str | None:
        width = bucket_width(call, unit)
        if width is None:
            return None
        begun = held(
            f"a - MOD(MOD(a - {2000 * 12}, {width}) + {width}, {width})", f"({_months(moment(1))} - 1)"
        )
        day = "MAKE_DATE(CAST(a / 12 AS INTEGER), CAST(a % 12 + 1 AS INTEGER), 1)"
        return f"CAST({held(f'CASE WHEN a BETWEEN 12 AND {9999 * 12 + 11} THEN {day} END', begun)} AS {kind})"

    return ByCall(made, CALENDAR)


def _padded(field: str, digits: int) -> str:
    return f"LPAD(CAST(TRUNC(EXTRACT({field} FROM {moment(0)})) AS TEXT), {digits}, '0')"


def _joined(parts: list[str]) -> str:
    """Texts of one moment, NULL where it is."""
    text = " || ".join(parts or ["''"])
    return f'CASE WHEN {{0}} IS NOT NULL THEN ({text}) COLLATE "C" END'


def _of_months(times: int) -> Spelling:
    begun = [f"FLOOR(CAST({_months(moment(place))} - 1 AS NUMERIC) / {times})" for place in (1, 0)]
    return Spelling(f"CAST({' - '.join(begun)} AS BIGINT)", CALENDAR)


_DAYS_OF_MONTH = "EXTRACT(DAY FROM MAKE_DATE(CAST(a AS INTEGER), CAST(b AS INTEGER), 1) + INTERVAL '1 month' - INTERVAL '1 day')"

MOMENTS: Spellings = MappingProxyType(
    {
        # moments of numbers
        "make_timestamp_us": _of_micros("CAST({0} AS NUMERIC)"),
        **dict.fromkeys(("make_timestamp_ms", "from_epoch_ms"), _of_micros("CAST({0} AS NUMERIC) * 1000")),
        "epoch_ns": Spelling(
            narrowed(f"CAST(EXTRACT(EPOCH FROM {moment(0)}) * 1000000000 AS NUMERIC)"), CALENDAR
        ),
        # parts of dates
        **{
            name: _field(field)
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
        "era": Spelling(f"CAST(CASE WHEN {moment(0)} IS NOT NULL THEN 1 END AS BIGINT)", CALENDAR),
        "dayname": Spelling(
            f"TO_CHAR({moment(0)}, 'FMDay')", "the English names, whatever the language of the server"
        ),
        "monthname": Spelling(
            f"TO_CHAR({moment(0)}, 'FMMonth')", "the English names, whatever the language of the server"
        ),
        "yearweek": Spelling(
            f"CAST(EXTRACT(isoyear FROM {moment(0)}) * 100 + EXTRACT(week FROM {moment(0)}) AS BIGINT)",
            CALENDAR,
        ),
        "epoch": Spelling(f"CAST(EXTRACT(epoch FROM {moment(0)}) AS {REAL})", CALENDAR),
        "epoch_us": Spelling(f"CAST(EXTRACT(epoch FROM {moment(0)}) * 1000000 AS BIGINT)", CALENDAR),
        "time_hour": _of_time("hour"),
        "time_minute": _of_time("minute"),
        "time_second": _of_time("second"),
        "time_millisecond": _of_time("milliseconds"),
        "time_microsecond": _of_time("microseconds"),
        **{
            f"date_trunc_{unit}": _truncated(unit)
            for unit in (
                *("year", "quarter", "month", "week"),
                *("day", "hour", "minute", "second"),
            )
        },
        "date_trunc_decade": _first_of_years(10),
        "date_trunc_century": _first_of_years(100),
        "date_trunc_millennium": _first_of_years(1000),
        "strftime": ByCall(
            formatted({field: _padded(field, digits) for field, digits in PARTS.values()}, _joined, constant),
            FORMATTED,
        ),
        **buckets(_bucket, _bucket_of_months, "TIMESTAMP"),
        "date_trunc_millisecond": _truncated("milliseconds"),
        "date_trunc_microsecond": _truncated("microseconds"),
        "last_day": Spelling(
            f"CAST(DATE_TRUNC('month', {moment(0)}) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
            CALENDAR,
        ),
        "days_in_month": Spelling(
            f"CAST(EXTRACT(day FROM DATE_TRUNC('month', {moment(0)}) + INTERVAL '1 month' - INTERVAL '1 day') AS BIGINT)",
            CALENDAR,
        ),
        # distances of dates
        "days_between": Spelling("CAST(CAST({0} AS DATE) - CAST({1} AS DATE) AS BIGINT)", CALENDAR),
        "date_diff_day": _difference("day", 86_400),
        "date_diff_hour": _difference("hour", 3_600),
        "date_diff_minute": _difference("minute", 60),
        "date_diff_second": _difference("second", 1),
        "date_diff_millisecond": _clock_between(1_000),
        "date_diff_microsecond": _clock_between(1),
        "date_diff_month": _of_months(1),
        "date_diff_quarter": _of_months(3),
        "date_diff_year": _of_months(12),
        "date_diff_decade": _of_months(120),
        "date_diff_century": _of_months(1_200),
        "date_diff_millennium": _of_months(12_000),
        **whole_units(_whole_units),
        "plus_days": _shifted("{0}", "{1}", ""),
        "days_plus": _shifted("{1}", "{0}", ""),
        "minus_days": _shifted("{0}", "{1}", "-"),
        "plus_millennium": _plus_months(12_000),
        "plus_century": _plus_months(1_200),
        "plus_decade": _plus_months(120),
        "plus_year": _plus_months(12),
        "plus_quarter": _plus_months(3),
        "plus_month": _plus_months(1),
        "plus_week": _plus_days(7),
        "plus_day": _plus_days(1),
        "plus_hour": _plus_seconds(3_600),
        "plus_minute": _plus_seconds(60),
        "plus_second": _plus_seconds(1),
        "plus_millisecond": _plus_micros(1_000),
        "plus_microsecond": _plus_micros(1),
        "make_date": Spelling(
            held(
                f"CASE WHEN a BETWEEN 1 AND 9999 AND b BETWEEN 1 AND 12 THEN CASE WHEN c BETWEEN 1 AND {_DAYS_OF_MONTH} "
                "THEN MAKE_DATE(CAST(a AS INTEGER), CAST(b AS INTEGER), CAST(c AS INTEGER)) END END",
                "{0}",
                "{1}",
                "{2}",
            ),
            CALENDAR,
            takes=frozenset({Type.INTEGER}),
        ),
        "epoch_ms": Spelling(f"CAST(ROUND(EXTRACT(EPOCH FROM {moment(0)}) * 1000) AS BIGINT)", CALENDAR),
    }
)
"""Spellings by the names of entries."""
