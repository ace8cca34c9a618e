"""How PostgreSQL computes the entries of the function registry, each with the reason why no row makes it fail.

What is not listed here is refused with code `engine_function`. PostgreSQL has no TRY: its arithmetic on DOUBLE fails where
a result is too large or too small, that on BIGINT where it leaves 64 bits, and dates and moments where they leave the
calendar. So an operation stands in a branch of a CASE whose condition excludes this, over values that were computed once
(`values.bind_arguments`), which PostgreSQL evaluates in this order for each row.

Claim: what is written is defined for every value of the arguments' types, where days and moments are of the years 1 to
9999 and texts are as long as `analysis.text_bounds` lets them be.
Source: PostgreSQL 15 manual, chapter 9 and section 4.2.14; its float.c on when arithmetic fails; IEEE 754-2019, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from dpsql.backends.function_spellings import (
    CHOICE,
    COMMON_SPELLINGS,
    COMPARES,
    DEFINED,
    LEAST_BEYOND_FLOAT,
    MAX_INT64,
    MIN_INT64,
    MOST_DOUBLE,
    MOST_ROUNDED_TO_ZERO,
    MOST_WILDCARDS,
    CallSpelling,
    Spelling,
    Spellings,
    TypeSpelling,
    define_integer_casts,
    define_pattern_matches,
    has_constant_text,
    has_few_wildcards,
    has_only_texts,
    has_separator,
    read_case_mapping,
)
from dpsql.backends.postgres.moments import MOMENTS
from dpsql.backends.postgres.values import (
    INFINITY,
    NAN,
    REAL,
    bind_arguments,
    emit_bigint_or_null,
    emit_constant,
    emit_double,
    emit_timestamp,
)
from dpsql.plan.expressions import Call, Literal, WorkRule
from dpsql.plan.functions import growth
from dpsql.plan.types import Type

_SPACES = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
"""The spaces that TRIM takes away: Unicode's category Zs."""


def _emit_power_of_two(exponent: int) -> str:
    """Emit a power of two as DOUBLE."""
    return emit_constant(2.0**exponent)


_NEAR = 0x250
"""The first letter beyond the Latin ones that most texts have alone."""


def _emit_case_change(function: str, text: str) -> str:
    """Emit a text with the letters that DuckDB's `lower` or `upper` gives it.

    Letters of ASCII are changed under the collation that knows no others. TRANSLATE compares each letter with all that it
    may change, so it is asked for the texts that have one of them, and for the Latin letters where there are no others.
    """
    pairs = [pair for pair in zip(*read_case_mapping(function), strict=True) if not pair[0].isascii()]
    near = [pair for pair in pairs if ord(pair[0]) < _NEAR]
    some, most = (
        f"TRANSLATE(a, {emit_constant(''.join(p[0] for p in part))}, {emit_constant(''.join(p[1] for p in part))})"
        for part in (near, pairs)
    )
    letters = emit_constant(f"[{''.join(pair[0] for pair in pairs)}]")
    beyond = emit_constant(f"[^\\u0001-\\u{_NEAR - 1:04x}]")
    body = f"CASE WHEN a !~ {letters} THEN a WHEN a !~ {beyond} THEN {some} ELSE {most} END"
    return bind_arguments(body, f'{function.upper()}({text} COLLATE "C")')


def _make_ilike_template(end: str) -> Callable[[Call], str | None]:
    """Return the template of LIKE for texts without capitals."""

    def build_template(call: Call) -> str | None:
        text, pattern = (_emit_case_change("lower", part) for part in ("{0}", "{1}"))
        return f"({text} LIKE {pattern} ESCAPE {end})" if has_few_wildcards(call) else None

    return build_template


_DIGITS = 15
"""The digits of a DOUBLE that PostgreSQL's NUMERIC has of it."""
_GUARDED = (
    "whole numbers as NUMERIC, where what 64 bits cannot hold is NULL; a DOUBLE that is too large is infinite, and one "
    "that is too small for all its digits is 0, before PostgreSQL would fail"
)
_LOGARITHM = "of 0 it is NULL, below NaN"
_LETTERS = "each letter becomes the one that DuckDB has for it"

