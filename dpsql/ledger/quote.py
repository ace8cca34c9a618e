"""Quotes: the cost of a charge for each account or reservation, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpsql.errors import OperationalError, PolicyError
from dpsql.ledger.balance import Balance
from dpsql.ledger.entry_kinds import DRAW, RESERVE, EntryEffect, apply_effect
from dpsql.ledger.protocol import (
    Account,
    AccountKey,
    Quote,
    RequestedCharges,
    TableCharge,
    list_table_charges,
)
from dpsql.ledger.reservations import AccountReservation
from dpsql.policy.names import normalize_account_name
from dpsql.privacy.accounting.charge import Charge

MOST_RESERVATIONS, MOST_OWN_RESERVATIONS = 64, 16
"""The most open reservations of an account, and of one analyst in it."""

Accounts = Mapping[AccountKey, Account]


class AccountCharge(NamedTuple):
    """The charge that a table charge makes to one account."""

    key: AccountKey
    table_charge: TableCharge
    charge: Charge


class QuotedCharge(NamedTuple):
    """A table charge with its quote, its entry kind, and the balance of its account after it and all charges before it."""

    table_charge: TableCharge
    quote: Quote
    effect: EntryEffect
    balance: Balance


def get_account(key: AccountKey, accounts: Accounts) -> Account:
    """Return the account of that key; PolicyError (`no_budget`) if there is none."""
    if key not in accounts:
        raise PolicyError(
            f"the ledger has no budget for {key}",
            code="no_budget",
            hint="check the name; a private table's budget is stored when the ledger is opened with its policy",
        )
    return accounts[key]


def list_account_charges(charges: RequestedCharges, analyst: str, accounts: Accounts) -> list[AccountCharge]:
    """Return the charges to each account: the tables' own accounts, and the analyst's where they exist."""
    charges_due = []
    for bill in list_table_charges(charges):
        keys = [AccountKey(bill.table), *_list_analyst_accounts(bill.table, analyst, accounts)]
        charges_due += [
            AccountCharge(key, bill, get_account(key, accounts).accountant.compute_charge(bill.event))
            for key in keys
        ]
    return sorted(charges_due, key=lambda part: part.key)  # stable: an account's charges stay in order


def _list_analyst_accounts(table: str, analyst: str, accounts: Accounts) -> list[AccountKey]:
    """Return the analyst's own account at a table, whatever the spelling of the name; [] where there is none."""
    who = normalize_account_name(analyst)
    if not who:
        return []
    return [
        key
        for key in accounts
        if key.table == table and key.analyst and normalize_account_name(key.analyst) == who
    ]


def iterate_quoted_charges(
    charges_due: Sequence[AccountCharge],
    kind: EntryEffect,
    accounts: Accounts,
    compute_balance: Callable[[AccountKey], Balance],
) -> Iterator[QuotedCharge]:
    """Yield a quote for each charge as an entry of `kind`, which also names the analyst and the reservation.

    Raises OperationalError (`slice_closed`) where the reservation is not open to the analyst, and (`slice_many`) where the
    account has the most reservations already.
    """
    balances = {key: compute_balance(key) for key in {part.key for part in charges_due}}
    for key, bill, cost in charges_due:
        before = balances[key]
        if kind.kind == DRAW:
            left = _get_reservation(before, kind, key).compute_remaining(bill.box)
        else:
            left = before.compute_remaining(accounts[key].limit, bill.box)
        if kind.kind == RESERVE:
            _require_room(before, kind, key)
        step = kind._replace(charge=cost, box=bill.box)
        balances[key] = apply_effect(before, step)
        spent_from = kind.reservation if kind.kind == DRAW else None
        quote = Quote(key.table, cost, left, key.analyst, bill.box, spent_from)
        yield QuotedCharge(bill, quote, step, balances[key])


def _require_room(balance: Balance, step: EntryEffect, key: AccountKey) -> None:
    """Bound the open reservations, each of which every later charge reads."""
    own = sum(each.holder == step.actor for each in balance.reservations.values())
    if own >= MOST_OWN_RESERVATIONS or len(balance.reservations) >= MOST_RESERVATIONS:
        raise OperationalError(
            f"{key} has too many open reservations: {own} by {step.actor!r}, {len(balance.reservations)} in total"
            f" (at most {MOST_OWN_RESERVATIONS} each, {MOST_RESERVATIONS} in total)",
            code="slice_many",
            hint="close a reservation; `dpsql ledger return` closes one that was left open",
        )


def _get_reservation(balance: Balance, step: EntryEffect, key: AccountKey) -> AccountReservation:
    held = None if step.reservation is None else balance.reservations.get(step.reservation)
    if held is None or held.holder != step.actor:
        raise OperationalError(
            f"reservation {step.reservation} is not open for {step.actor!r} on {key}: it was closed, or belongs to somebody else",
            code="slice_closed",
            hint="nothing was charged; make a new reservation",
        )
    return held
