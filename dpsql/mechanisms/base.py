"""What every mechanism offers, and the sensitivity that it is calibrated to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol

from dpsql.errors import DataError, InternalError, LossError
from dpsql.mechanisms.entropy import Entropy

_LEAST_PROBABILITY = Fraction(1, 2**900)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far one privacy unit moves a vector of integers, in lattice steps.

    `l1` is the largest change in l1 norm, `l2_squared` the square of the largest change in l2 norm.
    `linf` is the largest sum, over the groups of the vector, of each group's largest change; that it is no
    more than `l1` is all that is known of it where it is not given. InternalError if one is negative, or
    another norm passes the l1 norm, which no vector's does.

    >>> Sensitivity(l1=Fraction(2), l2_squared=Fraction(2))
    Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1), linf=Fraction(2, 1))
    """

    tag: ClassVar[str] = "Sensitivity"

    l1: Fraction
    l2_squared: Fraction
    linf: Fraction = Fraction(-1)

    def __post_init__(self) -> None:
        if self.l1 < 0 or not 0 <= self.l2_squared <= self.l1**2:
            raise InternalError(f"no vector has l1 norm {self.l1} and squared l2 norm {self.l2_squared}")
        if self.linf > self.l1:
            raise InternalError(f"no vector has l1 norm {self.l1} and l∞ norm {self.linf}")
        if self.linf < 0:
            object.__setattr__(self, "linf", self.l1)


class Mechanism(Protocol):
    """A symmetric law on the integers, added to exact values: one of them is one lattice step.

    A mechanism states its law, its variance and its tail; the rest follows from these.
    """

    __slots__ = ()

    name: ClassVar[str]

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """`size` independent draws from the exact law."""
        ...

    def variance_float(self) -> float:
        """The variance in squared lattice steps, rounded to nearest: for predictions, not for proofs."""
        ...

    def sum_tail_up(self, terms: int, threshold: int) -> float:
        """An upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`."""
        ...

    def describe(self) -> str:
        """The law in words, for plans and receipts."""
        ...

    def __hash__(self) -> int:
        """Equal mechanisms hash alike; a dataclass puts the hash of its parameters in place of this."""
        return hash(self.name)

    @property
    def std(self) -> float:
        """The standard deviation in lattice steps."""
        return math.sqrt(self.variance_float())

    def tail_up(self, threshold: int) -> float:
        """An upper bound on the probability that one draw is >= `threshold`."""
        return self.sum_tail_up(1, threshold)

    def half_width(self, confidence: float) -> int:
        """The smallest t, in lattice steps, with P(|draw| <= t) >= `confidence`, as `tail_up` shows it.

        DataError unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError(f"a confidence lies between 0 and 1, and {confidence} does not")
        outside = 1 - Fraction(confidence)
        return first(lambda t: 2 * Fraction(self.tail_up(t + 1)) <= outside)

    def sum_threshold(self, terms: int, probability: Fraction) -> int:
        """The smallest t >= 0 with P(sum of `terms` draws >= t) <= `probability`, as `sum_tail_up` shows it.

        The bound holds; rounding can only make t larger. LossError unless 2**-900 <= probability < 1,
        InternalError unless `terms` >= 1.
        """
        if terms < 1:
            raise InternalError(f"a sum has at least one term, not {terms}")
        if not _LEAST_PROBABILITY <= probability < 1:
            raise LossError("a probability of failure lies between 2**-900 and 1")
        return first(lambda t: Fraction(self.sum_tail_up(terms, t)) <= probability)


def calibrated(value: Fraction, bits: int, what: str) -> None:
    """Refuse a noise parameter that no sound plan asks for.

    InternalError unless `value` is a positive Fraction (a sensitivity of zero needs no noise and no
    mechanism); LossError if it is not within 2**-bits and 2**bits, far past all that a database holds.
    """
    if not isinstance(value, Fraction) or value <= 0:
        raise InternalError(f"the {what} of a mechanism is a positive Fraction, and {value!r} is not")
    if not Fraction(1, 2**bits) <= value <= 2**bits:
        raise LossError(
            f"the loss asked for leads to noise of an absurd {what}", hint="ask for a loss nearer to 1"
        )


def positive_loss(value: Fraction, what: str) -> Fraction:
    """`value` itself; LossError unless it is a positive Fraction."""
    if not isinstance(value, Fraction) or value <= 0:
        raise LossError(f"{what} is a positive Fraction, and {value!r} is not")
    return value


def first(holds: Callable[[int], bool]) -> int:
    """The smallest t >= 0 where `holds`, given that it holds from there on.

    >>> first(lambda t: t * t > 50)
    8
    """
    high = 1
    while not holds(high):
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
