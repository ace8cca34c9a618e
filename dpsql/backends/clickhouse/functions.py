"""How ClickHouse computes the entries of the function registry, each with the reason why no row makes it fail.

What is not listed here is refused with code `engine_function`. ClickHouse's whole numbers wrap where they leave 64 bits, and its
days and moments end with its own calendar, without an error in either case. So whole numbers are computed in 128 bits and cast
back by a cast that gives NULL, and dates are computed as whole numbers (`calendar`). No number equals NaN, which is not greater than
others: comparisons say so where an argument may be one. Nothing rests on which branch of a CASE is evaluated first.

Claim: what is written is defined for every value of the arguments' types, where days and moments are of the years 1 to 9999
and texts are as long as `analysis.text_bounds` lets them be; whole numbers do not wrap.
Why: sums, differences and products of two numbers of 64 bits have at most 127. Functions that may fail (of a divisor of zero, of
a shift out of range) read an argument that cannot be such.
Source: ClickHouse 26 documentation, "Arithmetic functions", "Type conversion functions", "Functions for working with Nullable
values"; IEEE 754-2019, section 7 (arithmetic on Float64 does not fail).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from dpsql.backends.clickhouse.calendar import DATE_SPELLINGS, DAY_TEXT
from dpsql.backends.clickhouse.values import NAN, bind_arguments, emit_constant
from dpsql.backends.function_spellings import (
    COMMON_SPELLINGS,
    COMPARES,
    DEFINED,
    LEAST_BEYOND_FLOAT,
    MAX_INT64,
    MOST_DOUBLE,
    MOST_WILDCARDS,
    CallSpelling,
    Spelling,
    Spellings,
    TypeSpelling,
    define_integer_casts,
    define_pattern_matches,
    has_constant,
    has_few_wildcards,
    has_only_texts,
    has_separator,
    has_valid_part,
    read_case_mapping,
)
from dpsql.plan.expressions import Call, Column, Expr, Literal, WorkRule
from dpsql.plan.functions import growth
from dpsql.plan.types import Type

_TRIED = (
    "whole numbers in 128 bits, where what 64 bits cannot hold is NULL; arithmetic on DOUBLE does not fail"
)
_ORDERED = "values of one type always compare; of DOUBLE, NaN is the greatest and equals itself"
_LETTERS = "each letter becomes the one that DuckDB has for it"
_BYTES = "texts are UTF-8, so that a text is found where its bytes are"


def _emit_double(place: int) -> str:
    return f"toFloat64({{{place}}})"


def _emit_narrow(number: str) -> str:
    """Emit a wide whole number as 64 bits, NULL where they do not hold it."""
    return f"accurateCastOrNull({number}, 'Int64')"


def _emit_wide(place: int) -> str:
    return f"CAST({{{place}}} AS Int128)"


def _define_total_function(sql: str) -> Spelling:
    return Spelling(sql, DEFINED)


# Comparisons, in which NaN is the greatest number and equals itself.


def may_be_nan(expr: Expr) -> bool:
    """Return whether a value may be NaN: no stored column is, once it is read, and no constant."""
    stored = isinstance(expr, Column) and expr.facts.is_stored
    return expr.type is Type.DOUBLE and not stored and not isinstance(expr, Literal)


_PLAIN = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_WITH_NAN = {
    "eq": "({a} = {b} OR (isNaN({a}) AND isNaN({b})))",
    "ne": "({a} <> {b} AND NOT (isNaN({a}) AND isNaN({b})))",
    "lt": "({a} < {b} OR (isNaN({b}) AND NOT isNaN({a})))",
    "le": "({a} <= {b} OR (isNaN({b}) AND {a} IS NOT NULL))",
    "gt": "({a} > {b} OR (isNaN({a}) AND NOT isNaN({b})))",
    "ge": "({a} >= {b} OR (isNaN({a}) AND {b} IS NOT NULL))",
    "is_distinct": "({a} IS DISTINCT FROM {b} AND NOT COALESCE(isNaN({a}) AND isNaN({b}), FALSE))",
    "is_not_distinct": "({a} IS NOT DISTINCT FROM {b} OR COALESCE(isNaN({a}) AND isNaN({b}), FALSE))",
}


def _emit_comparison(name: str, first: Expr, second: Expr, places: tuple[int, int] = (0, 1)) -> str:
    """Emit a comparison of two arguments; of numbers of two types, both are DOUBLE."""
    ours, theirs = (f"{{{place}}}" for place in places)
    if Type.DOUBLE not in (first.type, second.type):
        symbol = _PLAIN.get(name) or ("IS DISTINCT FROM" if name == "is_distinct" else "IS NOT DISTINCT FROM")
        return f"({ours} {symbol} {theirs})"
    ours, theirs = map(_emit_double, places)
    if name in _PLAIN and not (may_be_nan(first) or may_be_nan(second)):
        return f"({ours} {_PLAIN[name]} {theirs})"
    return _WITH_NAN[name].format(a=ours, b=theirs)


def _define_comparison(name: str) -> CallSpelling:
    return CallSpelling(lambda call: _emit_comparison(name, call.arguments[0], call.arguments[1]), _ORDERED)


def _emit_membership(call: Call) -> str:
    """Emit IN; a set would tell 0.0 from -0.0, and leave a NULL in it out."""
    value, *others = call.arguments
    listed = all(isinstance(other, Literal) and other.value is not None for other in others)
    if listed and value.type in (Type.INTEGER, Type.VARCHAR):
        return "({0} IN ({rest}))"
    parts = (_emit_comparison("eq", value, other, (0, place)) for place, other in enumerate(others, start=1))
    return f"({' OR '.join(parts)})"


def _define_extreme(function: str) -> CallSpelling:
    """Define LEAST or GREATEST, which leave NULL out; of DOUBLE, both leave NaN out as well, which is the greatest number."""

    def build_template(call: Call) -> str:
        if call.type is not Type.DOUBLE:
            return f"{function}({{args}})"
        listed = ", ".join(map(_emit_double, range(len(call.arguments))))
        chosen = f"{function}({listed})"
        places = [place for place, argument in enumerate(call.arguments) if may_be_nan(argument)]
        if not places or function == "least":
            return chosen
        odd = " OR ".join(f"COALESCE(isNaN({_emit_double(place)}), FALSE)" for place in places)
        return f"CASE WHEN {odd} THEN {NAN} ELSE {chosen} END"

    return CallSpelling(build_template, _ORDERED)


def _emit_alike(call: Call, place: int) -> str:
    """Emit an argument that may be the value of a call: whole numbers and DOUBLE have no common type."""
    mixed = call.type is Type.DOUBLE and call.arguments[place].type is Type.INTEGER
    return _emit_double(place) if mixed else f"{{{place}}}"


def _emit_case(call: Call) -> str:
    last = len(call.arguments) - 1
    branches = " ".join(
        f"WHEN {{{place}}} THEN {_emit_alike(call, place + 1)}" for place in range(0, last, 2)
    )
    return f"CASE {branches} ELSE {_emit_alike(call, last)} END"


def _emit_coalesce(call: Call) -> str:
    return f"COALESCE({', '.join(_emit_alike(call, place) for place in range(len(call.arguments)))})"


def _emit_nullif(call: Call) -> str:
    return (
        f"CASE WHEN {_emit_comparison('eq', call.arguments[0], call.arguments[1])} THEN NULL ELSE {{0}} END"
    )


# Casts and rounding.


def _define_rounding(real: str) -> Spelling:
    """Round a DOUBLE; a whole number is returned unchanged."""
    return Spelling(bind_arguments(real, "{0}"), DEFINED, "{0}")


def _emit_integer_casts(low: int, high: int) -> Mapping[Type, str]:
    """Cast, rounding half to even."""
    fits = f"CASE WHEN a BETWEEN {low} AND {high} THEN a END"
    return {
        Type.INTEGER: bind_arguments(fits, "{0}"),
        Type.DOUBLE: bind_arguments(fits, _emit_narrow("roundBankers({0})")),
        Type.BOOLEAN: "CAST({0} AS Int64)",
    }


_HALF = emit_constant(0.5)
_EVEN = (
    f"CASE WHEN abs(a) < {emit_constant(2.0**53)} THEN sign(a) * 2 * ceil(ceil(abs(a)) * {_HALF}) ELSE a END"
)
_ROUND = f"CASE WHEN abs(a - trunc(a)) = {_HALF} THEN trunc(a) + sign(a) ELSE roundBankers(a) END"


# Texts, whose letters are changed as in DuckDB, and whose ends are found by regular expressions of RE2.


_SPACES = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
"""The spaces that TRIM takes away: Unicode's category Zs."""


