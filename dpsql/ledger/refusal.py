"""The errors of a charge that exceeds a budget, and of a ledger that was rolled back."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from dpsql.accounting.partitions.boxes import WHOLE
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.errors import BudgetExhausted, IntegrityError
from dpsql.ledger.entry_kinds import CHARGE, RESERVE
from dpsql.ledger.protocol import Account, Head, Quote


def exhausted(account: Account, quote: Quote, kind: str = CHARGE, ahead: str = "") -> BudgetExhausted:
    """The error for a quote that does not fit: what was asked, by an entry of a kind, and what is left, as ε and as δ.

    The ε asked is that of the ε-DP query with the same cost; the ε left is rounded down. `ahead` is the account's period where that
    is later than the clock's: no renewal comes before it.
    """
    later = (
        f"; the budget was charged in {ahead} by a clock that was ahead, and renews after that, or, for a reason,"
        " from now on after dpsql ledger reset"
        if ahead
        else ""
    )
    whole = " of {}".format if quote.reservation is None else "".format
    asks = "the reservation" if kind == RESERVE else "the query"
    keys = asks if kind == RESERVE else "choosing group keys"
    if quote.spend.loss > quote.left.loss:
        asked = account.accountant.remaining_epsilon(NOTHING, quote.spend)
        left = account.accountant.remaining_epsilon(NOTHING, quote.left)
        asked_text, left_text = _distinguished(asked, left)
        return BudgetExhausted(
            f"{asks} asks for epsilon {asked_text} of {_whose(quote)}, where epsilon {left_text}"
            f" is left{whole(_text(account.budget.epsilon, 6, ROUND_FLOOR))}",
            hint=("nothing was charged; ask for less epsilon" if quote.left.loss else "nothing was charged")
            + later,
        )
    asked_text, left_text = _distinguished(quote.spend.delta_fraction, quote.left.delta_fraction)
    return BudgetExhausted(
        f"{keys} asks for delta {asked_text} of {_whose(quote)}, where delta {left_text}"
        f" is left{whole(_text(Fraction(account.limit.delta, Spend.UNIT), 6, ROUND_FLOOR))}",
        code="delta_exhausted",
        hint="nothing was charged; group by columns whose values the policy declares" + later,
    )


def _whose(quote: Quote) -> str:
    of_reservation = "" if quote.reservation is None else f"reservation {quote.reservation} of "
    return f"{'' if quote.box == WHOLE else 'a part of '}{of_reservation}{quote.key}"


def _distinguished(asked: Fraction, left: Fraction) -> tuple[str, str]:
    """Both as text, with as few digits as show that they differ."""
    for digits in (6, 12, 24, 48):
        texts = _text(asked, digits, ROUND_HALF_EVEN), _text(left, digits, ROUND_FLOOR)
        if texts[0] != texts[1]:
            break
    return texts


def _text(value: Fraction, digits: int, rounding: str) -> str:
    context = Context(prec=digits, rounding=rounding)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    return str(rounded).lower() if abs(rounded.adjusted()) > 6 else format(rounded, "f")


def rolled_back(where: str, head: Head) -> IntegrityError:
    """The error for a ledger that does not hold a head that it had."""
    return IntegrityError(
        f"the ledger {where} no longer holds entry {head.entries} as it was: an older or another one took its place",
        code="ledger_rolled_back",
        hint="put the newest copy back: this one has forgotten what was spent since",
    )
