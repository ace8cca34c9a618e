"""AGGREGATE(x) FILTER (WHERE condition): the aggregate of x where the condition is true, and of NULL elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.plan.expr import Column
from dpsql.plan.nodes import is_private
from dpsql.sql.lower.quantiles import RANKED, plain
from dpsql.sql.lower.variance import SPREADS
from dpsql.sql.read.dialect import Histogram
from dpsql.sql.read.rejection import Source

if TYPE_CHECKING:
    from dpsql.sql.lower.grouping import Grouping

_FILTERED = (exp.Count, exp.Sum, exp.Avg, exp.ArgMin, exp.ArgMax, Histogram, *RANKED, *SPREADS)


def filtered(grouping: Grouping, node: exp.Filter) -> exp.AggFunc:
    """The aggregate that a filtered one stands for. Raises QueryRejected."""
    text = grouping.source
    aggregate, clause = text.take(node, "this", "expression")
    (condition,) = text.take(clause, "this")
    if isinstance(aggregate, (exp.AggFunc, exp.WithinGroup)):
        aggregate = plain(text, aggregate)
    if type(aggregate) not in _FILTERED:
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


def counted_if(text: Source, node: exp.CountIf) -> exp.Expr:
    """What COUNT_IF counts: a value where its condition is true."""
    (condition,) = text.take(node, "this")
    return where(condition, exp.Literal.number(1))


def one_or_zero(text: Source, node: exp.CountIf) -> exp.Expr:
    """What COUNT_IF adds up, where a group may have no row: 1 where its condition is true, 0 where it is false."""
    (condition,) = text.take(node, "this")
    no = exp.Not(this=exp.Paren(this=condition.copy()))
    chosen = [(condition.copy(), 1), (no, 0)]
    return exp.Case(ifs=[exp.If(this=known, true=exp.Literal.number(value)) for known, value in chosen])


def where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """A value where a condition is true, NULL elsewhere."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _check_units(grouping: Grouping, node: exp.Filter, items: list[exp.Expr]) -> None:
    """Refuses units that FILTER chooses, which would be counted with the noise of rows."""
    for item in items:
        expr = grouping.argument(item)
        if isinstance(expr, Column) and expr.facts.is_unit and is_private(grouping.input):
            grouping.source.refuse(
                node, "distinct", "FILTER after COUNT(DISTINCT unit) is not supported", "filter with WHERE"
            )
