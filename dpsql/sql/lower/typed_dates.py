"""Lower the calls of dates and moments that translations of other dialects write, by the types of their arguments.

Claim: each becomes an expression of the function registry that has the dialect's meaning for arguments of these types.
Why: the registry's functions cannot fail on any row, and which of them is taken depends on types alone, never on values.
Source: the manuals of PostgreSQL 17 (9.9), Transact-SQL, Spark 4 SQL, Snowflake and GoogleSQL on dates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Protocol

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.typed_calls import (
    AGE,
    BINNED,
    CUT,
    ELAPSED,
    MONTHS,
    MONTHS_BETWEEN,
    MOVED,
    OVERLAPPING,
    WEEK_CUT,
    WEEK_NUMBER,
    WEEKS,
)

_DAY_IN_MICROSECONDS = 86_400_000_000
_PARTS: Mapping[str, int] = {
    "day": _DAY_IN_MICROSECONDS,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}
"""The parts of a length of time, in microseconds."""
_BIN_LENGTHS = {"week": 7 * 86_400, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
"""The seconds of units of bins."""
_BIN_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_ORIGIN, _ORIGIN_OF_MONTHS = dt.datetime(2000, 1, 3), 2000 * 12  # noqa: DTZ001  (SQL timestamps have no zone)
"""The moment, and the month, from which TIME_BUCKET counts."""
_MICROSECOND = dt.timedelta(microseconds=1)
_MONDAY_AGAIN = 7
"""The days of a week."""


class ScalarLowering(Protocol):
    """What lowers the nodes within a call."""

    @property
    def source(self) -> QueryText:
        """Return the text of the query."""
        ...

    def lower(self, node: exp.Expr) -> Expr:
        """Return the expression that a node means."""

    def build_call(self, node: exp.Expr, name: str, *arguments: Expr) -> Expr:
        """Build the typed call of a function."""


def _lower_moved(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower DATEADD: a date moved by days or longer units is a date, and a moment is one."""
    unit, moment, count = items[0].name, scalars.lower(items[1]), scalars.lower(items[2])
    return _keep_date(scalars, node, unit, moment, scalars.build_call(node, f"plus_{unit}", moment, count))


