"""What a charge would take from each account, or from a slice of it, and whether it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpsql.accounting.spend import Spend
from dpsql.errors import OperationalError, PolicyError
from dpsql.ledger.balance import Standing
from dpsql.ledger.entry_kinds import DRAW, RESERVE, Step, stepped
from dpsql.ledger.protocol import Account, AccountKey, Bill, Charges, Quote, bills
from dpsql.ledger.reservations import Slice
from dpsql.policy.names import account_name

MOST_SLICES, MOST_OWN_SLICES = 64, 16
"""Most slices that are open in an account, and most of one analyst's."""

Accounts = Mapping[AccountKey, Account]


class Due(NamedTuple):
    """What one account is to be charged for a bill."""

    key: AccountKey
    bill: Bill
    cost: Spend


class Planned(NamedTuple):
    """A bill with its quote, its step, and where its account stands after it and those before it."""

    bill: Bill
    quote: Quote
    step: Step
    standing: Standing


def account_at(key: AccountKey, accounts: Accounts) -> Account:
    """The account of that key; PolicyError (`no_budget`) if there is none."""
    if key not in accounts:
        raise PolicyError(f"the ledger has no budget for {key}", code="no_budget")
    return accounts[key]


def due_of(charges: Charges, analyst: str, accounts: Accounts) -> list[Due]:
    """What each account is to be charged: the tables' own, and those of the analyst that there are."""
    due = []
    for bill in bills(charges):
        keys = [AccountKey(bill.table), *_of_analyst(bill.table, analyst, accounts)]
        due += [Due(key, bill, account_at(key, accounts).accountant.cost(bill.event)) for key in keys]
    return sorted(due, key=lambda part: part.key)  # stable: an account's bills stay in their order


def _of_analyst(table: str, analyst: str, accounts: Accounts) -> list[AccountKey]:
    """The analyst's own account at a table, however the name is spelled; none where there is none."""
    who = account_name(analyst)
    if not who:
        return []
    return [
        key for key in accounts if key.table == table and key.analyst and account_name(key.analyst) == who
    ]


def quoted(
    due: Sequence[Due], kind: Step, accounts: Accounts, standing_of: Callable[[AccountKey], Standing]
) -> Iterator[Planned]:
    """Each bill as it would be charged by steps of a kind, which says also who asks, and of which slice.

    Raises OperationalError (`slice_closed`) where a slice is to be spent from that is not open to whoever asks, and
    (`slice_many`) where one more is to be reserved of an account that has as many as it can bear.
    """
    standings = {key: standing_of(key) for key in {part.key for part in due}}
    for key, bill, cost in due:
        before = standings[key]
        if kind.kind == DRAW:
            left = _held(before, kind, key).left(bill.box)
        else:
            left = before.left(accounts[key].limit, bill.box)
        if kind.kind == RESERVE:
            _require_room(before, kind, key)
        step = kind._replace(spend=cost, box=bill.box)
        standings[key] = stepped(before, step)
        of_slice = kind.slice if kind.kind == DRAW else None
        quote = Quote(key.table, cost, left, key.analyst, bill.box, of_slice)
        yield Planned(bill, quote, step, standings[key])


def _require_room(standing: Standing, step: Step, key: AccountKey) -> None:
    """Each open slice is work for every charge after it."""
    own = sum(each.holder == step.who for each in standing.slices.values())
    if own >= MOST_OWN_SLICES or len(standing.slices) >= MOST_SLICES:
        raise OperationalError(
            f"{key} has {own} open slices of {step.who!r} and {len(standing.slices)} in all: no more are kept open",
            code="slice_many",
            hint="close a reservation; dpsql ledger return ends one that was left open",
        )


def _held(standing: Standing, step: Step, key: AccountKey) -> Slice:
    held = None if step.slice is None else standing.slices.get(step.slice)
    if held is None or held.holder != step.who:
        raise OperationalError(
            f"slice {step.slice} holds nothing of {key} for {step.who!r}: it has ended, or was reserved for others",
            code="slice_closed",
            hint="nothing was charged; reserve another slice",
        )
    return held
