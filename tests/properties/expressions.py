"""Typed scalar expressions, drawn by Hypothesis from the function registry.

They are built through the checks that `lower` makes, and the registry says what there is to build: a new
function is drawn without a change here.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn, TypeVar

from hypothesis import strategies as st
from properties.printing import template, variadic

from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Function, Literal, ReleasedColumn, walk
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.types import Type, Value
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.parse import parse_statement
from dpsql.sql.parse.rejection import QueryText

T = TypeVar("T")
KINDS = tuple(kind for kind in Type if kind not in (Type.NULL, Type.LIST))
DEEPEST = 2
"""How deep calls nest in an ordinary search."""
CONSTANTS: dict[Type, tuple[Value, ...]] = {
    Type.INTEGER: (1, 0, 2, 5, -1, -3, 2**53 + 1, 2**63 - 1, -(2**63) + 1),
    Type.DOUBLE: (1.5, 0.0, -0.0, 0.1, -2.0, 1e308, -1e308, 5e-324),
    Type.VARCHAR: ("A", "a", "", "b", "%a%", "_", "!", "i", "g", "%Y", "1", "nan", "it's", "ß", "2024-02-29"),
    Type.BOOLEAN: (True, False),
    Type.DATE: (dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    Type.TIMESTAMP: (
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(1, 1, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    Type.TIME: (dt.time(0), dt.time(12, 34, 56), dt.time.max),
    Type.UUID: (uuid.UUID(int=0), uuid.UUID(int=2**127), uuid.UUID(int=2**128 - 1)),
    Type.BLOB: (b"", b"a", b"\xff\x00"),
    Type.NULL: (None,),
}
SMALL = (1, 2, 0, -1, 3, -2, 15, 2**31 - 1)
"""Whole numbers for places that take a constant alone, such as a number of digits."""
MOST_TRIED = 200
"""Most constants that are tried where a function takes nothing else."""

EXTREMES: dict[Type, tuple[Value, ...]] = {
    Type.INTEGER: (2**62, -(2**62), 2**63 - 1, -(2**63) + 1),
    Type.DOUBLE: (1e308, -1e308, 2.0**62, 5e-324),
    Type.VARCHAR: ("", "x" * 300),
    Type.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    Type.TIMESTAMP: (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
}
"""What a query can give a row by CASE, at the ends of each type."""

OFTEN = st.sampled_from((True, True, True, False))
HALF = st.booleans()
SELDOM = st.sampled_from((False,) * 7 + (True,))
_FOLDED = frozenset(
    {
        *itertools.product(["negate"], [Type.INTEGER, Type.DOUBLE]),
        *itertools.product(["cast_date", "cast_timestamp"], [Type.VARCHAR]),
    }
)
"""What `lower` computes itself where the argument is a constant."""
_SCALARS = Scalars(
    QueryText(""), (), StatementTime(dt.datetime(2026, 4, 1)), lambda _: Literal(None, Type.NULL)
)

Signature = tuple[Type, ...]


def build(name: str, *arguments: Expr) -> Expr | None:
    """The expression that `lower` makes of a function's arguments, or None where it refuses them."""
    if arguments and (name, arguments[0].type) in _FOLDED and isinstance(arguments[0], Literal):
        return None
    try:
        return _SCALARS.build_call(None, name, *arguments)  # type: ignore[arg-type]
    except QueryRejected:
        return None


def signatures(function: Function) -> Iterator[tuple[Signature, Type]]:
    """The types of arguments that an entry takes, without NULL, and of its results."""
    _, places = template(function)
    step = 2 if function.name == "case" else 1
    for arity in (places, places + step) if variadic(function) else (places,):
        for types in itertools.product(KINDS, repeat=arity):
            result = function.result(types)
            if result is not None:
                yield types, result


@cache
def takes(name: str, kind: Type) -> tuple[Signature, ...]:
    """The types of arguments for which a function gives a type."""
    return tuple(types for types, result in signatures(FUNCTIONS[name]) if result is kind)


def constant_places(function: Function, arity: int) -> tuple[int, ...]:
    """The arguments that must be constants, of so many."""
    return tuple(range(1, arity)) if function.name == "in" else tuple(sorted(function.literals))


@cache
def constants(name: str, types: Signature) -> tuple[tuple[Literal, ...], ...]:
    """What an entry takes where it takes constants alone: its example's, then others that are accepted.

    >>> constants("left", (Type.VARCHAR, Type.INTEGER))[0]
    (Literal(value=2, type=<Type.INTEGER: 'BIGINT'>),)
    """
    function = FUNCTIONS[name]
    kinds = [types[place] for place in constant_places(function, len(types))]
    small = bool(function.literals)
    pools = [SMALL if small and kind is Type.INTEGER else CONSTANTS[kind] for kind in kinds]
    among = [*itertools.product(*pools)]
    random.Random(name).shuffle(among)
    known = [values for values in (_exemplary(function, types),) if values]
    written = (tuple(map(Literal, values, kinds)) for values in (*known, *among[:MOST_TRIED]))
    return tuple(found for found in written if _taken(function, types, found))


