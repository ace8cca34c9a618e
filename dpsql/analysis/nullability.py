"""Nullability: whether an expression is NULL in no row of a relation.

Claim: if `is_never_null` holds, the expression is not NULL in any row that belongs to a privacy unit.
Why: rows without the identifier of their unit are not read; conditions and joins keep only rows for which they are true,
and they are not true of NULL.
Source: ISO/IEC 9075-2, <comparison predicate> and <null predicate>.

No guarantee rests on this: the owner's `nullable: false` is believed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.plan.expressions import Call, Column, Expr, Literal, iterate_columns
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    SemiJoin,
    SetKind,
    SetOperation,
    Values,
    iterate_sources,
    list_optional_aliases,
)
from dpsql.plan.tables import Scan

_COMPARES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in", "like", "ilike"})
"""Conditions that are not true if an operand is NULL."""


def is_never_null(expr: Expr, relation: Relation) -> bool:
    """Return whether an expression over the rows of a relation is never NULL."""
    match expr:
        case Column():
            return _is_stated_not_null(expr, relation) or _is_never_null_column(expr, relation)
        case Literal():
            return expr.value is not None
        case Call() if expr.function.name == "coalesce":
            return any(
                is_never_null(argument, relation) for argument in expr.arguments
            ) or _is_never_null_below(expr, relation)
        case Call() if expr.function.strict:
            return all(is_never_null(argument, relation) for argument in expr.arguments)
        case Call():
            return expr.function.never_null
        case _:
            return False


def _is_never_null_below(expr: Expr, relation: Relation) -> bool:
    """Return whether an expression over a derived table is never NULL, in every part of that table."""
    names = {column.source for column in iterate_columns(expr)}
    source = next((source for source in iterate_sources(relation) if {source.alias} == names), None)
    if source is None or source.alias in list_optional_aliases(relation):
        return False
    match source:
        case Project():
            return is_never_null(_replace_columns(expr, source.columns, source.items), source.input)
        case SetOperation(kind=SetKind.UNION_ALL):
            sides = [side for side in (source.left, source.right) if not isinstance(side, Scan)]
            return all(
                is_never_null(_replace_columns(expr, source.columns, side.columns), side) for side in sides
            )
        case _:
            return False


def _replace_columns(expr: Expr, known: Sequence[Column], items: Sequence[Expr]) -> Expr:
    """Replace the columns of a derived table in an expression by the expressions behind them."""
    if isinstance(expr, Column):
        return items[[column.name for column in known].index(expr.name)]
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_replace_columns(part, known, items) for part in expr.arguments))
    return expr


def _is_stated_not_null(column: Column, relation: Relation) -> bool:
    """Return whether a condition of the relation excludes NULL."""
    match relation:
        case Filter():
            return _rejects_null(column, relation.predicate) or _is_stated_not_null(column, relation.input)
        case SemiJoin():
            return _is_stated_not_null(column, relation.input)
        case Join(kind=JoinKind.INNER):
            compared = (side for pair in relation.on for side in pair)
            return _contains_column(column, compared) or _is_stated_not_null(column, relation.left)
        case Join():
            return _is_stated_not_null(column, relation.left)
        case _:
            return False


def _rejects_null(column: Column, predicate: Expr) -> bool:
    """Return whether a predicate is true of values alone."""
    for condition in iterate_conjuncts(predicate):
        name = condition.function.name
        if name in _COMPARES and _contains_column(column, condition.arguments):
            return True
        inner = condition.arguments[0] if name == "not" else None
        if (
            isinstance(inner, Call)
            and inner.function.name == "is_null"
            and _contains_column(column, inner.arguments)
        ):
            return True
    return False


def _contains_column(column: Column, exprs: Iterable[Expr]) -> bool:
    place = (column.source, column.name)
    return any(isinstance(expr, Column) and (expr.source, expr.name) == place for expr in exprs)


def _is_never_null_column(column: Column, relation: Relation) -> bool:
    match relation:
        case Filter() | SemiJoin():
            return _is_never_null_column(column, relation.input)
        case Join() if column.source != relation.right.alias:
            return _is_never_null_column(column, relation.left)
        case Join():
            return relation.kind is JoinKind.INNER and _is_never_null_column(column, relation.right)
        case Scan():
            return not column.facts.nullable or _is_unit_column(column, relation)
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [known.name for known in relation.columns].index(column.name)
            items = relation.keys if isinstance(relation, PerUnitGroupBy) else relation.items
            if place < len(items):
                return is_never_null(items[place], relation.input)
            return not column.facts.nullable
        case SetOperation():
            place = [known.name for known in relation.columns].index(column.name)
            left, right = (
                not isinstance(side, Scan) and _is_never_null_column(side.columns[place], side)
                for side in (relation.left, relation.right)
            )
            if relation.kind in (SetKind.UNION, SetKind.UNION_ALL):
                return left and right
            return left or (right and relation.kind is SetKind.INTERSECT)
        case PublicSubquery() | Values():
            return False


def _is_unit_column(column: Column, scan: Scan) -> bool:
    """Return whether rows of a table in which a column is NULL belong to no unit."""
    known = scan.unit.column if scan.unit.link is None else scan.unit.link.column
    return known is not None and known.name == column.name
