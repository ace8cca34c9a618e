"""AGGREGATE(x) FILTER (WHERE condition): the aggregate of x where the condition is true, and of NULL elsewhere."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.expr import Column
from dpsql.plan.nodes import is_private
from dpsql.sql.lower.aggregates import BY_NODE
from dpsql.sql.lower.aggregates.base import Rows, where
from dpsql.sql.lower.aggregates.quantiles import plain


def filtered(grouping: Rows, node: exp.Filter) -> exp.AggFunc:
    """The aggregate that a filtered one stands for. Raises QueryRejected."""
    text = grouping.source
    aggregate, clause = text.take(node, "this", "expression")
    (condition,) = text.take(clause, "this")
    if isinstance(aggregate, (exp.AggFunc, exp.WithinGroup)):
        aggregate = plain(text, aggregate)
    entry = BY_NODE.get(type(aggregate))
    if entry is None or not entry.filters:
        text.refuse(node, "aggregate", "FILTER stands after an aggregate, such as COUNT, SUM or AVG")
    argument, other = text.take(aggregate, "this", "expression", big_int=(True,))
    if type(argument) is exp.Star:
        text.take(argument)
        argument = None
    if type(argument) is exp.Distinct:
        (items,) = text.take(argument, "expressions")
        _check_units(grouping, node, items)
        chosen: exp.Expr = exp.Distinct(expressions=[where(condition, item) for item in items])
    else:
        chosen = where(condition, exp.Literal.number(1) if argument is None else argument)
    built: exp.AggFunc = type(aggregate)(this=chosen, expression=other)
    return built


def _check_units(grouping: Rows, node: exp.Filter, items: list[exp.Expr]) -> None:
    """Refuses units that FILTER chooses, which would be counted with the noise of rows."""
    for item in items:
        expr = grouping.argument(item)
        if isinstance(expr, Column) and expr.facts.is_unit and is_private(grouping.input):
            grouping.source.refuse(
                node, "distinct", "FILTER after COUNT(DISTINCT unit) is not supported", "filter with WHERE"
            )
