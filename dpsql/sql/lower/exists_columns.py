"""Lower EXISTS and IN over a subquery as a truth value of each row, wherever one is allowed.

Claim: the truth value is a further column of the rows: it removes no row, repeats no row, and depends on rows of the same
unit, on public rows and on released values only.
Why: EXISTS is COUNT(*) > 0 of the subquery for the row, and IN is EXISTS of an equal value, or NULL if there is no equal
value but a NULL. The subquery's rows are grouped by the columns that are compared with the row, and the groups are joined to
the rows by LEFT JOIN: each row has at most one group, and for private rows that is a group of its own unit, since all others
are refused here. Nothing is released for it.
Source: Neumann, Leis, Kemper 2017, "The Complete Story of Joins (in HyPer)", section 3.2 (mark joins); McSherry 2009,
"Privacy integrated queries", section 3.2 (stability of GroupBy and of joins on its key).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.analysis.nullability import is_never_null
from dpsql.plan.expressions import Column, Expr, Literal
from dpsql.plan.nodes import Relation, Release
from dpsql.plan.types import Type
from dpsql.sql.lower.correlated_subqueries import lower_correlated_subquery
from dpsql.sql.lower.derived_tables import is_plain_select, lower_select_item
from dpsql.sql.lower.exists_clauses import check_order, remove_irrelevant_clauses
from dpsql.sql.lower.node_kinds import is_quantified
from dpsql.sql.lower.quantified_comparisons import lower_quantified_comparison
from dpsql.sql.lower.scalar_subqueries import lower_uncorrelated_subquery
from dpsql.sql.lower.scope import Scope
from dpsql.sql.lower.semi_joins import check_width, list_row_values, split_where
from dpsql.sql.lower.unit_checks import suggest_unit_comparison

_ZERO = Literal(0, Type.INTEGER)
_TRUE, _FALSE = Literal(True, Type.BOOLEAN), Literal(False, Type.BOOLEAN)
_UNKNOWN = Literal(None, Type.BOOLEAN)


def lower_subquery_predicate(scope: Scope, node: exp.Expr) -> Expr:
    """Return whether the subquery of EXISTS or IN has a row for each row of the scope, or ALL and ANY hold. Raises QueryRejected."""
    if is_quantified(node):
        if node not in scope.predicate_values:
            found = lower_quantified_comparison(
                scope, node, correlate=lambda query: lower_correlated_subquery(scope, query, _refuse_release)
            )
            scope.predicate_values[node.copy()] = found
        return scope.predicate_values[node]
    if type(node) is exp.Exists:
        (query,) = scope.source.take_arguments(node, "this")
        rows, order = _to_plain_select(scope, query)
        _lower_subquery_rows(scope, rows, order)
        return _lower_existence(scope, node, rows, (), None)
    operand, query = scope.source.take_arguments(node, "this", "query")
    return _lower_membership(scope, node, list_row_values(scope, operand), query)


def _lower_membership(scope: Scope, node: exp.Expr, operand: Sequence[exp.Expr], query: exp.Expr) -> Expr:
    """Return whether the values of a row are a row of the subquery; NULL where that is unknown."""
    rows, order = _to_plain_select(scope, query)
    items = [item.this if type(item) is exp.Alias else item for item in rows.expressions]
    check_width(scope, node, len(operand), len(items))
    relation, outputs = _lower_subquery_rows(scope, rows, order)
    values = [scope.scalars.lower(item) for item in operand]
    found = _lower_existence(scope, node, rows, list(zip(values, items, strict=True)), None)
    if _allows_null_as_false(node):
        return found
    if len(items) > 1:
        scope.source.refuse(
            node,
            "subquery",
            "IN with a row of values and a subquery is only allowed in WHERE, FILTER and WHEN, and "
            "not under NOT, where NULL matters",
            "write EXISTS (SELECT … WHERE inner.a = outer.a AND inner.b = outer.b)",
        )
    branches = [found, _TRUE]
    if not is_never_null(outputs[0], relation):
        unknown = exp.Is(this=exp.Paren(this=items[0].copy()), expression=exp.Null())
        branches += [_lower_existence(scope, node, rows, (), unknown), _UNKNOWN]
    if not _is_never_null(scope, values[0]):
        missing = scope.scalars.build_call(node, "is_null", values[0])
        branches += [
            scope.scalars.build_call(node, "and", missing, _lower_existence(scope, node, rows, (), None)),
            _UNKNOWN,
        ]
    if len(branches) == len((found, _TRUE)):
        return found
    return scope.scalars.build_call(node, "case", *branches, _FALSE)


def _is_never_null(scope: Scope, value: Expr) -> bool:
    """Return whether a value of the scope's rows is known not to be NULL, whatever the conditions on them."""
    if isinstance(value, Column) and value.source not in scope.nullable:
        named = scope.tables.get(value.source)
        return named is not None and is_never_null(value, named.relation)
    return isinstance(value, Literal) and value.value is not None


