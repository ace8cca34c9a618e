"""Plots of privacy profiles and spends, by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsql.privacy.accounting.comparison import ComparedCharge
from dpsql.results.charts import make_figure, save_figure


def plot_comparison(found: Sequence[tuple[int, tuple[ComparedCharge, ...]]], delta: str, path: Path) -> None:
    """Draw the ε of each accountant after each number of releases."""
    figure, axes = make_figure(1)
    for index, last in enumerate(found[-1][1]):
        if last.epsilon is None:
            continue
        points = [(stop, charges[index].epsilon) for stop, charges in found]
        line = [(stop, float(epsilon)) for stop, epsilon in points if epsilon is not None]
        axes[0].plot(*zip(*line, strict=True), label=last.accountant, marker="o" if len(line) == 1 else "")
    axes[0].set(xlabel="releases", ylabel=f"ε at δ = {delta}", ylim=(0, None))
    if axes[0].lines:
        axes[0].legend()
    save_figure(figure, path)
