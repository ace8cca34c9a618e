"""COUNT(*)."""

from __future__ import annotations

from dpsql.plan.aggregates.base import Aggregate, Estimates, Moment, to_value, to_values
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _compute_value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.ROWS], kind)


COUNT_ROWS = Aggregate(
    "count_rows",
    "COUNT(*)",
    (Moment.ROWS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _compute_value,
    compute_column=to_values,
)
"""The number of rows.

Claim: one privacy unit moves it by at most the number of its rows that count.
Why: each row counts one.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""
