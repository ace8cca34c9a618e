"""COUNT(*)."""

from __future__ import annotations

from dpsql.aggregates.base import Aggregate, Estimates, Moment, number, numbers
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value


def _value(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return number(estimates[Moment.ROWS], kind)


COUNT_ROWS = Aggregate(
    "count_rows",
    "COUNT(*)",
    (Moment.ROWS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _value,
    column=numbers,
)
"""The number of rows.

Claim: one privacy unit moves it by at most the number of its rows that count.
Why: each row counts one.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""
