"""SUM(DISTINCT x)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.DISTINCT_TOTAL], kind)


SUM_DISTINCT = Aggregate(
    "sum_distinct",
    "SUM(DISTINCT x)",
    (Moment.DISTINCT_TOTAL,),
    lambda argument: argument if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_value,
    compute_column=to_values,
    keeps_scale=True,
)
"""The total of the values of x in [L, U], each once; NULL and NaN left out.

Claim: one privacy unit moves it, in all groups together, by at most max(|L|, |U|) times the number of its pairs of a group
and a value that count.
Why: the values of a group are the union over units; one more unit adds to it those that no other has, each of which
adds itself to the total.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union); Dwork, McSherry, Nissim, Smith 2006, Definition 3.
"""
