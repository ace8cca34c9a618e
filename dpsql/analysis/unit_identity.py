"""Expressions that identify the privacy unit of a row.

Claim: rows of a relation with equal values of an identifying expression belong to one privacy unit.
Why: rows with equal values of an identifying column do; COALESCE of such columns is one of their values; NULL, which rows
of many units may have, is excluded.
Source: McSherry 2009, "Privacy integrated queries", section 3.2, on grouping within a partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.analysis.nullability import is_never_null
from dpsql.plan.expressions import UNIT_IDENTITY, Call, Column, Expr, is_null, iterate_columns
from dpsql.plan.nodes import (
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    Relation,
    SetKind,
    SetOperation,
    iterate_sources,
    list_optional_aliases,
)
from dpsql.plan.tables import Scan

_ONE_TO_ONE = frozenset(
    {"add", "subtract", "negate", "concat", "concatenate", "cast_varchar", "cast_bigint", "cast_double"}
)
"""Functions that are injective in one argument if the others are constants."""
_AS_FINE = _ONE_TO_ONE | {
    "multiply", "concat_ws", "coalesce", "nullif", "greatest", "least", "lower", "upper", "trim", "ltrim", "rtrim", "hex",
    "reverse", "epoch", "epoch_ms", "epoch_us", "epoch_ns",
}  # fmt: skip
"""Functions with about as many results as values of an argument."""


def find_identity(expr: Expr, relation: Relation) -> str | None:
    """Return the identity that an expression's values determine; None if it may be NULL or determines none."""
    named = find_identity_where_present(expr, relation)
    return named if named is not None and is_never_null(expr, relation) else None


def find_compared_identity(expr: Expr, relation: Relation) -> str | None:
    """Return the identity that equal values of an expression determine by the column's facts; NULL equals nothing.

    A column of an optional side has none: a group with the key NULL may have rows of many units.
    """
    if (
        isinstance(expr, Column)
        and expr.facts.identity is not None
        and expr.source not in list_optional_aliases(relation)
    ):
        return expr.facts.identity
    return find_identity(expr, relation)


def find_identity_where_present(expr: Expr, relation: Relation) -> str | None:
    """Return the identity that an expression's values determine in rows where it is not NULL."""
    match expr:
        case Column():
            return expr.facts.identity or _find_derived_identity(expr, relation)
        case Call() if expr.function.name == "coalesce":
            parts = [part for part in expr.arguments if not is_null(part)]
            named = {find_identity_where_present(part, relation) for part in parts}
            alike = len(named) == 1 and all(part.type is expr.type for part in parts)
            return named.pop() if alike else None
        case _:
            return None


def find_injective_identity(expr: Expr, relation: Relation) -> str | None:
    """Return the identity that an expression is an injective function of, where it is not NULL."""
    if isinstance(expr, Call) and expr.function.name in _ONE_TO_ONE:
        read = [part for part in expr.arguments if any(iterate_columns(part))]
        return find_injective_identity(read[0], relation) if len(read) == 1 else None
    return find_identity_where_present(expr, relation)


def list_finer_keys(exprs: Sequence[Expr], relation: Relation) -> tuple[Expr, ...]:
    """Return those of some group keys that are declared to belong to one privacy unit each; NULL belongs to many.

    These are columns that a link refers to or starts from, and injective functions of them; of a key of several columns,
    all of one source. None is the unit's own id, or NULL where an outer join finds no row: rows of all such units are one
    group in SQL. The declaration is not checked here: groups by them are safe because the emitted SQL groups by the unit as
    well.
    """
    held = {
        expr: column
        for expr in exprs
        for column in [find_injective_column(expr)]
        if find_injective_identity(expr, relation) != UNIT_IDENTITY
        and (column is None or is_never_null(expr, relation) or not _is_padded(column, relation))
    }
    met: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for column in held.values():
        for table, parts, part in () if column is None else column.facts.link_keys:
            met.setdefault((column.source, table, parts), set()).add(part)  # type: ignore[union-attr]
    whole = {key for key, found in met.items() if found >= set(key[2])}
    return tuple(
        expr
        for expr, column in held.items()
        if find_injective_identity(expr, relation) is not None
        or (
            column is not None and any((column.source, *part[:2]) in whole for part in column.facts.link_keys)
        )
    )


def find_injective_column(expr: Expr) -> Column | None:
    """Return the column that an expression is an injective function of."""
    if isinstance(expr, Call) and expr.function.name in _ONE_TO_ONE:
        read = [part for part in expr.arguments if any(iterate_columns(part))]
        return find_injective_column(read[0]) if len(read) == 1 else None
    return expr if isinstance(expr, Column) else None


def is_fine_grained(expr: Expr) -> bool:
    """Return whether an expression may have about as many values as some column that it reads."""
    if isinstance(expr, Call):
        return expr.function.name in _AS_FINE and any(map(is_fine_grained, expr.arguments))
    return isinstance(expr, Column)


def _find_derived_identity(column: Column, relation: Relation) -> str | None:
    """Return the identity that a column of a derived table determines in rows where it is not NULL."""
    source = next((source for source in iterate_sources(relation) if source.alias == column.source), None)
    match source:
        case Project() | PerUnitGroupBy() | PerUnitWindows():
            place = [known.name for known in source.columns].index(column.name)
            items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
            return find_identity_where_present(items[place], source.input) if place < len(items) else None
        case SetOperation(kind=SetKind.UNION_ALL):
            place = [known.name for known in source.columns].index(column.name)
            sides = [side for side in (source.left, source.right) if not isinstance(side, Scan)]
            there = [side for side in sides if not _is_always_null(side.columns[place], side)]
            named = {find_identity_where_present(side.columns[place], side) for side in there}
            alike = all(side.columns[place].type is column.type for side in there)
            return named.pop() if len(named) == 1 and alike else None
        case _:
            return None


def _is_padded(column: Column, relation: Relation) -> bool:
    """Return whether a column is NULL in rows for which an outer join finds nothing."""
    if column.source in list_optional_aliases(relation):
        return True
    source = next((source for source in iterate_sources(relation) if source.alias == column.source), None)
    if not isinstance(source, (Project, PerUnitGroupBy, PerUnitWindows, SetOperation)):
        return False
    place = [known.name for known in source.columns].index(column.name)
    if isinstance(source, SetOperation):
        sides = [side for side in (source.left, source.right) if not isinstance(side, Scan)]
        return any(
            _is_always_null(side.columns[place], side) or _is_padded(side.columns[place], side)
            for side in sides
        )
    items = source.keys if isinstance(source, PerUnitGroupBy) else source.items
    item = find_injective_column(items[place]) if place < len(items) else None
    return item is not None and _is_padded(item, source.input)


def _is_always_null(column: Column, relation: Relation) -> bool:
    if not isinstance(relation, Project):
        return False
    return is_null(relation.items[[known.name for known in relation.columns].index(column.name)])
