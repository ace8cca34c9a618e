"""What an answer cost and what is left, in words; whatever is left is rounded down."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.accounting.accountants import accountant_named
from dpsql.shell.view import table

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.accounting import BudgetState
    from dpsql.result import Receipt


def rounded(value: Fraction, digits: int = 3, *, up: bool = False) -> str:
    """At most so many significant digits, rounded down, or up.

    >>> rounded(Fraction(2719, 1000)), rounded(Fraction(2711, 1000), up=True), rounded(Fraction(1, 10**8))
    ('2.71', '2.72', '1e-8')
    """
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    number = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    if -4 <= number.adjusted() <= 6:
        return format(number, "f")
    return format(number, "e").replace("e+", "e")


def percent_left(state: BudgetState) -> int:
    """The part of the budget's loss that is left, in whole percent, rounded down."""
    left = max(state.limit.loss - state.spent.loss, 0)
    return 100 * left // state.limit.loss if state.limit.loss else 0


def charged(receipt: Receipt, epsilon: Fraction | None, states: Iterable[BudgetState]) -> str:
    """One line a table: what the answer was charged, what is left.

    `epsilon` is the loss that was asked for; a receipt with an accuracy holds the one that was found for it.
    """
    if receipt.target is not None:
        epsilon = Fraction(receipt.target["epsilon"])
    known = {state.table: state for state in states}
    lines = []
    for entry in receipt.entries:
        state = known.get(entry["table"])
        if state is None:
            continue
        loss, delta = Fraction(entry["loss"]), Fraction(entry["delta"])
        symbol = accountant_named(state.accountant).symbol
        parts = [] if symbol == "ε" or epsilon is None else [f"{symbol} {rounded(loss, up=True)}"]
        parts += [f"δ {rounded(delta, up=True)}"] if delta else []
        price = rounded(loss if epsilon is None or symbol == "ε" else epsilon, 6, up=True)
        more = f" ({', '.join(parts)})" if parts else ""
        lines.append(f"charged to {state.table}: ε {price}{more}; {left(state)}")
    if lines:
        return "\n".join(lines)
    if receipt.loss is None:
        return "nothing was charged: the answer follows from the policy"
    return "nothing was charged: an earlier answer to the same question"


def left(state: BudgetState) -> str:
    """What is left of a budget.

    The percentage is of the loss; the ε is that of the largest single query that still fits. Under
    `zcdp` or `gdp` many small queries together may cost far more than that.
    """
    return f"{percent_left(state)}% left, at most ε {rounded(state.remaining_epsilon)} in one query"


def budget_table(states: Iterable[BudgetState]) -> Table:
    """A line for each private table."""
    heads = ("table", "accountant", "ε", "δ", "queries", "spent ε", "left", "next query ε ≤")
    rows = [
        (
            state.table,
            state.accountant,
            rounded(state.epsilon, 6),
            rounded(state.delta, 6),
            f"{state.queries:,}",
            rounded(state.spent_epsilon, up=True),
            f"{percent_left(state)}%",
            rounded(state.remaining_epsilon),
        )
        for state in states
    ]
    return table(heads, rows, right=(2, 3, 4, 5, 6, 7))
