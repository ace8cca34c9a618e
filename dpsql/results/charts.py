"""Drawings: values with their intervals by matplotlib and by Altair, lines by matplotlib, and steps over time as SVG.

Matplotlib and Altair are optional; SVG needs no library and no script.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, Self

from dpsql.errors import DataError, OperationalError, ProgrammingError
from dpsql.results.optional import write_extra_command

MOST_LABELS = 60
"""Rows with labels that fit into a figure."""
_MOST_POINTS = 10_000
_FEW_TICKS = 12
_MOST_PANES = 4
Point = tuple[Any, tuple[float, float] | None]
"""A value with the ends of its interval."""


def make_figure(count: int) -> tuple[Any, list[Any]]:
    """Return a figure with `count` panes side by side; raise ProgrammingError (`plot_unavailable`) without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ProgrammingError(
            "pictures need matplotlib, which is not installed",
            code="plot_unavailable",
            hint=write_extra_command("plot"),
        ) from None
    figure = Figure(figsize=(6.4 * count, 4.8), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def save_figure(figure: Any, path: Path) -> None:
    """Write the figure to a file, in the format of the file's extension."""
    try:
        figure.savefig(path)
    except (OSError, ValueError):
        raise OperationalError(
            f"the picture {path} cannot be written",
            code="plot_unwritten",
            hint="check its directory, and its extension: .png, .svg or .pdf",
        ) from None


def save_line_plot(
    lines: Mapping[str, Sequence[tuple[float, float]]], path: Path, **axis_options: Any
) -> None:
    """Write a plot of lines by their label; `axis_options` are those of `matplotlib.axes.Axes.set`.

    Raises ProgrammingError (`plot_unavailable`) without matplotlib, and OperationalError (`plot_unwritten`).
    """
    figure, (axes,) = make_figure(1)
    for label, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o" if len(points) <= _FEW_TICKS else "", label=label)
    axes.set(**axis_options)
    if lines:
        axes.legend(fontsize="small")
    save_figure(figure, path)


# Values with their intervals.


@dataclass(frozen=True, slots=True)
class Pane:
    """The finite points of a column, each with the place of its key and the ends of its interval."""

    name: str
    label: str
    points: Sequence[tuple[int, float, tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class IntervalPlot:
    """Columns of values with intervals, one pane each; `is_axis` says that the keys are numbers or days, and not labels."""

    title: str | None
    keys: Sequence[tuple[Any, ...]]
    key_title: str
    is_axis: bool
    panes: Sequence[Pane]

    @classmethod
    def from_columns(
        cls,
        names: Sequence[str],
        keys: Sequence[tuple[Any, ...]],
        columns: Sequence[tuple[str, Sequence[Point]]],
        confidence: float,
        title: str | None = None,
    ) -> Self:
        """Lay out named columns of points, which the `keys` of these `names` label.

        Raises DataError if there is nothing to draw, or more than can be read.
        """
        is_axis, keys, columns, key_title = _resolve_axis(names, keys, columns)
        _require_drawable(keys, columns, is_axis=is_axis)
        panes = [
            Pane(name, f"{name}, with {100 * confidence:g}% intervals", _list_finite_points(points))
            for name, points in columns
        ]
        return cls(title, keys, key_title, is_axis, panes)

    @property
    def labels(self) -> list[str]:
        """Return the keys as texts."""
        return [", ".join("NULL" if part is None else str(part) for part in key) for key in self.keys]

    @property
    def has_whole_keys(self) -> bool:
        """Return whether the keys are an axis of whole numbers, between two of which no tick stands."""
        return self.is_axis and all(isinstance(key, int) for (key,) in self.keys)


def draw_interval_figure(plot: IntervalPlot) -> Any:
    """Return a figure of matplotlib; raise ProgrammingError (`plot_unavailable`) without it."""
    figure, drawn_panes = make_figure(len(plot.panes))
    for axes, pane in zip(drawn_panes, plot.panes, strict=True):
        # An interval need not hold its value, which may be clamped: its bar then ends there.
        bars = (
            [max(0, value - low) for _, value, (low, _) in pane.points],
            [max(0, high - value) for _, value, (_, high) in pane.points],
        )
        places, values = [place for place, *_ in pane.points], [value for _, value, _ in pane.points]
        if plot.is_axis:
            axes.errorbar([plot.keys[place][0] for place in places], values, yerr=bars, fmt="o", capsize=3)
            axes.set(ylabel=pane.label, xlabel=plot.key_title)
            if plot.has_whole_keys:
                axes.xaxis.get_major_locator().set_params(integer=True)
        else:
            axes.errorbar(values, places, xerr=bars, fmt="o", capsize=3)
            ticks = range(len(plot.keys))
            axes.set(xlabel=pane.label, yticks=ticks, yticklabels=plot.labels, ylabel=plot.key_title)
            axes.set_ylim(len(plot.keys) - 0.5, -0.5)
        axes.grid(axis="y" if plot.is_axis else "x", alpha=0.3)
    if plot.title:
        figure.suptitle(plot.title)
    figure._repr_png_ = lambda: _write_png(figure)
    return figure


def _write_png(figure: Any) -> bytes:
    with BytesIO() as written:
        figure.savefig(written, format="png")
        return written.getvalue()


def draw_interval_chart(plot: IntervalPlot) -> Any:
    """Return the same as a chart of Altair; raise ProgrammingError (`plot_unavailable`) without it."""
    altair: Any
    try:
        import altair  # its classes are written for any argument
    except ImportError:
        raise ProgrammingError(
            "charts need Altair, which is not installed",
            code="plot_unavailable",
            hint=f"{write_extra_command('altair')}; plot() draws with matplotlib",
        ) from None
    panes = [_draw_chart_pane(altair, plot, pane) for pane in plot.panes]
    chart = panes[0] if len(panes) == 1 else altair.hconcat(*panes)
    return chart.properties(title=plot.title) if plot.title else chart


def _draw_chart_pane(altair: Any, plot: IntervalPlot, pane: Pane) -> Any:
    """Return Altair's layer of a column: a bar for each interval, and a dot for each value."""
    kind, key = _build_key_channel(plot)
    names: Sequence[Any] = [key for (key,) in plot.keys] if plot.is_axis else plot.labels
    rows = [
        {
            "key": names[place].isoformat() if kind == "temporal" else names[place],
            "value": value,
            "low": low,
            "high": high,
        }
        for place, value, (low, high) in pane.points
    ]
    own, other = ("x", "y") if plot.is_axis else ("y", "x")
    value = {"type": "quantitative", "title": pane.label, "scale": {"zero": False}}
    base = altair.Chart(altair.Data(values=rows)).encode(
        tooltip=[
            altair.Tooltip(field=field, type=kind if field == "key" else "quantitative", title=said)
            for field, said in (
                ("key", plot.key_title),
                ("value", pane.name),
                ("low", "from"),
                ("high", "to"),
            )
        ]
    )
    bars = base.mark_rule().encode(
        **{own: key, other: {"field": "low", **value}, f"{other}2": {"field": "high"}}
    )
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(
        **{own: key, other: {"field": "value", **value}}
    )
    return altair.layer(bars, dots)


def _build_key_channel(plot: IntervalPlot) -> tuple[str, dict[str, Any]]:
    """Return the type of the keys, and their encoding for Altair."""
    if not plot.is_axis:
        return "nominal", {"field": "key", "type": "nominal", "title": plot.key_title, "sort": None}
    kind = "temporal" if isinstance(plot.keys[0][0], dt.date) else "quantitative"
    key = {"field": "key", "type": kind, "title": plot.key_title, "scale": {"zero": False, "padding": 12}}
    if plot.has_whole_keys:
        found = sorted({each for (each,) in plot.keys})
        ticks = {"values": found} if len(found) <= _FEW_TICKS else {"tickMinStep": 1}
        key["axis"] = {"format": "d", **ticks}
    return kind, key


def _require_drawable(
    keys: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, Sequence[Point]]], *, is_axis: bool
) -> None:
    """Raise DataError if there is nothing to draw, or more than can be read."""
    if not keys or not columns:
        raise DataError(
            "there is nothing to draw: the answer has no rows, or no column with intervals",
            hint="print the answer",
        )
    for number, most, what in (
        (len(columns), _MOST_PANES, "columns"),
        (len(keys), _MOST_POINTS if is_axis else MOST_LABELS, "rows"),
    ):
        if number > most:
            raise DataError(
                f"{number:,} {what} are too many for one figure",
                hint=f"pass at most {most:,} as y"
                if what == "columns"
                else f"reduce them to at most {most:,} with ORDER BY and LIMIT",
            )


def _list_finite_points(points: Sequence[Point]) -> list[tuple[int, float, tuple[float, float]]]:
    """Return the places, values and ends of the finite points."""
    return [
        (place, value if isinstance(value, int) else float(value), ends)
        for place, (value, ends) in enumerate(points)
        if ends is not None
        and isinstance(value, (int, float, Decimal))
        and all(map(math.isfinite, (value, *ends)))
    ]


def _resolve_axis(
    names: Sequence[str], keys: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, Sequence[Point]]]
) -> tuple[bool, Sequence[tuple[Any, ...]], Sequence[tuple[str, Sequence[Point]]], str]:
    """Return whether the keys are an axis, the keys and points to draw, and the title of the keys.

    Keys are an axis if they are a single column of several numbers or days. NULL has no place on an axis: its points are left
    out, and the title says so.
    """
    title = ", ".join(names)
    known = [place for place, key in enumerate(keys) if key != (None,)]
    is_axis = len(known) > 1 and all(
        len(keys[place]) == 1
        and isinstance(keys[place][0], (int, float, Decimal, dt.date))
        and not isinstance(keys[place][0], bool)
        for place in known
    )
    if not is_axis or len(known) == len(keys):
        return is_axis, keys, columns, title
    drawn = [(name, [points[place] for place in known]) for name, points in columns]
    return True, [keys[place] for place in known], drawn, f"{title}, without NULL"


