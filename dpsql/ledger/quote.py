"""Quotes: the cost of a charge for each account or reservation, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpsql.accounting.spend import Spend
from dpsql.errors import OperationalError, PolicyError
from dpsql.ledger.balance import Balance
from dpsql.ledger.entry_kinds import DRAW, RESERVE, EntryKind, applied
from dpsql.ledger.protocol import Account, AccountKey, Bill, Charges, Quote, bills
from dpsql.ledger.reservations import AccountReservation
from dpsql.policy.names import account_name

MOST_RESERVATIONS, MOST_OWN_RESERVATIONS = 64, 16
"""The most open reservations of an account, and of one analyst in it."""

Accounts = Mapping[AccountKey, Account]


class AccountCharge(NamedTuple):
    """The cost of a bill for one account."""

    key: AccountKey
    bill: Bill
    cost: Spend


class QuotedCharge(NamedTuple):
    """A bill with its quote, its entry kind, and the balance of its account after it and all bills before it."""

    bill: Bill
    quote: Quote
    step: EntryKind
    balance: Balance


def account_at(key: AccountKey, accounts: Accounts) -> Account:
    """The account of that key; PolicyError (`no_budget`) if there is none."""
    if key not in accounts:
        raise PolicyError(f"the ledger has no budget for {key}", code="no_budget")
    return accounts[key]


def account_charges(charges: Charges, analyst: str, accounts: Accounts) -> list[AccountCharge]:
    """The costs for each account: the tables' own, and those of the analyst where they exist."""
    charges_due = []
    for bill in bills(charges):
        keys = [AccountKey(bill.table), *_of_analyst(bill.table, analyst, accounts)]
        charges_due += [
            AccountCharge(key, bill, account_at(key, accounts).accountant.cost(bill.event)) for key in keys
        ]
    return sorted(charges_due, key=lambda part: part.key)  # stable: an account's bills stay in their order


def _of_analyst(table: str, analyst: str, accounts: Accounts) -> list[AccountKey]:
    """The analyst's own account at a table, whatever the spelling of the name; [] where there is none."""
    who = account_name(analyst)
    if not who:
        return []
    return [
        key for key in accounts if key.table == table and key.analyst and account_name(key.analyst) == who
    ]


def quoted_charges(
    charges_due: Sequence[AccountCharge],
    kind: EntryKind,
    accounts: Accounts,
    balance_of: Callable[[AccountKey], Balance],
) -> Iterator[QuotedCharge]:
    """Quotes each bill as an entry of `kind`, which names the analyst and the reservation too.

    Raises OperationalError (`slice_closed`) where the reservation is not open to the analyst, and (`slice_many`) where the
    account has the most reservations already.
    """
    balances = {key: balance_of(key) for key in {part.key for part in charges_due}}
    for key, bill, cost in charges_due:
        before = balances[key]
        if kind.kind == DRAW:
            left = _held(before, kind, key).left(bill.box)
        else:
            left = before.left(accounts[key].limit, bill.box)
        if kind.kind == RESERVE:
            _require_room(before, kind, key)
        step = kind._replace(spend=cost, box=bill.box)
        balances[key] = applied(before, step)
        spent_from = kind.reservation if kind.kind == DRAW else None
        quote = Quote(key.table, cost, left, key.analyst, bill.box, spent_from)
        yield QuotedCharge(bill, quote, step, balances[key])


def _require_room(balance: Balance, step: EntryKind, key: AccountKey) -> None:
    """Bounds the open reservations, each of which every later charge reads."""
    own = sum(each.holder == step.who for each in balance.reservations.values())
    if own >= MOST_OWN_RESERVATIONS or len(balance.reservations) >= MOST_RESERVATIONS:
        raise OperationalError(
            f"{key} has {own} open reservations of {step.who!r} and {len(balance.reservations)} in all: no more are kept open",
            code="slice_many",
            hint="close a reservation; dpsql ledger return ends one that was left open",
        )


def _held(balance: Balance, step: EntryKind, key: AccountKey) -> AccountReservation:
    held = None if step.reservation is None else balance.reservations.get(step.reservation)
    if held is None or held.holder != step.who:
        raise OperationalError(
            f"reservation {step.reservation} holds nothing of {key} for {step.who!r}: it has ended, or was reserved for others",
            code="slice_closed",
            hint="nothing was charged; make another reservation",
        )
    return held
