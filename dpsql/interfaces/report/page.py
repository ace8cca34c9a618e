"""The report as one HTML file without scripts or external files, readable in light, dark and print.

Analysts' texts are escaped, with control characters written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from html import escape

from dpsql.interfaces.report.chart import MOST_LINES, render_chart
from dpsql.interfaces.report.summary import PACE, ChargeTotal, LedgerSummary
from dpsql.interfaces.shell.view import escape_unprintable
from dpsql.ledger.protocol import BudgetState, Entry
from dpsql.policy.request.loss import format_rounded
from dpsql.results.budgets import BUDGET_HEADS, format_budget_cells

MOST_QUERIES = 20
"""The largest number of listed queries, most expensive first."""
_MOST_REMARKABLE = 200
_LONGEST = 400
_WHOLE = (
    "Each entry was verified against its digest and the entry before. To detect entries missing at the end, compare with a "
    "recorded head: <code>dpsql ledger verify --head</code>."
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5c5f66; --line: #d9dbe0; --paper: #fff;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #8a6d00; --c5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6ea; --soft: #a2a6ad; --line: #3a3d44; --paper: #17181c;
  --c0: #4aa8e0; --c1: #ff8a3d; --c2: #2fd3a3; --c3: #e59cc6; --c4: #e0c04a; --c5: #8fd0f5; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2.2rem } p, li { color: var(--soft) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td { white-space: nowrap }
th { font-weight: 600; white-space: nowrap } .right { text-align: right } td.query { font: .85rem/1.45 ui-monospace, monospace;
  overflow-wrap: anywhere; white-space: normal; min-width: 16rem } td.warn { font-weight: 600; color: var(--c1) }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: var(--soft) } svg .end { text-anchor: end }
.grid { stroke: var(--line); fill: none } .line { fill: none; stroke-width: 2 } code { overflow-wrap: anywhere }
.legend { padding: 0; list-style: none } .legend li { display: inline-block; margin-right: 1.2rem }
.legend li::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .4em; background: currentColor }
"""
_COLOURS = "\n".join(
    f".line.c{place} {{ stroke: var(--c{place}) }} .legend .c{place}::before {{ color: var(--c{place}) }}"
    for place in range(MOST_LINES)
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_page(summary: LedgerSummary, name: str) -> str:
    """Render the page of a ledger."""
    title = f"Spent budgets: {escape_unprintable(name)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{_describe_extent(summary)}</p>",
        "<h2>Budgets</h2>",
        _render_budgets(summary),
        *_render_spending(summary),
        "<h2>Analysts</h2>",
        _render_table(
            ("analyst", "table", "charges", "part of the budget", "last (UTC)"),
            map(_format_total_row, summary.analysts),
        ),
        f"<h2>The most expensive queries{_format_query_count(summary.queries)}</h2>",
        _render_table(
            ("query", "table", "charges", "part of the budget", "last (UTC)"),
            _iterate_query_rows(summary.queries),
        ),
        "<h2>Failures, resets, unlocks and returns</h2>",
        _render_table(("at (UTC)", "what", "table", "by", "why"), _iterate_event_rows(summary.remarkable)),
        "<h2>Integrity</h2>",
        f"<p>{_WHOLE} The head is <code>{escape(str(summary.head))}</code></p>",
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{_COLOURS}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _describe_extent(summary: LedgerSummary) -> str:
    moments = [step.at for steps in summary.spending.values() for step in steps]
    if not moments:
        return "Nothing was charged yet."
    entries = "one entry" if summary.head.entries == 1 else f"{summary.head.entries:,} entries"
    return f"{entries}, from {min(moments):%Y-%m-%d %H:%M} to {max(moments):%Y-%m-%d %H:%M} UTC"


def _render_budgets(summary: LedgerSummary) -> str:
    heads = ("account", *BUDGET_HEADS, "failures", "exhausted at this pace")
    return _render_table(
        heads, [_format_budget_row(summary, state) for state in summary.states], right=range(2, 9)
    )


def _format_budget_row(summary: LedgerSummary, state: BudgetState) -> list[str]:
    end = summary.exhaustion_dates[state.key]
    failures = "" if state.analyst else f"{state.failures}"
    return [*format_budget_cells(state), failures, "" if end is None else f"{end:%Y-%m-%d}"]


def _render_spending(summary: LedgerSummary) -> Iterator[str]:
    dearest = sorted(
        (state for state in summary.states if summary.spending[state.key]),
        key=lambda state: (-max(step.part for step in summary.spending[state.key]), state.key),
    )[:MOST_LINES]
    drawn = {escape_unprintable(state.name): summary.spending[state.key] for state in dearest}
    if not drawn:
        return
    yield "<h2>Spent over time</h2>"
    yield render_chart(drawn)
    named = "".join(f'<li class="c{place}">{escape(name)}</li>' for place, name in enumerate(drawn))
    yield f'<ul class="legend">{named}</ul>'
    yield f"<p>The pace is measured over the last {PACE.days} days before the newest entry. Budgets that renew have no such date.</p>"


def _format_query_count(queries: Sequence[ChargeTotal]) -> str:
    return f": {MOST_QUERIES} of {len(queries):,}" if len(queries) > MOST_QUERIES else ""


def _format_total_row(each: ChargeTotal) -> list[str]:
    return [
        each.who,
        each.table,
        f"{each.charges:,}",
        _format_percent(each.part),
        f"{each.last:%Y-%m-%d %H:%M}",
    ]


def _iterate_query_rows(queries: Sequence[ChargeTotal]) -> Iterator[list[str]]:
    for each in queries[:MOST_QUERIES]:
        cut = each.who if len(each.who) <= _LONGEST else f"{each.who[:_LONGEST]} …"
        yield [cut, *_format_total_row(each)[1:]]


def _iterate_event_rows(entries: Sequence[Entry]) -> Iterator[list[str]]:
    for entry in entries[-_MOST_REMARKABLE:]:
        whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
        reason = str(entry.details.get("reason", ""))
        yield [f"{entry.at:%Y-%m-%d %H:%M}", entry.kind, whose, entry.analyst, reason]


def _format_percent(part: Fraction) -> str:
    return f"{format_rounded(100 * part, 3, up=True)}%" if part else "0%"


def _render_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (2, 3)) -> str:
    """Render a table with numbers aligned right."""
    listed = list(rows)
    if not listed:
        return "<p>None.</p>"
    if heads[0] == "at (UTC)":
        right = ()
    sides = [' class="right"' if place in right else "" for place in range(len(heads))]
    if heads[0] == "query":
        sides[0] = ' class="query"'
    top = "".join(f"<th{side}>{escape(head)}</th>" for side, head in zip(sides, heads, strict=True))
    lines = []
    for row in listed:
        cells = [escape(escape_unprintable(cell)) for cell in row]
        line = "".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, cells, strict=True))
        lines.append(f"<tr>{line}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )
