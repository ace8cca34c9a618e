"""IGNORE NULLS in windows within a unit, for engines that do not have it: of counted rows.

Claim: the value is the one of the window function with IGNORE NULLS.
Why: a frame of n values, up to whose last row there are k values of the partition, has those from k - n + 1 to k. Up to a row there
are k values; before it k, or k - 1 if it has one itself, and after it those from k + 1 on. In the order in which rows without a value
come last, and all else is as it was, the i-th value is in row i. Both orders are alike but for rows that are equal in all items.
Source: ISO/IEC 9075-2, <null treatment>, of <lead or lag function>, <first or last value function> and <nth value function>.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dpsql.analysis.intervals import interval
from dpsql.errors import QueryRejected
from dpsql.plan.expr import Column, Expr, Facts, Frame, FrameKind, Literal, Order, Windowed, substituted
from dpsql.plan.nodes import PerUnitWindows, Project
from dpsql.plan.types import Type
from dpsql.sql.emit.ranked import called, whole
from dpsql.sql.emit.two_steps import Read, in_two_steps
from dpsql.sql.emit.unit_windows import rows_frame

_COUNTED, _TAKEN = "#counted", "#taken"
_WHOLE, _HERE, _SO_FAR = (Frame(FrameKind.ROWS, *ends) for ends in ((None, None), (0, 0), (None, 0)))


def without_nulls(source: PerUnitWindows) -> Project | None:
    """The same rows and windows, none of which ignores NULLs; None where none does.

    Raises QueryRejected, with code `engine`, for frames from which rows are excluded.
    """
    if not any(window.ignore_nulls for window in source.windows):
        return None
    counts = _Counts()
    taken = [counts.taken(window) for window in source.windows]
    first = dict(zip(counts.columns, counts.windows, strict=True))
    return in_two_steps(source, _TAKEN, first, taken, _or_default)


@dataclass(frozen=True)
class _Counts:
    """The windows that count values, each once."""

    windows: list[Windowed] = field(default_factory=list)

    @property
    def columns(self) -> list[Column]:
        """The columns of the counts."""
        return [
            Column(_COUNTED, f"n{place}", Facts(Type.INTEGER, "", interval(window)))
            for place, window in enumerate(self.windows)
        ]

    def taken(self, window: Windowed) -> Windowed:
        """The window without IGNORE NULLS, over the items and the counts."""
        if not window.ignore_nulls:
            return window
        here = self._of(window, _HERE)
        if window.function in ("lag", "lead"):
            (steps,) = (
                part.value for part in (*window.arguments[1:2], whole(1))[:1] if isinstance(part, Literal)
            )
            if steps == 0:
                return replace(window, arguments=window.arguments[:2], ignore_nulls=False)
            place = self._beside(window, here, whole(int(str(steps))))
        else:
            place = self._within(window)
        first = Order(here, descending=True, nulls_first=False)
        return Windowed(
            "nth_value",
            (window.arguments[0], place),
            window.partition,
            (first, *window.order),
            _WHOLE,
            False,
            window.type,
        )

    def _beside(self, window: Windowed, here: Column, steps: Literal) -> Expr:
        """The place of the value that LAG or LEAD takes, counted among the values."""
        so_far = self._of(window, _SO_FAR)
        if window.function == "lead":
            return called("add", so_far, steps)
        before = called("subtract", so_far, here)
        return called("subtract", called("add", before, whole(1)), steps)

    def _within(self, window: Windowed) -> Expr:
        """The place of the first, last or n-th value of the frame; NULL where there is none."""
        frame = rows_frame(window)
        if frame.exclude:
            raise QueryRejected(
                "dpsql does not ask this engine for IGNORE NULLS in frames with EXCLUDE",
                code="engine",
                hint="leave out EXCLUDE, or use DuckDB",
            )
        many, last = self._of(window, frame), self._of(window, replace(frame, first=None))
        nth = window.arguments[1] if window.function == "nth_value" else whole(1)
        first = called("add", called("subtract", last, many), nth)
        place = last if window.function == "last_value" else first
        return called("case", called("ge", many, nth), place, Literal(None, Type.NULL))

    def _of(self, window: Windowed, frame: Frame) -> Column:
        """The column with the number of values of the rows of a frame."""
        counting = Windowed(
            "count", window.arguments[:1], window.partition, window.order, frame, False, Type.INTEGER
        )
        if counting not in self.windows:
            self.windows.append(counting)
        return self.columns[self.windows.index(counting)]


def _or_default(window: Windowed, value: Column, read: Read) -> Expr:
    """The value that LAG or LEAD finds, or else what it has in its place."""
    if not window.ignore_nulls or len(window.arguments) < 3 or window.arguments[1] == whole(0):
        return value
    return called("coalesce", value, substituted(window.arguments[2], read))
