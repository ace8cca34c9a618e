"""How Spark computes the entries of the function registry, each with the reason why no row makes it fail.

What is not listed here is refused with code `engine_function`. Under ANSI rules Spark's arithmetic fails where a whole number
leaves its type, a divisor is zero, or a cast has no value; its functions with TRY in their names give NULL there. Nothing
rests on which branch of a CASE is evaluated first: each function that could fail reads a value that a CASE has made NULL.

Claim: what is written is defined for every value of the arguments' types, where days and moments are of the years 1 to
9999 and texts are as long as `analysis.text_bounds` lets them be.
Source: Spark 4.0 documentation, "ANSI compliance" and "Built-in functions"; IEEE 754-2019, section 7 (arithmetic on DOUBLE
does not fail in Java).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from dpsql.backends.function_spellings import (
    COMMON_SPELLINGS,
    COMPARES,
    DAY,
    DEFINED,
    LEAST_BEYOND_FLOAT,
    MAX_INT64,
    MONDAY,
    MOST_DOUBLE,
    MOST_WILDCARDS,
    WITHIN_CALENDAR,
    CallSpelling,
    Spelling,
    Spellings,
    TypeSpelling,
    define_full_differences,
    define_integer_casts,
    define_month_units,
    define_pattern_matches,
    define_strftime,
    define_time_buckets,
    define_years_truncations,
    has_constant,
    has_constant_text,
    has_only_texts,
    has_separator,
)
from dpsql.backends.spark.values import INFINITY, NAN, emit_constant, make_like_template, translate_letters
from dpsql.plan.expressions import WorkRule
from dpsql.plan.functions import growth
from dpsql.plan.types import Type

_SPACES = "".join(
    f"\\u{code:04x}" for code in (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
)
"""The spaces that TRIM takes away: Unicode's category Zs."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days of the calendar, counted from the first of 1970."""

_TRIED = "what 64 bits cannot hold is NULL; arithmetic on DOUBLE does not fail"
_LETTERS = "each letter becomes the one that DuckDB has for it"
_ESCAPES = "a constant that escapes wildcards and its escape alone is a pattern"
_NAMED = "a text of every day of the calendar"


def bind_arguments(body: str, *arguments: str) -> str:
    """Emit a text over `a`, `b` and so on, which are the arguments, each of them computed once: an array of one is mapped.

    >>> bind_arguments("a + a", "x")
    'GET(TRANSFORM(ARRAY(x), a -> a + a), 0)'
    """
    if len(arguments) == 1:
        return f"GET(TRANSFORM(ARRAY({arguments[0]}), a -> {body}), 0)"
    fields = ", ".join(f"{argument} AS {name}" for argument, name in zip(arguments, "abcdef", strict=False))
    named = body
    for name in "abcdef"[: len(arguments)]:
        named = _qualify_name(named, name)
    return f"GET(TRANSFORM(ARRAY(STRUCT({fields})), r -> {named}), 0)"


def _qualify_name(body: str, name: str) -> str:
    return re.sub(rf"(?<![\w.']){name}(?![\w'(])", f"r.{name}", body)


def _emit_double(place: int) -> str:
    return f"CAST({{{place}}} AS DOUBLE)"


def _define_total_function(sql: str) -> Spelling:
    return Spelling(sql, DEFINED)


def _define_rounding(real: str) -> Spelling:
    """Round a DOUBLE; a whole number is returned unchanged."""
    return Spelling(bind_arguments(real, "{0}"), DEFINED, "{0}")


def _emit_integer_casts(low: int, high: int) -> Mapping[Type, str]:
    """Cast, rounding half to even."""
    fits = f"CASE WHEN a BETWEEN {low} AND {high} THEN a END"
    return {
        Type.INTEGER: bind_arguments(fits, "{0}"),
        Type.DOUBLE: bind_arguments(fits, "TRY_CAST(RINT({0}) AS BIGINT)"),
        Type.BOOLEAN: "CAST({0} AS BIGINT)",
    }


def _emit_timestamp(place: int) -> str:
    return f"TRY_CAST({{{place}}} AS TIMESTAMP_NTZ)"


