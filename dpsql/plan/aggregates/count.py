"""COUNT(x)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.COUNT], kind)


COUNT = Aggregate(
    "count",
    "COUNT(x)",
    (Moment.COUNT,),
    lambda argument: None if argument is None else Type.INTEGER,
    _compute_value,
    compute_column=to_values,
)
"""The number of rows in which x is not NULL. NaN counts as NULL.

Claim: one privacy unit moves it by at most the number of its rows that count.
Why: each row counts one or nothing.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""
