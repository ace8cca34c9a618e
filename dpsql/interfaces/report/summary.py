"""Summarize a ledger: spending over time, by analyst and by query, and how long each budget lasts at this pace.

The summary depends only on the entries, so the same ledger gives the same report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.ledger.balance import compute_budget_state
from dpsql.ledger.entry_kinds import AMEND, CHARGE, DRAW, FAILURE, RELEASED, RESET, RETURN, UNLOCK
from dpsql.ledger.protocol import Account, AccountKey, BudgetState, Entry, LedgerHead

if TYPE_CHECKING:
    from dpsql.ledger.reader import LedgerReader

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