def _lower_subquery_rows(
    scope: Scope, rows: exp.Select, order: exp.Expr | None
) -> tuple[Relation, list[Expr]]:
    """Lower the rows of a subquery and its outputs, which EXISTS ignores. Raises QueryRejected."""
    inner = Scope(
        scope.context.enter_subquery(rows, scope.context.common_tables, scope.context.enclosing_scope),
        outer=scope,
    )
    relation, _ = split_where(inner, rows)
    check_order(inner, rows, order)
    return relation, [expr for item in rows.expressions for _, expr in lower_select_item(inner, item)]


def _allows_null_as_false(node: exp.Expr) -> bool:
    """Return whether NULL is as good as FALSE where a node stands: in a condition, under AND and OR alone."""
    child, above = node, node.parent
    while above is not None and type(above) in (exp.Paren, exp.And, exp.Or):
        child, above = above, above.parent
    if isinstance(above, exp.If):
        case = above.parent
        return child.arg_key == "this" and isinstance(case, exp.Case) and case.args.get("this") is None
    return isinstance(above, exp.Where)


def _lower_existence(
    scope: Scope,
    node: exp.Expr,
    rows: exp.Select,
    compared: Sequence[tuple[Expr, exp.Expr]],
    condition: exp.Expr | None,
) -> Expr:
    """Lower the condition that a row of the subquery equals the compared values and fulfills the condition."""
    count = rows.copy()
    count.set("expressions", [exp.Count(this=exp.Star(), big_int=True)])
    if condition is not None:
        where = count.args.get("where")
        conditions = [] if where is None else [exp.Paren(this=where.this)]
        count.set("where", exp.Where(this=exp.and_(*conditions, condition, copy=False)))
    key = (count, tuple(compared))
    value = scope.predicate_values.get(key)
    if value is None:
        value = lower_correlated_subquery(scope, count, _refuse_release, compared) or _lower_shared_count(
            scope, node, count
        )
        scope.predicate_values[key] = value
    return scope.scalars.build_call(node, "gt", value, _ZERO)


def _lower_shared_count(scope: Scope, node: exp.Expr, count: exp.Select) -> Expr:
    """Return a count of rows that are the same for each row of the scope: public, or released."""
    value = lower_uncorrelated_subquery(scope.context, scope, node, count)
    if isinstance(value.outer.source, Release):
        _refuse_private(scope, node)
    return value


def _refuse_release(inner: Scope, query: exp.Select, _: Relation, __: Sequence[Expr]) -> NoReturn:
    """Refuse a release, which such a column cannot hold."""
    _refuse_private(inner, query)


def _refuse_private(scope: Scope, node: exp.Expr) -> NoReturn:
    scope.source.refuse(
        node,
        "private_join",
        "a subquery over private rows must be correlated on the privacy unit, so that no other "
        "unit's rows decide",
        f"{suggest_unit_comparison(scope.outer or scope, node)}; to ask whether there is any row: SELECT COUNT(*) > 0 FROM …",
    )


def _to_plain_select(scope: Scope, query: exp.Expr) -> tuple[exp.Select, exp.Expr | None]:
    """Return a subquery as a SELECT that keeps each of its rows, and the ORDER BY that is dropped."""
    while type(query) in (exp.Paren, exp.Subquery):
        (query,) = scope.source.take_arguments(query, "this")
    exists = type(query.parent) is exp.Exists
    bare = remove_irrelevant_clauses(scope.source, query, exists=exists)
    if type(bare) is exp.Select:
        starred = any(item.is_star for item in bare.expressions)
        if is_plain_select(bare) and not (starred and not exists):
            return bare, query.args.get("order")
    if not isinstance(query, exp.Query):
        scope.source.refuse(query, "subquery", "IN and EXISTS take a SELECT or a set operation")
    return _wrap_query(scope, query), None


def _wrap_query(scope: Scope, query: exp.Query) -> exp.Select:
    """Build SELECT c0, c1, … FROM (query) AS (c0, c1, …)."""
    items = query.selects
    if type(query.parent) is not exp.Exists and any(item.is_star for item in items):
        scope.source.refuse(
            query, "subquery", "a subquery of IN must name its columns instead of *", "name them: SELECT x"
        )
    names = [exp.to_identifier(f"c{index}") for index in range(len(items))]
    of_rows = type(query.parent) is exp.Exists
    alias = None if of_rows else exp.TableAlias(columns=[name.copy() for name in names])
    table = exp.Subquery(this=query.copy(), alias=alias)
    outputs = [exp.Literal.number(1)] if of_rows else [exp.Column(this=name) for name in names]
    return exp.Select(expressions=outputs, from_=exp.From(this=table))