def _emit_date(place: int) -> str:
    return f"TRY_CAST({{{place}}} AS DATE)"


def _emit_microseconds(moment: str) -> str:
    """Emit the microseconds since 1970 of a moment, in the time zone of the session, which is UTC."""
    return f"UNIX_MICROS(CAST({moment} AS TIMESTAMP))"


def _emit_from_microseconds(number: str) -> str:
    """Emit the moment of microseconds since 1970, of any BIGINT."""
    return f"CAST(TIMESTAMP_MICROS({number}) AS TIMESTAMP_NTZ)"


_BEGIN, _END = _FIRST_DAY * DAY, (_LAST_DAY + 1) * DAY - 1


def _emit_within_calendar(number: str) -> str:
    """Emit the moment of microseconds within the calendar, NULL beyond."""
    return _emit_from_microseconds(
        bind_arguments(f"CASE WHEN a BETWEEN {_BEGIN} AND {_END} THEN a END", number)
    )


def _define_part(text: str) -> Spelling:
    return Spelling(f"CAST({text.format(_emit_timestamp(0))} AS BIGINT)", WITHIN_CALENDAR)


def _define_truncation(unit: str) -> Spelling:
    """Truncate a moment with a time zone, which DATE_TRUNC takes."""
    return Spelling(
        f"CAST(DATE_TRUNC('{unit}', CAST({_emit_timestamp(0)} AS TIMESTAMP)) AS TIMESTAMP_NTZ)",
        WITHIN_CALENDAR,
    )


def _define_addition(unit: int) -> Spelling:
    """Add a number of units, each of `unit` microseconds."""
    added = f"TRY_ADD({_emit_microseconds(_emit_timestamp(0))}, TRY_MULTIPLY({{1}}, CAST({unit} AS BIGINT)))"
    return Spelling(_emit_within_calendar(added), WITHIN_CALENDAR)


def _define_month_addition(times: int) -> Spelling:
    """Add years and months, as many as keep the month within the calendar; the time of day stays."""
    months = bind_arguments(
        f"CASE WHEN a BETWEEN {-120_000 // times} AND {120_000 // times} THEN a END", "{1}"
    )
    day = f"ADD_MONTHS(CAST(a AS DATE), TRY_CAST(b * {times} AS INT))"
    at = f"TRY_ADD(UNIX_DATE({day}) * CAST({DAY} AS BIGINT), PMOD({_emit_microseconds('a')}, CAST({DAY} AS BIGINT)))"
    return Spelling(_emit_within_calendar(bind_arguments(at, _emit_timestamp(0), months)), WITHIN_CALENDAR)


def _define_day_shift(day: str, number: str, function: str) -> Spelling:
    """Add a number of days to a day."""
    moved = f"{function}(CAST(UNIX_DATE({day}) AS BIGINT), {number})"
    fits = bind_arguments(f"CASE WHEN a BETWEEN {_FIRST_DAY} AND {_LAST_DAY} THEN a END", moved)
    return Spelling(f"DATE_FROM_UNIX_DATE(TRY_CAST({fits} AS INT))", WITHIN_CALENDAR)


def _emit_units_begun(place: int, unit: int) -> str:
    """Emit the number of units that have begun since 1970, below 0 before."""
    return bind_arguments(
        f"(a - PMOD(a, CAST({unit} AS BIGINT))) DIV {unit}", _emit_microseconds(_emit_timestamp(place))
    )


def _define_difference(unit: int) -> Spelling:
    """Count how often the clock passes the beginning of a unit."""
    return Spelling(f"({_emit_units_begun(1, unit)} - {_emit_units_begun(0, unit)})", WITHIN_CALENDAR)


def _emit_month_number(place: int) -> str:
    return f"CAST(YEAR({_emit_timestamp(place)}) * 12 + MONTH({_emit_timestamp(place)}) - 1 AS BIGINT)"


def _define_full_difference(unit: int) -> Spelling:
    """Count the whole units of microseconds between two moments."""
    return Spelling(
        f"(({_emit_microseconds(_emit_timestamp(1))} - {_emit_microseconds(_emit_timestamp(0))}) DIV {unit})",
        WITHIN_CALENDAR,
    )


