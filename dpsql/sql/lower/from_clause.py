"""Lowers FROM and JOIN to sources, each with its join conditions."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.plan.expr import Expr
from dpsql.plan.nodes import JoinKind
from dpsql.policy import fold
from dpsql.sql.lower.full_joins import full_join
from dpsql.sql.lower.joins import Attached, condition, conjuncts, merging
from dpsql.sql.lower.scope import Scope


def from_clause(scope: Scope, select: exp.Select) -> list[Attached]:
    """Brings the sources of FROM and JOIN into scope."""
    origin = select.args.get("from_")
    if origin is None:
        return [Attached(scope.nothing(select), JoinKind.INNER, (), select)]
    (node,) = scope.source.take(origin, "this")
    items = [Attached(scope.add(node), JoinKind.INNER, (), node)]
    for join in select.args.get("joins") or ():
        _attach(scope, join, items)
    return items


def _attach(scope: Scope, join: exp.Join, items: list[Attached]) -> None:
    side = _side(scope, join)
    table, on, using, *_ = scope.source.take(join, "this", "on", "using", "side", "kind")
    before = list(scope.tables)
    alias = scope.add(table)
    if side == "FULL":
        if len(items) != 1:
            scope.source.refuse(join, "join", "a FULL JOIN comes first", "put it into a derived table")
        items[0] = full_join(scope, join, items[0].alias, alias)
        return
    if side == "LEFT":
        scope.nullable.add(alias)
    if side == "RIGHT":
        if len(items) != 1:
            scope.source.refuse(join, "join", "a RIGHT JOIN comes first", "turn it round: b LEFT JOIN a")
        before_it = scope.tables[items[0].alias].relation  # of a FULL JOIN, both sides
        scope.nullable |= {name for name, known in scope.tables.items() if known.relation is before_it}
    conditions: list[Expr] = []
    if using:
        conditions = [_using(scope, join, before, alias, identifier) for identifier in using]
    elif on is not None:
        conditions = list(conjuncts(condition(scope, on)))
    if side and not conditions:
        scope.source.refuse(table, "join", "a join needs ON or USING", "write JOIN … ON a = b")
    joined = Attached(alias, JoinKind.LEFT if side else JoinKind.INNER, tuple(conditions), table)
    if side == "RIGHT":
        first = items.pop()
        items.append(replace(joined, kind=JoinKind.INNER, conditions=()))
        joined = replace(joined, alias=first.alias, node=first.node)
    items.append(joined)


def _using(scope: Scope, join: exp.Join, before: list[str], alias: str, identifier: exp.Expr) -> Expr:
    name, holder = merging(scope, before, alias, identifier)
    folded = fold(name)
    # Of the side whose rows are all kept, the column is never missing.
    scope.merged[folded] = alias if holder in scope.nullable else holder
    scope.sides.setdefault(folded, [holder]).append(alias)
    return scope.scalars.call(join, "eq", scope.find(holder, name), scope.find(alias, name))


def _side(scope: Scope, join: exp.Join) -> str:
    """The side of a join whose rows are all kept, if there is one; FULL for both."""
    side, kind, method = (join.args.get(name) or "" for name in ("side", "kind", "method"))
    known = side in ("", "LEFT", "RIGHT", "FULL") and kind in ("", "INNER", "OUTER", "CROSS")
    if method or not known:
        scope.source.refuse(
            join,
            "join",
            "only INNER, LEFT, RIGHT, FULL and CROSS joins are supported",
            "write JOIN … ON a = b",
        )
    return str(side)
