"""Emit window functions over the rows of one unit.

Claim: they depend on the rows of one unit alone, as a multiset, and cannot fail.
Why: the unit partitions every window. Where more than the order decides, rows that are equal in it are ordered by all their
items, which have one form for each value, so that rows that are still equal are alike. Sums are of whole numbers.
Source: ISO/IEC 9075-2, <window function>, on what is implementation-dependent; Mironov 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.stability import MAX_ROWS
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Column,
    ColumnInfo,
    Expr,
    Frame,
    FrameKind,
    Literal,
    Order,
    WindowCall,
    substitute_columns,
)
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitAggregate, PerUnitWindows, Project
from dpsql.plan.text import format_frame
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.per_unit_aggregates import (
    build_call,
    build_integer,
    emit_per_unit_aggregate,
    emit_within_interval,
)

_PLACED = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the place of a row among all."""
_CHOSEN = frozenset({"first_value", "last_value", "nth_value"})
"""Functions that select a row of the frame by its place."""
_RANKED = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions of the place of a row among those that differ in order."""


def emit_unit_window(
    compiler: Compiler, window: WindowCall, named: Column, unit: str, items: Sequence[Column]
) -> str:
    """Return a window over the rows of one unit, in the type and interval of its column."""
    over = f" OVER ({_emit_window_clause(compiler, window, unit, items)})"
    if window.function in WITHIN:
        function = window.function if window.arguments else "count_rows"
        aggregate = PerUnitAggregate(function, next(iter(window.arguments), None))
        return emit_per_unit_aggregate(compiler, aggregate, named, {}, over)
    counts = [place for place, _ in OVER[window.function].least_constants]
    arguments = [
        (str(argument.value) if isinstance(argument, Literal) else compiler.emit_expression(argument))
        if place in counts
        else _emit_argument(compiler, argument, window)
        for place, argument in enumerate(window.arguments)
    ]
    text = compiler.dialect.functions.emit_window_call(
        window.function, arguments, over, ignore_nulls=window.ignore_nulls
    )
    return emit_within_interval(compiler, text, named)


def _emit_argument(compiler: Compiler, argument: Expr, window: WindowCall) -> str:
    text = compiler.emit_with_unsigned_zero(argument)
    return text if argument.type is window.type else compiler.emit_cast(text, window.type)


def _emit_window_clause(compiler: Compiler, window: WindowCall, unit: str, items: Sequence[Column]) -> str:
    """Return the partition, which is of one unit, the order and the frame."""
    by_place = window.function in _PLACED | _CHOSEN
    kind = window.frame.kind if window.frame is not None and OVER[window.function].depends_on_frame else None
    order = [compiler.emit_order_item(item) for item in window.order]
    if by_place or kind is FrameKind.ROWS:
        order += [
            compiler.emit_order_item(Order(item, descending=False, nulls_first=False)) for item in items
        ]
    if (window.function in _RANKED or kind is FrameKind.GROUPS) and not order:
        order = [unit]  # not every engine ranks or groups rows without an order
    parts = [f"PARTITION BY {', '.join([unit, *map(compiler.emit_expression, window.partition)])}"]
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


# Windows over windows within a unit: a second step reads the columns of a first one.


ColumnMapping = Mapping[Column, Column]
"""The columns of a step by what they are above it, or below."""


def build_two_steps(
    source: PerUnitWindows,
    alias: str,
    first: Mapping[Column, WindowCall],
    second: Sequence[WindowCall],
    show: Callable[[WindowCall, Column, ColumnMapping], Expr] = lambda _, value, __: value,
) -> Project:
    """Build the rows of `source` with the windows of `second` in place of its own, in a step of that alias over one with the columns `first`.

    `show` makes what is shown of a window of `source`, the value of the second step, and the columns of that step.

    Claim: the rows are the same, with the values of the second step under the names that they had.
    Why: both steps have all items of the rows, in one form for each value, so that rows that are equal in one are equal in the
    other.
    Source: ISO/IEC 9075-2, <window function>, over a derived table.
    """
    own, asked = source.columns[: len(source.items)], source.columns[len(source.items) :]
    below = next(iter(first)).source
    inner = _rename_columns(own, below, "i")
    windows = tuple(_substitute_columns(window, inner) for window in first.values())
    counted = PerUnitWindows(source.input, below, source.items, windows, (*inner.values(), *first))
    outer = _rename_columns(own, alias, "i") | _rename_columns(tuple(first), alias, "n")
    values = tuple(_rename_columns(asked, alias, "w").values())
    windows = tuple(_substitute_columns(window, outer) for window in second)
    taken = PerUnitWindows(counted, alias, counted.columns, windows, (*outer.values(), *values))
    columns = (show(window, value, outer) for window, value in zip(source.windows, values, strict=True))
    return Project(taken, source.alias, (*(outer[column] for column in own), *columns), source.columns)


def _rename_columns(columns: Sequence[Column], source: str, letter: str) -> dict[Column, Column]:
    """Replace these columns by those of another source."""
    return {column: Column(source, f"{letter}{place}", column.facts) for place, column in enumerate(columns)}


def _substitute_columns(window: WindowCall, read: ColumnMapping) -> WindowCall:
    """Return the window over other columns."""
    return replace(
        window,
        arguments=tuple(substitute_columns(part, read) for part in window.arguments),
        partition=tuple(substitute_columns(part, read) for part in window.partition),
        order=tuple(replace(part, expr=substitute_columns(part.expr, read)) for part in window.order),
    )


# Rewrite frames of GROUPS in windows within a unit as ranges of ranks, for engines without GROUPS.


_RANKED_FRAMES, _RANGED = "#ranked", "#ranged"


def rewrite_group_frames(source: PerUnitWindows) -> Project | None:
    """Return the same rows and windows without frames of GROUPS; None if there are none.

    Claim: a window has the rows that it has in a frame of GROUPS.
    Why: rows that are equal in order have one DENSE_RANK, and the groups of a partition have the ranks from 1 on, in their order.
    So the groups up to n away from a row's own are those whose ranks are up to n away from its own, which is what a frame of RANGE
    over ranks says.
    Source: ISO/IEC 9075-2, <window frame clause>.
    """
    ranks = dict.fromkeys(_build_rank_window(window) for window in source.windows if _has_group_frame(window))
    if not ranks:
        return None
    numbered = ColumnInfo(Type.INTEGER, "", Interval(1, MAX_ROWS), nullable=False)
    columns = {rank: Column(_RANKED_FRAMES, f"r{place}", numbered) for place, rank in enumerate(ranks)}
    ranged = [
        _build_range_window(window, window.frame, columns[_build_rank_window(window)])
        if window.frame is not None and _has_group_frame(window)
        else window
        for window in source.windows
    ]
    return build_two_steps(source, _RANGED, {column: rank for rank, column in columns.items()}, ranged)


def _has_group_frame(window: WindowCall) -> bool:
    """Return whether the function adds up, or compares, the rows of groups: others go by a place, or take a frame of ROWS."""
    return window.function in WITHIN and window.frame is not None and window.frame.kind is FrameKind.GROUPS


def _build_rank_window(window: WindowCall) -> WindowCall:
    """Build the window that numbers the groups."""
    return WindowCall("dense_rank", (), window.partition, window.order, None, False, Type.INTEGER)


def _build_range_window(window: WindowCall, frame: Frame, rank: Column) -> WindowCall:
    """Build the window over a range of ranks."""
    order = (Order(rank, descending=False, nulls_first=False),)
    return replace(window, order=order, frame=replace(frame, kind=FrameKind.RANGE))


# Rewrite IGNORE NULLS in windows within a unit by counting rows, for engines without it.


_COUNTED, _TAKEN = "#counted", "#taken"
_WHOLE, _HERE, _SO_FAR = (Frame(FrameKind.ROWS, *ends) for ends in ((None, None), (0, 0), (None, 0)))


def rewrite_ignore_nulls(source: PerUnitWindows) -> Project | None:
    """Return the same rows and windows without IGNORE NULLS; None if there is none.

    Claim: the value is the one of the window function with IGNORE NULLS.
    Why: a frame of n values, up to whose last row there are k values of the partition, has those from k - n + 1 to k. Up to a row
    there are k values; before it k, or k - 1 if it has one itself, and after it those from k + 1 on. In the order in which rows
    without a value come last, and all else is as it was, the i-th value is in row i. Both orders are alike but for rows that are
    equal in all items.
    Source: ISO/IEC 9075-2, <null treatment>, of <lead or lag function>, <first or last value function> and <nth value function>.

    Raises QueryRejected, with code `engine`, for frames from which rows are excluded.
    """
    if not any(window.ignore_nulls for window in source.windows):
        return None
    counts = _ValueCounts()
    taken = [counts.rewrite_window(window) for window in source.windows]
    first = dict(zip(counts.columns, counts.windows, strict=True))
    return build_two_steps(source, _TAKEN, first, taken, _add_default)


@dataclass(frozen=True)
class _ValueCounts:
    """The windows that count values, each once."""

    windows: list[WindowCall] = field(default_factory=list)

    @property
    def columns(self) -> list[Column]:
        """Return the columns of the counts."""
        return [
            Column(_COUNTED, f"n{place}", ColumnInfo(Type.INTEGER, "", derive_interval(window)))
            for place, window in enumerate(self.windows)
        ]

    def rewrite_window(self, window: WindowCall) -> WindowCall:
        """Return the window without IGNORE NULLS, over the items and the counts."""
        if not window.ignore_nulls:
            return window
        here = self._add_count_column(window, _HERE)
        if window.function in ("lag", "lead"):
            (steps,) = (
                part.value
                for part in (*window.arguments[1:2], build_integer(1))[:1]
                if isinstance(part, Literal)
            )
            if steps == 0:
                return replace(window, arguments=window.arguments[:2], ignore_nulls=False)
            place = self._build_offset_place(window, here, build_integer(int(str(steps))))
        else:
            place = self._build_frame_place(window)
        first = Order(here, descending=True, nulls_first=False)
        return WindowCall(
            "nth_value",
            (window.arguments[0], place),
            window.partition,
            (first, *window.order),
            _WHOLE,
            False,
            window.type,
        )

    def _build_offset_place(self, window: WindowCall, here: Column, steps: Literal) -> Expr:
        """Build the place of the value that LAG or LEAD takes, counted among the values."""
        so_far = self._add_count_column(window, _SO_FAR)
        if window.function == "lead":
            return build_call("add", so_far, steps)
        before = build_call("subtract", so_far, here)
        return build_call("subtract", build_call("add", before, build_integer(1)), steps)

    def _build_frame_place(self, window: WindowCall) -> Expr:
        """Build the place of the first, last or n-th value of the frame; NULL if it has none."""
        frame = build_rows_frame(window)
        if frame.exclude:
            raise QueryRejected(
                "this engine does not support IGNORE NULLS in frames with EXCLUDE",
                code="engine",
                hint="leave out EXCLUDE, or use DuckDB",
            )
        many, last = (
            self._add_count_column(window, frame),
            self._add_count_column(window, replace(frame, first=None)),
        )
        nth = window.arguments[1] if window.function == "nth_value" else build_integer(1)
        first = build_call("add", build_call("subtract", last, many), nth)
        place = last if window.function == "last_value" else first
        return build_call("case", build_call("ge", many, nth), place, Literal(None, Type.NULL))

    def _add_count_column(self, window: WindowCall, frame: Frame) -> Column:
        """Return the column with the number of values of the rows of a frame."""
        counting = WindowCall(
            "count", window.arguments[:1], window.partition, window.order, frame, False, Type.INTEGER
        )
        if counting not in self.windows:
            self.windows.append(counting)
        return self.columns[self.windows.index(counting)]


def _add_default(window: WindowCall, value: Column, read: ColumnMapping) -> Expr:
    """Return the value that LAG or LEAD finds, or its default."""
    if not window.ignore_nulls or len(window.arguments) < 3 or window.arguments[1] == build_integer(0):
        return value
    return build_call("coalesce", value, substitute_columns(window.arguments[2], read))
