"""Intervals of expressions, by interval arithmetic over declared bounds and constants.

Claim: a non-NULL value of an expression lies in its interval wherever its columns lie in theirs and
the given conditions hold.
Why: each function's interval encloses its image, and a condition that holds narrows what it compares.
Source: Moore 1966, "Interval Analysis".

No guarantee rests on this: aggregated values are clamped to their interval. What rests on it is that
the clamp seldom acts, and that integer arithmetic stays within 64 bits.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from dpsql.aggregates import AGGREGATES
from dpsql.aggregates.windows import OVER
from dpsql.analysis.decimals import unrounded
from dpsql.functions.conditional import case_branches
from dpsql.plan.expr import Call, Column, Expr, Literal, Released, Scalar, Windowed, is_null, replaced
from dpsql.plan.interval import ANYWHERE, Interval, hull, position
from dpsql.plan.nodes import Filter, Join, OuterQuery, PublicSubquery, Relation, Release, SemiJoin
from dpsql.plan.noiseless import noiseless
from dpsql.plan.types import Type

Known = Mapping[Expr, Interval]
"""What conditions say of expressions."""

MAX_MAGNITUDE = 10**150
"""A bound above this is treated as none; its square would overflow DOUBLE."""
RELEASED = 2**55
"""Released integers are taken to be smaller: twice a count is then still an integer."""

_DAY = 24 * 60 * 60 * 10**6
"""The microseconds of a day."""
_STEPWISE = (Type.INTEGER, Type.DATE)
"""Types whose values lie at whole places, so that what is less is less by one."""
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def limits(kind: Type) -> Interval:
    """The interval of values of a type that can be summed or chosen as a quantile: those that a result can hold."""
    moments = {Type.DATE: (dt.date.min, dt.date.max), Type.TIMESTAMP: (dt.datetime.min, dt.datetime.max)}  # noqa: DTZ901  (SQL timestamps have no zone)
    if kind in moments:
        return Interval(*map(position, moments[kind]))
    return Interval(-MAX_MAGNITUDE, MAX_MAGNITUDE)


def released_interval(expr: Expr, release: Release) -> Interval:
    """The interval of an expression over the columns of a release, where keys are those of its rows.

    Keys without bounds are taken to be as small as aggregates: arithmetic on them stays with whole numbers.
    """
    keys: dict[Expr, Expr] = {Released(key.name, key.expr.type): key.expr for key in release.keys}
    found = interval(replaced(expr, keys), conditions(release.input))
    return found if found.bounded else interval(expr)


def answer_intervals(outer: OuterQuery) -> tuple[Interval, ...]:
    """The interval of each number that a query over released values gives to a private computation.

    Claim: each is where the value is without noise, and `engine.post_processor.as_constants` clamps the noisy value to it.
    Why: MIN, MAX, quantiles and averages of an expression lie in its interval, and group keys in theirs; clamping is
    post-processing. Values without noise are not clamped, and have no interval here but that of their column.
    Source: Dwork, Roth 2014, Proposition 2.1.
    """
    known, source = dict[Expr, Interval](), outer.source
    if isinstance(source, Release):
        rows = conditions(source.input)
        known |= {Released(key.name, key.expr.type): interval(key.expr, rows) for key in source.keys}
        known |= {
            Released(item.name, item.type): interval(item.argument, rows)
            for item in source.aggregations
            if item.argument is not None and AGGREGATES[item.function].within_argument
        }
    else:
        known |= conditions(source)
    exact = noiseless(outer)
    return tuple(
        interval(output.expr, known) if output.expr.type.numeric and not free else Interval()
        for output, free in zip(outer.outputs, exact, strict=True)
    )


def interval(expr: Expr, known: Known | None = None) -> Interval:
    """The interval of `expr` where the conditions behind `known` hold."""
    return _Derivation({} if known is None else known).interval(expr)


class _Derivation:
    """Derives each part of an expression once, however often it is shared."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._found: dict[Expr, Interval] = {}

    def interval(self, expr: Expr) -> Interval:
        found = self._found.get(expr)
        if found is None:
            derived = self._derived(expr)
            found = derived.meet(self._known[expr]) if expr in self._known else derived
            self._found[expr] = found
        return found

    def _derived(self, expr: Expr) -> Interval:
        match expr:
            case Column():
                return expr.facts.interval
            case Released() if expr.type is Type.INTEGER:
                return Interval(-RELEASED, RELEASED)
            case Scalar():
                whole = Interval(-RELEASED, RELEASED) if expr.type is Type.INTEGER else Interval()
                return whole.meet(answer_intervals(expr.outer)[0])
            case Literal():
                at = position(expr.value)
                return Interval() if at is None else Interval(at, at)
            case Call() if expr.function.name == "case":
                return _case(expr, self._known)
            case Call():
                return expr.function.interval(expr.arguments, tuple(map(self.interval, expr.arguments)))
            case Windowed():
                return OVER[expr.function].interval(tuple(map(self.interval, expr.arguments)))
            case _:
                return Interval()


