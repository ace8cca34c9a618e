"""Expressions that identify the privacy unit of a row.

Claim: rows of a relation with equal values of an identifying expression belong to one privacy unit.
Why: rows with equal values of an identifying column do; COALESCE of such columns is one of their values; NULL, which rows
of many units may have, is excluded.
Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
"""

from __future__ import annotations

from dpsql.analysis.nullability import never_null
from dpsql.plan.expr import Call, Column, Expr, columns, is_null
from dpsql.plan.nodes import (
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    SetKind,
    SetOperation,
    optional_sources,
    sources,
)
from dpsql.plan.tables import Scan

_ONE_TO_ONE = frozenset(
    {"add", "subtract", "negate", "concat", "||", "cast_varchar", "cast_bigint", "cast_double"}
)
"""Functions that are injective in one argument if the others are constants."""


def identity(expr: Expr, relation: Relation) -> str | None:
    """What the values of an expression identify; None if it may be NULL or identifies nothing."""
    named = identity_where_present(expr, relation)
    return named if named is not None and never_null(expr, relation) else None


def compared_identity(expr: Expr, relation: Relation) -> str | None:
    """What equal values of an expression identify, as a column's facts say it: NULL equals nothing.

    A column of an optional side has none: what is grouped by it has many units' rows under NULL.
    """
    if (
        isinstance(expr, Column)
        and expr.facts.identity is not None
        and expr.source not in optional_sources(relation)
    ):
        return expr.facts.identity
    return identity(expr, relation)


def identity_where_present(expr: Expr, relation: Relation) -> str | None:
    """What the values of an expression identify in rows where it is not NULL."""
    match expr:
        case Column():
            return expr.facts.identity or _within(expr, relation)
        case Call() if expr.function.name == "coalesce":
            parts = [part for part in expr.arguments if not is_null(part)]
            named = {identity_where_present(part, relation) for part in parts}
            alike = len(named) == 1 and all(part.type is expr.type for part in parts)
            return named.pop() if alike else None
        case _:
            return None


def separated_identity(expr: Expr, relation: Relation) -> str | None:
    """The identity that an expression is an injective function of, where it is not NULL."""
    if isinstance(expr, Call) and expr.function.name in _ONE_TO_ONE:
        read = [part for part in expr.arguments if any(columns(part))]
        return separated_identity(read[0], relation) if len(read) == 1 else None
    return identity_where_present(expr, relation)


def _within(column: Column, relation: Relation) -> str | None:
    """What a column of a derived table identifies in rows where it is not NULL."""
    source = next((source for source in sources(relation) if source.alias == column.source), None)
    match source:
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [known.name for known in source.columns].index(column.name)
            items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
            return identity_where_present(items[place], source.input) if place < len(items) else None
        case SetOperation(kind=SetKind.UNION_ALL):
            place = [known.name for known in source.columns].index(column.name)
            sides = [side for side in (source.left, source.right) if not isinstance(side, Scan)]
            there = [side for side in sides if not _always_null(side.columns[place], side)]
            named = {identity_where_present(side.columns[place], side) for side in there}
            alike = all(side.columns[place].type is column.type for side in there)
            return named.pop() if len(named) == 1 and alike else None
        case _:
            return None


def _always_null(column: Column, relation: Relation) -> bool:
    if not isinstance(relation, Project):
        return False
    return is_null(relation.items[[known.name for known in relation.columns].index(column.name)])
