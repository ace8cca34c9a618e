"""Lower correlated scalar subqueries: grouped by their correlation keys, and joined to the outer rows.

`x > (SELECT AVG(y) FROM s WHERE s.a = t.a)` means the averages of s by a, joined on a. For public rows they are exact. For
private rows they are per-unit groups if a identifies the unit, and a release otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.backends import constant_checks
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, Scalar, iterate_columns, walk
from dpsql.plan.nodes import JoinKind, OuterQuery, Output, Project, PublicSubquery, Relation, is_private
from dpsql.plan.render import format_expression
from dpsql.plan.types import Type
from dpsql.sql.compile.scalars import emit_cast, emit_expression
from dpsql.sql.lower.constants import to_literal
from dpsql.sql.lower.declared_links import covers_declared_link
from dpsql.sql.lower.derived_tables import build_projection, to_public_subquery
from dpsql.sql.lower.grouping import Grouping, has_aggregate
from dpsql.sql.lower.joins import FromItem
from dpsql.sql.lower.outer_values import OuterValues
from dpsql.sql.lower.per_unit_selects import DerivedGroupBy, is_unit_key
from dpsql.sql.lower.scope import NamedSource, Scope
from dpsql.sql.lower.semi_joins import split_where

ReleaseLowering = Callable[[Scope, exp.Select, Relation, Sequence[Expr]], OuterQuery]
_PLAIN = frozenset({"expressions", "from_", "joins", "where", "kind"})


def lower_correlated_subquery(
    scope: Scope, query: exp.Select, release: ReleaseLowering, compared: Sequence[tuple[Expr, exp.Expr]] = ()
) -> Expr | None:
    """Return the value of a subquery for each row of the outer scope; None if it does not depend on these.

    `release` plans the release of private rows by given keys. `compared` are pairs of an expression over the outer rows
    and one of the subquery's that are equal besides. Raises QueryRejected for what may not depend on the outer rows so.
    """
    inner = Scope(
        scope.context.enter_subquery(query, scope.context.common_tables, scope.context.enclosing_scope),
        outer=scope,
    )
    if any(query.args.get(name) for name in ("group", "having", "with_")):
        return None
    values = OuterValues(scope, inner, query)
    relation, across = split_where(inner, query, joining=values.build_outer_table)
    if not across and not compared:
        return None
    if {name for name, value in query.args.items() if value} - _PLAIN or scope.pending_joins is None:
        scope.source.refuse(
            query,
            "subquery",
            "a correlated subquery must be one aggregate with WHERE, in SELECT or WHERE",
            "move conditions from ON to WHERE, or join a derived table that has GROUP BY",
        )
    if not any(map(has_aggregate, query.expressions)):
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
            "a window function is not allowed in a correlated subquery: it would read the rows of "
            "all outer rows",
            "compute the window in a derived table, and join that table",
        )
    pairs = [*values.pairs]
    pairs += [(ours, _lower_inner_expression(inner, theirs)) for ours, theirs in compared]
    keys = list(dict.fromkeys(key for _, key in pairs))
    alias = scope.context.allocate_alias(query)
    source, empty, alone = _build_group_source(
        inner, query, relation, keys, pairs, alias=alias, release=release
    )
    on = (scope.scalars.build_call(query, "eq", ours, source.columns[keys.index(key)]) for ours, key in pairs)
    scope.tables[alias] = NamedSource(source, {})
    scope.pending_joins.append(FromItem(alias, JoinKind.LEFT, tuple(on), query))
    value, key = source.columns[-1], _make_nullable(source.columns[0])
    if isinstance(empty, Literal) and empty.value is None:
        return _make_nullable(value)
    if alone:
        return scope.scalars.build_call(query, "coalesce", _make_nullable(value), empty)
    # An outer row has a group if and only if it is joined on a key, which is not NULL then.
    missing = scope.scalars.build_call(query, "is_null", key)
    return scope.scalars.build_call(query, "case", missing, empty, value)


def _lower_inner_expression(inner: Scope, node: exp.Expr) -> Expr:
    """Lower an expression over the subquery's own rows."""
    found = inner.scalars.lower(node)
    here = {named.alias for named in inner.tables.values()}
    outside = [column for column in iterate_columns(found) if column.source not in here]
    if outside:
        inner.source.refuse(
            node,
            "subquery",
            f"{format_expression(outside[0])} belongs to the outer query, and this subquery may only "
            "name its own columns",
            "move the comparison out of IN: x = y AND EXISTS (SELECT … WHERE …) for x IN (SELECT y … "
            "WHERE …)",
        )
    return found


