"""A chart of spending over time: steps in SVG, without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape

from dpsql.interfaces.report.summary import BudgetStep

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 28
MOST_LINES = 6
"""The largest number of accounts in the chart, limited by the number of distinguishable colors."""


def render_chart(spent: Mapping[str, Sequence[BudgetStep]]) -> str:
    """Render the spent share of each account's budget over time, in percent, by name.

    A line stays level until the next entry, since nothing is spent in between, and falls when a budget renews.
    """
    moments = [step.at for steps in spent.values() for step in steps]
    if not moments:
        return ""
    first, last = min(moments), max(moments)
    lines = [*_render_grid(), *_render_dates(first, last)]
    for place, (name, steps) in enumerate(list(spent.items())[:MOST_LINES]):
        path = _format_path(steps, first, last)
        lines.append(f'<path class="line c{place}" d="{path}"><title>{escape(name)}</title></path>')
    drawn = "\n".join(lines)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Part of each budget that was spent, over time">\n'
        f"{drawn}\n</svg>"
    )


def _format_path(steps: Sequence[BudgetStep], first: datetime, last: datetime) -> str:
    found = f"M{_LEFT} {_compute_y(0):.1f}"
    for step in steps:
        found += f"H{_compute_x(step.at, first, last):.1f}V{_compute_y(float(100 * step.part)):.1f}"
    return f"{found}H{WIDTH - _RIGHT}"


def _render_grid() -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _compute_y(percent)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{percent}%</text>'


def _render_dates(first: datetime, last: datetime) -> Iterator[str]:
    y = HEIGHT - 8
    yield f'<text x="{_LEFT}" y="{y}">{first:%Y-%m-%d}</text>'
    if f"{last:%Y-%m-%d}" != f"{first:%Y-%m-%d}":
        yield f'<text class="end" x="{WIDTH - _RIGHT}" y="{y}">{last:%Y-%m-%d}</text>'


def _compute_x(at: datetime, first: datetime, last: datetime) -> float:
    whole = (last - first).total_seconds()
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((at - first).total_seconds() / whole if whole else 0.5)


def _compute_y(percent: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(percent, 100) / 100)