def _exemplary(function: Function, types: Signature) -> tuple[Value, ...]:
    """The constants of an entry's example, where it has as many arguments and the constants these types."""
    statement = parse_statement(f"SELECT {function.example[0]}")
    whole = Scalars(statement.source, (), StatementTime(dt.datetime(2026, 4, 1)), _no_column).lower(
        statement.query.expressions[0]
    )
    places = constant_places(function, len(types))
    for part in walk(whole):
        if isinstance(part, Call) and part.function is function and len(part.arguments) == len(types):
            shown = [part.arguments[place] for place in places]
            if all(literal.type is types[place] for place, literal in zip(places, shown, strict=True)):
                return tuple(literal.value for literal in shown if isinstance(literal, Literal))
    return ()


def _no_column(node: object) -> NoReturn:
    raise TypeError(f"{node} is no constant")


def _taken(function: Function, types: Signature, given: tuple[Literal, ...]) -> bool:
    known = dict(zip(constant_places(function, len(types)), given, strict=True))
    arguments = (
        known.get(place) or Column("", "c", ColumnInfo(kind, kind.value)) for place, kind in enumerate(types)
    )
    return build(function.name, *arguments) is not None


@cache
def one_of(among: tuple[T, ...]) -> st.SearchStrategy[T]:
    """One of several values, by a strategy that is made once."""
    return st.sampled_from(among)


@cache
def result_types(name: str) -> tuple[Type, ...]:
    return tuple(kind for kind in KINDS if takes(name, kind))


@cache
def _producers(kind: Type) -> tuple[str, ...]:
    return tuple(name for name in FUNCTIONS if takes(name, kind))


@cache
def _literals(kind: Type) -> tuple[Literal, ...]:
    return tuple(Literal(value, kind) for value in CONSTANTS[kind])


@dataclass(frozen=True)
class Expressions:
    """Draws expressions over some columns, outermost more often than not of the `featured` function."""

    draw: st.DrawFn
    columns: Sequence[Column | ReleasedColumn]
    featured: str
    deepest: int = DEEPEST
    released: Callable[[Type], Expr | None] | None = None

    def expression(self, kind: Type) -> Expr:
        """An expression of a type, or of a number's other type where integers would be too large."""
        if takes(self.featured, kind) and self.draw(OFTEN):
            return self._call(self.featured, kind, self.deepest)
        return self.part(kind, self.deepest)

    def call(self) -> Expr:
        """An expression of the featured function, where it takes what is drawn for it."""
        return self._call(self.featured, self.draw(one_of(result_types(self.featured))), self.deepest)

    def part(self, kind: Type, depth: int) -> Expr:
        """An expression of any form in which calls nest no deeper."""
        if kind is Type.NULL or depth == 0 or not self.draw(OFTEN):
            return self.leaf(kind)
        return self._call(self.draw(one_of(_producers(kind))), kind, depth)

    def leaf(self, kind: Type) -> Expr:
        """A column of a type or, where there is none and now and then, a constant or what is released."""
        fitting = [column for column in self.columns if column.type is kind]
        if kind in EXTREMES and self.columns and self.draw(SELDOM):
            return self._extreme(kind)
        if fitting and self.draw(OFTEN):
            return self.one(fitting)
        value = self.released(kind) if self.released is not None and self.draw(HALF) else None
        return self.draw(one_of(_literals(kind))) if value is None else value

    def _extreme(self, kind: Type) -> Expr:
        """A CASE between two ends of a type, by whether some column has a value: rows are told apart by it."""
        read = self.one(self.columns)
        known = build("eq", read, self.draw(one_of(_literals(read.type)))) or build("is_null", read)
        ends = [Literal(self.draw(one_of(EXTREMES[kind])), kind) for _ in range(2)]
        made = None if known is None else build("case", known, *ends)
        return ends[0] if made is None else made

    def one(self, among: Sequence[T]) -> T:
        """One of several things."""
        return among[self.draw(_place(len(among)))]

    def kind(self, among: Sequence[Type] = KINDS) -> Type:
        """A type of several, where possible one that the featured function gives."""
        fitting = tuple(kind for kind in among if takes(self.featured, kind))
        return self.draw(one_of(fitting if fitting and self.draw(OFTEN) else tuple(among)))

    def _call(self, name: str, kind: Type, depth: int) -> Expr:
        function = FUNCTIONS[name]
        types = self.draw(one_of(takes(name, kind)))
        given = self._constants(name, types)
        free = [place for place in range(len(types)) if place not in given]
        if free and self.draw(SELDOM):
            place = self.one(free)
            nulled = (*types[:place], Type.NULL, *types[place + 1 :])
            types = nulled if function.result(nulled) is kind else types
        arguments = [given.get(place) or self.part(wanted, depth - 1) for place, wanted in enumerate(types)]
        built = build(name, *arguments)
        # EPOCH_MS(NULL) and its like are read as the first entry of the name, which gives another type.
        fits = built is not None and (built.type is kind or (built.type.numeric and kind.numeric))
        return built if built is not None and fits else self.leaf(kind)

    def _constants(self, name: str, types: Signature) -> dict[int, Literal]:
        """Constants for the places that take nothing else."""
        places, fitting = constant_places(FUNCTIONS[name], len(types)), constants(name, types)
        return dict(zip(places, self.draw(one_of(fitting)), strict=True)) if places and fitting else {}


@cache
def _place(size: int) -> st.SearchStrategy[int]:
    return st.integers(0, size - 1)
