"""Rewrite IGNORE NULLS in windows within a unit by counting rows, for engines without it.

Claim: the value is the one of the window function with IGNORE NULLS.
Why: a frame of n values, up to whose last row there are k values of the partition, has those from k - n + 1 to k. Up to a row there
are k values; before it k, or k - 1 if it has one itself, and after it those from k + 1 on. In the order in which rows without a value
come last, and all else is as it was, the i-th value is in row i. Both orders are alike but for rows that are equal in all items.
Source: ISO/IEC 9075-2, <null treatment>, of <lead or lag function>, <first or last value function> and <nth value function>.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dpsql.analysis.intervals import derive_interval
from dpsql.errors import QueryRejected
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
from dpsql.plan.nodes import PerUnitWindows, Project
from dpsql.plan.types import Type
from dpsql.sql.compile.nested_windows import ColumnMapping, build_two_steps
from dpsql.sql.compile.ranked_aggregates import build_call, build_integer
from dpsql.sql.compile.unit_windows import build_rows_frame

_COUNTED, _TAKEN = "#counted", "#taken"
_WHOLE, _HERE, _SO_FAR = (Frame(FrameKind.ROWS, *ends) for ends in ((None, None), (0, 0), (None, 0)))


def rewrite_ignore_nulls(source: PerUnitWindows) -> Project | None:
    """Return the same rows and windows without IGNORE NULLS; None if there is none.

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
        """The columns of the counts."""
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