def translate_letters(function: str, text: str) -> str:
    """Emit a text whose letters a function changes as DuckDB does."""
    before, after = map(emit_constant, read_case_mapping(function))
    return f"translateUTF8({text}, {before}, {after})"


def _emit_trimmed(text: str, letters: str, sides: str) -> str:
    """Emit a text without these letters at its beginning (^), its end ($) or both."""
    if not letters:
        return text
    listed = "".join(f"\\x{{{ord(letter):X}}}" for letter in letters)
    for side in sides:
        pattern = f"\\A[{listed}]+" if side == "^" else f"[{listed}]+\\z"
        text = f"replaceRegexpOne({text}, {_escape_braces(emit_constant(pattern))}, '')"
    return text


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _define_trim(sides: str) -> Spelling:
    return Spelling(_emit_trimmed("{0}", _SPACES, sides), DEFINED)


def _define_letter_trim(sides: str) -> CallSpelling:
    def build_template(call: Call) -> str | None:
        letters = call.arguments[1]
        if not isinstance(letters, Literal) or not isinstance(letters.value, str):
            return None
        return _emit_trimmed("{0}", letters.value, sides)

    return CallSpelling(build_template, "the characters are constants")


def _emit_joined(call: Call) -> str | None:
    """Emit CONCAT_WS of a constant separator: the texts that are not NULL are joined."""
    separator = call.arguments[0]
    if not has_only_texts(call) or not isinstance(separator, Literal) or separator.value is None:
        return None
    listed = ", ".join(f"CAST({{{place}}} AS Nullable(String))" for place in range(1, len(call.arguments)))
    return f"arrayStringConcat(arrayFilter(x -> x IS NOT NULL, [{listed}]), {{0}})"


