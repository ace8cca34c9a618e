"""AVG(x): the mean of a number; of days and moments, arithmetic over a released mean.

Claim: the mean of dates and timestamps is as private as the mean that it is computed from.
Why: the released value is the mean distance from the first possible timestamp; the rest is post-processing.
Source: Dwork, Roth 2014, Proposition 2.1.
"""

from __future__ import annotations

import datetime as dt

from sqlglot import exp

from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.functions.moments import LENGTHS, find_end_timestamp
from dpsql.plan.types import Type
from dpsql.sql.lower.aggregates.base import (
    AggregateCall,
    CallForm,
    ExactGroups,
    ReleasedGroups,
    find_distinct_argument,
    lower_single_argument,
)

_AVG_SIGNATURE = "AVG(x)"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


def _lower_mean_across(over: ReleasedGroups, node: exp.AggFunc) -> Expr:
    values = find_distinct_argument(over, node)
    if values is not None:
        return _lower_distinct_mean(over, node, values)
    argument = lower_single_argument(over, node, _AVG_SIGNATURE)
    if argument.type.temporal:
        return _lower_mean_moment(over, node, argument)
    return over.add_statistic(node, "avg", argument)


def _lower_distinct_mean(over: ReleasedGroups, node: exp.AggFunc, value: Expr) -> Expr:
    """Return the total of distinct values over their number, within the interval of the values; NULL if there are none."""
    around, call = derive_interval(value, derive_known_intervals(over.input)), over.scope.scalars.build_call
    total, number = (over.add_statistic(node, name, value) for name in ("sum_distinct", "count_distinct"))
    found = call(node, "divide", total, number)
    if around.is_bounded:
        low, high = (Literal(float(end), Type.DOUBLE) for end in around.ends)
        found = call(node, "least", call(node, "greatest", found, low), high)
    there = call(node, "gt", number, Literal(0, Type.INTEGER))
    return call(node, "case", there, found, Literal(None, Type.NULL))


def _lower_mean_within(over: ExactGroups, node: exp.AggFunc) -> Expr:
    values = find_distinct_argument(over, node)
    if values is not None:
        return over.add_exact_aggregate(node, "avg_distinct", values)
    return over.add_exact_aggregate(node, "avg", lower_single_argument(over, node, _AVG_SIGNATURE))


def _lower_mean_moment(over: ReleasedGroups, node: exp.AggFunc, argument: Expr) -> Expr:
    """Return the mean of a DATE or TIMESTAMP as TIMESTAMP, to the microsecond; NULL where no row is estimated to be."""
    scalars = over.scope.scalars
    unit = "day" if argument.type is Type.DATE else "microsecond"
    first = Literal(
        find_end_timestamp(argument.type, derive_interval(argument, derive_known_intervals(over.input)).low)
        or _EPOCH,
        Type.TIMESTAMP,
    )
    mean = over.add_statistic(node, "avg", scalars.build_call(node, f"date_diff_{unit}", first, argument))
    length = Literal(LENGTHS[unit] // LENGTHS["microsecond"], Type.INTEGER)
    after = scalars.build_call(node, "cast_bigint", scalars.build_call(node, "multiply", mean, length))
    return scalars.build_call(node, "plus_microsecond", first, after)


AVG = AggregateCall(
    forms=(CallForm("TOTAL", ("AVG", "MEAN", "FAVG")),),
    nodes=(exp.Avg,),
    signature=_AVG_SIGNATURE,
    says="The mean of x, which needs bounds; of dates and timestamps a timestamp.",
    across=_lower_mean_across,
    within=_lower_mean_within,
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
