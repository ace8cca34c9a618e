"""Lowers FULL JOIN to an equivalent set operation.

Claim: a FULL JOIN b is a LEFT JOIN b, UNION ALL the rows of b without a match in a.
Why: that is its definition. Each row keeps its unit, by the rules of LEFT JOIN, anti-joins and UNION ALL.
Source: ISO/IEC 9075-2, <joined table>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.plan.expr import Column, Expr, Literal, columns
from dpsql.plan.nodes import JoinKind, Relation, SemiJoin, SetKind, Source, is_private
from dpsql.plan.types import Type
from dpsql.policy import fold
from dpsql.sql.lower.derived import project, put_together
from dpsql.sql.lower.joins import Attached, all_of, condition, conjuncts, left_joined, merging
from dpsql.sql.lower.scope import Named, Scope

_MISSING = Literal(None, Type.NULL)


@dataclass(frozen=True, slots=True)
class _Item:
    """A column of the whole, `name` of `alias`: what it is where `a` has a row, and where `b` alone has one."""

    alias: str
    name: str
    joined: Expr
    alone: Expr


def full_join(scope: Scope, join: exp.Join, first: str, second: str) -> Attached:
    """The two sources in scope under these aliases as one. Raises QueryRejected."""
    table, on, using, *_ = scope.source.take(join, "this", "on", "using", "side", "kind")
    left, right = scope.tables[first].relation, scope.tables[second].relation
    _check_sides(scope, table, left, right)
    known = [alias for alias, named in scope.tables.items() if named.relation is left]
    pairs = [_pair(scope, known, second, identifier) for identifier in using or ()]
    conditions = [scope.scalars.call(join, "eq", pair.joined, pair.alone) for pair in pairs]
    conditions += [] if on is None else conjuncts(condition(scope, on))
    predicate = all_of(conditions)
    if predicate is None or not {column.source for column in columns(predicate)} <= {left.alias, right.alias}:
        scope.source.refuse(table, "join", "a FULL JOIN needs ON or USING, over its own two sides")
    items = [*(replace(pair, alias="") for pair in pairs), *_items(scope, known, second)]
    item = Attached(second, JoinKind.LEFT, tuple(conditions), table)
    whole = _whole(
        scope, join, items, left_joined(scope, left, item), SemiJoin(right, left, predicate, anti=True)
    )
    _rename(scope, items, whole, known, second)
    return Attached(first, JoinKind.INNER, (), table)


def _check_sides(scope: Scope, node: exp.Expr, left: Source, right: Source) -> None:
    if is_private(left) != is_private(right):
        scope.source.refuse(
            node,
            "join",
            "rows of a public table that have no partner would belong to no unit",
            "keep the rows of the private one: private LEFT JOIN public",
        )


def _pair(scope: Scope, known: Sequence[str], second: str, identifier: exp.Expr) -> _Item:
    """The two columns that USING makes one."""
    name, holder = merging(scope, known, second, identifier)
    return _Item(holder, name, scope.find(holder, name), scope.find(second, name))


def _items(scope: Scope, known: Sequence[str], second: str) -> list[_Item]:
    """The columns of both sides."""
    ours = [(alias, *item) for alias in known for item in scope.tables[alias].columns.items()]
    theirs = scope.tables[second].columns.items()
    return [
        *(_Item(alias, _declared(name, column), column, _MISSING) for alias, name, column in ours),
        *(_Item(second, _declared(name, column), _optional(column), column) for name, column in theirs),
    ]


def _declared(folded: str, column: Column) -> str:
    """What a column is called: as it was declared, but for the number that an earlier FULL JOIN gave it."""
    return column.name if fold(column.name) == folded else folded


def _optional(column: Column) -> Column:
    return replace(column, facts=replace(column.facts, nullable=True))


def _whole(scope: Scope, join: exp.Join, items: Sequence[_Item], joined: Relation, alone: Relation) -> Source:
    context = scope.context
    left = project(joined, context.fresh(join), [(item.name, item.joined) for item in items])
    right = project(alone, context.fresh(join), [(item.name, item.alone) for item in items])
    return put_together(context, join, SetKind.UNION_ALL, left, right, alias=context.fresh(join))


def _rename(scope: Scope, items: Sequence[_Item], whole: Source, known: Sequence[str], second: str) -> None:
    """Names mean the columns of the whole from here on; those of USING are its own."""
    if not hasattr(whole, "columns"):
        raise TypeError("a set operation has columns")
    named: dict[str, dict[str, Column]] = {alias: {} for alias in (*known, second, fold(whole.alias))}
    for item, column in zip(items, whole.columns, strict=True):
        named[item.alias or fold(whole.alias)][fold(item.name)] = column
    scope.tables.update({alias: Named(whole, found) for alias, found in named.items()})
    scope.nullable -= {*known, second}
    for folded in named[fold(whole.alias)]:
        first = next(alias for alias in known if folded in named[alias])
        scope.merged[folded] = fold(whole.alias)
        scope.sides[folded] = [*scope.sides.get(folded, [first]), second, fold(whole.alias)]
