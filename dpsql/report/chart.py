"""A chart of what was spent over time: steps in SVG, without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape

from dpsql.report.summary import Step

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 28
MOST_LINES = 6
"""Accounts that are drawn: as many as there are colours that are told apart."""


def chart(spent: Mapping[str, Sequence[Step]]) -> str:
    """The course of each account, by its name: the part of its budget that was spent, in percent.

    A line goes level until the next entry, since nothing is spent in between. Of a budget that renews it falls.
    """
    moments = [step.at for steps in spent.values() for step in steps]
    if not moments:
        return ""
    first, last = min(moments), max(moments)
    lines = [*_grid(), *_dates(first, last)]
    for place, (name, steps) in enumerate(list(spent.items())[:MOST_LINES]):
        path = _path(steps, first, last)
        lines.append(f'<path class="line c{place}" d="{path}"><title>{escape(name)}</title></path>')
    drawn = "\n".join(lines)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Part of each budget that was spent, over time">\n'
        f"{drawn}\n</svg>"
    )


def _path(steps: Sequence[Step], first: datetime, last: datetime) -> str:
    found = f"M{_LEFT} {_y(0):.1f}"
    for step in steps:
        found += f"H{_x(step.at, first, last):.1f}V{_y(float(100 * step.part)):.1f}"
    return f"{found}H{WIDTH - _RIGHT}"


def _grid() -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{percent}%</text>'


def _dates(first: datetime, last: datetime) -> Iterator[str]:
    y = HEIGHT - 8
    yield f'<text x="{_LEFT}" y="{y}">{first:%Y-%m-%d}</text>'
    if f"{last:%Y-%m-%d}" != f"{first:%Y-%m-%d}":
        yield f'<text class="end" x="{WIDTH - _RIGHT}" y="{y}">{last:%Y-%m-%d}</text>'


def _x(at: datetime, first: datetime, last: datetime) -> float:
    whole = (last - first).total_seconds()
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((at - first).total_seconds() / whole if whole else 0.5)


def _y(percent: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(percent, 100) / 100)
