"""SUM(x)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.TOTAL], kind)


SUM = Aggregate(
    "sum",
    "SUM(x)",
    (Moment.TOTAL,),
    lambda argument: argument if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_value,
    compute_column=to_values,
    keeps_scale=True,
)
"""The total of x clamped to its interval, NULL and NaN left out; 0 over no rows.

Claim: one row of x in [L, U] moves it by at most max(|L|, |U|).
Why: the row contributes one clamped value.
Source: Dwork, McSherry, Nissim, Smith 2006, Definition 3.
"""