_ODD = "a IN ('NaN', 'Infinity', '-Infinity') OR b IN ('NaN', 'Infinity', '-Infinity')"
_MOST, _LEAST = emit_constant(math.ldexp(1 - 2.0**-50, 1024)), emit_constant(2.0**-1022)
"""Below the first, a quotient or product of two steps of rounding is finite; above the other, it has all its digits."""


def _emit_sum(symbol: str) -> str:
    """Emit a sum or difference: it is too large only where both sides are large and of one sign in effect."""
    quarter = f"a * {_emit_power_of_two(-2)} {symbol} b * {_emit_power_of_two(-2)}"
    return bind_arguments(
        f"CASE WHEN {_ODD} THEN a {symbol} b "
        f"WHEN ABS(a) < {_emit_power_of_two(900)} OR ABS(b) < {_emit_power_of_two(900)} THEN a {symbol} b "
        f"ELSE CASE WHEN {quarter} >= {_emit_power_of_two(1022)} THEN {INFINITY} WHEN {quarter} <= -{_emit_power_of_two(1022)} THEN -{INFINITY} "
        f"ELSE a {symbol} b END END",
        emit_double(0),
        emit_double(1),
    )


_INFINITE = f"SIGN(a) * SIGN(b) * {INFINITY}"
_LARGE = f"CASE WHEN ABS(a) >= {_MOST} / ABS(b) THEN {_INFINITE} ELSE a * b END"
_PRODUCT = bind_arguments(
    f"CASE WHEN {_ODD} OR a = 0 OR b = 0 THEN a * b "
    f"WHEN ABS(a) > 1 AND ABS(b) > 1 THEN {_LARGE} "
    f"WHEN ABS(a) < 1 AND ABS(b) < 1 THEN CASE WHEN ABS(a) <= {_LEAST} / ABS(b) THEN 0 ELSE a * b END "
    "ELSE a * b END",
    emit_double(0),
    emit_double(1),
)
_QUOTIENT = bind_arguments(
    f"CASE WHEN b = 0 THEN NULL WHEN {_ODD} OR a = 0 THEN a / b "
    f"WHEN ABS(b) < 1 THEN CASE WHEN ABS(a) >= {_MOST} * ABS(b) THEN {_INFINITE} ELSE a / b END "
    f"ELSE CASE WHEN ABS(a) <= {_LEAST} * ABS(b) THEN 0 ELSE a / b END END",
    emit_double(0),
    emit_double(1),
)


def _define_rounding(real: str) -> Spelling:
    """Round a DOUBLE; a whole number is returned unchanged."""
    return Spelling(bind_arguments(real, "{0}"), DEFINED, "{0}")


def _emit_integer_casts(low: int, high: int) -> Mapping[Type, str]:
    """Cast, rounding half to even: to the least number, which is even, and not to the greatest, which is odd."""
    least, most = (
        emit_constant(float(low) if low == MIN_INT64 else low - 0.5),
        emit_constant(min(high + 0.5, 2.0**63)),
    )
    return {
        Type.INTEGER: bind_arguments(f"CASE WHEN a BETWEEN {low} AND {high} THEN a END", "{0}"),
        Type.DOUBLE: bind_arguments(
            f"CASE WHEN a >= {least} AND a < {most} THEN CAST(a AS BIGINT) END", "{0}"
        ),
        Type.BOOLEAN: "CAST(CASE {0} WHEN TRUE THEN 1 WHEN FALSE THEN 0 END AS BIGINT)",
    }


def _has_few_digits(call: Call) -> bool:
    """Return whether a DECIMAL has digits before the point, and no more of them than are kept of a DOUBLE."""
    digits, places = (part.value for part in call.arguments[1:] if isinstance(part, Literal))
    return isinstance(digits, int) and isinstance(places, int) and places < digits <= _DIGITS


