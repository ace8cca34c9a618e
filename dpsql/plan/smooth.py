"""Outputs of a query over released values that change smoothly with the noise, such as shares, growth and running totals.

Claim: for these, which rows there are, and which released values each output reads, is the same whatever the noise is.
Why: conditions, orders, limits, partitions, and keys of groups and joins read group keys and public values only. Functions are
those of arithmetic and of rounding, windows and aggregates those that add, average or take the value in a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, Scalar, WindowCall, walk
from dpsql.plan.nodes import (
    Filter,
    Join,
    OuterQuery,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetKind,
    SetOperation,
    Source,
    Values,
    find_place,
    iterate_sources,
)
from dpsql.plan.provenance import is_noiseless
from dpsql.plan.steps import list_releases
from dpsql.plan.tables import Scan

_ARITHMETIC = frozenset(
    {
        *(
            "add",
            "subtract",
            "multiply",
            "negate",
            "coalesce",
            "nullif",
            "ceil",
            "floor",
            "trunc",
            "trunc_digits",
        ),
        *("round", "round_digits", "round_even", "sqrt", "cbrt", "exp", "ln", "log2", "log10"),
        *(
            "cast_double",
            "cast_bigint",
            "cast_integer",
            "cast_hugeint",
            "cast_decimal",
            "cast_float",
            "cast_smallint",
        ),
    }
)
_DIVISIONS = frozenset({"divide", "quotient"})
_WINDOWS = frozenset({"sum", "avg", "lag", "lead", "first_value", "last_value", "nth_value"})
_AGGREGATES = frozenset({"sum", "avg"})


def mark_smooth_outputs(outer: OuterQuery) -> tuple[bool, ...]:
    """Return for each output of a query whether it changes smoothly with the noise; none does if noise decides which rows exist.

    The order and the limit of the query itself are left out of account.
    """
    if not _has_steady_rows(replace(outer, order=(), limit=None, offset=0)):
        return (False,) * len(outer.outputs)
    return tuple(_is_smooth(output.expr, outer.source, divides=True) for output in outer.outputs)


def is_cut_by_noise(outer: OuterQuery) -> bool:
    """Return whether the limit of a query keeps rows by their noisy values."""
    cut = outer.limit is not None or outer.offset > 0
    return cut and not _are_all_noiseless([item.expr for item in outer.order], outer.source)


def iterate_noisy_divisors(expr: Expr, source: Release | Relation) -> Iterator[Expr]:
    """Yield the noisy divisors of an expression."""
    divided = (
        part.arguments[1]
        for part in walk(expr)
        if isinstance(part, Call) and part.function.name in _DIVISIONS
    )
    return (each for each in divided if not is_noiseless(each, source))


def _has_steady_rows(outer: OuterQuery) -> bool:
    conditions = [part for part in (outer.having, outer.qualify) if part is not None]
    if outer.distinct or is_cut_by_noise(outer) or not _are_all_noiseless(conditions, outer.source):
        return False
    return isinstance(outer.source, Release) or _is_steady_relation(outer.source)


def _is_steady_relation(relation: Relation) -> bool:
    """Return whether noise has no part in which rows a relation has."""
    match relation:
        case Scan() | Values():
            return True
        case Filter(input=below):
            return _are_all_noiseless([relation.predicate], below) and _is_steady_relation(below)
        case PublicSubquery(outer=outer):
            return _has_steady_rows(outer)
        case Project(distinct=False, input=below):
            return _is_steady_relation(below)
        case PerUnitGroupBy(input=below):
            return _are_all_noiseless(relation.keys, below) and _is_steady_relation(below)
        case Join(left=left, right=right):
            also = () if relation.condition is None else (relation.condition,)
            on = [expr for pair in relation.on for expr in pair]
            return (
                _are_all_noiseless([*on, *also], relation)
                and _is_steady_relation(left)
                and _is_steady_relation(right)
            )
        case SetOperation(kind=SetKind.UNION_ALL):
            return _is_steady_relation(relation.left) and _is_steady_relation(relation.right)
        case _:
            return False


def _is_smooth(expr: Expr, source: Release | Relation, *, divides: bool = False) -> bool:
    """Return whether an expression is smooth; its divisors may only be noisy if it `divides`."""
    if is_noiseless(expr, source):
        return True
    match expr:
        case Call():
            name = expr.function.name
            if name in _DIVISIONS:
                steady = divides or is_noiseless(expr.arguments[1], source)
            else:
                steady = name in _ARITHMETIC
            return steady and all(_is_smooth(part, source, divides=divides) for part in expr.arguments)
        case WindowCall():
            order = [item.expr for item in expr.order]
            return (
                expr.function in _WINDOWS
                and _are_all_noiseless([*expr.partition, *order, *expr.arguments[1:]], source)
                and all(_is_smooth(part, source, divides=divides) for part in expr.arguments)
            )
        case Scalar():
            return not list_releases(expr.outer)
        case Column():
            found = [] if isinstance(source, Release) else iterate_sources(source)
            return any(each.alias == expr.source and _is_smooth_column(expr, each) for each in found)
        case _:
            return True


def _is_smooth_column(column: Column, source: Source) -> bool:
    match source:
        case Scan() | Values():
            return True
        case PublicSubquery(outer=outer):
            return _is_smooth(outer.outputs[find_place(column, source.columns)].expr, outer.source)
        case Project(input=below):
            return _is_smooth(source.items[find_place(column, source.columns)], below)
        case PerUnitGroupBy(input=below):
            place = find_place(column, source.columns)
            if place < len(source.keys):
                return _is_smooth(source.keys[place], below)
            found = source.aggregates[place - len(source.keys)]
            return _are_all_noiseless(found.arguments, below) or (
                found.function in _AGGREGATES and all(_is_smooth(each, below) for each in found.arguments)
            )
        case SetOperation(left=left, right=right):
            place = find_place(column, source.columns)
            return all(
                _is_smooth_column(side.columns[place], side)
                for side in (left, right)
                if not isinstance(side, Scan)
            )
        case _:
            return False


def _are_all_noiseless(exprs: Iterable[Expr], source: Release | Relation) -> bool:
    return all(is_noiseless(expr, source) for expr in exprs)


# Expressions that are a released column times a factor, plus a shift.


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A released column times a factor, plus a shift."""

    column: ReleasedColumn
    factor: float = 1.0
    shift: float = 0.0


