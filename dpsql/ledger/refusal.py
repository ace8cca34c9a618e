"""The errors of a charge that exceeds a budget, and of a ledger that was rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from dpsql.errors import BudgetExhausted, IntegrityError
from dpsql.ledger.entry_kinds import CHARGE, RESERVE
from dpsql.ledger.protocol import Account, Ledger, LedgerHead, Quote, TableCharge
from dpsql.privacy.accounting.charge import NOTHING, Charge
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.accounting.partitions.boxes import WHOLE


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
                f"nothing was charged; ask for less epsilon{_explain_conversion(account)}"
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


def _explain_conversion(account: Account) -> str:
    """Why one query may not spend the budget's epsilon, where the accountant converts what queries add up to; else nothing."""
    if account.accountant.compute_remaining_epsilon(NOTHING, account.limit) >= account.budget.epsilon:
        return ""
    return (
        f": the budget bounds all queries together; the accountant {account.accountant.name} adds up costs that are no epsilons,"
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
