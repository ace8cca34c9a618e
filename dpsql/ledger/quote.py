"""Quotes of a charge for each account or reservation, and the errors that refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

from dpsql.errors import BudgetExhausted, IntegrityError, OperationalError, PolicyError
from dpsql.ledger.balance import CHARGE, DRAW, RESERVE, AccountReservation, Balance, EntryEffect, apply_effect
from dpsql.ledger.budget_state import AccountKey, Quote
from dpsql.ledger.protocol import (
    Account,
    Ledger,
    LedgerHead,
    RequestedCharges,
    TableCharge,
    list_table_charges,
)
from dpsql.policy.names import normalize_account_name
from dpsql.policy.request.loss import format_rounded
from dpsql.privacy.accounting.events import NOTHING, Charge, Pure
from dpsql.privacy.accounting.partitions.boxes import WHOLE

# Quotes: the cost of a charge for each account or reservation, and whether it fits.


MOST_RESERVATIONS, MOST_OWN_RESERVATIONS = 64, 16
"""The most open reservations of an account, and of one analyst in it."""

_USUAL_EPSILONS = (Fraction(1, 10), Fraction(1, 2))
"""What is counted of a budget, so that its ε and that of a query can be compared."""

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


# The errors of a charge that exceeds a budget, and of a ledger that was rolled back.


def require_payable(
    ledger: Ledger, accounts: Mapping[str, Account], loss: Fraction, analyst: str, reservation: int | None
) -> None:
    """Raise BudgetExhausted for a loss beyond the whole budget of a table, before anything is planned for it."""
    for table, account in accounts.items():
        event = Pure(loss)
        if account.accountant.compute_charge(event).loss > account.limit.loss:
            for quote in ledger.dry_run(
                [TableCharge(table, event)], analyst=analyst, reservation=reservation
            ):
                if not quote.fits:
                    raise make_exhaustion_error(account, quote)


def make_exhaustion_error(
    account: Account, quote: Quote, kind: str = CHARGE, later_period: str = ""
) -> BudgetExhausted:
    """Return the error for a quote that does not fit: what an entry of this kind needs, and what is left, as ε and as δ.

    The ε asked is that of the ε-DP query with the same cost; the ε left is rounded down. `later_period` is the account's period where that
    is later than the clock's: no renewal comes before it.
    """
    later = (
        f"; a clock that was ahead charged this budget in {later_period}, so it renews only after that period;"
        " `dpsql ledger reset` renews it now"
        if later_period
        else ""
    )
    asks = "the reservation" if kind == RESERVE else "the query"
    keys = asks if kind == RESERVE else "choosing group keys"
    if quote.charge.loss > quote.remaining.loss:
        asked = account.accountant.compute_remaining_epsilon(NOTHING, quote.charge)
        left = account.accountant.compute_remaining_epsilon(NOTHING, quote.remaining)
        asked_text, left_text = _format_distinct(asked, left)
        whole = _describe_budget(quote, "epsilon", account.budget.epsilon)
        return BudgetExhausted(
            f"{asks} needs epsilon {asked_text} of {_describe_account(quote)}, but at most epsilon {left_text}"
            f" is left{'' if kind == RESERVE else ' for one query'}{whole}",
            hint=(
                f"nothing was charged; ask for less epsilon: what is left holds {describe_capacity(account, quote.remaining)}"
                + _explain_conversion(account)
                if quote.remaining.loss
                else "nothing was charged"
            )
            + later,
        )
    asked_text, left_text = _format_distinct(quote.charge.delta_fraction, quote.remaining.delta_fraction)
    whole = _describe_budget(quote, "delta", Fraction(account.limit.delta, Charge.UNIT))
    return BudgetExhausted(
        f"{keys} needs delta {asked_text} of {_describe_account(quote)}, but delta {left_text} is left{whole}",
        code="delta_exhausted",
        hint="nothing was charged; group by columns whose values the policy lists" + later,
    )


def describe_capacity(account: Account, left: Charge, default: Fraction | None = None) -> str:
    """Return how many questions at usual ε, and at the policy's `default`, fit into what is left of an account.

    >>> from dpsql.ledger.budget import Budget
    >>> account = Account.from_budget(Budget("zcdp", Fraction(4), Fraction(1, 10**7)))
    >>> describe_capacity(account, account.limit)
    '51 questions at ε 0.1, or 2 at ε 0.5, or one at ε 0.729'
    """
    largest = account.accountant.compute_remaining_epsilon(NOTHING, left)
    usual = sorted({*_USUAL_EPSILONS, *([] if default is None else [default])})
    costs = {each: account.accountant.compute_charge(Pure(each)).loss for each in usual if each <= largest}
    counts = {each: left.loss // cost for each, cost in costs.items() if left.loss >= 2 * cost}
    parts = [f"{count:,} at ε {float(each):g}" for each, count in counts.items()]
    parts.append(f"one at ε {format_rounded(largest)}")
    return ", or ".join(
        [parts[0].replace(" at", " question at" if len(parts) == 1 else " questions at"), *parts[1:]]
    )


def _explain_conversion(account: Account) -> str:
    """Why one query may not spend the budget's epsilon, where the accountant converts what queries add up to; else nothing."""
    if account.accountant.compute_remaining_epsilon(NOTHING, account.limit) >= account.budget.epsilon:
        return ""
    return (
        f"; the budget bounds all queries together; the accountant {account.accountant.name} adds up costs that are no epsilons,"
        " and converts their sum with delta, so that one query alone cannot spend the whole epsilon"
    )


def _describe_budget(quote: Quote, name: str, total: Fraction) -> str:
    if quote.reservation is not None:
        return ""
    return f" (budget: {name} {_format_fraction(total, 6, ROUND_FLOOR)})"


def _describe_account(quote: Quote) -> str:
    of_reservation = "" if quote.reservation is None else f"reservation {quote.reservation} of "
    return f"{'' if quote.box == WHOLE else 'a part of '}{of_reservation}{quote.key}"


def _format_distinct(asked: Fraction, left: Fraction) -> tuple[str, str]:
    """Return both as text, with as few digits as show that they differ."""
    for digits in (6, 12, 24, 48):
        texts = _format_fraction(asked, digits, ROUND_HALF_EVEN), _format_fraction(left, digits, ROUND_FLOOR)
        if texts[0] != texts[1]:
            break
    return texts


def _format_fraction(value: Fraction, digits: int, rounding: str) -> str:
    context = Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    return str(rounded).lower() if abs(rounded.adjusted()) > 6 else format(rounded, "f")


def make_rollback_error(where: str, head: LedgerHead) -> IntegrityError:
    """Return the error for a ledger that does not hold a head that it had."""
    return IntegrityError(
        f"the ledger {where} does not contain entry {head.entries} as it was written: an older copy or another ledger"
        " was put in its place",
        code="ledger_rolled_back",
        hint="restore the newest copy: this one lacks the charges made since then",
    )