def match_linear(expr: Expr) -> LinearForm | None:
    """Return the expression as a linear function of one released column, or None."""
    if isinstance(expr, ReleasedColumn):
        return LinearForm(expr)
    if not isinstance(expr, Call):
        return None
    name, parts = expr.function.name, [part for part in expr.arguments if not isinstance(part, Literal)]
    inner = match_linear(parts[0]) if len(parts) == 1 else None
    constants = [part.value for part in expr.arguments if isinstance(part, Literal)]
    if inner is None or not all(type(value) in (int, float) for value in constants):
        return None
    numbers = [float(value) for value in constants if isinstance(value, (int, float))]
    first = expr.arguments[0] is parts[0]
    match name, numbers:
        case "negate", []:
            return LinearForm(inner.column, -inner.factor, -inner.shift)
        case "cast_double", []:
            return inner
        case "multiply", [by]:
            return LinearForm(inner.column, inner.factor * by, inner.shift * by)
        case "divide", [by] if first and by != 0:
            return LinearForm(inner.column, inner.factor / by, inner.shift / by)
        case "add", [by]:
            return LinearForm(inner.column, inner.factor, inner.shift + by)
        case "subtract", [by]:
            sign = 1.0 if first else -1.0
            return LinearForm(inner.column, inner.factor * sign, (inner.shift - by) * sign)
        case _:
            return None
