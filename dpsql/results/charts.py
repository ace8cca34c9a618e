"""Charts of values with their intervals, by matplotlib and by Altair, which are optional."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from dpsql.errors import DataError, OperationalError, ProgrammingError
from dpsql.privacy.accounting.comparison import ComparedCharge

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
            hint="pip install 'dpsql[plot]'",
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


def build_interval_figure(
    names: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
    columns: Sequence[tuple[str, Sequence[Point]]],
    confidence: float,
    title: str | None,
) -> Any:
    """Return a figure with a pane for each named column of points, labeled by the `keys` of these `names`.

    Raises DataError if there is nothing to draw, or more than can be read.
    """
    along, keys, columns, title_of_keys = _resolve_axis(names, keys, columns)
    _require_drawable(keys, columns, along=along)
    figure, panes = make_figure(len(columns))
    for axes, (name, points) in zip(panes, columns, strict=True):
        drawn = _list_finite_points(points)
        # An interval need not hold its value, which may be clamped: its bar then ends there.
        bars = (
            [max(0, value - low) for _, value, (low, _) in drawn],
            [max(0, high - value) for _, value, (_, high) in drawn],
        )
        label = f"{name}, with {100 * confidence:g}% intervals"
        places, values = [place for place, *_ in drawn], [value for _, value, _ in drawn]
        if along:
            axes.errorbar([keys[place][0] for place in places], values, yerr=bars, fmt="o", capsize=3)
            axes.set(ylabel=label, xlabel=title_of_keys)
            if _has_whole_keys(keys):  # no tick stands between two of them
                axes.xaxis.get_major_locator().set_params(integer=True)
        else:
            axes.errorbar(values, places, xerr=bars, fmt="o", capsize=3)
            axes.set(
                xlabel=label,
                yticks=range(len(keys)),
                yticklabels=[_format_label(key) for key in keys],
                ylabel=title_of_keys,
            )
            axes.set_ylim(len(keys) - 0.5, -0.5)
        axes.grid(axis="y" if along else "x", alpha=0.3)
    if title:
        figure.suptitle(title)
    return figure


def build_interval_chart(
    names: Sequence[str],
    keys: Sequence[tuple[Any, ...]],
    columns: Sequence[tuple[str, Sequence[Point]]],
    confidence: float,
    title: str | None,
) -> Any:
    """Return the same as an Altair chart; raise ProgrammingError (`plot_unavailable`) without Altair."""
    altair: Any
    try:
        import altair  # its classes are written for any argument
    except ImportError:
        raise ProgrammingError(
            "charts need Altair, which is not installed",
            code="plot_unavailable",
            hint="pip install 'dpsql[altair]'; plot() draws with matplotlib",
        ) from None
    along, keys, columns, title_of_keys = _resolve_axis(names, keys, columns)
    _require_drawable(keys, columns, along=along)
    days = along and isinstance(keys[0][0], dt.date)
    panes = []
    for name, points in columns:
        rows = [
            {
                "key": (keys[place][0].isoformat() if days else keys[place][0])
                if along
                else _format_label(keys[place]),
                "value": value,
                "low": low,
                "high": high,
            }
            for place, value, (low, high) in _list_finite_points(points)
        ]
        kind = "temporal" if days else "quantitative" if along else "nominal"
        key: dict[str, Any] = {"field": "key", "type": kind, "title": title_of_keys}
        if along:
            key["scale"] = {"zero": False, "padding": 12}
            key["axis"] = _build_whole_axis(keys) if _has_whole_keys(keys) else altair.Undefined
        else:
            key["sort"] = None
        label = f"{name}, with {100 * confidence:g}% intervals"
        own, other = ("x", "y") if along else ("y", "x")
        value = {"type": "quantitative", "title": label, "scale": {"zero": False}}
        base = altair.Chart(altair.Data(values=rows)).encode(
            tooltip=[
                altair.Tooltip(field=field, type=kind if field == "key" else "quantitative", title=said)
                for field, said in (("key", key["title"]), ("value", name), ("low", "from"), ("high", "to"))
            ]
        )
        bars = base.mark_rule().encode(
            **{
                own: key,
                other: {"field": "low", **value},
                f"{other}2": {"field": "high"},
            }
        )
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(
            **{own: key, other: {"field": "value", **value}}
        )
        panes.append(altair.layer(bars, dots))
    chart = panes[0] if len(panes) == 1 else altair.hconcat(*panes)
    return chart.properties(title=title) if title else chart


def _require_drawable(
    keys: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, Sequence[Point]]], *, along: bool
) -> None:
    """Raise DataError if there is nothing to draw, or more than can be read."""
    if not keys or not columns:
        raise DataError(
            "there is nothing to draw: the answer has no rows, or no column with intervals",
            hint="print the answer",
        )
    for number, most, what in (
        (len(columns), _MOST_PANES, "columns"),
        (len(keys), _MOST_POINTS if along else MOST_LABELS, "rows"),
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
    along = len(known) > 1 and all(
        len(keys[place]) == 1
        and isinstance(keys[place][0], (int, float, Decimal, dt.date))
        and not isinstance(keys[place][0], bool)
        for place in known
    )
    if not along or len(known) == len(keys):
        return along, keys, columns, title
    drawn = [(name, [points[place] for place in known]) for name, points in columns]
    return True, [keys[place] for place in known], drawn, f"{title}, without NULL"


def _has_whole_keys(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether the keys of an axis are whole numbers."""
    return all(isinstance(key, int) for (key,) in keys)


def _build_whole_axis(keys: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return Altair's axis of whole numbers: each of a few, or else ticks at whole numbers."""
    found = sorted({key for (key,) in keys})
    return {"format": "d", **({"values": found} if len(found) <= _FEW_TICKS else {"tickMinStep": 1})}


def _format_label(key: tuple[Any, ...]) -> str:
    return ", ".join("NULL" if part is None else str(part) for part in key)


# Plots of privacy profiles and spends, by matplotlib, which is an extra.


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
