"""Spell functions of the registry for an engine other than DuckDB, each with the reason why no row makes it fail."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

import duckdb

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.types import Type

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
"""The ends of BIGINT."""
MOST_WILDCARDS = 16
LEAST_BEYOND_FLOAT, MOST_DOUBLE = float.fromhex("0x1.ffffffp127"), sys.float_info.max
"""The numbers between which a DOUBLE is rounded to an infinite FLOAT of 32 bits."""
MOST_ROUNDED_TO_ZERO = 2.0**-150
"""The greatest number that is rounded to a FLOAT of zero."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A function that is written with a template, as `Function.sql`, and why it is total.

    `takes` are the types that its arguments may have, all of them if it is empty; the call must fulfill the `condition`.
    `integer_sql` is another template for calls whose type is INTEGER.
    """

    sql: str
    total: str
    integer_sql: str = ""
    takes: frozenset[Type] = frozenset()
    condition: Callable[[Call], bool] = lambda _: True

    def find_template(self, call: Call) -> str | None:
        """Return the template for a call, None if the function is not written for it."""
        types = {argument.type for argument in call.arguments} - {Type.NULL}
        if (self.takes and not types <= self.takes) or not self.condition(call):
            return None
        return self.integer_sql if self.integer_sql and call.type is Type.INTEGER else self.sql


@dataclass(frozen=True, slots=True)
class CallSpelling:
    """A function whose template is built for a call, None if it is not written for it."""

    build_template: Callable[[Call], str | None]
    total: str
    takes: frozenset[Type] = frozenset()

    def find_template(self, call: Call) -> str | None:
        """Return the template for a call, None if the function is not written for it."""
        return self.build_template(call)


@dataclass(frozen=True, slots=True)
class TypeSpelling:
    """A function of one argument, with a template for each type."""

    templates: Mapping[Type, str]
    total: str

    def find_template(self, call: Call) -> str | None:
        """Return the template for a call, None if the function is not written for it."""
        return self.templates.get(call.arguments[0].type)


Spellings = Mapping[str, Spelling | TypeSpelling | CallSpelling]
"""The spellings of an engine, by the names of functions in the registry."""


def has_constant(place: int, least: int, most: int) -> Callable[[Call], bool]:
    """Return the condition that an argument, by its place, is a constant whole number in this range."""

    def fits_range(call: Call) -> bool:
        argument = call.arguments[place]
        return (
            isinstance(argument, Literal)
            and isinstance(argument.value, int)
            and least <= argument.value <= most
        )

    return fits_range


def has_valid_part(call: Call) -> bool:
    """Return whether a part begins within the text, or at its first character, and has a length."""
    return has_constant(1, 1, 2**30)(call) and (len(call.arguments) < 3 or has_constant(2, 0, 2**30)(call))


def has_constant_text(call: Call) -> bool:
    """Return whether the second argument is a constant: else one long text in a row decides how long each comparison takes."""
    return isinstance(call.arguments[1], Literal)


def has_few_wildcards(call: Call) -> bool:
    """Return whether the pattern is a constant with few %, for each of which an engine may go one level deeper, and back."""
    pattern = call.arguments[1]
    return isinstance(pattern, Literal) and str(pattern.value).count("%") <= MOST_WILDCARDS


def has_separator(call: Call) -> bool:
    """Return whether a separator is some constant text, and a place is counted from the beginning."""
    separator = call.arguments[1]
    return has_constant(2, 1, 2**30)(call) and isinstance(separator, Literal) and separator.value != ""


def has_only_texts(call: Call) -> bool:
    """Return whether all arguments are texts."""
    return all(argument.type is Type.VARCHAR for argument in call.arguments)


APPROXIMATE = frozenset(
    ("ln", "log10", "log2", "exp", "power", "cbrt", "degrees", "radians", "epoch", "sin", "cos", "tan", "cot", "asin", "acos",
     "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)  # fmt: skip
"""Functions whose last digits an engine has from a library of mathematics of its own, which is not DuckDB's."""
COMPARES = "values of one type always compare"
DEFINED = "defined for every value of the type"
WITHIN_CALENDAR = "defined for every day and moment of the calendar; what leaves it is NULL"
CHOICE = "no value is computed"
_LOGIC = "logic has three values"

