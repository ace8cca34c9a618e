"""AVG(x)."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.plan.aggregates.base import Aggregate, Estimates, EstimateSeries, Moment, divide_to_double
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, interval: Interval | None, _: Type) -> Value:
    count = estimates[Moment.COUNT]
    if count <= 0:
        return None
    low, high = (interval or Interval()).ends
    return float(min(high, max(low, estimates[Moment.TOTAL] / count)))


def _compute_column(series: Sequence[EstimateSeries], interval: Interval | None, _: Type) -> list[Value]:
    """Return the SQL like `_compute_value`; rounding to a DOUBLE keeps the order, so it may come before the interval's ends."""
    (totals, parts), (counts, shares) = series
    low, high = map(float, (interval or Interval()).ends)
    return [
        min(high, max(low, divide_to_double(total * shares, count * parts))) if count > 0 else None
        for total, count in zip(totals, counts, strict=True)
    ]


AVG = Aggregate(
    "avg",
    "AVG(x)",
    (Moment.TOTAL, Moment.COUNT),
    lambda argument: Type.DOUBLE if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_value,
    ratio=True,
    compute_column=_compute_column,
)
"""The mean of x clamped to its interval; NULL where no row is estimated to be.

Claim: it is a function of TOTAL and COUNT, which together cost what one of them costs: with
y = (x-L)/(U-L), the pair of sums of y and 1-y has l1 sensitivity 1.
Why: y and 1-y are not negative and add up to one in each row.
Source: Kulesza, Suresh, Wang 2024, "Mean estimation in the add-remove model of differential privacy".
"""
