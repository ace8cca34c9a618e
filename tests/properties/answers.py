"""What was released before, drawn as a part of further queries: single values, and rows by their group keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from properties.expressions import build, one_of
from properties.scopes import equal, known

from dpsql.plan.expressions import Expr, Literal, ReleasedColumn, Scalar
from dpsql.plan.nodes import (
    Aggregation,
    JoinKind,
    Key,
    OuterQuery,
    Output,
    PublicSubquery,
    Release,
    list_released_columns,
)
from dpsql.plan.types import Type, find_common_type
from dpsql.sql.lower.derived_tables import to_public_subquery
from dpsql.sql.lower.scope import NamedSource, Scope

if TYPE_CHECKING:
    from properties.relations import Item, Relations

_KEYS = one_of((1, 1, 2))
_KINDS = one_of((JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT))
_COMPARISONS = one_of(("eq", "eq", "is_not_distinct"))
_AS = {Type.DOUBLE: "cast_double", Type.VARCHAR: "cast_varchar"}


def scalar(relations: Relations, kind: Type) -> Scalar | None:
    """The single value of a type that follows from a table's released number of rows, if there is one."""
    number = ReleasedColumn("a0", Type.INTEGER)
    shown: Expr | None = number if kind is Type.INTEGER else None
    if kind in _AS:
        shown = build(_AS[kind], number)
    if kind is Type.BOOLEAN:
        shown = build("gt", number, Literal(3, Type.INTEGER))
    if shown is None:
        return None
    return Scalar(replace(counted(relations, keys=0), outputs=(Output("c0", shown),)), kind)


def answered(relations: Relations) -> PublicSubquery:
    """The groups of a table with their numbers of rows."""
    return to_public_subquery(counted(relations, relations.draw(_KEYS)), relations.alias("d"))


def answer_join(relations: Relations, scope: Scope) -> list[Item]:
    """What is released of a table, joined on all of its group keys, if there are columns to compare with them."""
    before = known(scope)
    source = answered(relations)
    pairs = []
    for key in source.columns[:-1]:
        fitting = [column for column in before if find_common_type((column.type, key.type)) is not None]
        if not fitting:
            return []
        pairs.append((relations.one(fitting), key.name))
    item = relations.brought(scope, named(source), relations.draw(_KINDS))
    on = [
        equal(ours, scope.get_column(item.alias, name), relations.draw(_COMPARISONS)) for ours, name in pairs
    ]
    return [replace(item, conditions=tuple(on))]


def named(source: PublicSubquery) -> NamedSource:
    """An answer with the columns that a query may name."""
    return NamedSource(source, {column.name: column for column in source.columns})


def counted(relations: Relations, keys: int) -> OuterQuery:
    """The groups of a table by so many keys at most, with their numbers of rows."""
    table = relations.table(relations.private_name())
    plain = [column for column in table.columns.values() if column.facts.identity is None]
    found = dict.fromkeys(relations.one(plain) for _ in range(keys))
    rows = Aggregation("a0", "count_rows", None, Type.INTEGER)
    listed = tuple(Key(f"k{place}", key) for place, key in enumerate(found))
    release = Release(table.relation, listed, (rows,), relations.context.max_groups)
    outputs = (Output(f"c{place}", column) for place, column in enumerate(list_released_columns(release)))
    return OuterQuery(release, tuple(outputs))
