"""Frames of GROUPS in windows within a unit, for engines that do not have them: ranges of ranks.

Claim: a window has the rows that it has in a frame of GROUPS.
Why: rows that are equal in order have one DENSE_RANK, and the groups of a partition have the ranks from 1 on, in their order. So the groups
up to n away from a row's own are those whose ranks are up to n away from its own, which is what a frame of RANGE over ranks says.
Source: ISO/IEC 9075-2, <window frame clause>.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.aggregates.per_unit import WITHIN
from dpsql.analysis.stability import MAX_ROWS
from dpsql.plan.expr import Column, Facts, Frame, FrameKind, Order, Windowed
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitWindows, Project
from dpsql.plan.types import Type
from dpsql.sql.emit.non_null_windows import over, renamed

_RANKED, _RANGED = "#ranked", "#ranged"


def over_ranks(source: PerUnitWindows) -> Project | None:
    """The same rows and windows, none of which has a frame of GROUPS; None where none does."""
    ranked = [window for window in source.windows if _of_groups(window)]
    if not ranked:
        return None
    own, asked = source.columns[: len(source.items)], source.columns[len(source.items) :]
    ranks = list(dict.fromkeys(map(_rank, ranked)))
    columns = [
        Column(_RANKED, f"r{place}", Facts(Type.INTEGER, "", Interval(1, MAX_ROWS), nullable=False))
        for place, _ in enumerate(ranks)
    ]
    inner = renamed(own, _RANKED, "i")
    below = PerUnitWindows(
        source.input,
        _RANKED,
        source.items,
        tuple(over(rank, inner) for rank in ranks),
        (*inner.values(), *columns),
    )
    outer = renamed(own, _RANGED, "i") | renamed(columns, _RANGED, "r")
    beside = dict(zip(ranks, columns, strict=True))
    values = tuple(renamed(asked, _RANGED, "w").values())
    windows = PerUnitWindows(
        below,
        _RANGED,
        below.columns,
        tuple(
            over(_ranged(window, beside[_rank(window)]) if _of_groups(window) else window, outer)
            for window in source.windows
        ),
        (*outer.values(), *values),
    )
    return Project(windows, source.alias, (*(outer[column] for column in own), *values), source.columns)


def _of_groups(window: Windowed) -> bool:
    """Whether the function adds up, or compares, the rows of groups: others go by a place, or take a frame of ROWS."""
    return window.function in WITHIN and window.frame is not None and window.frame.kind is FrameKind.GROUPS


def _rank(window: Windowed) -> Windowed:
    """The window that numbers the groups."""
    return Windowed("dense_rank", (), window.partition, window.order, None, False, Type.INTEGER)


def _ranged(window: Windowed, rank: Column) -> Windowed:
    """The window over a range of ranks."""
    if window.frame is None:
        raise TypeError("only frames of GROUPS become ranges")
    frame: Frame = replace(window.frame, kind=FrameKind.RANGE)
    return replace(window, order=(Order(rank, descending=False, nulls_first=False),), frame=frame)
