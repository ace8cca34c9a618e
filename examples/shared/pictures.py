"""Provide the option `--picture` of the examples, and the figure that it draws."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Draw = Callable[[Sequence[Any]], None]


def picture_of(description: str | None, arguments: Sequence[str] | None) -> Path | None:
    """Return the file that `--picture FILE` names, or None."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the figure: .png, .svg or .pdf")
    found: Path | None = parser.parse_args(arguments).picture
    return found


def draw(path: Path | None, panes: int, onto: Draw) -> None:
    """Draw a figure with `panes` panes into the file, if one is named; this needs matplotlib."""
    if path is None:
        return
    from dpsql.results.charts import make_figure, save_figure

    figure, axes = make_figure(panes)
    onto(axes)
    for pane in axes:
        if pane.get_legend_handles_labels()[0]:
            pane.legend()
    save_figure(figure, path)
    print(f"\ndrawn into {path}")
