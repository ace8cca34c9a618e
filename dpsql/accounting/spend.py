"""Privacy losses as fixed-point integers, so that the sums of a ledger are exact and the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.errors import LossError


@dataclass(frozen=True, slots=True)
class Spend:
    """A loss and a delta in units of 10^-30 (`UNIT` of them make 1).

    What the loss counts (ε, ρ, ...) is the accountant's business. Raises LossError for negatives and
    non-integers, so subtracting more than there is raises too.

    >>> Spend(2, 1) + Spend(3, 0) - Spend(1, 1)
    Spend(loss=4, delta=0)
    """

    UNIT: ClassVar[int] = 10**30

    loss: int
    delta: int

    def __post_init__(self) -> None:
        if type(self.loss) is not int or type(self.delta) is not int:
            raise LossError("a spend counts whole units")
        if self.loss < 0 or self.delta < 0:
            raise LossError("a spend is never negative")

    def __add__(self, other: Spend) -> Spend:
        return Spend(self.loss + other.loss, self.delta + other.delta)

    def __sub__(self, other: Spend) -> Spend:
        return Spend(self.loss - other.loss, self.delta - other.delta)

    def within(self, limit: Spend) -> bool:
        """Whether both the loss and the delta are at most the limit's."""
        return self.loss <= limit.loss and self.delta <= limit.delta

    @property
    def loss_fraction(self) -> Fraction:
        """The loss in the accountant's own measure, exactly."""
        return Fraction(self.loss, self.UNIT)

    @property
    def delta_fraction(self) -> Fraction:
        """The delta, exactly."""
        return Fraction(self.delta, self.UNIT)


NOTHING = Spend(0, 0)


def units_up(value: Fraction) -> int:
    """`value` in units, rounded up: for costs.

    >>> units_up(Fraction(1, 3)) * 3 - Spend.UNIT
    2
    """
    return -(-value.numerator * Spend.UNIT // value.denominator)


def units_down(value: Fraction) -> int:
    """`value` in units, rounded down: for limits.

    >>> units_down(Fraction(1, 3)) * 3 - Spend.UNIT
    -1
    """
    return value.numerator * Spend.UNIT // value.denominator