def _lower_cut(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower DATE_TRUNC, which is a date of a date."""
    unit, moment = items[0].name, scalars.lower(items[1])
    return _keep_date(scalars, node, unit, moment, scalars.build_call(node, f"date_trunc_{unit}", moment))


def _keep_date(scalars: ScalarLowering, node: exp.Expr, unit: str, moment: Expr, found: Expr) -> Expr:
    is_date = moment.type is Type.DATE and unit not in _PARTS.keys() - {"day"}
    return scalars.build_call(node, "cast_date", found) if is_date else found


def _lower_elapsed(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower EXTRACT of a difference of two moments; the difference of two dates is a whole number instead."""
    part, later, earlier = items[0].name, scalars.lower(items[1]), scalars.lower(items[2])
    if {later.type, earlier.type} <= {Type.DATE, Type.NULL}:
        scalars.source.refuse(
            node,
            "type",
            "the difference of two dates is a whole number of days, which has no parts",
            "write d - e alone",
        )
    elapsed = scalars.build_call(node, "date_diff_microsecond", earlier, later)
    if part == "epoch":
        return scalars.build_call(node, "/", elapsed, Literal(1_000_000, Type.INTEGER))
    length = _PARTS[part]
    if part != "day":
        larger = min(known for known in _PARTS.values() if known > length)
        elapsed = scalars.build_call(node, "%", elapsed, Literal(larger, Type.INTEGER))
    if part == "second":
        return scalars.build_call(node, "/", elapsed, Literal(length, Type.INTEGER))
    return scalars.build_call(node, "//", elapsed, Literal(length, Type.INTEGER))


def _lower_age(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower the years or months of AGE(x, y): whole months, counted from the earlier moment, and negative if x is earlier."""
    part, x, y = items[0].name, scalars.lower(items[1]), scalars.lower(items[2])
    months = _count_months(scalars, node, x, y)
    return scalars.build_call(node, "//" if part == "year" else "%", months, Literal(12, Type.INTEGER))


def _count_months(scalars: ScalarLowering, node: exp.Expr, x: Expr, y: Expr) -> Expr:
    """Count the whole months from y to x, negative if x is earlier.

    Why: between two moments lie as many whole months as first days of months, and one less if the later moment is not as far in its
    month as the earlier one.
    """
    call = scalars.build_call
    x, y = (call(node, "cast_timestamp", side) for side in (x, y))

    def count_months(later: Expr, earlier: Expr) -> Expr:
        boundaries = call(node, "date_diff_month", earlier, later)
        rests = [
            call(node, "date_diff_microsecond", call(node, "date_trunc_month", side), side)
            for side in (later, earlier)
        ]
        one, none = Literal(1, Type.INTEGER), Literal(0, Type.INTEGER)
        return call(node, "-", boundaries, call(node, "case", call(node, "lt", *rests), one, none))

    return call(
        node, "case", call(node, "ge", x, y), count_months(x, y), call(node, "negate", count_months(y, x))
    )


def _lower_months(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower the whole months, quarters or years between two moments, as java.time counts them.

    A day is taken from, or added to, the end if its time of the day does not reach the beginning's; then the months are whole
    where the day of the month is reached.

    Source: java.time.LocalDateTime.until and LocalDate.until.
    """
    call = scalars.build_call
    length, end, start = int(items[0].name), *map(scalars.lower, items[1:])
    days = [call(node, "cast_date", side) for side in (end, start)]
    times = [
        call(node, "date_diff_microsecond", call(node, "date_trunc_day", side), side) for side in (end, start)
    ]
    one, none = Literal(1, Type.INTEGER), Literal(0, Type.INTEGER)
    shift = call(
        node,
        "case",
        call(node, "and", call(node, "gt", *days), call(node, "lt", *times)), Literal(-1, Type.INTEGER),
        call(node, "and", call(node, "lt", *days), call(node, "gt", *times)), one,
        none,
    )  # fmt: skip
    last = call(node, "+", days[0], shift)
    boundaries = call(node, "date_diff_month", days[1], last)
    rest = call(node, "-", call(node, "day", last), call(node, "day", days[1]))
    packed = call(node, "+", call(node, "*", boundaries, Literal(32, Type.INTEGER)), rest)
    return call(node, "//", packed, Literal(32 * length, Type.INTEGER))


# Weeks that begin on any day.


def _find_first_day(scalars: ScalarLowering, node: exp.Expr, start: int, moment: Expr) -> Expr:
    """Return the first day of a week that begins on a day, 0 for Monday: both are moved by the days until Monday."""
    shift = (_MONDAY_AGAIN - start) % _MONDAY_AGAIN
    if not shift:
        return scalars.build_call(node, "date_trunc_week", moment)
    moved = scalars.build_call(node, "plus_day", moment, Literal(shift, Type.INTEGER))
    cut = scalars.build_call(node, "date_trunc_week", moved)
    return scalars.build_call(node, "plus_day", cut, Literal(-shift, Type.INTEGER))


def _lower_week_cut(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower DATE_TRUNC to a week, which is a date of a date."""
    moment = scalars.lower(items[1])
    return _keep_date(
        scalars, node, "week", moment, _find_first_day(scalars, node, int(items[0].name), moment)
    )


def _lower_weeks(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower the number of weeks that begin between two moments: the days between the first days of their weeks, over 7.

    DuckDB's own number of weeks takes the weeks around 1970-01-01 for one.
    """
    start = int(items[0].name)
    later, earlier = (_find_first_day(scalars, node, start, scalars.lower(item)) for item in items[1:])
    days = scalars.build_call(node, "date_diff_day", earlier, later)
    return scalars.build_call(node, "//", days, Literal(_MONDAY_AGAIN, Type.INTEGER))


def _lower_week_number(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower the number of a week from the day of the year on which it begins, which is at most 0 before January 1."""
    call, moment = scalars.build_call, scalars.lower(items[2])
    start, added = int(items[0].name), int(items[1].name)
    seven = Literal(_MONDAY_AGAIN, Type.INTEGER)
    weekday = call(node, "+", call(node, "isodow", moment), Literal((6 - start) % 7, Type.INTEGER))
    first = call(node, "-", call(node, "doy", moment), call(node, "%", weekday, seven))
    return call(node, "//", call(node, "+", first, Literal(added, Type.INTEGER)), seven)


# Bins of equal length.


def _lower_binned(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower a moment's bin: the moment is moved by the distance of the origin from the beginning of a bin of TIME_BUCKET, and back."""
    unit, count, moment = items[0].name, int(items[1].name), scalars.lower(items[2])
    origin, keeps_date = dt.datetime.fromisoformat(items[3].name), bool(items[4].this)
    if unit in _PARTS.keys() - {"day"}:
        moment = scalars.build_call(node, "cast_timestamp", moment)
    months = _BIN_MONTHS.get(unit)
    if months is not None:
        if (origin.day, origin.time()) != (1, dt.time()):
            scalars.source.refuse(
                node,
                "constant",
                "bins of months must be counted from the first day of a month",
                "choose an origin such as DATE '2024-01-01'",
            )
        apart = (origin.year * 12 + origin.month - 1 - _ORIGIN_OF_MONTHS) % (months * count)
        step = "month"
    else:
        length = _BIN_LENGTHS[unit] * count
        apart = (origin - _ORIGIN) // _MICROSECOND % (length * _PARTS["second"])
        apart, step = (
            (apart // _DAY_IN_MICROSECONDS, "day")
            if apart % _DAY_IN_MICROSECONDS == 0
            else (apart, "microsecond")
        )
    found = _bin_moved(scalars, node, moment, (unit, count), (step, apart))
    if keeps_date:
        return _keep_date(scalars, node, unit, moment, found)
    return scalars.build_call(node, "cast_timestamp", found)


def _bin_moved(
    scalars: ScalarLowering, node: exp.Expr, moment: Expr, size: tuple[str, int], shift: tuple[str, int]
) -> Expr:
    """Return the bin of a moment that is moved back by a shift, and forward again."""
    (unit, count), (step, apart) = size, shift
    call, length = scalars.build_call, Literal(count, Type.INTEGER)
    if not apart:
        return call(node, f"time_bucket_{unit}", length, moment)
    back = call(node, f"plus_{step}", moment, Literal(-apart, Type.INTEGER))
    return call(
        node, f"plus_{step}", call(node, f"time_bucket_{unit}", length, back), Literal(apart, Type.INTEGER)
    )


# The months between two moments, and spans that overlap.


def _lower_months_between(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower MONTHS_BETWEEN: whole months between equal days and between last days, else a fraction of months of 31 days."""
    call, is_rounded = scalars.build_call, bool(items[0].this)
    later, earlier = map(scalars.lower, items[1:])
    months = call(node, "date_diff_month", earlier, later)
    days = [call(node, "day", side) for side in (later, earlier)]
    last = [call(node, "day", call(node, "last_day", side)) for side in (later, earlier)]
    are_last = [call(node, "eq", day, end) for day, end in zip(days, last, strict=True)]
    whole = call(node, "or", call(node, "eq", *days), call(node, "and", *are_last))
    times = [
        call(node, "date_diff_second", call(node, "date_trunc_day", side), side) for side in (later, earlier)
    ]
    seconds = call(
        node,
        "+",
        call(node, "*", call(node, "-", *days), Literal(86_400, Type.INTEGER)),
        call(node, "-", *times),
    )
    exact = call(node, "cast_double", months)
    part = call(node, "+", exact, call(node, "/", seconds, Literal(31 * 86_400, Type.INTEGER)))
    rounded = call(node, "round", part, Literal(8, Type.INTEGER)) if is_rounded else part
    return call(node, "case", whole, exact, rounded)


def _lower_overlapping(scalars: ScalarLowering, node: exp.Expr, items: list[exp.Expr]) -> Expr:
    """Lower OVERLAPS: the later beginning comes before the other end, or both begin together; NULL where a missing end decides.

    Source: PostgreSQL 17, src/backend/utils/adt/timestamp.c, overlaps_timestamp.
    """
    call = scalars.build_call
    a, b, c, d = map(scalars.lower, items)
    yes, no, null = (
        Literal(value=True, type=Type.BOOLEAN),
        Literal(value=False, type=Type.BOOLEAN),
        Literal(None, Type.NULL),
    )
    (low, high), (start, end) = (
        (
            call(node, "least", x, y),
            call(
                node,
                "case",
                call(node, "and", _is_known(call, node, x), _is_known(call, node, y)),
                call(node, "greatest", x, y),
                null,
            ),
        )
        for x, y in ((a, b), (c, d))
    )
    both = call(node, "and", _is_known(call, node, high), _is_known(call, node, end))
    apart = call(node, "case", both, no, null)
    return call(
        node,
        "case",
        call(node, "gt", low, start), call(node, "case", call(node, "lt", low, end), yes, apart),
        call(node, "lt", low, start), call(node, "case", call(node, "lt", start, high), yes, apart),
        call(node, "eq", low, start), call(node, "case", both, yes, null),
        null,
    )  # fmt: skip


def _is_known(call: Callable[..., Expr], node: exp.Expr, value: Expr) -> Expr:
    return call(node, "not", call(node, "is_null", value))


DATE_LOWERINGS: Mapping[str, Callable[[ScalarLowering, exp.Expr, list[exp.Expr]], Expr]] = {
    MOVED: _lower_moved,
    CUT: _lower_cut,
    ELAPSED: _lower_elapsed,
    AGE: _lower_age,
    MONTHS: _lower_months,
    WEEK_CUT: _lower_week_cut,
    WEEKS: _lower_weeks,
    WEEK_NUMBER: _lower_week_number,
    BINNED: _lower_binned,
    MONTHS_BETWEEN: _lower_months_between,
    OVERLAPPING: _lower_overlapping,
}