def _case(expr: Call, known: Known) -> Interval:
    """The hull of the branches, each where its condition holds; NULL branches have no value."""
    branches, otherwise = case_branches(expr.arguments)
    values = [
        interval(value, narrow(condition, known)) for condition, value in branches if not is_null(value)
    ]
    if not is_null(otherwise):
        values.append(interval(otherwise, known))
    return hull(values) if values else Interval()


def conditions(relation: Relation) -> Known:
    """What the filters of a relation say of its rows."""
    match relation:
        case Filter():
            return narrow(relation.predicate, conditions(relation.input))
        case SemiJoin():
            return conditions(relation.input)
        case Join():
            return {**conditions(relation.right), **conditions(relation.left)}
        case PublicSubquery():
            found = zip(relation.columns, answer_intervals(relation.outer), strict=True)
            return {column: around for column, around in found if around != ANYWHERE}
        case _:
            return {}  # what a source's rows fulfil is in the facts of its columns


def narrow(predicate: Expr, known: Known | None = None) -> Known:
    """`known` together with what `predicate` says where it is true.

    >>> from dpsql.plan.expr import Facts
    >>> from dpsql.functions import call
    >>> age = Column("t", "age", Facts(Type.INTEGER, "BIGINT", Interval(0, 110)))
    >>> interval(age, narrow(call("lt", age, Literal(18, Type.INTEGER))))
    Interval(0, 17)
    """
    narrowed = dict(known or {})
    for condition in conjuncts(predicate):
        for expr, range_ in _says(condition):
            if not isinstance(expr, Literal):  # a condition says nothing about a constant, such as NULL
                narrowed[expr] = narrowed[expr].meet(range_) if expr in narrowed else range_
    return narrowed


def conjuncts(predicate: Expr) -> Iterator[Call]:
    """The conditions that all hold where a predicate is true."""
    if isinstance(predicate, Call):
        if predicate.function.name == "and":
            for argument in predicate.arguments:
                yield from conjuncts(argument)
        else:
            yield predicate


def _says(condition: Call) -> Iterator[tuple[Expr, Interval]]:
    name = condition.function.name
    if name == "in":
        operand, *items = condition.arguments
        places = [interval(item) for item in items]
        if all(place.bounded for place in places) and _one_line(condition.arguments):
            yield operand, hull(places)
    if name not in _FLIPPED:
        return
    left, right = condition.arguments
    for day, moment, compared in ((left, right, name), (right, left, _FLIPPED[name])):
        if day.type is Type.DATE and moment.type is Type.TIMESTAMP:
            yield day, _of_days(_side(compared, interval(moment), 0))
    if not _one_line(condition.arguments):
        return
    apart = 1 if left.type is right.type and right.type in _STEPWISE else 0
    for expr, side in (
        (left, _side(name, interval(right), apart)),
        (right, _side(_FLIPPED[name], interval(left), apart)),
    ):
        yield expr, side
        inner = unrounded(expr)
        if inner is not None:
            yield inner, side


def _of_days(moments: Interval) -> Interval:
    """The days that begin within an interval of moments."""
    first = position(dt.datetime(1970, 1, 1))  # noqa: DTZ001  (SQL timestamps have no zone)
    start, shift = first or Fraction(0), dt.date(1970, 1, 1).toordinal()
    low, high = (None if end is None else (end - start) / _DAY for end in (moments.low, moments.high))
    return Interval(
        None if low is None else math.ceil(low) + shift, None if high is None else math.floor(high) + shift
    )


def _one_line(arguments: tuple[Expr, ...]) -> bool:
    """Whether the arguments' positions can be compared: a DATE's line is not a TIMESTAMP's."""
    return len({argument.type.temporal and argument.type for argument in arguments}) == 1


def _side(name: str, other: Interval, apart: int) -> Interval:
    """Where x lies if `x name other` is true; what is less is so by at least `apart`."""
    match name:
        case "lt":
            return Interval(None, None if other.high is None else other.high - apart)
        case "gt":
            return Interval(None if other.low is None else other.low + apart, None)
        case "le":
            return Interval(None, other.high)
        case "ge":
            return Interval(other.low, None)
        case _:
            return other
