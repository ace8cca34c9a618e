"""Plots of privacy profiles and spends, by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpsql.accounting.comparison import Charge
from dpsql.errors import OperationalError, ProgrammingError


def draw_running(found: Sequence[tuple[int, tuple[Charge, ...]]], delta: str, path: Path) -> None:
    """Draws the ε of each accountant after each number of releases."""
    figure, axes = figures(1)
    for index, last in enumerate(found[-1][1]):
        if last.epsilon is None:
            continue
        points = [(stop, charges[index].epsilon) for stop, charges in found]
        line = [(stop, float(epsilon)) for stop, epsilon in points if epsilon is not None]
        axes[0].plot(*zip(*line, strict=True), label=last.accountant, marker="o" if len(line) == 1 else "")
    axes[0].set(xlabel="releases", ylabel=f"ε at δ = {delta}", ylim=(0, None))
    if axes[0].lines:
        axes[0].legend()
    save(figure, path)


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
