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

from dpsql.analysis.number_types import find_unrounded
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    ReleasedColumn,
    Scalar,
    WindowCall,
    is_null,
    replace_parts,
)
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.interval import ANYWHERE, Interval, find_position, merge_intervals
from dpsql.plan.nodes import Filter, Join, OuterQuery, PublicSubquery, Relation, Release, SemiJoin
from dpsql.plan.provenance import mark_noiseless_outputs
from dpsql.plan.types import Type

KnownIntervals = Mapping[Expr, Interval]
"""The intervals that conditions give to expressions."""

MAX_MAGNITUDE = 10**150
"""A bound above this is treated as none; its square would overflow DOUBLE."""
RELEASED = 2**55
"""Released integers are taken to be smaller: twice a count is then still an integer."""

_DAY = 24 * 60 * 60 * 10**6
"""The microseconds of a day."""
_STEPWISE = (Type.INTEGER, Type.DATE)
"""Types with whole positions, so that a smaller value is smaller by at least one."""
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}


def get_type_limits(kind: Type) -> Interval:
    """Return the interval of values of a type that can be summed or chosen as a quantile: those that a result can hold."""
    moments = {Type.DATE: (dt.date.min, dt.date.max), Type.TIMESTAMP: (dt.datetime.min, dt.datetime.max)}  # noqa: DTZ901  (SQL timestamps have no zone)
    if kind in moments:
        return Interval(*map(find_position, moments[kind]))
    return Interval(-MAX_MAGNITUDE, MAX_MAGNITUDE)


def derive_released_interval(expr: Expr, release: Release) -> Interval:
    """Derive the interval of an expression over the columns of a release, where keys are those of its rows.

    Keys without bounds are taken to be as small as aggregates: arithmetic on them stays with whole numbers.
    """
    keys: dict[Expr, Expr] = {ReleasedColumn(key.name, key.expr.type): key.expr for key in release.keys}
    found = derive_interval(replace_parts(expr, keys), derive_known_intervals(release.input))
    return found if found.is_bounded else derive_interval(expr)


def derive_answer_intervals(outer: OuterQuery) -> tuple[Interval, ...]:
    """Derive the interval of each number that a query over released values gives to a private computation.

    Claim: each is where the value is without noise, and `engine.subquery_values.to_constants` clamps the noisy value to it.
    Why: MIN, MAX, quantiles and averages of an expression lie in its interval, and group keys in theirs; clamping is
    post-processing. Values without noise are not clamped, and have no interval here but that of their column.
    Source: Dwork, Roth 2014, Proposition 2.1.
    """
    known, source = dict[Expr, Interval](), outer.source
    if isinstance(source, Release):
        rows = derive_known_intervals(source.input)
        known |= {
            ReleasedColumn(key.name, key.expr.type): derive_interval(key.expr, rows) for key in source.keys
        }
        known |= {
            ReleasedColumn(item.name, item.type): derive_interval(item.argument, rows)
            for item in source.aggregations
            if item.argument is not None and AGGREGATES[item.function].within_argument
        }
    else:
        known |= derive_known_intervals(source)
    exact = mark_noiseless_outputs(outer)
    return tuple(
        derive_interval(output.expr, known) if output.expr.type.numeric and not free else Interval()
        for output, free in zip(outer.outputs, exact, strict=True)
    )


def derive_interval(expr: Expr, known: KnownIntervals | None = None) -> Interval:
    """Derive the interval of `expr` where the conditions behind `known` hold."""
    return _IntervalDerivation({} if known is None else known).derive_interval(expr)


class _IntervalDerivation:
    """Derive the interval of each part of an expression, each once, however often it is shared."""

    def __init__(self, known: KnownIntervals) -> None:
        self._known = known
        self._found: dict[Expr, Interval] = {}

    def derive_interval(self, expr: Expr) -> Interval:
        found = self._found.get(expr)
        if found is None:
            derived = self._derive_part(expr)
            found = derived.narrow_to(self._known[expr]) if expr in self._known else derived
            self._found[expr] = found
        return found

    def _derive_part(self, expr: Expr) -> Interval:
        match expr:
            case Column():
                return expr.facts.interval
            case ReleasedColumn() if expr.type is Type.INTEGER:
                return Interval(-RELEASED, RELEASED)
            case Scalar():
                whole = Interval(-RELEASED, RELEASED) if expr.type is Type.INTEGER else Interval()
                return whole.narrow_to(derive_answer_intervals(expr.outer)[0])
            case Literal():
                at = find_position(expr.value)
                return Interval() if at is None else Interval(at, at)
            case Call() if expr.function.name == "case":
                return _derive_case_interval(expr, self._known)
            case Call():
                return expr.function.interval(
                    expr.arguments, tuple(map(self.derive_interval, expr.arguments))
                )
            case WindowCall():
                return OVER[expr.function].interval(tuple(map(self.derive_interval, expr.arguments)))
            case _:
                return Interval()


