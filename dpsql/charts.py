"""Figures by matplotlib, which is an extra: panes, files, and values with their intervals."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsql.errors import DataError, OperationalError, ProgrammingError

MOST_LABELS = 60
"""Rows with labels that fit into a figure."""
_MOST_POINTS = 10_000
_MOST_PANES = 4
Point = tuple[Any, tuple[float, float] | None]
"""A value with the ends of its interval."""


def figures(count: int) -> tuple[Any, list[Any]]:
    """A figure with `count` panes side by side; ProgrammingError (`plot_unavailable`) without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ProgrammingError(
            "pictures need matplotlib, which is not installed",
            code="plot_unavailable",
            hint="pip install 'dpsql[plot]'",
        ) from None
    figure = Figure(figsize=(6.4 * count, 4.8), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def save(figure: Any, path: Path) -> None:
    """Writes the figure; the ending of the name says in which format."""
    try:
        figure.savefig(path)
    except (OSError, ValueError):
        raise OperationalError(
            f"the picture {path} cannot be written",
            code="plot_unwritten",
            hint="check its directory, and its ending: .png, .svg or .pdf",
        ) from None


def intervals_figure(
    names: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
    columns: Sequence[tuple[str, Sequence[Point]]],
    confidence: float,
    title: str | None,
) -> Any:
    """A figure with a pane for each named column of points, of which `keys`, of these `names`, say what they are of.

    Raises DataError where there is nothing to draw, or more than can be read.
    """
    if not keys or not columns:
        raise DataError(
            "there is nothing to draw: no row, or no column with intervals", hint="print the answer"
        )
    along = _is_axis(keys)
    for number, most, what in (
        (len(columns), _MOST_PANES, "columns"),
        (len(keys), _MOST_POINTS if along else MOST_LABELS, "rows"),
    ):
        if number > most:
            raise DataError(
                f"{number:,} {what} are too many for one figure",
                hint=f"name at most {most:,} as y"
                if what == "columns"
                else f"ask for at most {most:,}, by ORDER BY and LIMIT",
            )
    figure, panes = figures(len(columns))
    for axes, (name, points) in zip(panes, columns, strict=True):
        drawn = [
            (place, value, ends)
            for place, (value, ends) in enumerate(points)
            if ends is not None
            and isinstance(value, (int, float))
            and all(map(math.isfinite, (value, *ends)))
        ]
        # An interval need not hold its value, which may be clamped: its bar then ends there.
        bars = (
            [max(0, value - low) for _, value, (low, _) in drawn],
            [max(0, high - value) for _, value, (_, high) in drawn],
        )
        label = f"{name}, with {100 * confidence:g}% intervals"
        places, values = [place for place, *_ in drawn], [value for _, value, _ in drawn]
        if along:
            axes.errorbar([keys[place][0] for place in places], values, yerr=bars, fmt="o", capsize=3)
            axes.set(ylabel=label, xlabel=names[0])
        else:
            axes.errorbar(values, places, xerr=bars, fmt="o", capsize=3)
            axes.set(
                xlabel=label,
                yticks=range(len(keys)),
                yticklabels=[_label(key) for key in keys],
                ylabel=", ".join(names),
            )
            axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.grid(axis="y" if along else "x", alpha=0.3)
    if title:
        figure.suptitle(title)
    return figure


def _is_axis(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Whether the keys are one column of numbers or days, more than one."""
    return len(keys) > 1 and all(
        len(key) == 1 and isinstance(key[0], (int, float, dt.date)) and not isinstance(key[0], bool)
        for key in keys
    )


def _label(key: tuple[Any, ...]) -> str:
    return ", ".join("NULL" if part is None else str(part) for part in key)
