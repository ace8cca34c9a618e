"""Rewrite frames of GROUPS in windows within a unit as ranges of ranks, for engines without GROUPS.

Claim: a window has the rows that it has in a frame of GROUPS.
Why: rows that are equal in order have one DENSE_RANK, and the groups of a partition have the ranks from 1 on, in their order. So the groups
up to n away from a row's own are those whose ranks are up to n away from its own, which is what a frame of RANGE over ranks says.
Source: ISO/IEC 9075-2, <window frame clause>.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.analysis.stability import MAX_ROWS
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Column, ColumnInfo, Frame, FrameKind, Order, WindowCall
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitWindows, Project
from dpsql.plan.types import Type
from dpsql.sql.compile.nested_windows import build_two_steps

_RANKED, _RANGED = "#ranked", "#ranged"


def rewrite_group_frames(source: PerUnitWindows) -> Project | None:
    """Return the same rows and windows without frames of GROUPS; None if there are none."""
    ranks = dict.fromkeys(_build_rank_window(window) for window in source.windows if _has_group_frame(window))
    if not ranks:
        return None
    numbered = ColumnInfo(Type.INTEGER, "", Interval(1, MAX_ROWS), nullable=False)
    columns = {rank: Column(_RANKED, f"r{place}", numbered) for place, rank in enumerate(ranks)}
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
