"""AGGREGATE(x) FILTER (WHERE condition): the aggregate of x where the condition is true, and of NULL elsewhere."""

from __future__ import annotations

from sqlglot import exp

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
        text.refuse(node, "aggregate", "FILTER is only allowed after an aggregate, such as COUNT, SUM or AVG")
    argument, other = text.take(aggregate, "this", "expression", big_int=(True,))
    if type(argument) is exp.Star:
        text.take(argument)
        argument = None
    if type(argument) is exp.Distinct:
        (items,) = text.take(argument, "expressions")
        chosen: exp.Expr = exp.Distinct(expressions=[where(condition, item) for item in items])
    else:
        chosen = where(condition, exp.Literal.number(1) if argument is None else argument)
    built: exp.AggFunc = type(aggregate)(this=chosen, expression=other)
    return built