COMMON_SPELLINGS: Spellings = MappingProxyType(
    {
        **{
            name: Spelling(f"({{0}} {symbol} {{1}})", COMPARES)
            for name, symbol in {
                "eq": "=",
                "ne": "<>",
                "lt": "<",
                "le": "<=",
                "gt": ">",
                "ge": ">=",
                "is_distinct": "IS DISTINCT FROM",
                "is_not_distinct": "IS NOT DISTINCT FROM",
            }.items()
        },
        "and": Spelling("({and})", _LOGIC),
        "or": Spelling("({or})", _LOGIC),
        "not": Spelling("(NOT {0})", _LOGIC),
        "is_null": Spelling("({0} IS NULL)", DEFINED),
        "is_true": Spelling("({0} IS TRUE)", DEFINED),
        "is_false": Spelling("({0} IS FALSE)", DEFINED),
        "in": Spelling("({0} IN ({rest}))", COMPARES),
        "bit_and": Spelling("({0} & {1})", DEFINED),
        "bit_or": Spelling("({0} | {1})", DEFINED),
        "bit_not": Spelling("(~ {0})", DEFINED),
        "least": Spelling("LEAST({args})", COMPARES),
        "greatest": Spelling("GREATEST({args})", COMPARES),
        "pi": Spelling("PI()", DEFINED),
        "case": Spelling("CASE {case} END", CHOICE),
        "coalesce": Spelling("COALESCE({args})", CHOICE),
        "nullif": Spelling("NULLIF({0}, {1})", COMPARES),
        "remainder_by": Spelling("({0} % {1})", "the divisor is a constant that is neither 0 nor -1"),
        "isinf_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN FALSE END", WITHIN_CALENDAR),
        "isfinite_moment": Spelling("CASE WHEN {0} IS NOT NULL THEN TRUE END", WITHIN_CALENDAR),
        # text
        "strlen": Spelling("CAST(OCTET_LENGTH({0}) AS BIGINT)", DEFINED),
        "bit_length": Spelling("CAST(BIT_LENGTH({0}) AS BIGINT)", DEFINED),
        "ascii": Spelling("CAST(ASCII({0}) AS BIGINT)", DEFINED),
        "lpad": Spelling("LPAD({0}, {1}, {2})", "length and fill are constants"),
        "rpad": Spelling("RPAD({0}, {1}, {2})", "length and fill are constants"),
        "repeat": Spelling("REPEAT({0}, {1})", "the count is a small constant"),
        "replace": Spelling("REPLACE({0}, {1}, {2})", "what is replaced, and by what, are constants"),
        "translate": Spelling("TRANSLATE({0}, {1}, {2})", "the characters are constants"),
        "concat_ws": Spelling("CONCAT_WS({args})", DEFINED, condition=has_only_texts),
        "concatenate": Spelling("({0} || {1})", DEFINED, condition=has_only_texts),
        "substring_from": Spelling(
            "SUBSTR({0}, {1})", "the start is a constant from 1 on", condition=has_valid_part
        ),
        "substring": Spelling(
            "SUBSTR({0}, {1}, {2})",
            "start and length are constants, from 1 and 0 on",
            condition=has_valid_part,
        ),
        "left": Spelling("LEFT({0}, {1})", "a constant count", condition=has_constant(1, -(2**30), 2**30)),
        "right": Spelling("RIGHT({0}, {1})", "a constant count", condition=has_constant(1, -(2**30), 2**30)),
        "cast_blob": TypeSpelling({Type.BLOB: "{0}"}, CHOICE),
    }
)
"""Functions that these engines write and mean alike."""


def define_integer_casts(
    emit_casts: Callable[[int, int], Mapping[Type, str]],
) -> dict[str, TypeSpelling]:
    """Return the casts to types of whole numbers, by the names of the registry; `emit_casts` takes the ends of a type."""
    ends = {
        "tinyint": (-(2**7), 2**7 - 1),
        "smallint": (-(2**15), 2**15 - 1),
        "integer": (-(2**31), 2**31 - 1),
        "bigint": (MIN_INT64, MAX_INT64),
        "hugeint": (MIN_INT64, MAX_INT64),
        "utinyint": (0, 2**8 - 1),
        "usmallint": (0, 2**16 - 1),
        "uinteger": (0, 2**32 - 1),
        "ubigint": (0, MAX_INT64),
        "uhugeint": (0, MAX_INT64),
    }
    return {
        f"cast_{name}": TypeSpelling(emit_casts(low, high), "what the type does not hold is NULL")
        for name, (low, high) in ends.items()
    }


