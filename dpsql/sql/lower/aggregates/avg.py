"""AVG(x): the mean of a number; of days and moments, arithmetic over a released mean.

Claim: the mean of days and moments is as private as the mean that it is computed of.
Why: released is how far after the first moment that there can be the others are on average; what is computed of that
is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from dpsql.analysis.intervals import conditions, interval
from dpsql.functions.moments import LENGTHS, at_end
from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AcrossUnits,
    AggregateCall,
    ExactGroups,
    Form,
    of_distinct,
    one_argument,
)

_SIGNATURE = "AVG(x)"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def _mean(over: AcrossUnits, node: exp.AggFunc) -> Expr:
    values = of_distinct(over, node)
    if values is not None:
        return _mean_value(over, node, values)
    argument = one_argument(over, node, _SIGNATURE)
    if argument.type.temporal:
        return _mean_moment(over, node, argument)
    return over.released(node, "avg", argument)


def _mean_value(over: AcrossUnits, node: exp.AggFunc, value: Expr) -> Expr:
    """The total of distinct values over their number, within the interval of the values; NULL where there is none."""
    around, call = interval(value, conditions(over.input)), over.scope.scalars.call
    total, number = (over.released(node, name, value) for name in ("sum_distinct", "count_distinct"))
    found = call(node, "divide", total, number)
    if around.bounded:
        low, high = (Literal(float(end), Type.DOUBLE) for end in around.ends)
        found = call(node, "least", call(node, "greatest", found, low), high)
    there = call(node, "gt", number, Literal(0, Type.INTEGER))
    return call(node, "case", there, found, Literal(None, Type.NULL))


def _exact(over: ExactGroups, node: exp.AggFunc) -> Expr:
    values = of_distinct(over, node)
    if values is not None:
        return over.exact(node, "avg_distinct", values)
    return over.exact(node, "avg", one_argument(over, node, _SIGNATURE))


def _mean_moment(over: AcrossUnits, node: exp.AggFunc, argument: Expr) -> Expr:
    """The mean of a DATE or TIMESTAMP as TIMESTAMP, to the microsecond; NULL where no row is estimated to be."""
    scalars = over.scope.scalars
    unit = "day" if argument.type is Type.DATE else "microsecond"
    first = Literal(
        at_end(argument.type, interval(argument, conditions(over.input)).low) or _EPOCH, Type.TIMESTAMP
    )
    mean = over.released(node, "avg", scalars.call(node, f"date_diff_{unit}", first, argument))
    length = Literal(LENGTHS[unit] // LENGTHS["microsecond"], Type.INTEGER)
    after = scalars.call(node, "cast_bigint", scalars.call(node, "multiply", mean, length))
    return scalars.call(node, "plus_microsecond", first, after)


AVG = AggregateCall(
    forms=(Form("TOTAL", ("AVG", "MEAN", "FAVG")),),
    nodes=(exp.Avg,),
    signature=_SIGNATURE,
    says="The mean of x, which needs bounds; of dates and timestamps a timestamp.",
    across=_mean,
    within=_exact,
    distinct=True,
    window=True,
    accepted=(
        "SELECT AVG(cost), AVG(age) FILTER (WHERE cost > 10), AVG(day) FROM visits",
        "SELECT plan, AVG(DISTINCT age) FROM visits GROUP BY plan",
        "SELECT plan, MEAN(age), FAVG(cost) FILTER (WHERE age > 30) FROM visits GROUP BY plan",
        "SELECT MAX(a) FROM (SELECT AVG(DISTINCT age) AS a FROM visits GROUP BY patient_id)",
        "SELECT MAX(a) FROM (SELECT AVG(age) AS a FROM visits GROUP BY patient_id)",
    ),
    refused={
        "SELECT AVG(note) FROM visits": "type",
        "SELECT AVG(weight) FROM visits": "unbounded",
    },
)
