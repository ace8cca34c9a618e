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

from dpsql.backends.plain_patterns import PLAIN, plain_pattern
from dpsql.backends.spark.patterns import translate_letters, write_like
from dpsql.backends.spark.values import INFINITY, NAN, constant
from dpsql.backends.spellings import (
    ALIKE,
    CHOICE,
    COMPARES,
    DEFINED,
    LEAST_BEYOND_FLOAT,
    MOST_DOUBLE,
    MOST_WILDCARDS,
    ByCall,
    ByType,
    Spelling,
    Spellings,
    has_constant,
    known_text,
    part_of_text,
    texts,
)
from dpsql.backends.time_formats import FORMATTED, PARTS, formatted
from dpsql.backends.time_units import DAY, MONDAY, bucket_width, buckets, whole_units
from dpsql.functions import growth
from dpsql.plan.expr import Call, Literal, WorkRule
from dpsql.plan.types import Type

_MIN, _MAX = -(2**63), 2**63 - 1
_SPACES = "".join(
    f"\\u{code:04x}" for code in (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)
)
"""The spaces that TRIM takes away: Unicode's category Zs."""
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The days of the calendar, counted from the first of 1970."""

_TRIED = "what 64 bits cannot hold is NULL; arithmetic on DOUBLE does not fail"
_CALENDAR = "defined for every day and moment of the calendar; what leaves it is NULL"
_LETTERS = "each letter becomes the one that DuckDB has for it"
_ESCAPES = "a constant that escapes wildcards and its escape alone is a pattern"
_NAMED = "a text of every day of the calendar"


def held(body: str, *arguments: str) -> str:
    """A text over `a`, `b` and so on, which are the arguments, each of them computed once: an array of one is mapped.

    >>> held("a + a", "x")
    'GET(TRANSFORM(ARRAY(x), a -> a + a), 0)'
    """
    if len(arguments) == 1:
        return f"GET(TRANSFORM(ARRAY({arguments[0]}), a -> {body}), 0)"
    fields = ", ".join(f"{argument} AS {name}" for argument, name in zip(arguments, "abcdef", strict=False))
    named = body
    for name in "abcdef"[: len(arguments)]:
        named = _field(named, name)
    return f"GET(TRANSFORM(ARRAY(STRUCT({fields})), r -> {named}), 0)"


def _field(body: str, name: str) -> str:
    return re.sub(rf"(?<![\w.']){name}(?![\w'(])", f"r.{name}", body)


def _real(place: int) -> str:
    return f"CAST({{{place}}} AS DOUBLE)"


def _of_numbers(sql: str) -> Spelling:
    return Spelling(sql, DEFINED)


def _rounding(real: str) -> Spelling:
    """Of a DOUBLE; a whole number is what it is."""
    return Spelling(held(real, "{0}"), DEFINED, "{0}")


def _to_whole(low: int, high: int) -> Mapping[Type, str]:
    """A cast rounds half to even."""
    fits = f"CASE WHEN a BETWEEN {low} AND {high} THEN a END"
    return {
        Type.INTEGER: held(fits, "{0}"),
        Type.DOUBLE: held(fits, "TRY_CAST(RINT({0}) AS BIGINT)"),
        Type.BOOLEAN: "CAST({0} AS BIGINT)",
    }


def _moment(place: int) -> str:
    return f"TRY_CAST({{{place}}} AS TIMESTAMP_NTZ)"


def _day(place: int) -> str:
    return f"TRY_CAST({{{place}}} AS DATE)"


def _micros(moment: str) -> str:
    """The microseconds since 1970 of a moment, in the time zone of the session, which is UTC."""
    return f"UNIX_MICROS(CAST({moment} AS TIMESTAMP))"


def _of_micros(number: str) -> str:
    """The moment of microseconds since 1970, of any BIGINT."""
    return f"CAST(TIMESTAMP_MICROS({number}) AS TIMESTAMP_NTZ)"


_BEGIN, _END = _FIRST_DAY * DAY, (_LAST_DAY + 1) * DAY - 1


def _within(number: str) -> str:
    """The moment of microseconds within the calendar, NULL beyond."""
    return _of_micros(held(f"CASE WHEN a BETWEEN {_BEGIN} AND {_END} THEN a END", number))


def _part(text: str) -> Spelling:
    return Spelling(f"CAST({text.format(_moment(0))} AS BIGINT)", _CALENDAR)


def _truncated(unit: str) -> Spelling:
    """DATE_TRUNC is of a moment with a time zone."""
    return Spelling(
        f"CAST(DATE_TRUNC('{unit}', CAST({_moment(0)} AS TIMESTAMP)) AS TIMESTAMP_NTZ)", _CALENDAR
    )


def _plus(unit: int) -> Spelling:
    """So many units of microseconds, of which the clock knows no others."""
    added = f"TRY_ADD({_micros(_moment(0))}, TRY_MULTIPLY({{1}}, CAST({unit} AS BIGINT)))"
    return Spelling(_within(added), _CALENDAR)


def _plus_months(times: int) -> Spelling:
    """Years and months, of which there are as many as keep the month within the calendar; the time of day stays."""
    months = held(f"CASE WHEN a BETWEEN {-120_000 // times} AND {120_000 // times} THEN a END", "{1}")
    day = f"ADD_MONTHS(CAST(a AS DATE), TRY_CAST(b * {times} AS INT))"
    at = f"TRY_ADD(UNIX_DATE({day}) * CAST({DAY} AS BIGINT), PMOD({_micros('a')}, CAST({DAY} AS BIGINT)))"
    return Spelling(_within(held(at, _moment(0), months)), _CALENDAR)


def _shifted(day: str, number: str, function: str) -> Spelling:
    """A day and a number of days."""
    moved = f"{function}(CAST(UNIX_DATE({day}) AS BIGINT), {number})"
    fits = held(f"CASE WHEN a BETWEEN {_FIRST_DAY} AND {_LAST_DAY} THEN a END", moved)
    return Spelling(f"DATE_FROM_UNIX_DATE(TRY_CAST({fits} AS INT))", _CALENDAR)


def _begun(place: int, unit: int) -> str:
    """How many units have begun since 1970, below 0 before."""
    return held(f"(a - PMOD(a, CAST({unit} AS BIGINT))) DIV {unit}", _micros(_moment(place)))


def _difference(unit: int) -> Spelling:
    """How often the clock passes the beginning of a unit."""
    return Spelling(f"({_begun(1, unit)} - {_begun(0, unit)})", _CALENDAR)


def _months(place: int) -> str:
    return f"CAST(YEAR({_moment(place)}) * 12 + MONTH({_moment(place)}) - 1 AS BIGINT)"


def _whole_units(unit: int) -> Spelling:
    """How many whole units of microseconds are between two moments."""
    return Spelling(f"(({_micros(_moment(1))} - {_micros(_moment(0))}) DIV {unit})", _CALENDAR)


def _first_of_years(years: int) -> Spelling:
    """The first moment of the span of `years` in which a moment lies, as of its decade."""
    begun = held(f"NULLIF(YEAR(a) DIV {years} * {years}, 0)", _moment(0))
    return Spelling(f"CAST(MAKE_DATE({held('CAST(a AS INT)', begun)}, 1, 1) AS TIMESTAMP_NTZ)", _CALENDAR)


def _bucket(unit: int, kind: str) -> ByCall:
    """The beginning of a bucket of microseconds, `unit` times the number in the call, one of which begins at `MONDAY`."""

    def made(call: Call) -> str | None:
        width = bucket_width(call, unit)
        if width is None:
            return None
        begun = held(f"a - PMOD(a - CAST({MONDAY} AS BIGINT), CAST({width} AS BIGINT))", _micros(_moment(1)))
        return f"CAST({_within(begun)} AS {kind})"

    return ByCall(made, _CALENDAR)


def _bucket_of_months(unit: int, kind: str) -> ByCall:
    """The beginning of a bucket of months, `unit` times the number in the call, one of which begins with the year 2000."""

    def made(call: Call) -> str | None:
        width = bucket_width(call, unit)
        if width is None:
            return None
        begun = held(f"a - PMOD(a - {2000 * 12}, CAST({width} AS BIGINT))", _months(1))
        fits = held(f"CASE WHEN a BETWEEN 12 AND {9999 * 12 + 11} THEN a END", begun)
        day = "MAKE_DATE(CAST(a DIV 12 AS INT), CAST(a % 12 + 1 AS INT), 1)"
        return f"CAST({held(day, fits)} AS {kind})"

    return ByCall(made, _CALENDAR)


def _padded(field: str, digits: int) -> str:
    return f"LPAD(CAST({field.upper()}({_moment(0)}) AS STRING), {digits}, '0')"


def _joined(parts: list[str]) -> str:
    """Texts of one moment, NULL where it is."""
    text = " || ".join(parts or ["''"])
    return f"CASE WHEN {{0}} IS NOT NULL THEN {text} END"


def _separated(call: Call) -> bool:
    """Whether a separator is some text, and a place is counted from the beginning."""
    separator = call.arguments[1]
    return has_constant(2, 1, 2**30)(call) and isinstance(separator, Literal) and separator.value != ""


def _of_months(times: int) -> Spelling:
    return Spelling(f"({_months(1)} DIV {times} - {_months(0)} DIV {times})", _CALENDAR)


def _named(values: tuple[str, ...], place: str) -> Spelling:
    listed = ", ".join(f"'{value}'" for value in values)
    return Spelling(f"ELT({place}, {listed})", _NAMED)


_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
)

_UP = "CASE WHEN RINT(ABS(a)) < ABS(a) THEN RINT(ABS(a)) + 1 ELSE RINT(ABS(a)) END"
_EVEN = f"CASE WHEN ABS(a) < {constant(2.0**53)} THEN SIGN(a) * (({_UP}) + ({_UP}) % 2) ELSE a END"

_TESTS = {
    (False, False): "CONTAINS(a, {0})",
    (True, False): "STARTSWITH(a, {0})",
    (False, True): "ENDSWITH(a, {0})",
    (True, True): "a = {0}",
}

SPELLINGS: Spellings = MappingProxyType(
    {
        **ALIKE,
        # operators
        "add": Spelling(f"({_real(0)} + {_real(1)})", _TRIED, "TRY_ADD({0}, {1})"),
        "subtract": Spelling(f"({_real(0)} - {_real(1)})", _TRIED, "TRY_SUBTRACT({0}, {1})"),
        "multiply": Spelling(f"({_real(0)} * {_real(1)})", _TRIED, "TRY_MULTIPLY({0}, {1})"),
        "divide": Spelling(f"TRY_DIVIDE({_real(0)}, {_real(1)})", f"{_TRIED}; a zero divisor gives NULL"),
        "negate": Spelling("(- {0})", DEFINED, "TRY_SUBTRACT(CAST(0 AS BIGINT), {0})"),
        # whole numbers
        "quotient_by": Spelling("({0} DIV {1})", "the divisor is a constant that is neither 0 nor -1"),
        "quotient": Spelling(
            held(
                "CASE WHEN b = -1 THEN TRY_SUBTRACT(CAST(0 AS BIGINT), a) ELSE a DIV NULLIF(NULLIF(b, 0), -1) END",
                "{0}",
                "{1}",
            ),
            "a zero divisor, and the one quotient beyond 64 bits, give NULL",
        ),
        "remainder_by": Spelling("({0} % {1})", "the divisor is a constant that is neither 0 nor -1"),
        "remainder": Spelling(
            "TRY_MOD({0}, {1})", "a zero divisor gives NULL", takes=frozenset({Type.INTEGER})
        ),
        "bit_xor": Spelling("({0} ^ {1})", DEFINED),
        "shift_right": Spelling(
            held(
                "CASE WHEN b BETWEEN 0 AND 63 THEN SHIFTRIGHT(a, CAST(b & 63 AS INT)) WHEN b IS NOT NULL AND a IS NOT NULL THEN 0 END",
                "{0}",
                "{1}",
            ),
            "a shift out of range gives 0",
        ),
        "shift_left": Spelling(
            held(
                f"CASE WHEN a = 0 AND b >= 0 THEN a WHEN a > 0 AND b BETWEEN 0 AND 62 "
                f"AND a <= SHIFTRIGHT(CAST({_MAX} AS BIGINT), CAST(b & 63 AS INT)) THEN SHIFTLEFT(a, CAST(b & 63 AS INT)) END",
                "{0}",
                "{1}",
            ),
            "NULL of negative numbers, and beyond 64 bits",
        ),
        "bit_count": Spelling("CAST(BIT_COUNT({0}) AS BIGINT)", DEFINED),
        # numbers
        "sign": Spelling(
            f"TRY_CAST(SIGN(NANVL({_real(0)}, CAST(0 AS DOUBLE))) AS BIGINT)", "-1, 0 or 1 for every DOUBLE"
        ),
        "abs": Spelling("ABS({0})", DEFINED, "TRY_CAST(ABS(CAST({0} AS DECIMAL(20,0))) AS BIGINT)"),
        "floor": _rounding("CASE WHEN RINT(a) > a THEN RINT(a) - 1 ELSE RINT(a) END"),
        "ceil": _rounding("CASE WHEN RINT(a) < a THEN RINT(a) + 1 ELSE RINT(a) END"),
        "trunc": _rounding("CASE WHEN ABS(RINT(a)) > ABS(a) THEN RINT(a) - SIGN(a) ELSE RINT(a) END"),
        "round": _rounding(
            "CASE WHEN ABS(a - RINT(a)) = CAST('0.5' AS DOUBLE) THEN a + SIGN(a) * CAST('0.5' AS DOUBLE) ELSE RINT(a) END"
        ),
        "even": Spelling(held(_EVEN, _real(0)), DEFINED),
        "signbit": Spelling(f"STARTSWITH(CAST({_real(0)} AS STRING), '-')", DEFINED),
        "isinf_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN FALSE END", _CALENDAR),
        "isfinite_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN TRUE END", _CALENDAR),
        "isnan": Spelling(f"({_real(0)} = {NAN})", COMPARES),
        "isinf": Spelling(f"(ABS({_real(0)}) = {INFINITY})", COMPARES),
        "isfinite": Spelling(f"(ABS({_real(0)}) < {INFINITY})", COMPARES),
        "sqrt": _of_numbers(f"SQRT({_real(0)})"),
        "cbrt": _of_numbers(f"CBRT({_real(0)})"),
        **{
            name: Spelling(
                held(f"CASE WHEN a < 0 THEN {NAN} ELSE {word}(a) END", _real(0)), "of 0 it is NULL, below NaN"
            )
            for name, word in {"ln": "LN", "log10": "LOG10", "log2": "LOG2"}.items()
        },
        "exp": _of_numbers(f"EXP({_real(0)})"),
        "power": _of_numbers(f"POWER({_real(0)}, {_real(1)})"),
        "degrees": _of_numbers(f"DEGREES({_real(0)})"),
        "radians": _of_numbers(f"RADIANS({_real(0)})"),
        **{
            name: _of_numbers(f"{name.upper()}({_real(0)})")
            for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atanh")
        },
        "atan2": _of_numbers(f"ATAN2({_real(0)}, {_real(1)})"),
        # text
        "length": Spelling("CAST(CHAR_LENGTH({0}) AS BIGINT)", DEFINED),
        "strlen": Spelling("CAST(OCTET_LENGTH({0}) AS BIGINT)", DEFINED),
        "bit_length": Spelling("CAST(BIT_LENGTH({0}) AS BIGINT)", DEFINED),
        "unicode": Spelling(
            held("CASE WHEN a = '' THEN CAST(-1 AS BIGINT) ELSE CAST(ASCII(a) AS BIGINT) END", "{0}"),
            DEFINED,
        ),
        "ascii": Spelling("CAST(ASCII({0}) AS BIGINT)", DEFINED),
        "trim": Spelling(f"TRIM(BOTH '{_SPACES}' FROM {{0}})", DEFINED),
        "ltrim": Spelling(f"TRIM(LEADING '{_SPACES}' FROM {{0}})", DEFINED),
        "rtrim": Spelling(f"TRIM(TRAILING '{_SPACES}' FROM {{0}})", DEFINED),
        "trim_characters": Spelling("TRIM(BOTH {1} FROM {0})", DEFINED, only=known_text),
        "ltrim_characters": Spelling("TRIM(LEADING {1} FROM {0})", DEFINED, only=known_text),
        "rtrim_characters": Spelling("TRIM(TRAILING {1} FROM {0})", DEFINED, only=known_text),
        "substring_from": Spelling(
            "SUBSTR({0}, {1})", "the start is a constant from 1 on", only=part_of_text
        ),
        "substring": Spelling(
            "SUBSTR({0}, {1}, {2})", "start and length are constants, from 1 and 0 on", only=part_of_text
        ),
        "left": Spelling("LEFT({0}, {1})", "a constant count", only=has_constant(1, 0, 2**30)),
        "right": Spelling("RIGHT({0}, {1})", "a constant count", only=has_constant(1, 0, 2**30)),
        "lower": ByCall(lambda _: translate_letters("lower", "{0}"), _LETTERS),
        "upper": ByCall(lambda _: translate_letters("upper", "{0}"), _LETTERS),
        "lpad": Spelling("LPAD({0}, {1}, {2})", "length and fill are constants"),
        "rpad": Spelling("RPAD({0}, {1}, {2})", "length and fill are constants"),
        "repeat": Spelling("REPEAT({0}, {1})", "the count is a small constant"),
        "replace": Spelling("REPLACE({0}, {1}, {2})", "what is replaced, and by what, are constants"),
        "translate": Spelling("TRANSLATE({0}, {1}, {2})", "the characters are constants"),
        "split_part": Spelling(
            "SPLIT_PART({0}, {1}, CAST({2} AS INT))",
            "the separator is some constant text, and the place a constant from 1 on",
            only=_separated,
        ),
        "contains": Spelling("CONTAINS({0}, {1})", DEFINED, only=texts),
        "starts_with": Spelling("STARTSWITH({0}, {1})", DEFINED, only=texts),
        "suffix": Spelling("ENDSWITH({0}, {1})", DEFINED, only=texts),
        "strpos": Spelling("CAST(INSTR({0}, {1}) AS BIGINT)", DEFINED, only=texts),
        "concatenate": Spelling("({0} || {1})", DEFINED, only=texts),
        "concat": Spelling("CONCAT_WS('', {args})", DEFINED, only=texts),
        "concat_ws": Spelling("CONCAT_WS({args})", DEFINED, only=texts),
        "hex": Spelling("HEX({0})", DEFINED, takes=frozenset({Type.INTEGER})),
        "bin": Spelling("BIN({0})", DEFINED, takes=frozenset({Type.INTEGER})),
        "like": ByCall(
            write_like(),
            f"the pattern is a constant without the escape; of at most {MOST_WILDCARDS} %, for each of which the search may go back",
        ),
        "ilike": ByCall(write_like("lower"), f"as LIKE, of at most {MOST_WILDCARDS} %"),
        "like_escape": ByCall(write_like(), f"{_ESCAPES}; of at most {MOST_WILDCARDS} %"),
        "ilike_escape": ByCall(write_like("lower"), f"{_ESCAPES}; of at most {MOST_WILDCARDS} %"),
        "regexp_matches": ByCall(plain_pattern(_TESTS, constant, held), PLAIN),
        "regexp_full_match": ByCall(plain_pattern(_TESTS, constant, held, whole=True), PLAIN),
        # parts of dates
        **{
            name: _part(f"{word}({{}})")
            for name, word in {
                name: name.upper() for name in ("year", "quarter", "month", "day", "hour", "minute", "second")
            }.items()
        },
        "week": _part("WEEKOFYEAR({})"),
        "doy": _part("DAYOFYEAR({})"),
        "dow": _part("DAYOFWEEK({}) - 1"),
        "isodow": _part("WEEKDAY({}) + 1"),
        "isoyear": _part("EXTRACT(YEAROFWEEK FROM {})"),
        "yearweek": Spelling(
            f"CAST(EXTRACT(YEAROFWEEK FROM {_moment(0)}) * 100 + WEEKOFYEAR({_moment(0)}) AS BIGINT)",
            _CALENDAR,
        ),
        "millisecond": Spelling(
            f"(PMOD({_micros(_moment(0))}, CAST(60000000 AS BIGINT)) DIV 1000)", _CALENDAR
        ),
        "microsecond": Spelling(f"PMOD({_micros(_moment(0))}, CAST(60000000 AS BIGINT))", _CALENDAR),
        "decade": _part("YEAR({}) DIV 10"),
        "century": _part("(YEAR({}) + 99) DIV 100"),
        "millennium": _part("(YEAR({}) + 999) DIV 1000"),
        "era": _part("CASE WHEN {} IS NOT NULL THEN 1 END"),
        "epoch": Spelling(f"(CAST({_micros(_moment(0))} AS DOUBLE) / CAST(1000000 AS DOUBLE))", _CALENDAR),
        "epoch_us": Spelling(_micros(_moment(0)), _CALENDAR),
        "epoch_ns": Spelling(f"TRY_MULTIPLY({_micros(_moment(0))}, CAST(1000 AS BIGINT))", _CALENDAR),
        **{
            f"date_trunc_{unit}": _truncated(unit.upper())
            for unit in (
                *("year", "quarter", "month", "week", "day"),
                *("hour", "minute", "second", "millisecond", "microsecond"),
            )
        },
        "date_trunc_decade": _first_of_years(10),
        "date_trunc_century": _first_of_years(100),
        "date_trunc_millennium": _first_of_years(1000),
        "strftime": ByCall(
            formatted({field: _padded(field, digits) for field, digits in PARTS.values()}, _joined, constant),
            FORMATTED,
        ),
        **buckets(_bucket, _bucket_of_months, "TIMESTAMP_NTZ"),
        "dayname": _named(_DAYS, f"(WEEKDAY({_moment(0)}) + 1)"),
        "monthname": _named(_MONTHS, f"MONTH({_moment(0)})"),
        "last_day": Spelling(f"LAST_DAY({_day(0)})", _CALENDAR),
        "days_in_month": Spelling(f"CAST(DAY(LAST_DAY({_day(0)})) AS BIGINT)", _CALENDAR),
        # distances of dates
        "days_between": Spelling(f"CAST(DATEDIFF({_day(0)}, {_day(1)}) AS BIGINT)", _CALENDAR),
        "date_diff_day": Spelling(f"CAST(DATEDIFF({_day(1)}, {_day(0)}) AS BIGINT)", _CALENDAR),
        "date_diff_hour": _difference(3_600_000_000),
        "date_diff_minute": _difference(60_000_000),
        "date_diff_second": _difference(1_000_000),
        "date_diff_millisecond": _difference(1_000),
        "date_diff_microsecond": Spelling(f"({_micros(_moment(1))} - {_micros(_moment(0))})", _CALENDAR),
        "date_diff_month": _of_months(1),
        "date_diff_quarter": _of_months(3),
        "date_diff_year": _of_months(12),
        "date_diff_decade": _of_months(120),
        "date_diff_century": _of_months(1_200),
        "date_diff_millennium": _of_months(12_000),
        **whole_units(_whole_units),
        "plus_days": _shifted("{0}", "{1}", "TRY_ADD"),
        "days_plus": _shifted("{1}", "{0}", "TRY_ADD"),
        "minus_days": _shifted("{0}", "{1}", "TRY_SUBTRACT"),
        "plus_millennium": _plus_months(12_000),
        "plus_century": _plus_months(1_200),
        "plus_decade": _plus_months(120),
        "plus_year": _plus_months(12),
        "plus_quarter": _plus_months(3),
        "plus_month": _plus_months(1),
        "plus_week": _plus(7 * DAY),
        "plus_day": _plus(DAY),
        "plus_hour": _plus(3_600_000_000),
        "plus_minute": _plus(60_000_000),
        "plus_second": _plus(1_000_000),
        "plus_millisecond": _plus(1_000),
        "plus_microsecond": _plus(1),
        "epoch_ms": Spelling(
            held("(a + CASE WHEN a < 0 THEN -500 ELSE 500 END) DIV 1000", _micros(_moment(0))), _CALENDAR
        ),
        "make_timestamp_us": Spelling(_within("{0}"), _CALENDAR),
        "make_timestamp_ms": Spelling(_within("TRY_MULTIPLY({0}, CAST(1000 AS BIGINT))"), _CALENDAR),
        "from_epoch_ms": Spelling(_within("TRY_MULTIPLY({0}, CAST(1000 AS BIGINT))"), _CALENDAR),
        # casts
        **{
            f"cast_{name}": ByType(_to_whole(low, high), "what the type does not hold is NULL")
            for name, (low, high) in {
                "tinyint": (-(2**7), 2**7 - 1),
                "smallint": (-(2**15), 2**15 - 1),
                "integer": (-(2**31), 2**31 - 1),
                "bigint": (_MIN, _MAX),
                "hugeint": (_MIN, _MAX),
                "utinyint": (0, 2**8 - 1),
                "usmallint": (0, 2**16 - 1),
                "uinteger": (0, 2**32 - 1),
                "ubigint": (0, _MAX),
                "uhugeint": (0, _MAX),
            }.items()
        },
        "cast_double": ByType(
            {
                Type.INTEGER: _real(0),
                Type.DOUBLE: "{0}",
                Type.NULL: _real(0),
                Type.BOOLEAN: "CAST(CAST({0} AS BIGINT) AS DOUBLE)",
            },
            "every whole number has a nearest DOUBLE",
        ),
        "cast_float": ByType(
            {
                Type.INTEGER: "CAST(CAST({0} AS FLOAT) AS DOUBLE)",
                Type.DOUBLE: held(
                    f"CASE WHEN ABS(a) BETWEEN {constant(LEAST_BEYOND_FLOAT)} AND {constant(MOST_DOUBLE)} THEN NULL"
                    " ELSE CAST(CAST(a AS FLOAT) AS DOUBLE) END",
                    "{0}",
                ),
                Type.NULL: _real(0),
            },
            "a cast to FLOAT has no error; what it would make infinite is NULL",
        ),
        "cast_varchar": ByType(
            dict.fromkeys((Type.INTEGER, Type.VARCHAR, Type.BOOLEAN, Type.DATE), "CAST({0} AS STRING)"),
            "every value of these types has a text, which no setting changes",
        ),
        "cast_boolean": ByType(
            {
                Type.INTEGER: "({0} <> CAST(0 AS BIGINT))",
                Type.BOOLEAN: "{0}",
                Type.DOUBLE: f"({{0}} <> {constant(0.0)})",
            },
            COMPARES,
        ),
        "cast_date": ByType(
            {Type.DATE: "{0}", Type.TIMESTAMP: _day(0)}, "every moment of the calendar has its day"
        ),
        "cast_timestamp": ByType(
            {Type.DATE: _moment(0), Type.TIMESTAMP: "{0}"}, "every day of the calendar has its first moment"
        ),
        "cast_blob": ByType({Type.BLOB: "{0}"}, CHOICE),
    }
)
"""Spellings by the names of entries."""

WORK: Mapping[str, WorkRule] = MappingProxyType(
    {
        **dict.fromkeys(("lower", "upper"), growth.each_byte(50)),
        **dict.fromkeys(("ilike", "ilike_escape"), growth.each_pair(8, each=50)),
        **dict.fromkeys(("like", "like_escape"), growth.each_pair(8)),
        **dict.fromkeys(("contains", "strpos"), growth.each_pair(Fraction(1, 2))),
        **dict.fromkeys(("regexp_matches", "regexp_full_match"), growth.each_pair()),
        **dict.fromkeys(("trim_characters", "ltrim_characters", "rtrim_characters"), growth.each_pair(4)),
        "translate": growth.each_byte(50),
        "replace": growth.replacing_slowly,
        "split_part": growth.each_pair(),
    }
)
"""The work of functions that compare letter by letter here: of a text and a pattern, of each two letters."""
