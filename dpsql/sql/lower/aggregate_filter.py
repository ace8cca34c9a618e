"""AGGREGATE(x) FILTER (WHERE condition): the aggregate of x where the condition is true, and of NULL elsewhere."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.lower.aggregates import BY_NODE
from dpsql.sql.lower.aggregates.base import GroupedRows, build_conditional_value
from dpsql.sql.lower.aggregates.quantiles import normalize_quantile_call


def rewrite_filtered_aggregate(grouping: GroupedRows, node: exp.Filter) -> exp.AggFunc:
    """Return an aggregate without FILTER that means the same. Raises QueryRejected."""
    text = grouping.source
    aggregate, clause = text.take_arguments(node, "this", "expression")
    (condition,) = text.take_arguments(clause, "this")
    if isinstance(aggregate, (exp.AggFunc, exp.WithinGroup)):
        aggregate = normalize_quantile_call(text, aggregate)
    entry = BY_NODE.get(type(aggregate))
    if entry is None or not entry.filters:
        text.refuse(node, "aggregate", "FILTER is only allowed after an aggregate, such as COUNT, SUM or AVG")
    argument, other = text.take_arguments(aggregate, "this", "expression", big_int=(True,))
    if type(argument) is exp.Star:
        text.take_arguments(argument)
        argument = None
    if type(argument) is exp.Distinct:
        (items,) = text.take_arguments(argument, "expressions")
        chosen: exp.Expr = exp.Distinct(
            expressions=[build_conditional_value(condition, item) for item in items]
        )
    else:
        chosen = build_conditional_value(condition, exp.Literal.number(1) if argument is None else argument)
    built: exp.AggFunc = type(aggregate)(this=chosen, expression=other)
    return built
