"""SUM(x)."""

from __future__ import annotations

from dpsql.aggregates.base import Aggregate, Estimates, Moment, number, numbers
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return number(estimates[Moment.TOTAL], kind)


SUM = Aggregate(
    "sum",
    "SUM(x)",
    (Moment.TOTAL,),
    lambda argument: argument if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _value,
    column=numbers,
    keeps_scale=True,
)
"""The total of x clamped to its interval, NULL and NaN left out; 0 over no rows.

Claim: one row of x in [L, U] moves it by at most max(|L|, |U|).
Why: the row contributes one clamped value.
Source: Dwork, McSherry, Nissim, Smith 2006, Definition 3.
"""
