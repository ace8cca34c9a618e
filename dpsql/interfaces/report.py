"""The report of a ledger as one self-contained page: budgets over time, analysts and queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING

from dpsql.interfaces.shell.answers import escape_unprintable
from dpsql.ledger.balance import (
    AMEND,
    CHARGE,
    DRAW,
    FAILURE,
    RELEASED,
    RESET,
    RETURN,
    UNLOCK,
    compute_budget_state,
)
from dpsql.ledger.budget_state import AccountKey, BudgetState
from dpsql.ledger.protocol import Account, Entry, LedgerHead
from dpsql.policy.request.loss import format_rounded
from dpsql.results.charts import MOST_LINES, render_step_chart
from dpsql.results.rendering import BUDGET_HEADS, format_budget_cells

if TYPE_CHECKING:
    from dpsql.ledger.reader import LedgerReader


# Summarize a ledger: spending over time, by analyst and by query, and how long each budget lasts at this pace.


PACE = timedelta(days=30)
"""The time before the newest entry over which the pace of spending is measured."""
_LATEST = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """The spent part of an account's budget after an entry."""

    at: datetime
    part: Fraction


@dataclass(frozen=True, slots=True)
class ChargeTotal:
    """The charges of one analyst or one query to a table: their number, their part of the table's limit, and the last time."""

    who: str
    table: str
    charges: int
    part: Fraction
    last: datetime


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The summary of a ledger.

    `spending` has the steps of each account; `analysts` and `queries` belong to the tables' own accounts, most expensive first;
    `remarkable` are failures, resets, unlocks, amended budgets and returns; `exhaustion_dates` are the dates at which budgets are
    exhausted at the pace of the last `PACE`, None if that is beyond a hundred years or the budget renews.

    The summary depends only on the entries, so the same ledger gives the same report.
    """

    head: LedgerHead
    states: tuple[BudgetState, ...]
    spending: dict[AccountKey, tuple[BudgetStep, ...]]
    analysts: tuple[ChargeTotal, ...]
    queries: tuple[ChargeTotal, ...]
    remarkable: tuple[Entry, ...]
    exhaustion_dates: dict[AccountKey, datetime | None]

    @classmethod
    def from_ledger(cls, history: LedgerReader) -> LedgerSummary:
        """Summarize a ledger. Raises IntegrityError (`ledger_tampered`) if an entry was changed."""
        chain, entries = history.verify(), list(history.iterate_entries())
        accounts = {key: Account.from_budget(budget) for key, budget in history.read_budgets().items()}
        failures = {key.table: balance.failures for key, balance in chain.balances.items() if not key.analyst}
        states = tuple(
            compute_budget_state(
                key, account, chain.get_balance(key), failures.get(key.table, 0), locked=False
            )
            for key, account in sorted(accounts.items())
        )
        own = [entry for entry in entries if entry.kind in RELEASED and not entry.account_analyst]
        return cls(
            head=chain.compute_full_head(chain.stored_head),
            states=states,
            spending={state.key: _compute_spending(entries, state.key) for state in states},
            analysts=_sum_charges((entry.analyst, entry) for entry in own),
            queries=_sum_charges((" ".join(entry.query.split()), entry) for entry in own),
            remarkable=tuple(
                entry for entry in entries if entry.kind in {AMEND, FAILURE, RESET, RETURN, UNLOCK}
            ),
            exhaustion_dates={state.key: _estimate_exhaustion(entries, state) for state in states},
        )


def _compute_spending(entries: Iterable[Entry], key: AccountKey) -> tuple[BudgetStep, ...]:
    return tuple(
        BudgetStep(entry.at, _compute_part(entry.spent.loss, entry))
        for entry in entries
        if _get_account_key(entry) == key
    )


def _sum_charges(named: Iterable[tuple[str, Entry]]) -> tuple[ChargeTotal, ...]:
    found: dict[tuple[str, str], list[Entry]] = {}
    for name, entry in named:
        found.setdefault((name, entry.table), []).append(entry)
    spenders = [
        ChargeTotal(
            name,
            table,
            len({entry.charge for entry in entries}),
            sum((_compute_part(entry.spend.loss, entry) for entry in entries), Fraction(0)),
            max(entry.at for entry in entries),
        )
        for (name, table), entries in found.items()
    ]
    return tuple(sorted(spenders, key=lambda each: (-each.part, each.who, each.table)))


def _estimate_exhaustion(entries: Sequence[Entry], state: BudgetState) -> datetime | None:
    """Estimate when a budget is exhausted at the average daily pace of the last `PACE` of the ledger."""
    own = [entry for entry in entries if _get_account_key(entry) == state.key]
    if not own or state.renewal is not None:
        return None
    now = entries[-1].at
    since = max(own[0].at, now - PACE)
    lately = sum(entry.spend.loss for entry in own if entry.kind in {CHARGE, DRAW} and entry.at >= since)
    days = Fraction(max(now - since, timedelta(days=1)) // timedelta(seconds=1), 86_400)
    left = max(state.limit.loss - state.spent.loss, 0)
    if not left:
        return now
    if not lately or left * days / lately > _LATEST.days:
        return None
    return now + timedelta(days=float(left * days / lately))


def _get_account_key(entry: Entry) -> AccountKey:
    return AccountKey(entry.table, entry.account_analyst)


def _compute_part(loss: int, entry: Entry) -> Fraction:
    return Fraction(loss, entry.limit.loss) if entry.limit.loss else Fraction(0)


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
_COLORS = "\n".join(
    f".line.c{place} {{ stroke: var(--c{place}) }} .legend .c{place}::before {{ color: var(--c{place}) }}"
    for place in range(MOST_LINES)
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_page(summary: LedgerSummary, name: str) -> str:
    """Render the page of a ledger.

    Analysts' texts are escaped, with control characters written out.
    """
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
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{_COLORS}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
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
        heads, [_format_budget_row(summary, state) for state in summary.states], right=range(1, 7)
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
    drawn = {
        escape_unprintable(state.name): [(step.at, step.part) for step in summary.spending[state.key]]
        for state in dearest
    }
    if not drawn:
        return
    yield "<h2>Spent over time</h2>"
    yield render_step_chart(drawn, "Part of each budget that was spent, over time")
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
