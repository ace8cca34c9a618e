"""COUNT(DISTINCT unit)."""

from __future__ import annotations

from dpsql.aggregates.base import Aggregate, Estimates, Moment, number, numbers
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return number(estimates[Moment.UNITS], kind)


COUNT_UNITS = Aggregate(
    "count_units",
    "COUNT(DISTINCT unit)",
    (Moment.UNITS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _value,
    column=numbers,
)
"""The number of distinct privacy units.

Claim: one privacy unit moves each group's count by at most one, and only the groups in which it counts.
Why: it is one element of a set.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""
