"""AVG(x)."""

from __future__ import annotations

from dpsql.aggregates.base import Aggregate, Estimates, Moment
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _value(estimates: Estimates, interval: Interval | None, _: Type) -> Value:
    count = estimates[Moment.COUNT]
    if count <= 0:
        return None
    low, high = (interval or Interval()).ends
    return float(min(high, max(low, estimates[Moment.TOTAL] / count)))


AVG = Aggregate(
    "avg",
    "AVG(x)",
    (Moment.TOTAL, Moment.COUNT),
    lambda argument: Type.DOUBLE if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _value,
    ratio=True,
)
"""The mean of x clamped to its interval; NULL where no row is estimated to be.

Claim: it is a function of TOTAL and COUNT, which together cost what one of them costs: with
y = (x-L)/(U-L), the pair of sums of y and 1-y has l1 sensitivity 1.
Why: y and 1-y are not negative and add up to one in each row.
Source: Kulesza, Suresh, Wang 2024, "Mean estimation in the add-remove model of differential privacy".
"""