# Steps over time, as SVG.


_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 28
MOST_LINES = 6
"""The largest number of lines in a chart, limited by the number of distinguishable colors."""
Steps = Sequence[tuple[dt.datetime, Fraction]]
"""The part of a whole that is reached at each moment, in the order of time."""


def render_step_chart(lines: Mapping[str, Steps], label: str) -> str:
    """Render parts over time as SVG, in percent, with a line for each name; "" if there is no step.

    A line stays level until its next step. `label` describes the chart to readers who do not see it.
    """
    moments = [at for steps in lines.values() for at, _ in steps]
    if not moments:
        return ""
    first, last = min(moments), max(moments)
    parts = [*_render_grid(), *_render_dates(first, last)]
    for place, (name, steps) in enumerate(list(lines.items())[:MOST_LINES]):
        path = _format_path(steps, first, last)
        parts.append(f'<path class="line c{place}" d="{path}"><title>{escape(name)}</title></path>')
    drawn = "\n".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">\n{drawn}\n</svg>'


def _format_path(steps: Steps, first: dt.datetime, last: dt.datetime) -> str:
    found = f"M{_LEFT} {_compute_y(0):.1f}"
    for at, part in steps:
        found += f"H{_compute_x(at, first, last):.1f}V{_compute_y(float(100 * part)):.1f}"
    return f"{found}H{_WIDTH - _RIGHT}"


def _render_grid() -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _compute_y(percent)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{percent}%</text>'


def _render_dates(first: dt.datetime, last: dt.datetime) -> Iterator[str]:
    y = _HEIGHT - 8
    yield f'<text x="{_LEFT}" y="{y}">{first:%Y-%m-%d}</text>'
    if f"{last:%Y-%m-%d}" != f"{first:%Y-%m-%d}":
        yield f'<text class="end" x="{_WIDTH - _RIGHT}" y="{y}">{last:%Y-%m-%d}</text>'


def _compute_x(at: dt.datetime, first: dt.datetime, last: dt.datetime) -> float:
    whole = (last - first).total_seconds()
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((at - first).total_seconds() / whole if whole else 0.5)


def _compute_y(percent: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - min(percent, 100) / 100)
