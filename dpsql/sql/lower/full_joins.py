"""Lower FULL JOIN to an equivalent set operation.

Claim: a FULL JOIN b is a LEFT JOIN b, UNION ALL the rows of b without a match in a.
Why: that is its definition. Each row keeps its unit, by the rules of LEFT JOIN, anti-joins and UNION ALL.
Source: ISO/IEC 9075-2, <joined table>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.plan.expressions import Column, Expr, Literal, iterate_columns
from dpsql.plan.nodes import JoinKind, Relation, SemiJoin, SetKind, Source, is_private
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.derived_tables import build_projection, combine_set_operation
from dpsql.sql.lower.joins import (
    FromItem,
    build_conjunction,
    build_left_join,
    iterate_factored_conjuncts,
    lower_condition,
    resolve_using_column,
)
from dpsql.sql.lower.scope import NamedSource, Scope

_MISSING = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class _FullJoinColumn:
    """A column of the result, `name` of `alias`: its value where `a` has a row, and where only `b` has one."""

    alias: str
    name: str
    left_value: Expr
    right_only_value: Expr


def lower_full_join(scope: Scope, join: exp.Join, first: str, second: str) -> FromItem:
    """Return the two sources in scope under these aliases as one. Raises QueryRejected."""
    table, on, using, *_ = scope.source.take_arguments(join, "this", "on", "using", "side", "kind")
    left, right = scope.tables[first].relation, scope.tables[second].relation
    _check_sides(scope, table, left, right)
    known = [alias for alias, named in scope.tables.items() if named.relation is left]
    pairs = [_build_using_column(scope, known, second, identifier) for identifier in using or ()]
    conditions = [
        scope.scalars.build_call(join, "eq", pair.left_value, pair.right_only_value) for pair in pairs
    ]
    conditions += [] if on is None else iterate_factored_conjuncts(lower_condition(scope, on))
    predicate = build_conjunction(conditions)
    if predicate is None or not {column.source for column in iterate_columns(predicate)} <= {
        left.alias,
        right.alias,
    }:
        scope.source.refuse(
            table, "join", "a FULL JOIN needs ON or USING with columns of its own two sides only"
        )
    items = [*(replace(pair, alias="") for pair in pairs), *_list_side_columns(scope, known, second)]
    item = FromItem(second, JoinKind.LEFT, tuple(conditions), table)
    whole = _build_union(
        scope, join, items, build_left_join(scope, left, item), SemiJoin(right, left, predicate, anti=True)
    )
    _rename_columns(scope, items, whole, known, second)
    return FromItem(first, JoinKind.INNER, (), table)


def _check_sides(scope: Scope, node: exp.Expr, left: Source, right: Source) -> None:
    if is_private(left) != is_private(right):
        scope.source.refuse(
            node,
            "join",
            "a FULL JOIN or RIGHT JOIN would keep rows of a public table that belong to no privacy unit",
            "keep only the rows of the private table: private LEFT JOIN public",
        )


def _build_using_column(
    scope: Scope, known: Sequence[str], second: str, identifier: exp.Expr
) -> _FullJoinColumn:
    """Build the two columns that USING makes one."""
    name, holder = resolve_using_column(scope, known, second, identifier)
    return _FullJoinColumn(holder, name, scope.get_column(holder, name), scope.get_column(second, name))


def _list_side_columns(scope: Scope, known: Sequence[str], second: str) -> list[_FullJoinColumn]:
    """List the columns of both sides."""
    ours = [(alias, *item) for alias in known for item in scope.tables[alias].columns.items()]
    theirs = scope.tables[second].columns.items()
    return [
        *(
            _FullJoinColumn(alias, _get_column_name(name, column), column, _MISSING)
            for alias, name, column in ours
        ),
        *(
            _FullJoinColumn(second, _get_column_name(name, column), _make_nullable(column), column)
            for name, column in theirs
        ),
    ]


def _get_column_name(folded: str, column: Column) -> str:
    """Return the declared name of a column, without the number that an earlier FULL JOIN gave it."""
    return column.name if normalize_name(column.name) == folded else folded


def _make_nullable(column: Column) -> Column:
    return replace(column, facts=replace(column.facts, nullable=True))


def _build_union(
    scope: Scope, join: exp.Join, items: Sequence[_FullJoinColumn], joined: Relation, alone: Relation
) -> Source:
    context = scope.context
    left = build_projection(
        joined, context.allocate_alias(join), [(item.name, item.left_value) for item in items]
    )
    right = build_projection(
        alone, context.allocate_alias(join), [(item.name, item.right_only_value) for item in items]
    )
    return combine_set_operation(
        context, join, SetKind.UNION_ALL, left, right, alias=context.allocate_alias(join)
    )


def _rename_columns(
    scope: Scope, items: Sequence[_FullJoinColumn], whole: Source, known: Sequence[str], second: str
) -> None:
    """Name mean the columns of the whole from here on; those of USING are its own."""
    if not hasattr(whole, "columns"):
        raise TypeError("a set operation must have columns")
    named: dict[str, dict[str, Column]] = {
        alias: {} for alias in (*known, second, normalize_name(whole.alias))
    }
    for item, column in zip(items, whole.columns, strict=True):
        named[item.alias or normalize_name(whole.alias)][normalize_name(item.name)] = column
    scope.tables.update({alias: NamedSource(whole, found) for alias, found in named.items()})
    scope.nullable -= {*known, second}
    for folded in named[normalize_name(whole.alias)]:
        first = next(alias for alias in known if folded in named[alias])
        scope.using_owners[folded] = normalize_name(whole.alias)
        scope.using_sides[folded] = [
            *scope.using_sides.get(folded, [first]),
            second,
            normalize_name(whole.alias),
        ]