_TIMES = "LEAST(GREATEST(b, -1e300), 1e300) * LN(ABS(a))"
_IS_ODD = f"CASE WHEN b = FLOOR(b) THEN b <> 2 * FLOOR(b * {_emit_power_of_two(-1)}) ELSE FALSE END"
_POWER = bind_arguments(
    "CASE WHEN a IS NULL OR b IS NULL THEN NULL "
    f"WHEN a < 0 AND b <> FLOOR(b) THEN CASE WHEN a > -{INFINITY} THEN {NAN} WHEN b > 0 THEN {INFINITY} ELSE 0 END "
    f"WHEN a = 0 AND b < 0 THEN CASE WHEN CAST(a AS TEXT) = '-0' AND {_IS_ODD} THEN -{INFINITY} ELSE {INFINITY} END "
    f"WHEN {_ODD} OR a = 0 OR b = 0 THEN POWER(a, b) "
    f"WHEN ABS(b) < {_emit_power_of_two(-1000)} THEN 1 "
    f"WHEN {_TIMES} > 709.7827 THEN CASE WHEN a < 0 AND {_IS_ODD} THEN -{INFINITY} ELSE {INFINITY} END "
    f"WHEN {_TIMES} < -708 THEN 0 ELSE POWER(a, b) END",
    emit_double(0),
    emit_double(1),
)
_EVEN = f"CASE WHEN ABS(a) < {_emit_power_of_two(53)} THEN SIGN(a) * (CEIL(ABS(a)) * 2 - 2 * FLOOR(CEIL(ABS(a)) / 2)) ELSE a END"
_ROUNDED = "CASE WHEN ABS(a - TRUNC(a)) >= 0.5 AND ABS(a) < 1e300 THEN TRUNC(a) + SIGN(a) ELSE TRUNC(a) END"

_TESTS = {
    (False, False): "STRPOS(a, {0}) > 0",
    (True, False): "STARTS_WITH(a, {0})",
    (False, True): "RIGHT(a, LENGTH({0})) = {0}",
    (True, True): "a = {0}",
}

