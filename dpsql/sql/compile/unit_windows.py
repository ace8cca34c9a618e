"""Emit window functions over the rows of one unit.

Claim: they depend on the rows of one unit alone, as a multiset, and cannot fail.
Why: the unit partitions every window. Where more than the order decides, rows that are equal in it are ordered by all their
items, which have one form for each value, so that rows that are still equal are alike. Sums are of whole numbers.
Source: ISO/IEC 9075-2, <window function>, on what is implementation-dependent; Mironov 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Column, Expr, Frame, FrameKind, Literal, Order, WindowCall
from dpsql.plan.nodes import PerUnitAggregate
from dpsql.plan.render import format_frame
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.per_unit_aggregates import (
    emit_per_unit_aggregate,
    emit_with_unsigned_zero,
    emit_within_interval,
)
from dpsql.sql.compile.scalars import emit_cast, emit_expression, emit_order_item

_PLACED = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the place of a row among all."""
_CHOSEN = frozenset({"first_value", "last_value", "nth_value"})
"""Functions that select a row of the frame by its place."""
_RANKED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions of the place of a row among those that differ in order."""


def emit_unit_window(window: WindowCall, named: Column, unit: str, items: Sequence[Column]) -> str:
    """Return a window over the rows of one unit, in the type and interval of its column."""
    over = f" OVER ({_emit_window_clause(window, unit, items)})"
    if window.function in WITHIN:
        function = window.function if window.arguments else "count_rows"
        aggregate = PerUnitAggregate(function, next(iter(window.arguments), None))
        return emit_per_unit_aggregate(aggregate, named, {}, over)
    counts = [place for place, _ in OVER[window.function].least_constants]
    arguments = [
        (str(argument.value) if isinstance(argument, Literal) else emit_expression(argument))
        if place in counts
        else _emit_argument(argument, window)
        for place, argument in enumerate(window.arguments)
    ]
    text = get_dialect().emit_window_call(window.function, arguments, over, ignore_nulls=window.ignore_nulls)
    return emit_within_interval(text, named)


def _emit_argument(argument: Expr, window: WindowCall) -> str:
    text = emit_with_unsigned_zero(argument)
    return text if argument.type is window.type else emit_cast(text, window.type)


def _emit_window_clause(window: WindowCall, unit: str, items: Sequence[Column]) -> str:
    """Return the partition, which is of one unit, the order and the frame."""
    by_place = window.function in _PLACED | _CHOSEN
    kind = window.frame.kind if window.frame is not None and OVER[window.function].depends_on_frame else None
    order = [emit_order_item(item) for item in window.order]
    if by_place or kind is FrameKind.ROWS:
        order += [emit_order_item(Order(item, descending=False, nulls_first=False)) for item in items]
    if (window.function in _RANKED or kind is FrameKind.GROUPS) and not order:
        order = [unit]  # not every engine ranks or groups rows without an order
    parts = [f"PARTITION BY {', '.join([unit, *map(emit_expression, window.partition)])}"]
    parts += [f"ORDER BY {', '.join(order)}"] * bool(order)
    frame = _emit_frame(window)
    return " ".join([*parts, *([] if frame is None else [frame])])


def _emit_frame(window: WindowCall) -> str | None:
    """Return the frame: none where it changes nothing, and one of ROWS where a function chooses among rows that are equal in order."""
    if not OVER[window.function].depends_on_frame:
        return None
    if window.function in _CHOSEN:
        return format_frame(build_rows_frame(window))
    return None if window.frame is None else format_frame(window.frame)


def build_rows_frame(window: WindowCall) -> Frame:
    """Build the frame of a function that chooses a row: one of ROWS."""
    frame = window.frame
    if frame is not None and frame.kind is FrameKind.ROWS:
        return frame
    whole = not window.order if frame is None else frame.last is None
    return Frame(FrameKind.ROWS, None, None if whole else 0)