def _make_nullable(column: Column) -> Column:
    """Build a column of a source that a LEFT JOIN may find no row of."""
    return replace(column, facts=replace(column.facts, nullable=True))


def _build_group_source(
    inner: Scope,
    query: exp.Select,
    relation: Relation,
    keys: list[Expr],
    pairs: Sequence[tuple[Expr, Expr]],
    *,
    alias: str,
    release: ReleaseLowering,
) -> tuple[Project | PublicSubquery, Expr, bool]:
    """Build the groups with their value last; the value of an empty group; and whether it is a plain aggregate."""
    outer = inner.outer.tables.values() if inner.outer is not None else ()
    of_units = any(is_private(named.relation) for named in outer) and (
        any(is_unit_key(key, relation) for key in keys) or covers_declared_link(pairs)
    )
    if is_private(relation) and not of_units:
        grouped = release(inner, query, relation, keys)
        (output,) = grouped.outputs
        inner.context.check_outputs(query, grouped.outputs)
        of_none: dict[Expr, Expr] = {
            ReleasedColumn(item.name, item.type): _get_empty_value(item.function, item.type)
            for item in grouped.release.aggregations
        }
        key_outputs = [
            Output(key.name, ReleasedColumn(key.name, key.expr.type)) for key in grouped.release.keys
        ]
        empty = _evaluate_without_rows(inner, query, output.expr, of_none)
        return (
            to_public_subquery(replace(grouped, outputs=(*key_outputs, output)), alias),
            empty,
            isinstance(output.expr, ReleasedColumn),
        )
    groups = DerivedGroupBy(inner, query, relation, keys=keys, alias=inner.context.allocate_alias(query))
    ((_, value),) = _lower_single_output(inner, query, groups)
    named = groups.build_group_by().columns[len(keys) :]
    of_none = {
        column: _get_empty_value(item.function, column.type)
        for item, column in zip(groups.aggregations, named, strict=True)
    }
    listed = [(f"k{index}", groups.get_key_column(index)) for index in range(len(keys))]
    source = build_projection(groups.build_group_by(), alias, [*listed, ("value", value)])
    return source, _evaluate_without_rows(inner, query, value, of_none), isinstance(value, Column)


def _lower_single_output(inner: Scope, query: exp.Select, groups: Grouping) -> list[tuple[str, Expr]]:
    outputs = groups.lower_outputs(groups.list_items())
    if len(outputs) != 1:
        inner.source.refuse(query, "subquery", "a subquery used as a value must have one column")
    return outputs


def _get_empty_value(function: str, kind: Type) -> Literal:
    """Return the value of an aggregate over no rows."""
    return Literal(0 if function.startswith("count") else None, kind)


def _evaluate_without_rows(
    inner: Scope, query: exp.Select, value: Expr, of_none: Mapping[Expr, Expr]
) -> Expr:
    """Compute an expression over aggregates of no rows: a constant, except for values of queries in it.

    Raises QueryRejected where it reads a column beside its aggregates, of which there is not one value then.
    """
    found = _substitute_parts(value, of_none)
    if any(isinstance(part, (Column, ReleasedColumn)) for part in walk(found)):
        inner.source.refuse(
            query,
            "group_by",
            "the subquery selects a column next to an aggregate, and that column has several values",
            "aggregate it: MIN(x)",
        )
    if isinstance(found, Literal) or any(isinstance(part, Scalar) for part in walk(found)):
        return found
    text = emit_cast(emit_expression(found), found.type)
    failure = constant_checks.find_evaluation_error(text)
    if failure is not None:
        inner.source.refuse(query, "constant", f"this has no value where there are no rows: {failure}")
    return replace(to_literal(inner.source, query, constant_checks.evaluate_constant(text)), type=found.type)


def _substitute_parts(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with some of its parts known."""
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(_substitute_parts(part, known) for part in expr.arguments))
    return known.get(expr, expr)
