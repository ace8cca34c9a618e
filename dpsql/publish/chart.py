"""A chart of a published table: its noisy columns with their 95% intervals, by matplotlib, which is an extra."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import ProgrammingError

if TYPE_CHECKING:
    from dpsql.result import Result

MOST_ROWS = 60
_MOST_COLUMNS = 3


def draw(result: Result, title: str, path: Path) -> bool:
    """Draws up to three noisy columns beside each other; whether there was something to draw, and matplotlib to draw it."""
    from dpsql.accounting.plot import figures, save

    intervals = result.intervals()
    noisy = [
        column
        for column in range(len(result.columns))
        if any(row[column] is not None and all(map(math.isfinite, row[column] or ())) for row in intervals)
        and all(isinstance(row[column], (int, float, type(None))) for row in result.rows)
    ][:_MOST_COLUMNS]
    if not noisy or not 1 <= len(result) <= MOST_ROWS:
        return False
    try:
        figure, panes = figures(len(noisy))
    except ProgrammingError:
        return False
    keys = [place for place in range(len(result.columns)) if all(row[place] is None for row in intervals)]
    labels = [", ".join(str(row[place]) for place in keys) or "all" for row in result.rows]
    for axes, column in zip(panes, noisy, strict=True):
        for place, (row, ends) in enumerate(zip(result.rows, intervals, strict=True)):
            value, pair = row[column], ends[column]
            if (
                not isinstance(value, (int, float))
                or pair is None
                or not all(map(math.isfinite, (value, *pair)))
            ):
                continue
            axes.plot(pair, (place, place), color="C0", linewidth=2)
            axes.plot((value,), (place,), color="C0", marker="o")
        axes.set(
            xlabel=f"{result.columns[column]}, with 95% intervals",
            yticks=range(len(labels)),
            yticklabels=labels,
        )
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
    figure.suptitle(title)
    save(figure, path)
    return True