def require_template(spellings: Spellings, expr: Call, where: str) -> str:
    """Return the template of a call. Raises QueryRejected (`engine_function`) if the engine does not support it."""
    spelling = spellings.get(expr.function.name)
    template = None if spelling is None else spelling.find_template(expr)
    if template is None:
        types = ", ".join(argument.type.name.lower() for argument in expr.arguments)
        raise QueryRejected(
            f"{expr.function.signature} with arguments of type {types or '(none)'} is not supported on {where}, where a single row could make it fail",
            code="engine_function",
            hint="compute it from aggregates, or store it as a column; the engines reference lists the functions of each engine",
        )
    return template


# Formats of STRFTIME that are concatenated from parts, for engines whose own formats differ from DuckDB's.


_PARTS = {
    "Y": ("year", 4),
    "m": ("month", 2),
    "d": ("day", 2),
    "H": ("hour", 2),
    "M": ("minute", 2),
    "S": ("second", 2),
}
"""The fields of a moment by their specifiers, and how many digits each has at least."""
_FORMATTED = "whole numbers with leading zeros and literal texts: %Y, %m, %d, %H, %M, %S, %F, %T and %%"
_SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S"}
_MOST = 100
"""The most characters of a format."""


def define_strftime(
    emit_padded_field: Callable[[str, int], str],
    join_parts: Callable[[list[str]], str],
    emit_constant: Callable[[str], str],
) -> CallSpelling:
    """Return STRFTIME from the texts of a moment's fields, each with its number of digits; `join_parts` concatenates them with literals.

    Claim: the text is the one that DuckDB writes, for each moment of the years 1 to 9999.
    Why: each part is a whole number with leading zeros, or a literal text; no language, setting or time zone decides it.
    Source: DuckDB's documentation, "Date Format Functions", format specifiers.
    """

    def build_template(call: Call) -> str | None:
        form = call.arguments[1]
        if not isinstance(form, Literal) or len(str(form.value)) > _MOST:
            return None
        text = re.sub("%[FT]", lambda found: _SHORT[found[0]], str(form.value))
        parts = re.findall(r"%.?|[^%]+", text, re.DOTALL)
        if not all(part[0] != "%" or part == "%%" or part[1:] in _PARTS for part in parts):
            return None
        return join_parts(
            [
                emit_padded_field(*_PARTS[part[1:]])
                if part[0] == "%" and part != "%%"
                else emit_constant("%" if part == "%%" else part).replace("{", "{{").replace("}", "}}")
                for part in parts
            ]
        )

    return CallSpelling(build_template, _FORMATTED)


# Regular expressions that are texts: alternatives of literals, for engines whose own expressions are not DuckDB's.


_LITERAL = r"(?:[^\\.+*?()\[\]{}|^$\x00]|\\[!-/:-@\[-^`{-~])*"
_ALTERNATIVE = re.compile(rf"(\^?)({_LITERAL})(\$?)(?:\||\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = "alternatives of literals with or without ^ and $: a text is searched for each"


def parse_alternatives(pattern: str, *, whole: bool) -> list[tuple[bool, bool, str]] | None:
    r"""Return the literals of a pattern, each with whether it is at the beginning and at the end; None for other patterns.

    With `whole`, the expression must match all of the text.

    Claim: a text matches such an expression if it contains, begins with, ends with or is one of the literals, as the anchors say.
    Why: RE2, PostgreSQL and Java give these expressions the same meaning, and no engine for expressions is needed: `^` and `$` are
    the ends of the text, and `\` escapes a sign of punctuation. Time is in proportion to the text.
    Source: RE2's documentation, "Syntax", single characters, composites and empty strings.

    >>> parse_alternatives(r"^a|b\.c$", whole=False)
    [(True, False, 'a'), (False, True, 'b.c')]
    >>> parse_alternatives("a+", whole=False)
    """
    found, at = list[tuple[bool, bool, str]](), 0
    while (part := _ALTERNATIVE.match(pattern, at)) is not None:
        found.append((whole or part[1] != "", whole or part[3] != "", _ESCAPED.sub(r"\1", part[2])))
        if not part[0].endswith("|") or part[0].endswith("\\|"):
            return found
        at = part.end()
    return None


def define_pattern_matches(
    tests: Mapping[tuple[bool, bool], str],
    emit_constant: Callable[[str], str],
    bind_arguments: Callable[[str, str], str],
) -> dict[str, CallSpelling]:
    """Return the functions of regular expressions, by the names of the registry.

    `tests` are those of a text `a` for a literal {0}, by whether it is at the beginning and at the end.
    """

    def build_template(call: Call, *, whole: bool) -> str | None:
        pattern = call.arguments[1]
        found = parse_alternatives(str(pattern.value), whole=whole) if isinstance(pattern, Literal) else None
        if found is None:
            return None
        each = [tests[first, last].format(emit_constant(text)) for first, last, text in found]
        return bind_arguments(f"({' OR '.join(each)})".replace("{", "{{").replace("}", "}}"), "{0}")

    return {
        "regexp_matches": CallSpelling(partial(build_template, whole=False), _PLAIN),
        "regexp_full_match": CallSpelling(partial(build_template, whole=True), _PLAIN),
    }


# Which letters LOWER and UPPER change in DuckDB, and into what, for engines whose own tables of letters are others.


_SURROGATES = 0xD800, 0xE000
_LETTERS = " UNION ALL ".join(
    f"SELECT CHR(CAST(i AS INTEGER)) AS c FROM RANGE({low}, {high}) AS r(i)"
    for low, high in ((1, _SURROGATES[0]), (_SURROGATES[1], 0x110000))
)


@cache
def read_case_mapping(function: str) -> tuple[str, str]:
    """Return the letters that `lower` or `upper` changes, and what they become, in the same order.

    Claim: each letter changes into one letter, whatever stands beside it.
    Why: the table is read from DuckDB itself, one letter at a time, and a test holds that texts are their letters.
    Source: Unicode 15, section 5.18 (case mappings that are simple, that is, of one letter to one).

    >>> before, after = read_case_mapping("lower")
    >>> after[before.index("Σ")]
    'σ'
    """
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT c, {function}(c) FROM ({_LETTERS}) WHERE {function}(c) <> c ORDER BY 1"
        ).fetchall()
    return "".join(row[0] for row in found), "".join(row[1] for row in found)


