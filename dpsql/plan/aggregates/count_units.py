"""COUNT(DISTINCT unit)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.UNITS], kind)


COUNT_UNITS = Aggregate(
    "count_units",
    "COUNT(DISTINCT unit)",
    (Moment.UNITS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _compute_value,
    compute_column=to_values,
)
"""The number of distinct privacy units.

Claim: one privacy unit moves each group's count by at most one, and only the groups in which it counts.
Why: it is one element of a set.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""
