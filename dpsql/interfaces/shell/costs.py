"""Describe the charge of an answer and the remaining budget, which is rounded down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.interfaces.shell.view import build_table, escape_unprintable
from dpsql.policy.request.loss import format_rounded
from dpsql.privacy.accounting.accountants import get_accountant
from dpsql.results.budgets import BUDGET_HEADS, compute_remaining_percent, format_budget_cells

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.ledger import BudgetState, RemainingBudget
    from dpsql.results.result import Receipt, Result


def format_remarks(
    result: Result,
    epsilon: Fraction | None,
    states: Iterable[BudgetState],
    answered_at: datetime | None = None,
) -> str:
    """Return the lines under an answer: its notices, then its charge."""
    return "\n".join([*result.notices, format_charges(result.receipt, epsilon, states, answered_at)])


def format_charges(
    receipt: Receipt,
    epsilon: Fraction | None,
    states: Iterable[BudgetState | RemainingBudget],
    answered_at: datetime | None = None,
) -> str:
    """Return a line for each table with the charge and the remaining budget, and a line for replayed answers.

    `epsilon` is the requested loss; if it is unknown, the charge is in the accountant's own unit. A receipt with a target error
    holds the loss that was found for it. `answered_at` is the time of the replayed answer.
    """
    if receipt.target is not None:
        epsilon = Fraction(receipt.target["epsilon"])
    known = {(state.table, state.analyst): state for state in states}
    lines = list[str]()
    for account, entries in _group_by_account(receipt).items():
        state = known.get(account)
        if state is None:
            continue
        loss = sum((Fraction(entry["loss"]) for entry in entries), Fraction(0))
        delta = sum((Fraction(entry["delta"]) for entry in entries), Fraction(0))
        symbol = get_accountant(state.accountant).symbol
        parts = [] if symbol == "ε" or epsilon is None else [f"{symbol} {format_rounded(loss, up=True)}"]
        parts += [f"δ {format_rounded(delta, up=True)}"] if delta else []
        named = "ε" if symbol == "ε" or epsilon is not None else symbol
        price = f"{named} {format_rounded(loss if symbol == 'ε' or epsilon is None else epsilon, 6, up=True)}"
        parts += [f"in {len(entries)} steps"] if receipt.target is not None and len(entries) > 1 else []
        more = f" ({', '.join(parts)})" if parts else ""
        if "slice" in entries[0]:
            lines.append(f"charged to reservation {entries[0]['slice']} of {state.name}: {price}{more}")
        else:
            lines.append(f"charged to {state.name}: {price}{more}; {format_balance(state)}")
    if receipt.is_of_session:
        paid = ", ".join(map(str, receipt.replayed))
        lines.append("nothing was charged" + f": ledger entry {paid} paid for the table" * bool(paid))
    elif receipt.replayed:
        paid = ", ".join(map(str, receipt.replayed))
        free = "the rest is free" if receipt.entries else "nothing was charged"
        when = "" if answered_at is None else f" of {answered_at:%Y-%m-%d %H:%M} UTC"
        lines.append(f"{free}: an earlier answer{when} to the same question, ledger entry {paid}")
    return "\n".join(lines) or "nothing was charged: the answer follows from the policy"


def _group_by_account(receipt: Receipt) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Group the entries by table and analyst; a query answered in steps has several per account."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in receipt.entries:
        found.setdefault((entry["table"], entry.get("account", "")), []).append(entry)
    return found


def format_balance(state: BudgetState | RemainingBudget) -> str:
    """Describe the remaining budget.

    The percentage refers to the loss; the ε is that of the largest single query that still fits. Under `zcdp` or `gdp`, many
    small queries together may cost far more than that.
    """
    return f"{compute_remaining_percent(state)}% left, at most ε {format_rounded(state.remaining_epsilon)} in one query"


def describe_failures(states: Iterable[BudgetState], ledger: str) -> Iterator[str]:
    """Yield a line for each table with queries that failed while running, and the owner's commands for them."""
    for state in states:
        if state.analyst or not state.failures:
            continue
        times = "one query has" if state.failures == 1 else f"{state.failures} queries have"
        table = escape_unprintable(state.table)
        line = f"{table}: {times} failed while running; dpsql ledger show {ledger} --kind failure lists them"
        if state.locked:
            line += f', and the table is locked; unlock it with: dpsql ledger unlock {ledger} {table} --reason "…"'
        yield line


def build_budget_table(states: Iterable[BudgetState]) -> Table:
    """Build a table of budgets with a line for each account."""
    states = tuple(states)
    heads = ("table", *BUDGET_HEADS)
    failed = any(state.failures for state in states)
    rows = [
        (
            *format_budget_cells(state),
            *((f"{state.failures}: locked" if state.locked else f"{state.failures}",) if failed else ()),
        )
        for state in states
    ]
    return build_table((*heads, "failures") if failed else heads, rows, right=(2, 3, 4, 5, 6, 7))