def _emit_concatenation(call: Call) -> str | None:
    if not has_only_texts(call):
        return None
    parts = ", ".join(f"ifNull({{{place}}}, '')" for place in range(len(call.arguments)))
    return f"concat('', {parts})"


def _emit_translation(call: Call) -> str | None:
    """Emit TRANSLATE; ClickHouse fails where there are more new characters than old ones, of which DuckDB has no use."""
    before, after = (part.value if isinstance(part, Literal) else None for part in call.arguments[1:])
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    new = emit_constant(after[: len(before)])
    return f"translateUTF8({{0}}, {{1}}, {new})" if before else "{0}"


_MOST_PATTERN = 1000
"""The most characters of a pattern, which becomes a regular expression of bounded size."""


def _make_like_template(function: str = "") -> Callable[[Call], str | None]:
    """Return the template of LIKE of texts, or of what `function` makes of their letters; the escape is always a backslash."""

    def build_template(call: Call) -> str | None:
        pattern = call.arguments[1]
        escape = "".join(str(part.value) for part in call.arguments[2:] if isinstance(part, Literal))
        if (
            not has_few_wildcards(call)
            or not isinstance(pattern, Literal)
            or not isinstance(pattern.value, str)
        ):
            return None
        written = _escape_pattern(pattern.value, escape)
        if written is None or len(written) > _MOST_PATTERN:
            return None
        if function:
            written = written.translate(str.maketrans(*read_case_mapping(function)))
        text = translate_letters(function, "{0}") if function else "{0}"
        return f"({text} LIKE {_escape_braces(emit_constant(written))})"

    return build_template


