"""Lower a subquery that is used as a value and does not depend on the rows around it."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan import nodes
from dpsql.plan.cardinality import is_single_row
from dpsql.plan.dependencies import list_required_steps
from dpsql.plan.expressions import Scalar
from dpsql.plan.tables import Scan
from dpsql.sql.lower.statement_context import EnclosingScope, StatementContext


def lower_uncorrelated_subquery(
    context: StatementContext, enclosing_scope: EnclosingScope, node: exp.Expr, query: exp.Expr
) -> Scalar:
    """Return the one value of a subquery that does not depend on the rows of the query around it."""
    inner = context.enter_subquery(node, context.common_tables, enclosing_scope)
    source = context.lower_derived_query(inner, query, context.allocate_alias(node), ())
    if nodes.is_private(source) or isinstance(source, Scan):
        context.source.refuse(
            node,
            "subquery",
            "a scalar subquery over private rows must aggregate over privacy units",
            "write WHERE cost > (SELECT AVG(cost) FROM visits)",
        )
    if len(source.columns) != 1:
        context.source.refuse(node, "subquery", "a subquery used as a value must have one column")
    outer = (
        _build_single_value_query(source)
        if is_single_row(source)
        else _look_up_single_row(context, node, source)
    )
    return Scalar(outer, source.columns[0].type)


def _look_up_single_row(context: StatementContext, node: exp.Expr, source: nodes.Source) -> nodes.OuterQuery:
    """Return the query of a source of public rows that has at most one row when it is looked up.

    Claim: its value costs nothing, and it is the same on neighboring databases.
    Why: it follows from public tables alone. The statement keeps the first row only, so that it could not fail.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    if isinstance(source, Scan) or list_required_steps(source):
        context.source.refuse(
            node,
            "subquery",
            "a subquery over released values must have one row to be used as a value",
            "add LIMIT 1",
        )
    outputs = tuple(nodes.Output(column.name, column) for column in source.columns)
    if len(context.facts.read_rows(nodes.OuterQuery(source, outputs, limit=2))) > 1:
        context.source.refuse(
            node,
            "subquery",
            "a subquery used as a value must have at most one row, and this one has more",
            "add ORDER BY x LIMIT 1, or aggregate: SELECT MIN(x)",
        )
    return nodes.OuterQuery(source, outputs, limit=1)


def _build_single_value_query(source: nodes.Source) -> nodes.OuterQuery:
    """Build the query of a source's only column."""
    if isinstance(source, nodes.PublicSubquery):
        return source.outer
    if isinstance(source, Scan):
        raise TypeError("a table is not a scalar value")
    (column,) = source.columns
    return nodes.OuterQuery(source, (nodes.Output(column.name, column),))
