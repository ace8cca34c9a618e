"""MEDIAN, MIN, MAX and quantiles: order statistics."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from math import floor

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value
from dpsql.plan.interval import Interval, get_time_at, get_timestamp_at
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, interval: Interval | None, kind: Type) -> Value:
    low, high = (interval or Interval()).ends
    found = min(high, max(low, estimates[Moment.ORDER_STATISTIC]))
    if kind is Type.DATE:
        return dt.date.fromordinal(floor(found))
    if kind is Type.TIME:
        return get_time_at(found)
    return get_timestamp_at(found) if kind is Type.TIMESTAMP else to_value(found, kind)


def _define_order_statistic(
    name: str, signature: str, *, between: bool, rank: Fraction | None = None
) -> Aggregate:
    def infer_result_type(argument: Type | None) -> Type | None:
        if argument is None or not (argument.numeric or argument.temporal or argument is Type.TIME):
            return None
        # As in DuckDB, what lies between whole numbers is none.
        return Type.DOUBLE if between and argument.numeric else argument

    return Aggregate(
        name,
        signature,
        (Moment.ORDER_STATISTIC,),
        infer_result_type,
        _compute_value,
        rank=rank,
        keeps_scale=True,
    )


ORDER_STATISTICS = (
    _define_order_statistic("min", "MIN(x)", between=False, rank=Fraction(0)),
    _define_order_statistic("max", "MAX(x)", between=False, rank=Fraction(1)),
    _define_order_statistic("median", "MEDIAN(x)", between=True, rank=Fraction(1, 2)),
    _define_order_statistic("quantile_cont", "QUANTILE_CONT(x, q)", between=True),
    _define_order_statistic("quantile_disc", "QUANTILE_DISC(x, q)", between=False),
)
"""The value of x that a share q of the values lie below: within the interval of x, whatever the rows are.

Claim: it is a choice of bounded range, as `analysis.ranks` derives it.
Why: the points of the interval are the candidates, and how far a point is from the rank is its penalty,
which one row changes by one step or none.
Source: McSherry, Talwar 2007, section 3; Smith 2011, "Privacy-preserving statistical estimation with
optimal convergence rates", Algorithm 2.
"""
