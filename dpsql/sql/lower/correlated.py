"""Lowers correlated scalar subqueries: grouped by their correlation keys, and joined to the outer rows.

`x > (SELECT AVG(y) FROM s WHERE s.a = t.a)` means the averages of s by a, joined on a. For public rows they are exact. For
private rows they are per-unit groups if a identifies the unit, and a release otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.backends import trial
from dpsql.plan.expr import Call, Column, Expr, Literal, Released, Scalar, columns, walk
from dpsql.plan.nodes import JoinKind, OuterQuery, Output, Project, PublicSubquery, Relation, is_private
from dpsql.plan.render import phrase
from dpsql.plan.types import Type
from dpsql.sql.emit.scalars import cast, write
from dpsql.sql.lower.constants import constant
from dpsql.sql.lower.declared_links import linked
from dpsql.sql.lower.derived import answer, project
from dpsql.sql.lower.grouping import Grouping, aggregates
from dpsql.sql.lower.joins import Attached
from dpsql.sql.lower.outer_values import OuterValues
from dpsql.sql.lower.per_unit import Groups, identifies
from dpsql.sql.lower.scope import Named, Scope
from dpsql.sql.lower.semi_joins import split_where

Releasing = Callable[[Scope, exp.Select, Relation, Sequence[Expr]], OuterQuery]
_PLAIN = frozenset({"expressions", "from_", "joins", "where", "kind"})


def correlated(
    scope: Scope, query: exp.Select, release: Releasing, compared: Sequence[tuple[Expr, exp.Expr]] = ()
) -> Expr | None:
    """The value of a subquery for each row of the outer scope; None if it does not depend on these.

    `release` plans the release of private rows by given keys. `compared` are pairs of an expression over the outer rows
    and one of the subquery's that are equal besides. Raises QueryRejected for what may not depend on the outer rows so.
    """
    inner = Scope(scope.context.deeper(query, scope.context.common, scope.context.around), outer=scope)
    if any(query.args.get(name) for name in ("group", "having", "with_")):
        return None
    values = OuterValues(scope, inner, query)
    relation, across = split_where(inner, query, joining=values.join)
    if not across and not compared:
        return None
    if {name for name, value in query.args.items() if value} - _PLAIN or scope.waiting is None:
        scope.source.refuse(
            query,
            "subquery",
            "a correlated subquery must be one aggregate with WHERE, in SELECT or WHERE",
            "write a condition of ON in WHERE, or join a derived table that has GROUP BY",
        )
    if not any(map(aggregates, query.expressions)):
        scope.source.refuse(
            query,
            "subquery",
            "a correlated subquery must aggregate",
            "write MIN(x), or join the table",
        )
    if any(item.find(exp.Window) for item in query.expressions):
        scope.source.refuse(
            query,
            "subquery",
            "a window in a correlated subquery would see the rows of all outer rows",
            "compute it in a derived table, and join that",
        )
    pairs = [*values.pairs]
    pairs += [(ours, _inside(inner, theirs)) for ours, theirs in compared]
    keys = list(dict.fromkeys(key for _, key in pairs))
    alias = scope.context.fresh(query)
    source, empty, alone = _source(inner, query, relation, keys, pairs, alias=alias, release=release)
    on = (scope.scalars.call(query, "eq", ours, source.columns[keys.index(key)]) for ours, key in pairs)
    scope.tables[alias] = Named(source, {})
    scope.waiting.append(Attached(alias, JoinKind.LEFT, tuple(on), query))
    value, key = source.columns[-1], _optional(source.columns[0])
    if isinstance(empty, Literal) and empty.value is None:
        return _optional(value)
    if alone:
        return scope.scalars.call(query, "coalesce", _optional(value), empty)
    # An outer row has a group if and only if it is joined on a key, which is not NULL then.
    missing = scope.scalars.call(query, "is_null", key)
    return scope.scalars.call(query, "case", missing, empty, value)


def _inside(inner: Scope, node: exp.Expr) -> Expr:
    """What a subquery says of its own rows alone."""
    found = inner.scalars.lower(node)
    here = {named.alias for named in inner.tables.values()}
    outside = [column for column in columns(found) if column.source not in here]
    if outside:
        inner.source.refuse(
            node,
            "subquery",
            f"{phrase(outside[0])} belongs to the outer query, and here a subquery may name its own columns only",
            "compare outside: x = y AND EXISTS (SELECT … WHERE …) for x IN (SELECT y … WHERE …)",
        )
    return found


def _optional(column: Column) -> Column:
    """A column of a source that a LEFT JOIN may find no row of."""
    return replace(column, facts=replace(column.facts, nullable=True))


def _source(
    inner: Scope,
    query: exp.Select,
    relation: Relation,
    keys: list[Expr],
    pairs: Sequence[tuple[Expr, Expr]],
    *,
    alias: str,
    release: Releasing,
) -> tuple[Project | PublicSubquery, Expr, bool]:
    """The groups, their value last; what that is of no rows; and whether it is an aggregate by itself."""
    outer = inner.outer.tables.values() if inner.outer is not None else ()
    of_units = any(is_private(named.relation) for named in outer) and (
        any(identifies(key, relation) for key in keys) or linked(pairs)
    )
    if is_private(relation) and not of_units:
        grouped = release(inner, query, relation, keys)
        (output,) = grouped.outputs
        inner.context.check_outputs(query, grouped.outputs)
        of_none: dict[Expr, Expr] = {
            Released(item.name, item.type): _of_no_rows(item.function, item.type)
            for item in grouped.release.aggregations
        }
        key_outputs = [Output(key.name, Released(key.name, key.expr.type)) for key in grouped.release.keys]
        empty = _empty(inner, query, output.expr, of_none)
        return (
            answer(replace(grouped, outputs=(*key_outputs, output)), alias),
            empty,
            isinstance(output.expr, Released),
        )
    groups = Groups(inner, query, relation, keys=keys, alias=inner.context.fresh(query))
    ((_, value),) = _one(inner, query, groups)
    named = groups.grouped().columns[len(keys) :]
    of_none = {
        column: _of_no_rows(item.function, column.type)
        for item, column in zip(groups.aggregated, named, strict=True)
    }
    listed = [(f"k{index}", groups.key(index)) for index in range(len(keys))]
    source = project(groups.grouped(), alias, [*listed, ("value", value)])
    return source, _empty(inner, query, value, of_none), isinstance(value, Column)


def _one(inner: Scope, query: exp.Select, groups: Grouping) -> list[tuple[str, Expr]]:
    outputs = groups.outputs(groups.items())
    if len(outputs) != 1:
        inner.source.refuse(query, "subquery", "a subquery used as a value has one column")
    return outputs


def _of_no_rows(function: str, kind: Type) -> Literal:
    """What an aggregate is of no rows."""
    return Literal(0 if function.startswith("count") else None, kind)


def _empty(inner: Scope, query: exp.Select, value: Expr, of_none: Mapping[Expr, Expr]) -> Expr:
    """What an expression over aggregates is of no rows: a constant, but for values of queries in it.

    Raises QueryRejected where it reads a column beside its aggregates, of which there is not one value then.
    """
    found = _with(value, of_none)
    if any(isinstance(part, (Column, Released)) for part in walk(found)):
        inner.source.refuse(
            query,
            "group_by",
            "a column of the subquery has no single value next to an aggregate",
            "aggregate it: MIN(x)",
        )
    if isinstance(found, Literal) or any(isinstance(part, Scalar) for part in walk(found)):
        return found
    text = cast(write(found), found.type)
    failure = trial.failure(text)
    if failure is not None:
        inner.source.refuse(query, "constant", f"this has no value where there are no rows: {failure}")
    return replace(constant(inner.source, query, trial.value(text)), type=found.type)


def _with(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """An expression with some of its parts known."""
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_with(part, known) for part in expr.arguments))
    return known.get(expr, expr)
