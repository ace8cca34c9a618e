"""Parts and truncations of dates and timestamps.

A DATE counts as its ordinal and a TIMESTAMP as microseconds since 1970 (`plan.interval`). The engine's
date arithmetic can leave its range at the far ends, so each function stands in TRY. They count as strict,
because columns are read within the years 1 to 9999: a row for which one of them gives NULL all the same
is left out where its key cannot be NULL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.functions.signatures import TEMPORAL, fixed
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval, position, timestamp_at
from dpsql.plan.types import Type

_TOTAL = "TRY gives NULL where the engine's calendar ends"

PARTS: dict[str, Interval | None] = {
    "year": None,
    "quarter": Interval(1, 4),
    "month": Interval(1, 12),
    "week": Interval(1, 53),
    "day": Interval(1, 31),
    "doy": Interval(1, 366),
    "dow": Interval(0, 6),
    "isodow": Interval(1, 7),
    "hour": Interval(0, 23),
    "minute": Interval(0, 59),
    "second": Interval(0, 59),
}
"""What EXTRACT can take out, with the range of each part; the year's follows from the argument's."""

TRUNCATIONS = ("year", "quarter", "month", "week", "day", "hour")
"""The units that DATE_TRUNC can round down to."""


def moment(kind: Type, at: Fraction) -> dt.datetime:
    """The timestamp at a position on the line of a DATE or TIMESTAMP interval."""
    if kind is Type.DATE:
        return dt.datetime.fromordinal(math.floor(at))
    return timestamp_at(at)


def truncate(unit: str, at: dt.datetime) -> dt.datetime:
    """DATE_TRUNC in Python.

    >>> truncate("week", dt.datetime(2026, 11, 21))
    datetime.datetime(2026, 11, 16, 0, 0)
    """
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    starts = {
        "year": lambda: day.replace(month=1, day=1),
        "quarter": lambda: day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "month": lambda: day.replace(day=1),
        "week": lambda: day - dt.timedelta(days=min(day.weekday(), day.toordinal() - 1)),
        "day": lambda: day,
        "hour": lambda: at.replace(minute=0, second=0, microsecond=0),
    }
    return starts[unit]()


def _year(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if not of[0].bounded:
        return Interval()
    low, high = (moment(arguments[0].type, end) for end in of[0].ends)
    return Interval(low.year, high.year)


def _part(name: str, span: Interval | None) -> Function:
    return Function(
        name,
        f"EXTRACT({name} FROM t)",
        fixed(Type.INTEGER, TEMPORAL),
        f"TRY(EXTRACT({name} FROM CAST({{0}} AS TIMESTAMP)))",
        _TOTAL,
        interval=_year if span is None else lambda _, __: span,
        strict=True,
    )


def _truncated(unit: str) -> Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]:
    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        if not of[0].bounded:
            return Interval()
        low, high = (position(truncate(unit, moment(arguments[0].type, end))) for end in of[0].ends)
        return Interval(low, high)

    return interval


ENTRIES = (
    *(_part(name, span) for name, span in PARTS.items()),
    *(
        Function(
            f"date_trunc_{unit}",
            f"DATE_TRUNC('{unit}', t)",
            fixed(Type.TIMESTAMP, TEMPORAL),
            f"TRY(DATE_TRUNC('{unit}', CAST({{0}} AS TIMESTAMP)))",
            _TOTAL,
            interval=_truncated(unit),
            strict=True,
        )
        for unit in TRUNCATIONS
    ),
)
