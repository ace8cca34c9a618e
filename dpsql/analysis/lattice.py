"""The public lattice of a real value: integers that the engine adds up exactly.

Claim: the sum of a column's lattice points is the same whatever the order, threads or partitions.
Why: integers of at most 2^31 add without rounding, in 64 bits for a row and 128 for a table.
Source: Mironov 2012, "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.plan.interval import Interval

LEAST_EXPONENT = -1000
"""No step is smaller: its inverse must be a DOUBLE."""
BITS = 30
"""A value at the far bound is at most 2^BITS steps from zero."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Multiples of 2^exponent from `low` to `high` steps.

    >>> Lattice.of(Interval(0, 110), integral=True)
    Lattice(exponent=0, low=0, high=110)
    """

    tag: ClassVar[str] = "Lattice"

    exponent: int
    low: int
    high: int

    @classmethod
    def of(cls, interval: Interval, *, integral: bool, bits: int = BITS) -> Lattice:
        """The lattice of a bounded interval: its step follows from the bounds alone.

        Whole numbers keep a step of one while they fit: `bits` are what the larger end may have.
        """
        magnitude = interval.magnitude
        # The least e with magnitude <= 2^e, found without floats.
        exponent = 0 if magnitude == 0 else _ceil_log2(magnitude) - bits
        exponent = max(0 if integral else LEAST_EXPONENT, exponent)
        step = Fraction(2) ** exponent
        low, high = interval.ends
        return cls(exponent, math.floor(low / step), math.ceil(high / step))

    @property
    def step(self) -> Fraction:
        """The distance of neighbouring points, in the value's own units."""
        return Fraction(2) ** self.exponent

    def point(self, position: Fraction) -> int:
        """The point of a value, as the engine rounds it: half to even, and clamped.

        >>> [Lattice(0, 0, 3).point(Fraction(half, 2)) for half in (1, 3, 5, 9)]
        [0, 2, 2, 3]
        """
        return max(self.low, min(self.high, round(position / self.step)))

    @property
    def width(self) -> int:
        """Steps from the low to the high end."""
        return self.high - self.low

    @property
    def interval(self) -> Interval:
        """The interval between the ends, which encloses the one that the lattice was made for."""
        return Interval(self.low * self.step, self.high * self.step)


def _ceil_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** exponent < value:
        exponent += 1
    return exponent