SPELLINGS: Spellings = MappingProxyType(
    {
        **COMMON_SPELLINGS,
        # operators
        "add": Spelling(_emit_sum("+"), _GUARDED, emit_bigint_or_null("CAST({0} AS NUMERIC) + {1}")),
        "subtract": Spelling(_emit_sum("-"), _GUARDED, emit_bigint_or_null("CAST({0} AS NUMERIC) - {1}")),
        "multiply": Spelling(_PRODUCT, _GUARDED, emit_bigint_or_null("CAST({0} AS NUMERIC) * {1}")),
        "divide": Spelling(_QUOTIENT, f"{_GUARDED}; a zero divisor gives NULL"),
        "negate": Spelling("(- {0})", DEFINED, emit_bigint_or_null("- CAST({0} AS NUMERIC)")),
        # whole numbers
        "quotient_by": Spelling("({0} / {1})", "the divisor is a constant that is neither 0 nor -1"),
        "quotient": Spelling(
            bind_arguments(
                f"CASE WHEN b = 0 OR (b = -1 AND a = {MIN_INT64}) THEN NULL ELSE a / b END", "{0}", "{1}"
            ),
            "a zero divisor, and the one quotient beyond 64 bits, give NULL",
        ),
        "remainder": Spelling(
            bind_arguments("CASE WHEN b <> 0 THEN a % b END", "{0}", "{1}"),
            "a zero divisor gives NULL",
            takes=frozenset({Type.INTEGER}),
        ),
        "bit_xor": Spelling("({0} # {1})", DEFINED),
        "shift_right": Spelling(
            bind_arguments(
                "CASE WHEN b BETWEEN 0 AND 63 THEN a >> CAST(b AS INTEGER) WHEN a # b IS NOT NULL THEN 0 END",
                "{0}",
                "{1}",
            ),
            "a shift out of range gives 0",
        ),
        "shift_left": Spelling(
            bind_arguments(
                f"CASE WHEN a = 0 AND b >= 0 THEN 0 WHEN a > 0 AND b BETWEEN 0 AND 62 THEN "
                f"CASE WHEN a <= (CAST({MAX_INT64} AS BIGINT) >> CAST(b AS INTEGER)) THEN a << CAST(b AS INTEGER) END END",
                "{0}",
                "{1}",
            ),
            "NULL of negative numbers, and beyond 64 bits",
        ),
        "gcd": Spelling(emit_bigint_or_null("GCD(CAST({0} AS NUMERIC), CAST({1} AS NUMERIC))"), _GUARDED),
        "lcm": Spelling(emit_bigint_or_null("LCM(CAST({0} AS NUMERIC), CAST({1} AS NUMERIC))"), _GUARDED),
        "factorial": Spelling(
            bind_arguments(f"CASE WHEN a BETWEEN 0 AND 33 THEN CAST(FACTORIAL(a) AS {REAL}) END", "{0}"),
            "NULL below 0 and above 33",
            takes=frozenset({Type.INTEGER}),
        ),
        "bit_count": Spelling("CAST(BIT_COUNT(CAST({0} AS BIT(64))) AS BIGINT)", DEFINED),
        # numbers
        "sign": Spelling(f"CAST(SIGN({emit_double(0)}) AS BIGINT)", "-1, 0 or 1 for every DOUBLE"),
        "abs": Spelling("ABS({0})", DEFINED, emit_bigint_or_null("ABS(CAST({0} AS NUMERIC))")),
        "floor": _define_rounding("FLOOR(a)"),
        "ceil": _define_rounding("CEIL(a)"),
        "trunc": _define_rounding("TRUNC(a)"),
        "round": _define_rounding(_ROUNDED),
        "even": Spelling(bind_arguments(_EVEN, emit_double(0)), DEFINED),
        "signbit": Spelling(f"(LEFT(CAST({emit_double(0)} AS TEXT), 1) = '-')", DEFINED),
        "power": Spelling(_POWER, _GUARDED),
        "atan2": Spelling(f"ATAN2({emit_double(0)}, {emit_double(1)})", DEFINED),
        "isnan": Spelling(f"({emit_double(0)} = {NAN})", COMPARES),
        "isinf": Spelling(f"(ABS({emit_double(0)}) = {INFINITY})", COMPARES),
        "isfinite": Spelling(f"(ABS({emit_double(0)}) < {INFINITY})", COMPARES),
        "sqrt": Spelling(
            bind_arguments(f"CASE WHEN a >= 0 THEN SQRT(a) WHEN a < 0 THEN {NAN} END", emit_double(0)),
            "below 0 it is NaN",
        ),
        "ln": Spelling(
            bind_arguments(f"CASE WHEN a > 0 THEN LN(a) WHEN a < 0 THEN {NAN} END", emit_double(0)),
            _LOGARITHM,
        ),
        "log10": Spelling(
            bind_arguments(f"CASE WHEN a > 0 THEN LOG(a) WHEN a < 0 THEN {NAN} END", emit_double(0)),
            _LOGARITHM,
        ),
        "degrees": Spelling(_PRODUCT.replace("{1}", emit_constant(180 / math.pi)), _GUARDED),
        "radians": Spelling(_PRODUCT.replace("{1}", emit_constant(math.pi / 180)), _GUARDED),
        "cbrt": Spelling(f"CBRT({emit_double(0)})", DEFINED),
        **{
            name: Spelling(
                bind_arguments(
                    f"CASE WHEN {domain} THEN {name.upper()}(a) WHEN a IS NOT NULL THEN {NAN} END",
                    emit_double(0),
                ),
                "elsewhere it is NaN",
            )
            for name, domain in {
                **dict.fromkeys(("sin", "cos", "tan", "cot"), f"ABS(a) < {INFINITY}"),
                **dict.fromkeys(("asin", "acos", "atanh"), "ABS(a) <= 1"),
                **dict.fromkeys(("atan", "sinh", "cosh", "tanh", "asinh"), "TRUE"),
                "acosh": "a >= 1",
            }.items()
        },
        "exp": Spelling(
            bind_arguments(
                f"CASE WHEN a = {NAN} THEN a WHEN a > 709.782 THEN {INFINITY} WHEN a >= -708 THEN EXP(a) "
                f"WHEN a < -708 THEN 0 END",
                emit_double(0),
            ),
            _GUARDED,
        ),
        # text
        "length": Spelling("CAST(LENGTH({0}) AS BIGINT)", DEFINED),
        "unicode": Spelling(
            bind_arguments("CAST(CASE WHEN a = '' THEN -1 ELSE ASCII(a) END AS BIGINT)", "{0}"), DEFINED
        ),
        "lower": CallSpelling(lambda _: _emit_case_change("lower", "{0}"), _LETTERS),
        "upper": CallSpelling(lambda _: _emit_case_change("upper", "{0}"), _LETTERS),
        "concat": Spelling("CONCAT({args})", DEFINED, condition=has_only_texts),
        "hex": Spelling("UPPER(TO_HEX({0}))", DEFINED, takes=frozenset({Type.INTEGER})),
        "bin": Spelling(
            "COALESCE(NULLIF(LTRIM(CAST(CAST({0} AS BIT(64)) AS TEXT), '0'), ''), SUBSTR(CAST({0} AS TEXT), 1, 1))",
            DEFINED,
            takes=frozenset({Type.INTEGER}),
        ),
        "trim": Spelling(f"BTRIM({{0}}, '{_SPACES}')", DEFINED),
        "ltrim": Spelling(f"LTRIM({{0}}, '{_SPACES}')", DEFINED),
        "rtrim": Spelling(f"RTRIM({{0}}, '{_SPACES}')", DEFINED),
        "trim_characters": Spelling("BTRIM({0}, {1})", DEFINED, condition=has_constant_text),
        "ltrim_characters": Spelling("LTRIM({0}, {1})", DEFINED, condition=has_constant_text),
        "rtrim_characters": Spelling("RTRIM({0}, {1})", DEFINED, condition=has_constant_text),
        "split_part": Spelling(
            "SPLIT_PART({0}, {1}, CAST({2} AS INTEGER))",
            "the separator is some constant text, and the place a constant from 1 on",
            condition=has_separator,
        ),
        "contains": Spelling("(STRPOS({0}, {1}) > 0)", DEFINED),
        "starts_with": Spelling("STARTS_WITH({0}, {1})", DEFINED),
        "suffix": Spelling(bind_arguments("(RIGHT(a, LENGTH(b)) = b)", "{0}", "{1}"), DEFINED),
        "strpos": Spelling("CAST(STRPOS({0}, {1}) AS BIGINT)", DEFINED),
        "like": Spelling(
            "({0} LIKE {1} ESCAPE '')",
            f"without an escape every constant is a pattern; of at most {MOST_WILDCARDS} %, as each may nest the search",
            condition=has_few_wildcards,
        ),
        "like_escape": Spelling(
            "({0} LIKE {1} ESCAPE {2})",
            f"a constant that does not end with its escape is a pattern; of at most {MOST_WILDCARDS} %",
            condition=has_few_wildcards,
        ),
        "ilike": CallSpelling(_make_ilike_template("''"), f"as LIKE, of at most {MOST_WILDCARDS} %"),
        "ilike_escape": CallSpelling(
            _make_ilike_template("{2}"), f"as LIKE with ESCAPE, of at most {MOST_WILDCARDS} %"
        ),
        **define_pattern_matches(_TESTS, emit_constant, bind_arguments),
        **MOMENTS,
        # casts
        **define_integer_casts(_emit_integer_casts),
        "cast_double": TypeSpelling(
            {
                Type.INTEGER: emit_double(0),
                Type.DOUBLE: "{0}",
                Type.NULL: emit_double(0),
                Type.BOOLEAN: f"CAST(CASE {{0}} WHEN TRUE THEN 1 WHEN FALSE THEN 0 END AS {REAL})",
            },
            "every whole number has a nearest DOUBLE",
        ),
        "cast_float": TypeSpelling(
            {
                Type.INTEGER: f"CAST(CAST({{0}} AS REAL) AS {REAL})",
                Type.DOUBLE: bind_arguments(
                    f"CASE WHEN ABS(a) <= {emit_constant(MOST_ROUNDED_TO_ZERO)} THEN a * 0"
                    f" WHEN ABS(a) BETWEEN {emit_constant(LEAST_BEYOND_FLOAT)} AND {emit_constant(MOST_DOUBLE)} THEN NULL"
                    f" ELSE CAST(CAST(a AS REAL) AS {REAL}) END",
                    "{0}",
                ),
                Type.NULL: emit_double(0),
            },
            "what a cast to REAL would make infinite or zero, which is an error, is NULL or zero before",
        ),
        "cast_varchar": TypeSpelling(
            dict.fromkeys(
                (Type.INTEGER, Type.VARCHAR, Type.BOOLEAN, Type.DATE, Type.UUID, Type.TIME),
                '(CAST({0} AS TEXT) COLLATE "C")',
            ),
            "every value of these types has a text, which no setting changes",
        ),
        "cast_varchar decimal": Spelling(
            bind_arguments(
                f"CASE WHEN ABS(a) < 1e{_DIGITS + 1} AND LENGTH(CAST(TRUNC(ABS(ROUND(a, {{2}}))) AS TEXT)) <= {{1}} - {{2}} "
                "THEN CAST(ROUND(a, {2}) AS TEXT) END",
                f"CAST({emit_double(0)} AS NUMERIC)",
            ),
            f"what the type does not hold is NULL; of at most {_DIGITS} digits, one of them before the point",
            condition=_has_few_digits,
        ),
        "cast_boolean": TypeSpelling(
            {Type.INTEGER: "({0} <> 0)", Type.BOOLEAN: "{0}", Type.DOUBLE: "({0} <> 0)"}, COMPARES
        ),
        "cast_date": TypeSpelling(
            {Type.DATE: "{0}", Type.TIMESTAMP: "CAST({0} AS DATE)"},
            "every moment of the calendar has its day",
        ),
        "cast_timestamp": TypeSpelling(
            {Type.DATE: emit_timestamp(0), Type.TIMESTAMP: "{0}"},
            "every day of the calendar has its first moment",
        ),
        "cast_time": TypeSpelling(
            {Type.TIME: "{0}", Type.TIMESTAMP: "CAST({0} AS TIME)"},
            "every moment of the calendar has its time",
        ),
        "cast_uuid": TypeSpelling({Type.UUID: "{0}"}, CHOICE),
    }
)
"""Spellings by the names of entries."""

_CASED = 500
"""The work of a byte of a text whose letters are compared with all that have a capital."""
WORK: Mapping[str, WorkRule] = MappingProxyType(
    {
        **dict.fromkeys(("lower", "upper"), growth.make_byte_work_rule(_CASED)),
        **dict.fromkeys(("ilike", "ilike_escape"), growth.make_pair_work_rule(2, each=_CASED)),
        **dict.fromkeys(("like", "like_escape"), growth.make_pair_work_rule(2)),
        **dict.fromkeys(("contains", "strpos"), growth.make_pair_work_rule(Fraction(1, 2))),
        **dict.fromkeys(("regexp_matches", "regexp_full_match"), growth.make_pair_work_rule(Fraction(1, 2))),
        **dict.fromkeys(
            ("trim_characters", "ltrim_characters", "rtrim_characters"), growth.make_pair_work_rule(4)
        ),
        "translate": growth.make_pair_work_rule(12),
        "replace": growth.bound_slow_replacement_work,
        "split_part": growth.make_pair_work_rule(Fraction(1, 2)),
    }
)
"""The work of functions that compare letter by letter here: of a text and a pattern, of each two letters."""