def _derive_case_interval(expr: Call, known: KnownIntervals) -> Interval:
    """Derive the hull of the branches, each where its condition holds; NULL branches have no value."""
    branches, otherwise = split_case_branches(expr.arguments)
    values = [
        derive_interval(value, narrow_intervals(condition, known))
        for condition, value in branches
        if not is_null(value)
    ]
    if not is_null(otherwise):
        values.append(derive_interval(otherwise, known))
    return merge_intervals(values) if values else Interval()


def derive_known_intervals(relation: Relation) -> KnownIntervals:
    """Derive the intervals that the filters of a relation imply for its rows."""
    match relation:
        case Filter():
            return narrow_intervals(relation.predicate, derive_known_intervals(relation.input))
        case SemiJoin():
            return derive_known_intervals(relation.input)
        case Join():
            return {**derive_known_intervals(relation.right), **derive_known_intervals(relation.left)}
        case PublicSubquery():
            found = zip(relation.columns, derive_answer_intervals(relation.outer), strict=True)
            return {column: around for column, around in found if around != ANYWHERE}
        case _:
            return {}  # the facts of a source's columns hold its conditions


def narrow_intervals(predicate: Expr, known: KnownIntervals | None = None) -> KnownIntervals:
    """Narrow the `known` intervals to rows where `predicate` is true.

    >>> from dpsql.plan.expressions import ColumnInfo
    >>> from dpsql.plan.functions import build_function_call
    >>> age = Column("t", "age", ColumnInfo(Type.INTEGER, "BIGINT", Interval(0, 110)))
    >>> derive_interval(age, narrow_intervals(build_function_call("lt", age, Literal(18, Type.INTEGER))))
    Interval(0, 17)
    """
    narrowed = dict(known or {})
    for condition in iterate_conjuncts(predicate):
        for expr, range_ in _iterate_implied_intervals(condition):
            if not isinstance(expr, Literal):  # a condition says nothing about a constant, such as NULL
                narrowed[expr] = narrowed[expr].narrow_to(range_) if expr in narrowed else range_
    return narrowed


def iterate_conjuncts(predicate: Expr) -> Iterator[Call]:
    """Yield the conditions that all hold where a predicate is true."""
    if isinstance(predicate, Call):
        if predicate.function.name == "and":
            for argument in predicate.arguments:
                yield from iterate_conjuncts(argument)
        else:
            yield predicate


def _iterate_implied_intervals(condition: Call) -> Iterator[tuple[Expr, Interval]]:
    name = condition.function.name
    if name == "in":
        operand, *items = condition.arguments
        places = [derive_interval(item) for item in items]
        if all(place.is_bounded for place in places) and _are_comparable(condition.arguments):
            yield operand, merge_intervals(places)
    if name not in _FLIPPED:
        return
    left, right = condition.arguments
    for day, moment, compared in ((left, right, name), (right, left, _FLIPPED[name])):
        if day.type is Type.DATE and moment.type is Type.TIMESTAMP:
            yield day, _to_day_interval(_derive_compared_interval(compared, derive_interval(moment), 0))
    if not _are_comparable(condition.arguments):
        return
    apart = 1 if left.type is right.type and right.type in _STEPWISE else 0
    for expr, side in (
        (left, _derive_compared_interval(name, derive_interval(right), apart)),
        (right, _derive_compared_interval(_FLIPPED[name], derive_interval(left), apart)),
    ):
        yield expr, side
        inner = find_unrounded(expr)
        if inner is not None:
            yield inner, side


def _to_day_interval(moments: Interval) -> Interval:
    """Return the days that begin within an interval of moments; if there are none, those after its low end."""
    first = find_position(dt.datetime(1970, 1, 1))  # noqa: DTZ001  (SQL timestamps have no zone)
    start, shift = first or Fraction(0), dt.date(1970, 1, 1).toordinal()
    low, high = (None if end is None else (end - start) / _DAY for end in (moments.low, moments.high))
    after = Interval(None if low is None else math.ceil(low) + shift)
    return after.narrow_to(Interval(None, None if high is None else math.floor(high) + shift))


def _are_comparable(arguments: tuple[Expr, ...]) -> bool:
    """Return whether the arguments' positions can be compared: a DATE's line is not a TIMESTAMP's."""
    return len({argument.type.temporal and argument.type for argument in arguments}) == 1


def _derive_compared_interval(name: str, other: Interval, least_difference: int) -> Interval:
    """Derive the interval of x where `x name other` is true; strict comparisons differ by at least `least_difference`."""
    match name:
        case "lt":
            return Interval(None, None if other.high is None else other.high - least_difference)
        case "gt":
            return Interval(None if other.low is None else other.low + least_difference, None)
        case "le":
            return Interval(None, other.high)
        case "ge":
            return Interval(other.low, None)
        case _:
            return other
