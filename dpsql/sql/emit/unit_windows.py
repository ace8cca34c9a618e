"""Emits window functions over the rows of one unit.

Claim: they depend on the rows of one unit alone, as a multiset, and cannot fail.
Why: the unit partitions every window. Where more than the order decides, rows that are equal in it are ordered by all their
items, which have one form for each value, so that rows that are still equal are alike. Sums are of whole numbers.
Source: ISO/IEC 9075-2, <window function>, on what is implementation-dependent; Mironov 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.aggregates.per_unit import WITHIN
from dpsql.aggregates.windows import OVER
from dpsql.plan.expr import Column, Expr, Frame, FrameKind, Literal, Order, Windowed
from dpsql.plan.nodes import PerUnitAggregate
from dpsql.plan.render import frame_text
from dpsql.sql.emit.dialect import dialect
from dpsql.sql.emit.per_unit_aggregates import one_zero, per_unit_aggregate, within_interval
from dpsql.sql.emit.scalars import cast, ordered, write

_PLACED = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the place of a row among all."""
_CHOSEN = frozenset({"first_value", "last_value", "nth_value"})
"""Functions that choose a row of the frame by its place."""
_RANKED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions of the place of a row among those that differ in order."""


def unit_window(window: Windowed, named: Column, unit: str, items: Sequence[Column]) -> str:
    """A window over the rows of one unit, of the type and in the interval of the column as which it is known."""
    over = f" OVER ({_over(window, unit, items)})"
    if window.function in WITHIN:
        function = window.function if window.arguments else "count_rows"
        aggregate = PerUnitAggregate(function, next(iter(window.arguments), None))
        return per_unit_aggregate(aggregate, named, {}, over)
    counts = [place for place, _ in OVER[window.function].counts]
    arguments = [
        (str(argument.value) if isinstance(argument, Literal) else write(argument))
        if place in counts
        else _argument(argument, window)
        for place, argument in enumerate(window.arguments)
    ]
    text = dialect().window(window.function, arguments, over, ignore_nulls=window.ignore_nulls)
    return within_interval(text, named)


def _argument(argument: Expr, window: Windowed) -> str:
    text = one_zero(argument)
    return text if argument.type is window.type else cast(text, window.type)


def _over(window: Windowed, unit: str, items: Sequence[Column]) -> str:
    """The partition, which is of one unit, the order and the frame."""
    by_place = window.function in _PLACED | _CHOSEN
    kind = window.frame.kind if window.frame is not None and OVER[window.function].framed else None
    order = [ordered(item) for item in window.order]
    if by_place or kind is FrameKind.ROWS:
        order += [ordered(Order(item, descending=False, nulls_first=False)) for item in items]
    if (window.function in _RANKED or kind is FrameKind.GROUPS) and not order:
        order = [unit]  # not every engine ranks or groups rows without an order
    parts = [f"PARTITION BY {', '.join([unit, *map(write, window.partition)])}"]
    parts += [f"ORDER BY {', '.join(order)}"] * bool(order)
    frame = _frame(window)
    return " ".join([*parts, *([] if frame is None else [frame])])


def _frame(window: Windowed) -> str | None:
    """The frame: none where it changes nothing, and one of ROWS where a function chooses among rows that are equal in order."""
    if not OVER[window.function].framed:
        return None
    if window.function in _CHOSEN:
        return frame_text(rows_frame(window))
    return None if window.frame is None else frame_text(window.frame)


def rows_frame(window: Windowed) -> Frame:
    """The frame of a function that chooses a row: one of ROWS."""
    frame = window.frame
    if frame is not None and frame.kind is FrameKind.ROWS:
        return frame
    whole = not window.order if frame is None else frame.last is None
    return Frame(FrameKind.ROWS, None, None if whole else 0)