def _define_years_truncation(years: int) -> Spelling:
    """Find the first moment of the span of `years` in which a moment lies, as of its decade."""
    begun = bind_arguments(f"NULLIF(YEAR(a) DIV {years} * {years}, 0)", _emit_timestamp(0))
    return Spelling(
        f"CAST(MAKE_DATE({bind_arguments('CAST(a AS INT)', begun)}, 1, 1) AS TIMESTAMP_NTZ)", WITHIN_CALENDAR
    )


def _emit_bucket(width: int) -> str:
    """Emit the beginning of a bucket of microseconds, one of which begins at `MONDAY`."""
    begun = bind_arguments(
        f"a - PMOD(a - CAST({MONDAY} AS BIGINT), CAST({width} AS BIGINT))",
        _emit_microseconds(_emit_timestamp(1)),
    )
    return _emit_within_calendar(begun)


def _emit_month_bucket(width: int) -> str:
    """Emit the beginning of a bucket of months, one of which begins with the year 2000."""
    begun = bind_arguments(f"a - PMOD(a - {2000 * 12}, CAST({width} AS BIGINT))", _emit_month_number(1))
    fits = bind_arguments(f"CASE WHEN a BETWEEN 12 AND {9999 * 12 + 11} THEN a END", begun)
    return bind_arguments("MAKE_DATE(CAST(a DIV 12 AS INT), CAST(a % 12 + 1 AS INT), 1)", fits)


def _emit_padded_field(field: str, digits: int) -> str:
    return f"LPAD(CAST({field.upper()}({_emit_timestamp(0)}) AS STRING), {digits}, '0')"


def _emit_concatenation(parts: list[str]) -> str:
    """Concatenate texts of one moment, NULL if it is NULL."""
    text = " || ".join(parts or ["''"])
    return f"CASE WHEN {{0}} IS NOT NULL THEN {text} END"


def _define_month_difference(times: int) -> Spelling:
    return Spelling(
        f"({_emit_month_number(1)} DIV {times} - {_emit_month_number(0)} DIV {times})", WITHIN_CALENDAR
    )


def _define_name_lookup(values: tuple[str, ...], place: str) -> Spelling:
    listed = ", ".join(f"'{value}'" for value in values)
    return Spelling(f"ELT({place}, {listed})", _NAMED)


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)

_UP = "CASE WHEN RINT(ABS(a)) < ABS(a) THEN RINT(ABS(a)) + 1 ELSE RINT(ABS(a)) END"
_EVEN = f"CASE WHEN ABS(a) < {emit_constant(2.0**53)} THEN SIGN(a) * (({_UP}) + ({_UP}) % 2) ELSE a END"

_TESTS = {
    (False, False): "CONTAINS(a, {0})",
    (True, False): "STARTSWITH(a, {0})",
    (False, True): "ENDSWITH(a, {0})",
    (True, True): "a = {0}",
}

