"""The words in which a budget refuses a charge."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from dpsql.accounting.ledger import Account, Quote
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.errors import BudgetExhausted


def exhausted(account: Account, quote: Quote) -> BudgetExhausted:
    """The error for a quote that does not fit: what was asked and what is left, as ε and as δ.

    The ε asked is that of the ε-DP query with the same cost; the ε left is rounded down.
    """
    if quote.spend.loss > quote.left.loss:
        asked = account.accountant.remaining_epsilon(NOTHING, quote.spend)
        left = account.accountant.remaining_epsilon(NOTHING, quote.left)
        asked_text, left_text = _told_apart(asked, left)
        return BudgetExhausted(
            f"the query asks for epsilon {asked_text} of table {quote.table}, where epsilon {left_text}"
            f" is left of {_text(account.budget.epsilon, 6, ROUND_FLOOR)}",
            hint="nothing was charged; ask for less epsilon" if quote.left.loss else "nothing was charged",
        )
    asked_text, left_text = _told_apart(quote.spend.delta_fraction, quote.left.delta_fraction)
    return BudgetExhausted(
        f"choosing group keys asks for delta {asked_text} of table {quote.table}, where delta {left_text}"
        f" is left of {_text(Fraction(account.limit.delta, Spend.UNIT), 6, ROUND_FLOOR)}",
        code="delta_exhausted",
        hint="nothing was charged; group by columns whose values the policy declares",
    )


def _told_apart(asked: Fraction, left: Fraction) -> tuple[str, str]:
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