# Functions of moments that differ by a unit of time alone: which units they have, and what one is worth.


DAY = 86_400_000_000
"""The microseconds of a day."""
MONDAY = 946_857_600_000_000
"""The microseconds from 1970 to the third of January 2000, at which buckets of days begin in DuckDB."""
_MICROSECONDS = {
    "week": 7 * DAY,
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LONG_MONTHS = {"decade": 120, "century": 1_200, "millennium": 12_000}


def define_month_units(prefix: str, define: Callable[[int], Spelling]) -> dict[str, Spelling]:
    """Return a function of each unit of whole months, by its name in the registry; `define` takes the months of a unit."""
    return {f"{prefix}_{unit}": define(months) for unit, months in (_MONTHS | _LONG_MONTHS).items()}


def define_years_truncations(define: Callable[[int], Spelling]) -> dict[str, Spelling]:
    """Return DATE_TRUNC of each unit of several years, by its name in the registry; `define` takes the years of a unit."""
    return {f"date_trunc_{unit}": define(months // 12) for unit, months in _LONG_MONTHS.items()}


def define_time_buckets(
    emit_bucket: Callable[[int], str], emit_month_bucket: Callable[[int], str], moment: str
) -> dict[str, CallSpelling]:
    """Return TIME_BUCKET of each unit, by its name in the registry; `moment` is the engine's type of moments.

    `emit_bucket` emits the beginning of a bucket of a number of microseconds, where one bucket begins at `MONDAY`, and `emit_month_bucket`
    that of a number of months, where one begins with the year 2000. Buckets of days and longer units begin with a day.
    """
    clock = {
        unit: _define_bucket(emit_bucket, _MICROSECONDS[unit], moment)
        for unit in ("second", "minute", "hour")
    }
    of_days = {
        f"{unit}{end}": _define_bucket(emit, worth, kind)
        for end, kind in (("", moment), ("_of_days", "DATE"))
        for emit, units in (
            (emit_bucket, {unit: _MICROSECONDS[unit] for unit in ("day", "week")}),
            (emit_month_bucket, _MONTHS),
        )
        for unit, worth in units.items()
    }
    return {f"time_bucket_{name}": bucket for name, bucket in {**clock, **of_days}.items()}


def _define_bucket(emit_bucket: Callable[[int], str], unit: int, kind: str) -> CallSpelling:
    def build_template(call: Call) -> str | None:
        times = call.arguments[0]
        width = unit * times.value if isinstance(times, Literal) and isinstance(times.value, int) else 0
        return f"CAST({emit_bucket(width)} AS {kind})" if 0 < width <= 2**62 else None

    return CallSpelling(build_template, WITHIN_CALENDAR)


def define_full_differences(define_difference: Callable[[int], Spelling]) -> dict[str, Spelling]:
    """Return DATE_SUB of each unit of constant length, by its name in the registry."""
    return {f"date_sub_{unit}": define_difference(worth) for unit, worth in _MICROSECONDS.items()}