SPELLINGS: Spellings = MappingProxyType(
    {
        **COMMON_SPELLINGS,
        **{
            name: Spelling(
                f"{name.upper()}({{0}}, {{1}})",
                "a constant count from 0 on: for a negative one Spark returns no text, where DuckDB leaves out characters",
                condition=has_constant(1, 0, 2**30),
            )
            for name in ("left", "right")
        },
        # operators
        "add": Spelling(f"({_emit_double(0)} + {_emit_double(1)})", _TRIED, "TRY_ADD({0}, {1})"),
        "subtract": Spelling(f"({_emit_double(0)} - {_emit_double(1)})", _TRIED, "TRY_SUBTRACT({0}, {1})"),
        "multiply": Spelling(f"({_emit_double(0)} * {_emit_double(1)})", _TRIED, "TRY_MULTIPLY({0}, {1})"),
        "divide": Spelling(
            f"TRY_DIVIDE({_emit_double(0)}, {_emit_double(1)})", f"{_TRIED}; a zero divisor gives NULL"
        ),
        "negate": Spelling("(- {0})", DEFINED, "TRY_SUBTRACT(CAST(0 AS BIGINT), {0})"),
        # whole numbers
        "quotient_by": Spelling("({0} DIV {1})", "the divisor is a constant that is neither 0 nor -1"),
        "quotient": Spelling(
            bind_arguments(
                "CASE WHEN b = -1 THEN TRY_SUBTRACT(CAST(0 AS BIGINT), a) ELSE a DIV NULLIF(NULLIF(b, 0), -1) END",
                "{0}",
                "{1}",
            ),
            "a zero divisor, and the one quotient beyond 64 bits, give NULL",
        ),
        "remainder": Spelling(
            "TRY_MOD({0}, {1})", "a zero divisor gives NULL", takes=frozenset({Type.INTEGER})
        ),
        "bit_xor": Spelling("({0} ^ {1})", DEFINED),
        "shift_right": Spelling(
            bind_arguments(
                "CASE WHEN b BETWEEN 0 AND 63 THEN SHIFTRIGHT(a, CAST(b & 63 AS INT)) WHEN b IS NOT NULL AND a IS NOT NULL THEN 0 END",
                "{0}",
                "{1}",
            ),
            "a shift out of range gives 0",
        ),
        "shift_left": Spelling(
            bind_arguments(
                f"CASE WHEN a = 0 AND b >= 0 THEN a WHEN a > 0 AND b BETWEEN 0 AND 62 "
                f"AND a <= SHIFTRIGHT(CAST({MAX_INT64} AS BIGINT), CAST(b & 63 AS INT)) THEN SHIFTLEFT(a, CAST(b & 63 AS INT)) END",
                "{0}",
                "{1}",
            ),
            "NULL of negative numbers, and beyond 64 bits",
        ),
        "bit_count": Spelling("CAST(BIT_COUNT({0}) AS BIGINT)", DEFINED),
        # numbers
        "sign": Spelling(
            f"TRY_CAST(SIGN(NANVL({_emit_double(0)}, CAST(0 AS DOUBLE))) AS BIGINT)",
            "-1, 0 or 1 for every DOUBLE",
        ),
        "abs": Spelling("ABS({0})", DEFINED, "TRY_CAST(ABS(CAST({0} AS DECIMAL(20,0))) AS BIGINT)"),
        "floor": _define_rounding("CASE WHEN RINT(a) > a THEN RINT(a) - 1 ELSE RINT(a) END"),
        "ceil": _define_rounding("CASE WHEN RINT(a) < a THEN RINT(a) + 1 ELSE RINT(a) END"),
        "trunc": _define_rounding("CASE WHEN ABS(RINT(a)) > ABS(a) THEN RINT(a) - SIGN(a) ELSE RINT(a) END"),
        "round": _define_rounding(
            "CASE WHEN ABS(a - RINT(a)) = CAST('0.5' AS DOUBLE) THEN a + SIGN(a) * CAST('0.5' AS DOUBLE) ELSE RINT(a) END"
        ),
        "even": Spelling(bind_arguments(_EVEN, _emit_double(0)), DEFINED),
        "signbit": Spelling(f"STARTSWITH(CAST({_emit_double(0)} AS STRING), '-')", DEFINED),
        "isnan": Spelling(f"({_emit_double(0)} = {NAN})", COMPARES),
        "isinf": Spelling(f"(ABS({_emit_double(0)}) = {INFINITY})", COMPARES),
        "isfinite": Spelling(f"(ABS({_emit_double(0)}) < {INFINITY})", COMPARES),
        "sqrt": _define_total_function(f"SQRT({_emit_double(0)})"),
        "cbrt": _define_total_function(f"CBRT({_emit_double(0)})"),
        **{
            name: Spelling(
                bind_arguments(f"CASE WHEN a < 0 THEN {NAN} ELSE {word}(a) END", _emit_double(0)),
                "of 0 it is NULL, below NaN",
            )
            for name, word in {"ln": "LN", "log10": "LOG10", "log2": "LOG2"}.items()
        },
        "exp": _define_total_function(f"EXP({_emit_double(0)})"),
        "power": _define_total_function(f"POWER({_emit_double(0)}, {_emit_double(1)})"),
        "degrees": _define_total_function(f"DEGREES({_emit_double(0)})"),
        "radians": _define_total_function(f"RADIANS({_emit_double(0)})"),
        **{
            name: _define_total_function(f"{name.upper()}({_emit_double(0)})")
            for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atanh")
        },
        "atan2": _define_total_function(f"ATAN2({_emit_double(0)}, {_emit_double(1)})"),
        # text
        "length": Spelling("CAST(CHAR_LENGTH({0}) AS BIGINT)", DEFINED),
        "unicode": Spelling(
            bind_arguments(
                "CASE WHEN a = '' THEN CAST(-1 AS BIGINT) ELSE CAST(ASCII(a) AS BIGINT) END", "{0}"
            ),
            DEFINED,
        ),
        "trim": Spelling(f"TRIM(BOTH '{_SPACES}' FROM {{0}})", DEFINED),
        "ltrim": Spelling(f"TRIM(LEADING '{_SPACES}' FROM {{0}})", DEFINED),
        "rtrim": Spelling(f"TRIM(TRAILING '{_SPACES}' FROM {{0}})", DEFINED),
        "trim_characters": Spelling("TRIM(BOTH {1} FROM {0})", DEFINED, condition=has_constant_text),
        "ltrim_characters": Spelling("TRIM(LEADING {1} FROM {0})", DEFINED, condition=has_constant_text),
        "rtrim_characters": Spelling("TRIM(TRAILING {1} FROM {0})", DEFINED, condition=has_constant_text),
        "lower": CallSpelling(lambda _: translate_letters("lower", "{0}"), _LETTERS),
        "upper": CallSpelling(lambda _: translate_letters("upper", "{0}"), _LETTERS),
        "split_part": Spelling(
            "SPLIT_PART({0}, {1}, CAST({2} AS INT))",
            "the separator is some constant text, and the place a constant from 1 on",
            condition=has_separator,
        ),
        "contains": Spelling("CONTAINS({0}, {1})", DEFINED, condition=has_only_texts),
        "starts_with": Spelling("STARTSWITH({0}, {1})", DEFINED, condition=has_only_texts),
        "suffix": Spelling("ENDSWITH({0}, {1})", DEFINED, condition=has_only_texts),
        "strpos": Spelling("CAST(INSTR({0}, {1}) AS BIGINT)", DEFINED, condition=has_only_texts),
        "concat": Spelling("CONCAT_WS('', {args})", DEFINED, condition=has_only_texts),
        "hex": Spelling("HEX({0})", DEFINED, takes=frozenset({Type.INTEGER})),
        "bin": Spelling("BIN({0})", DEFINED, takes=frozenset({Type.INTEGER})),
        "like": CallSpelling(
            make_like_template(),
            f"the pattern is a constant without the escape; of at most {MOST_WILDCARDS} %, for each of which the search may go back",
        ),
        "ilike": CallSpelling(make_like_template("lower"), f"as LIKE, of at most {MOST_WILDCARDS} %"),
        "like_escape": CallSpelling(make_like_template(), f"{_ESCAPES}; of at most {MOST_WILDCARDS} %"),
        "ilike_escape": CallSpelling(
            make_like_template("lower"), f"{_ESCAPES}; of at most {MOST_WILDCARDS} %"
        ),
        **define_pattern_matches(_TESTS, emit_constant, bind_arguments),
        # parts of dates
        **{
            name: _define_part(f"{word}({{}})")
            for name, word in {
                name: name.upper() for name in ("year", "quarter", "month", "day", "hour", "minute", "second")
            }.items()
        },
        "week": _define_part("WEEKOFYEAR({})"),
        "doy": _define_part("DAYOFYEAR({})"),
        "dow": _define_part("DAYOFWEEK({}) - 1"),
        "isodow": _define_part("WEEKDAY({}) + 1"),
        "isoyear": _define_part("EXTRACT(YEAROFWEEK FROM {})"),
        "yearweek": Spelling(
            f"CAST(EXTRACT(YEAROFWEEK FROM {_emit_timestamp(0)}) * 100 + WEEKOFYEAR({_emit_timestamp(0)}) AS BIGINT)",
            WITHIN_CALENDAR,
        ),
        "millisecond": Spelling(
            f"(PMOD({_emit_microseconds(_emit_timestamp(0))}, CAST(60000000 AS BIGINT)) DIV 1000)",
            WITHIN_CALENDAR,
        ),
        "microsecond": Spelling(
            f"PMOD({_emit_microseconds(_emit_timestamp(0))}, CAST(60000000 AS BIGINT))", WITHIN_CALENDAR
        ),
        "decade": _define_part("YEAR({}) DIV 10"),
        "century": _define_part("(YEAR({}) + 99) DIV 100"),
        "millennium": _define_part("(YEAR({}) + 999) DIV 1000"),
        "era": _define_part("CASE WHEN {} IS NOT NULL THEN 1 END"),
        "epoch": Spelling(
            f"(CAST({_emit_microseconds(_emit_timestamp(0))} AS DOUBLE) / CAST(1000000 AS DOUBLE))",
            WITHIN_CALENDAR,
        ),
        "epoch_us": Spelling(_emit_microseconds(_emit_timestamp(0)), WITHIN_CALENDAR),
        "epoch_ns": Spelling(
            f"TRY_MULTIPLY({_emit_microseconds(_emit_timestamp(0))}, CAST(1000 AS BIGINT))", WITHIN_CALENDAR
        ),
        **{
            f"date_trunc_{unit}": _define_truncation(unit.upper())
            for unit in (
                *("year", "quarter", "month", "week", "day"),
                *("hour", "minute", "second", "millisecond", "microsecond"),
            )
        },
        **define_years_truncations(_define_years_truncation),
        "strftime": define_strftime(_emit_padded_field, _emit_concatenation, emit_constant),
        **define_time_buckets(_emit_bucket, _emit_month_bucket, "TIMESTAMP_NTZ"),
        "dayname": _define_name_lookup(_DAYS, f"(WEEKDAY({_emit_timestamp(0)}) + 1)"),
        "monthname": _define_name_lookup(_MONTHS, f"MONTH({_emit_timestamp(0)})"),
        "last_day": Spelling(f"LAST_DAY({_emit_date(0)})", WITHIN_CALENDAR),
        "days_in_month": Spelling(f"CAST(DAY(LAST_DAY({_emit_date(0)})) AS BIGINT)", WITHIN_CALENDAR),
        # distances of dates
        "days_between": Spelling(
            f"CAST(DATEDIFF({_emit_date(0)}, {_emit_date(1)}) AS BIGINT)", WITHIN_CALENDAR
        ),
        "date_diff_day": Spelling(
            f"CAST(DATEDIFF({_emit_date(1)}, {_emit_date(0)}) AS BIGINT)", WITHIN_CALENDAR
        ),
        "date_diff_hour": _define_difference(3_600_000_000),
        "date_diff_minute": _define_difference(60_000_000),
        "date_diff_second": _define_difference(1_000_000),
        "date_diff_millisecond": _define_difference(1_000),
        "date_diff_microsecond": Spelling(
            f"({_emit_microseconds(_emit_timestamp(1))} - {_emit_microseconds(_emit_timestamp(0))})",
            WITHIN_CALENDAR,
        ),
        **define_month_units("date_diff", _define_month_difference),
        **define_full_differences(_define_full_difference),
        "plus_days": _define_day_shift("{0}", "{1}", "TRY_ADD"),
        "days_plus": _define_day_shift("{1}", "{0}", "TRY_ADD"),
        "minus_days": _define_day_shift("{0}", "{1}", "TRY_SUBTRACT"),
        **define_month_units("plus", _define_month_addition),
        "plus_week": _define_addition(7 * DAY),
        "plus_day": _define_addition(DAY),
        "plus_hour": _define_addition(3_600_000_000),
        "plus_minute": _define_addition(60_000_000),
        "plus_second": _define_addition(1_000_000),
        "plus_millisecond": _define_addition(1_000),
        "plus_microsecond": _define_addition(1),
        "epoch_ms": Spelling(
            bind_arguments(
                "(a + CASE WHEN a < 0 THEN -500 ELSE 500 END) DIV 1000",
                _emit_microseconds(_emit_timestamp(0)),
            ),
            WITHIN_CALENDAR,
        ),
        "make_timestamp_us": Spelling(_emit_within_calendar("{0}"), WITHIN_CALENDAR),
        "make_timestamp_ms": Spelling(
            _emit_within_calendar("TRY_MULTIPLY({0}, CAST(1000 AS BIGINT))"), WITHIN_CALENDAR
        ),
        "from_epoch_ms": Spelling(
            _emit_within_calendar("TRY_MULTIPLY({0}, CAST(1000 AS BIGINT))"), WITHIN_CALENDAR
        ),
        # casts
        **define_integer_casts(_emit_integer_casts),
        "cast_double": TypeSpelling(
            {
                Type.INTEGER: _emit_double(0),
                Type.DOUBLE: "{0}",
                Type.NULL: _emit_double(0),
                Type.BOOLEAN: "CAST(CAST({0} AS BIGINT) AS DOUBLE)",
            },
            "every whole number has a nearest DOUBLE",
        ),
        "cast_float": TypeSpelling(
            {
                # Spark would leave out a cast to FLOAT between two casts that it holds to be exact.
                Type.INTEGER: "CAST(CAST({0} AS FLOAT) + CAST(0 AS FLOAT) AS DOUBLE)",
                Type.DOUBLE: bind_arguments(
                    f"CASE WHEN ABS(a) BETWEEN {emit_constant(LEAST_BEYOND_FLOAT)} AND {emit_constant(MOST_DOUBLE)} THEN NULL"
                    " ELSE CAST(CAST(a AS FLOAT) AS DOUBLE) END",
                    "{0}",
                ),
                Type.NULL: _emit_double(0),
            },
            "a cast to FLOAT has no error; what it would make infinite is NULL",
        ),
        "cast_varchar": TypeSpelling(
            dict.fromkeys((Type.INTEGER, Type.VARCHAR, Type.BOOLEAN, Type.DATE), "CAST({0} AS STRING)"),
            "every value of these types has a text, which no setting changes",
        ),
        "cast_boolean": TypeSpelling(
            {
                Type.INTEGER: "({0} <> CAST(0 AS BIGINT))",
                Type.BOOLEAN: "{0}",
                Type.DOUBLE: f"({{0}} <> {emit_constant(0.0)})",
            },
            COMPARES,
        ),
        "cast_date": TypeSpelling(
            {Type.DATE: "{0}", Type.TIMESTAMP: _emit_date(0)}, "every moment of the calendar has its day"
        ),
        "cast_timestamp": TypeSpelling(
            {Type.DATE: _emit_timestamp(0), Type.TIMESTAMP: "{0}"},
            "every day of the calendar has its first moment",
        ),
    }
)
"""Spellings by the names of entries."""

WORK: Mapping[str, WorkRule] = MappingProxyType(
    {
        **dict.fromkeys(("lower", "upper"), growth.make_byte_work_rule(50)),
        **dict.fromkeys(("ilike", "ilike_escape"), growth.make_pair_work_rule(8, each=50)),
        **dict.fromkeys(("like", "like_escape"), growth.make_pair_work_rule(8)),
        **dict.fromkeys(("contains", "strpos"), growth.make_pair_work_rule(Fraction(1, 2))),
        **dict.fromkeys(("regexp_matches", "regexp_full_match"), growth.make_pair_work_rule()),
        **dict.fromkeys(
            ("trim_characters", "ltrim_characters", "rtrim_characters"), growth.make_pair_work_rule(4)
        ),
        "translate": growth.make_byte_work_rule(50),
        "replace": growth.bound_slow_replacement_work,
        "split_part": growth.make_pair_work_rule(),
    }
)
"""The work of functions that compare letter by letter here: of a text and a pattern, of each two letters."""
