"""What an accountant is, and what all accountants share.

An accountant interprets events and fixes a filter: the sum of the costs never passes the limit, whatever
the analyst asks and however the questions depend on earlier answers. It holds no state; the ledger
remembers. A new accountant is one file and one line of the registry, and inherits the law tests.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, Protocol

from dpsql.accounting.events import BoundedRange, Event, Pure
from dpsql.accounting.spend import NOTHING, Spend
from dpsql.errors import NotSupportedError, PolicyError


class Accountant(Protocol):
    """Interprets events as spends, and a budget as a limit of the sum of spends."""

    name: ClassVar[str]

    def limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Spend:
        """The most that may be spent so that everything together is (epsilon, delta)-DP, rounded down.

        `selection` is the part of delta for key selection; the default is the accountant's. Raises
        PolicyError where the accountant cannot keep such a budget.
        """
        ...

    def cost(self, event: Event) -> Spend:
        """What the event spends, rounded up; NotSupportedError if this accountant cannot say."""
        ...

    def gaussian_rho(self, epsilon: Fraction) -> Fraction | None:
        """The largest rho whose Gaussian release costs no more than an epsilon-DP one.

        None if Gaussian noise cannot be charged.
        """
        ...

    def epsilon_spent(self, spend: Spend, delta: Fraction, selection: Fraction | None = None) -> Fraction:
        """The ε that the spend amounts to under a budget with this delta, rounded up."""
        ...

    def remaining_epsilon(self, spend: Spend, limit: Spend) -> Fraction:
        """The largest ε of one more ε-DP query that fits, in whole units; 0 if none does."""
        ...


def split_delta(delta: Fraction, selection: Fraction) -> tuple[Fraction, Fraction]:
    """(delta for conversion, delta for selection); PolicyError if the share passes the whole."""
    if not 0 <= selection <= delta < 1:
        raise PolicyError("the selection share must lie between 0 and delta", code="delta_split")
    return delta - selection, selection


def composed_cost(cost: Callable[[Event], Spend], events: tuple[Event, ...]) -> Spend:
    """The sum of the parts' costs, each rounded up."""
    return sum(map(cost, events), start=NOTHING)


def not_charged(name: str, event: object) -> NotSupportedError:
    """The refusal of an event that the accountant of that `name` cannot charge."""
    return NotSupportedError(
        f"the accountant {name} cannot charge a {type(event).__name__} release",
        code="event_not_charged",
        hint="choose another mechanism, or another accountant when the ledger is made",
    )


def largest_epsilon(
    cost: Callable[[Event], Spend], left: int, kind: type[Pure | BoundedRange] = Pure
) -> Fraction:
    """The largest ε in whole units whose event of that kind costs at most `left` units of loss.

    It searches on the cost itself, so it is right for any accountant whose cost grows with ε.
    """

    def fits(units: int) -> bool:
        return cost(kind(Fraction(units, Spend.UNIT))).loss <= left

    if not fits(1):
        return Fraction(0)
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Fraction(low, Spend.UNIT)
