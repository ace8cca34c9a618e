"""Privacy losses as fixed-point integers, so that the sums of a ledger are exact and the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.errors import LossError


@dataclass(frozen=True, slots=True)
class Charge:
    """A loss and a delta in units of 10^-30 (`UNIT` of them make 1).

    What the loss counts (ε, ρ, ...) is the accountant's business. Raises LossError for negatives and
    non-integers, so subtracting more than there is raises too.

    >>> Charge(2, 1) + Charge(3, 0) - Charge(1, 1)
    Charge(loss=4, delta=0)
    """

    UNIT: ClassVar[int] = 10**30

    loss: int
    delta: int

    def __post_init__(self) -> None:
        if type(self.loss) is not int or type(self.delta) is not int:
            raise LossError("a charge must be a whole number of units")
        if self.loss < 0 or self.delta < 0:
            raise LossError("a charge must not be negative")

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.loss + other.loss, self.delta + other.delta)

    def __sub__(self, other: Charge) -> Charge:
        return Charge(self.loss - other.loss, self.delta - other.delta)

    def is_within(self, limit: Charge) -> bool:
        """Return whether both the loss and the delta are at most the limit's."""
        return self.loss <= limit.loss and self.delta <= limit.delta

    @property
    def loss_fraction(self) -> Fraction:
        """The loss in the accountant's own measure, exactly."""
        return Fraction(self.loss, self.UNIT)

    @property
    def delta_fraction(self) -> Fraction:
        """The delta, exactly."""
        return Fraction(self.delta, self.UNIT)


NOTHING = Charge(0, 0)


def to_units_up(value: Fraction) -> int:
    """Return `value` in units, rounded up: for charges.

    >>> to_units_up(Fraction(1, 3)) * 3 - Charge.UNIT
    2
    """
    return -(-value.numerator * Charge.UNIT // value.denominator)


def to_units_down(value: Fraction) -> int:
    """Return `value` in units, rounded down: for limits.

    >>> to_units_down(Fraction(1, 3)) * 3 - Charge.UNIT
    -1
    """
    return value.numerator * Charge.UNIT // value.denominator
