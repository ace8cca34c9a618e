"""Functions of moments that differ by a unit of time alone: which units they have, and what one is worth."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.backends.function_spellings import CallSpelling, Spelling
from dpsql.plan.expressions import Call, Literal

DAY = 86_400_000_000
"""The microseconds of a day."""
MONDAY = 946_857_600_000_000
"""The microseconds from 1970 to the third of January 2000, at which buckets of days begin in DuckDB."""
_MICROSECONDS = {
    "week": 7 * DAY,
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def find_bucket_width(call: Call, unit: int) -> int | None:
    """The width of the buckets of a call that has their number of units first; None where it is none, or too large."""
    times = call.arguments[0]
    width = unit * times.value if isinstance(times, Literal) and isinstance(times.value, int) else 0
    return width if 0 < width <= 2**62 else None


def define_time_buckets(
    define_bucket: Callable[[int, str], CallSpelling],
    define_month_bucket: Callable[[int, str], CallSpelling],
    moment: str,
) -> dict[str, CallSpelling]:
    """TIME_BUCKET of each unit, by its name in the registry; `moment` is the engine's type of moments.

    Buckets of days and longer units are of days, too.
    """
    clock = {unit: define_bucket(_MICROSECONDS[unit], moment) for unit in ("second", "minute", "hour")}
    of_days = {
        f"{unit}{end}": made(worth, kind)
        for end, kind in (("", moment), ("_of_days", "DATE"))
        for made, units in (
            (define_bucket, {unit: _MICROSECONDS[unit] for unit in ("day", "week")}),
            (define_month_bucket, _MONTHS),
        )
        for unit, worth in units.items()
    }
    return {f"time_bucket_{name}": bucket for name, bucket in {**clock, **of_days}.items()}


def define_full_differences(define_difference: Callable[[int], Spelling]) -> dict[str, Spelling]:
    """DATE_SUB of each unit that is always as long, by its name in the registry."""
    return {f"date_sub_{unit}": define_difference(worth) for unit, worth in _MICROSECONDS.items()}