def _escape_pattern(pattern: str, escape: str) -> str | None:
    r"""Return a pattern of LIKE whose escape is a backslash; None if it escapes other letters than wildcards and its escape.

    >>> print(_escape_pattern("50!%\\%", "!"), _escape_pattern("a!b", "!"))
    50\%\\% None
    """
    if escape and re.sub(rf"{re.escape(escape)}[%_{re.escape(escape)}]", "", pattern).count(escape):
        return None
    found, letters = "", iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            escaped = next(letters)
            found += f"\\{escaped}" if escaped in "%_\\" else escaped
        else:
            found += "\\\\" if letter == "\\" else letter
    return found


_TESTS = {
    (False, False): "position(a, {0}) > 0",
    (True, False): "startsWith(a, {0})",
    (False, True): "endsWith(a, {0})",
    (True, True): "a = {0}",
}
_LEADING_ZEROS = "replaceRegexpOne({}, '\\x5CA0+', '')"

SPELLINGS: Spellings = MappingProxyType(
    {
        **{
            name: COMMON_SPELLINGS[name]
            for name in (
                *("and", "or", "not", "is_null"),
                *("isinf_moment", "isfinite_moment", "concatenate"),
            )
        },
        "case": CallSpelling(_emit_case, "no value is computed"),
        "coalesce": CallSpelling(_emit_coalesce, "no value is computed"),
        **{name: _define_comparison(name) for name in _WITH_NAN},
        "in": CallSpelling(_emit_membership, _ORDERED),
        "nullif": CallSpelling(_emit_nullif, _ORDERED),
        "least": _define_extreme("least"),
        "greatest": _define_extreme("greatest"),
        "is_true": Spelling("COALESCE({0}, FALSE)", "logic has three values"),
        "is_false": Spelling("COALESCE(NOT {0}, FALSE)", "logic has three values"),
        # whole numbers
        "add": Spelling(
            f"({_emit_double(0)} + {_emit_double(1)})",
            _TRIED,
            _emit_narrow(f"{_emit_wide(0)} + {_emit_wide(1)}"),
        ),
        "subtract": Spelling(
            f"({_emit_double(0)} - {_emit_double(1)})",
            _TRIED,
            _emit_narrow(f"{_emit_wide(0)} - {_emit_wide(1)}"),
        ),
        "multiply": Spelling(
            f"({_emit_double(0)} * {_emit_double(1)})",
            _TRIED,
            _emit_narrow(f"{_emit_wide(0)} * {_emit_wide(1)}"),
        ),
        "divide": Spelling(
            f"({_emit_double(0)} / nullIf({_emit_double(1)}, 0))", f"{_TRIED}; a zero divisor gives NULL"
        ),
        "negate": Spelling(f"negate({_emit_double(0)})", _TRIED, _emit_narrow(f"negate({_emit_wide(0)})")),
        "remainder_by": Spelling(
            "CAST(moduloOrNull({0}, {1}) AS Int64)",
            "the divisor is a constant that is neither 0 nor -1",
            takes=frozenset({Type.INTEGER}),
        ),
        "quotient_by": Spelling(
            "CAST(intDivOrNull({0}, {1}) AS Int64)", "the divisor is a constant that is neither 0 nor -1"
        ),
        "quotient": Spelling(
            _emit_narrow("intDivOrNull(CAST({0} AS Int128), CAST({1} AS Int128))"),
            "a zero divisor, and the one quotient beyond 64 bits, give NULL",
        ),
        "remainder": Spelling(
            "CAST(moduloOrNull(CAST({0} AS Int128), CAST({1} AS Int128)) AS Int64)",
            "a zero divisor gives NULL",
            takes=frozenset({Type.INTEGER}),
        ),
        "bit_and": Spelling("bitAnd({0}, {1})", DEFINED),
        "bit_or": Spelling("bitOr({0}, {1})", DEFINED),
        "bit_xor": Spelling("bitXor({0}, {1})", DEFINED),
        "bit_not": Spelling("bitNot({0})", DEFINED),
        "shift_right": Spelling(
            bind_arguments(
                "CASE WHEN b BETWEEN 0 AND 63 THEN bitShiftRight(a, bitAnd(b, 63)) WHEN b IS NOT NULL AND a IS NOT NULL THEN 0 END",
                "CAST({0} AS Int64)",
                "CAST({1} AS Int64)",
            ),
            "a shift out of range gives 0",
        ),
        "shift_left": Spelling(
            bind_arguments(
                f"CASE WHEN a = 0 AND b >= 0 THEN a WHEN a > 0 AND b BETWEEN 0 AND 62 "
                f"AND a <= bitShiftRight(CAST({MAX_INT64} AS Int64), bitAnd(b, 63)) THEN bitShiftLeft(a, bitAnd(b, 63)) END",
                "CAST({0} AS Int64)",
                "CAST({1} AS Int64)",
            ),
            "NULL of negative numbers, and beyond 64 bits",
        ),
        "bit_count": Spelling("CAST(bitCount({0}) AS Int64)", DEFINED),
        # numbers
        "sign": Spelling(
            f"CAST(CASE WHEN isNaN({_emit_double(0)}) THEN 0 ELSE sign({_emit_double(0)}) END AS Int64)",
            "-1, 0 or 1 for every DOUBLE",
        ),
        "abs": Spelling("abs({0})", DEFINED, _emit_narrow(f"abs({_emit_wide(0)})")),
        "floor": _define_rounding("floor(a)"),
        "ceil": _define_rounding("ceil(a)"),
        "trunc": _define_rounding("trunc(a)"),
        "round": _define_rounding(_ROUND),
        "even": Spelling(bind_arguments(_EVEN, _emit_double(0)), DEFINED),
        "signbit": Spelling(f"(reinterpretAsInt64({_emit_double(0)}) < 0)", DEFINED),
        "isnan": Spelling(f"isNaN({_emit_double(0)})", DEFINED),
        "isinf": Spelling(f"isInfinite({_emit_double(0)})", DEFINED),
        "isfinite": Spelling(f"isFinite({_emit_double(0)})", DEFINED),
        **{
            name: _define_total_function(f"{name}({_emit_double(0)})")
            for name in (
                *("sqrt", "cbrt", "exp", "degrees", "radians"),
                *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "atanh", "asinh", "acosh"),
            )
        },
        **{
            name: Spelling(
                bind_arguments(f"CASE WHEN a = 0 THEN NULL ELSE {word}(a) END", _emit_double(0)),
                "of 0 it is NULL, below NaN",
            )
            for name, word in {"ln": "log", "log10": "log10", "log2": "log2"}.items()
        },
        "atan2": _define_total_function(f"atan2({_emit_double(0)}, {_emit_double(1)})"),
        "pi": Spelling("pi()", DEFINED),
        # text
        "length": Spelling("CAST(lengthUTF8({0}) AS Int64)", DEFINED),
        "strlen": Spelling("CAST(length({0}) AS Int64)", DEFINED),
        "bit_length": Spelling("(CAST(length({0}) AS Int64) * 8)", DEFINED),
        "substring_from": Spelling(
            "substringUTF8({0}, {1})", "the start is a constant from 1 on", condition=has_valid_part
        ),
        "substring": Spelling(
            "substringUTF8({0}, {1}, {2})",
            "start and length are constants, from 1 and 0 on",
            condition=has_valid_part,
        ),
        **{
            name: Spelling(
                f"{name}UTF8({{0}}, {{1}})", "a constant count", condition=has_constant(1, -(2**30), 2**30)
            )
            for name in ("left", "right")
        },
        "replace": Spelling("replaceAll({0}, {1}, {2})", "what is replaced, and by what, are constants"),
        "translate": CallSpelling(
            _emit_translation, "the characters are constants, no more new ones than old ones"
        ),
        "repeat": Spelling("repeat({0}, {1})", "the count is a small constant"),
        "trim": _define_trim("^$"),
        "ltrim": _define_trim("^"),
        "rtrim": _define_trim("$"),
        "trim_characters": _define_letter_trim("^$"),
        "ltrim_characters": _define_letter_trim("^"),
        "rtrim_characters": _define_letter_trim("$"),
        "lower": CallSpelling(lambda _: translate_letters("lower", "{0}"), _LETTERS),
        "upper": CallSpelling(lambda _: translate_letters("upper", "{0}"), _LETTERS),
        "split_part": Spelling(
            "CASE WHEN {0} IS NOT NULL THEN splitByString({1}, ifNull({0}, ''))[{2}] END",
            "the separator is some constant text, and the place a constant from 1 on",
            condition=has_separator,
        ),
        "contains": Spelling("(position({0}, {1}) > 0)", _BYTES, condition=has_only_texts),
        "starts_with": Spelling("startsWith({0}, {1})", _BYTES, condition=has_only_texts),
        "suffix": Spelling("endsWith({0}, {1})", _BYTES, condition=has_only_texts),
        "strpos": Spelling("CAST(positionUTF8({0}, {1}) AS Int64)", _BYTES, condition=has_only_texts),
        "concat": CallSpelling(_emit_concatenation, DEFINED),
        "concat_ws": CallSpelling(_emit_joined, "the separator is a constant"),
        **{
            name: Spelling(
                f"CASE WHEN {{0}} = 0 THEN '0' ELSE {_LEADING_ZEROS.format(f'{name}({{0}})')} END",
                DEFINED,
                takes=frozenset({Type.INTEGER}),
            )
            for name in ("hex", "bin")
        },
        "like": CallSpelling(
            _make_like_template(), f"every constant is a pattern; of at most {MOST_WILDCARDS} %"
        ),
        "ilike": CallSpelling(_make_like_template("lower"), f"as LIKE, of at most {MOST_WILDCARDS} %"),
        "like_escape": CallSpelling(
            _make_like_template(),
            f"a constant that escapes wildcards and its escape alone; of at most {MOST_WILDCARDS} %",
        ),
        "ilike_escape": CallSpelling(
            _make_like_template("lower"), f"as LIKE with ESCAPE, of at most {MOST_WILDCARDS} %"
        ),
        **define_pattern_matches(_TESTS, emit_constant, bind_arguments),
        **DATE_SPELLINGS,
        # casts
        **define_integer_casts(_emit_integer_casts),
        "cast_double": TypeSpelling(
            {
                Type.INTEGER: _emit_double(0),
                Type.DOUBLE: "{0}",
                Type.NULL: "CAST(NULL AS Nullable(Float64))",
                Type.BOOLEAN: _emit_double(0),
            },
            "every whole number has a nearest DOUBLE",
        ),
        "cast_float": TypeSpelling(
            {
                Type.INTEGER: "toFloat64(toFloat32({0}))",
                Type.DOUBLE: bind_arguments(
                    f"CASE WHEN abs(a) BETWEEN {emit_constant(LEAST_BEYOND_FLOAT)} AND {emit_constant(MOST_DOUBLE)} THEN NULL"
                    " ELSE toFloat64(toFloat32(a)) END",
                    "{0}",
                ),
                Type.NULL: "CAST(NULL AS Nullable(Float64))",
            },
            "a cast to FLOAT has no error; what it would make infinite is NULL",
        ),
        "cast_varchar": TypeSpelling(
            {
                Type.INTEGER: "toString({0})",
                Type.VARCHAR: "{0}",
                Type.BOOLEAN: "CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END",
                Type.DATE: DAY_TEXT,
            },
            "every value of these types has a text, which no setting changes",
        ),
        "cast_boolean": TypeSpelling(
            {Type.INTEGER: "({0} <> 0)", Type.BOOLEAN: "{0}", Type.DOUBLE: "({0} <> 0)"}, COMPARES
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
        **dict.fromkeys(("trim", "ltrim", "rtrim"), growth.make_byte_work_rule(50)),
        "translate": growth.make_byte_work_rule(50),
        "replace": growth.bound_slow_replacement_work,
        "split_part": growth.make_pair_work_rule(),
    }
)
"""The work of functions that compare letter by letter here: of a text and a pattern, of each two letters."""
