"""The errors of a charge that exceeds a budget, and of a ledger that was rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from dpsql.accounting.events import Pure
from dpsql.accounting.partitions.boxes import WHOLE
from dpsql.accounting.spend import NOTHING, Charge
from dpsql.errors import BudgetExhausted, IntegrityError
from dpsql.ledger.entry_kinds import CHARGE, RESERVE
from dpsql.ledger.protocol import Account, Ledger, LedgerHead, Quote, TableCharge


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
    """The error for a quote that does not fit: what was asked, by an entry of a kind, and what is left, as ε and as δ.

    The ε asked is that of the ε-DP query with the same cost; the ε left is rounded down. `later_period` is the account's period where that
    is later than the clock's: no renewal comes before it.
    """
    later = (
        f"; the budget was charged in {later_period} by a clock that was ahead, and renews after that, or, for a reason,"
        " from now on after dpsql ledger reset"
        if later_period
        else ""
    )
    whole = " of {}".format if quote.reservation is None else "".format
    asks = "the reservation" if kind == RESERVE else "the query"
    keys = asks if kind == RESERVE else "choosing group keys"
    if quote.charge.loss > quote.remaining.loss:
        asked = account.accountant.compute_remaining_epsilon(NOTHING, quote.charge)
        left = account.accountant.compute_remaining_epsilon(NOTHING, quote.remaining)
        asked_text, left_text = _format_distinct(asked, left)
        single = account.accountant.compute_remaining_epsilon(NOTHING, account.limit)
        if left and single < account.budget.epsilon:
            return _make_conversion_error(account, quote, asks, (asked_text, left_text), later)
        return BudgetExhausted(
            f"{asks} asks for epsilon {asked_text} of {_describe_account(quote)}, where epsilon {left_text}"
            f" is left{whole(_format_fraction(account.budget.epsilon, 6, ROUND_FLOOR))}",
            hint=(
                "nothing was charged; ask for less epsilon" if quote.remaining.loss else "nothing was charged"
            )
            + later,
        )
    asked_text, left_text = _format_distinct(quote.charge.delta_fraction, quote.remaining.delta_fraction)
    return BudgetExhausted(
        f"{keys} asks for delta {asked_text} of {_describe_account(quote)}, where delta {left_text}"
        f" is left{whole(_format_fraction(Fraction(account.limit.delta, Charge.UNIT), 6, ROUND_FLOOR))}",
        code="delta_exhausted",
        hint="nothing was charged; group by columns whose values the policy declares" + later,
    )


def _make_conversion_error(
    account: Account, quote: Quote, asks: str, texts: tuple[str, str], later: str
) -> BudgetExhausted:
    """The error where the budget's ε is not the sum of the queries' ε: one query alone may spend less than ε is left."""
    asked, left = texts
    total = _format_fraction(account.budget.epsilon, 6, ROUND_FLOOR)
    part = _format_fraction(Fraction(100 * quote.remaining.loss, account.limit.loss), 3, ROUND_FLOOR)
    of_budget = "" if quote.reservation is not None else f", of which {part}% is left,"
    return BudgetExhausted(
        f"{asks} asks for epsilon {asked} of {_describe_account(quote)}, where one query may spend at most epsilon {left}",
        hint=f"nothing was charged; ask for less epsilon: the budget of epsilon {total}{of_budget} bounds all queries "
        f"together; with the accountant {account.accountant.name} each query costs less than its epsilon, and their sum is "
        f"converted with delta, so that one query alone cannot spend the whole epsilon{later}",
    )


def _describe_account(quote: Quote) -> str:
    of_reservation = "" if quote.reservation is None else f"reservation {quote.reservation} of "
    return f"{'' if quote.box == WHOLE else 'a part of '}{of_reservation}{quote.key}"


def _format_distinct(asked: Fraction, left: Fraction) -> tuple[str, str]:
    """Both as text, with as few digits as show that they differ."""
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
    """The error for a ledger that does not hold a head that it had."""
    return IntegrityError(
        f"the ledger {where} no longer holds entry {head.entries} as it was: an older or another one took its place",
        code="ledger_rolled_back",
        hint="put the newest copy back: this one has forgotten what was spent since",
    )
