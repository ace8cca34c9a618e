"""COUNT(DISTINCT x)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.DISTINCT], kind)


COUNT_DISTINCT = Aggregate(
    "count_distinct",
    "COUNT(DISTINCT x)",
    (Moment.DISTINCT,),
    lambda argument: None if argument in (None, Type.NULL) else Type.INTEGER,
    _compute_value,
    compute_column=to_values,
)
"""The number of values of x, NULL and NaN left out.

Claim: one privacy unit moves it, in all groups together, by at most the number of its rows that count.
Why: so many pairs of a group and a value of each unit count, chosen by the unit's own rows; the values of
a group are the union over units, which one more unit enlarges by no more than what it brings.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union); Knop, Steinke 2023, "Counting
distinct elements under person-level differential privacy", section 1.
"""
