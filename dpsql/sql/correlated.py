"""Subqueries with a value for each outer row: groups by what they are correlated on, joined to the outer rows.

`x > (SELECT AVG(y) FROM s WHERE s.a = t.a)` means the averages of s by a, joined on a. Of public rows these
are exact; of private ones they are groups of a unit where a identifies it, and are released else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.plan.expr import Call, Column, Expr, Literal, Released, columns
from dpsql.plan.nodes import Answer, JoinKind, Output, Post, Project, Relation, is_private
from dpsql.plan.types import Type
from dpsql.sql.derived import answer, project
from dpsql.sql.grouping import Grouping, aggregates
from dpsql.sql.joins import Attached
from dpsql.sql.matching import apart
from dpsql.sql.per_unit import Groups, identifies
from dpsql.sql.scope import Named, Scope

Releasing = Callable[[Scope, exp.Select, Relation, Sequence[Expr]], Post]
_PLAIN = frozenset({"expressions", "from_", "joins", "where", "kind"})


def correlated(scope: Scope, query: exp.Select, release: Releasing) -> Expr | None:
    """The value of a subquery for each row of the outer scope; None if it does not depend on these.

    `release` plans the release of private rows by given keys. Raises QueryRejected for what depends on
    the outer rows otherwise than by equality.
    """
    inner = Scope(scope.context.deeper(query, scope.context.common), outer=scope)
    if any(query.args.get(name) for name in ("group", "having", "with_")):
        return None
    relation, across = apart(inner, query)
    if not across:
        return None
    if {name for name, value in query.args.items() if value} - _PLAIN or scope.waiting is None:
        scope.source.refuse(
            query,
            "subquery",
            "a subquery with a value for each row is one aggregate with WHERE, in SELECT or WHERE",
            "join a derived table that has GROUP BY",
        )
    if not any(map(aggregates, query.expressions)):
        scope.source.refuse(
            query,
            "subquery",
            "a subquery with a value for each row aggregates",
            "write MIN(x), or join the table",
        )
    if any(item.find(exp.Window) for item in query.expressions):
        scope.source.refuse(
            query,
            "subquery",
            "a window in a subquery with a value for each row would be laid on the rows of all of them",
            "lay it in a derived table, and join that",
        )
    here = {named.alias for named in inner.tables.values()}
    pairs = [_pair(scope, query, part, here) for part in across]
    keys = list(dict.fromkeys(key for _, key in pairs))
    alias = scope.context.fresh(query)
    source, counts = _source(inner, query, relation, keys, alias=alias, release=release)
    on = (scope.scalars.call(query, "eq", ours, source.columns[keys.index(key)]) for ours, key in pairs)
    scope.tables[alias] = Named(source, {})
    scope.waiting.append(Attached(alias, JoinKind.LEFT, tuple(on), query))
    value = source.columns[-1]
    shown = replace(value, facts=replace(value.facts, nullable=True))
    return scope.scalars.call(query, "coalesce", shown, Literal(0, Type.INTEGER)) if counts else shown


def _pair(scope: Scope, query: exp.Select, part: Expr, here: set[str]) -> tuple[Expr, Expr]:
    """(outer expression, inner expression) of an equality between them."""
    if isinstance(part, Call) and part.function.name == "eq":
        for ours, theirs in (part.arguments, part.arguments[::-1]):
            inside, outside = ({column.source for column in columns(side)} for side in (theirs, ours))
            if inside and inside <= here and not outside & here:
                return ours, theirs
    scope.source.refuse(
        query,
        "subquery",
        "a subquery with a value depends on the outer rows by equality alone",
        "write inner.a = outer.a",
    )


def _source(
    inner: Scope, query: exp.Select, relation: Relation, keys: list[Expr], *, alias: str, release: Releasing
) -> tuple[Project | Answer, bool]:
    """The groups, their value last, and whether that is a count, which is 0 where there is no group."""
    outer = inner.outer.tables.values() if inner.outer is not None else ()
    of_units = any(is_private(named.relation) for named in outer) and any(
        identifies(key, relation) for key in keys
    )
    if is_private(relation) and not of_units:
        post = release(inner, query, relation, keys)
        counts = [item.function.startswith("count") for item in post.release.aggregations]
        (output,) = post.outputs
        inner.context.check_outputs(query, post.outputs)
        _check_count(inner, query, counts, alone=isinstance(output.expr, Released))
        shown = [Output(key.name, Released(key.name, key.expr.type)) for key in post.release.keys]
        return answer(replace(post, outputs=(*shown, output)), alias), any(counts)
    groups = Groups(inner, query, relation, keys=keys, alias=inner.context.fresh(query))
    ((_, value),) = _one(inner, query, groups)
    counts = [item.function.startswith("count") for item in groups.aggregated]
    _check_count(inner, query, counts, alone=isinstance(value, Column))
    listed = [(f"k{index}", groups.key(index)) for index in range(len(keys))]
    return project(groups.grouped(), alias, [*listed, ("value", value)]), any(counts)


def _one(inner: Scope, query: exp.Select, groups: Grouping) -> list[tuple[str, Expr]]:
    outputs = groups.outputs(groups.items())
    if len(outputs) != 1:
        inner.source.refuse(query, "subquery", "a subquery used as a value has one column")
    return outputs


def _check_count(inner: Scope, query: exp.Select, counts: Sequence[bool], *, alone: bool) -> None:
    if any(counts) and not alone:
        inner.source.refuse(
            query,
            "subquery",
            "a count of no rows is 0, and so is not what is computed from it",
            "compute outside",
        )
