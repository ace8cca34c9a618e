"""How an engine other than DuckDB writes entries of the function registry, each with the reason why no row makes it fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.types import Type

MOST_WILDCARDS = 16
LEAST_BEYOND_FLOAT, MOST_DOUBLE = float.fromhex("0x1.ffffffp127"), sys.float_info.max
"""The numbers between which a DOUBLE is rounded to an infinite FLOAT of 32 bits."""
MOST_ROUNDED_TO_ZERO = 2.0**-150
"""The greatest number that is rounded to a FLOAT of zero."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a function is written: a template, as `Function.sql`, and why it is total.

    `takes` are the types that its arguments may have, all of them where it is empty; of `condition`, the call must fulfil the
    condition. A template for whole numbers may stand beside, for calls whose type is INTEGER.
    """

    sql: str
    total: str
    integer_sql: str = ""
    takes: frozenset[Type] = frozenset()
    condition: Callable[[Call], bool] = lambda _: True

    def find_template(self, call: Call) -> str | None:
        """The template for a call, None where it is not written for it."""
        types = {argument.type for argument in call.arguments} - {Type.NULL}
        if (self.takes and not types <= self.takes) or not self.condition(call):
            return None
        return self.integer_sql if self.integer_sql and call.type is Type.INTEGER else self.sql


@dataclass(frozen=True, slots=True)
class CallSpelling:
    """A function whose template is made for a call, None where it is not written for it."""

    build_template: Callable[[Call], str | None]
    total: str
    takes: frozenset[Type] = frozenset()

    def find_template(self, call: Call) -> str | None:
        """The template for a call, None where it is not written for it."""
        return self.build_template(call)


@dataclass(frozen=True, slots=True)
class TypeSpelling:
    """A function of one argument that is written as its type says."""

    templates: Mapping[Type, str]
    total: str

    def find_template(self, call: Call) -> str | None:
        """The template for a call, None where it is not written for it."""
        return self.templates.get(call.arguments[0].type)


Spellings = Mapping[str, Spelling | TypeSpelling | CallSpelling]
"""How an engine writes functions, by their names in the registry."""


def has_constant(place: int, least: int, most: int) -> Callable[[Call], bool]:
    """The condition that an argument, by its place, is a constant whole number in this range."""

    def fits_range(call: Call) -> bool:
        argument = call.arguments[place]
        return (
            isinstance(argument, Literal)
            and isinstance(argument.value, int)
            and least <= argument.value <= most
        )

    return fits_range


def has_valid_part(call: Call) -> bool:
    """Whether a part begins within the text, or at its first character, and has a length."""
    return has_constant(1, 1, 2**30)(call) and (len(call.arguments) < 3 or has_constant(2, 0, 2**30)(call))


def has_constant_text(call: Call) -> bool:
    """Whether the second argument is a constant: else one long text in a row decides how long each comparison takes."""
    return isinstance(call.arguments[1], Literal)


def has_few_wildcards(call: Call) -> bool:
    """Whether the pattern is a constant with few %, for each of which an engine may go one level deeper, and back."""
    pattern = call.arguments[1]
    return isinstance(pattern, Literal) and str(pattern.value).count("%") <= MOST_WILDCARDS


def has_only_texts(call: Call) -> bool:
    """Whether all arguments are texts."""
    return all(argument.type is Type.VARCHAR for argument in call.arguments)


APPROXIMATE = frozenset(
    ("ln", "log10", "log2", "exp", "power", "cbrt", "degrees", "radians", "epoch", "sin", "cos", "tan", "cot", "asin", "acos",
     "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
)  # fmt: skip
"""Functions whose last digits an engine has from a library of mathematics of its own, which is not DuckDB's."""
COMPARES = "values of one type always compare"
DEFINED = "defined for every value of the type"
CHOICE = "no value is computed"
_LOGIC = "logic has three values"

ALIKE: Mapping[str, Spelling] = MappingProxyType(
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
    }
)
"""What standard SQL has, and each of these engines writes and means alike."""


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
