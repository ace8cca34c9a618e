"""The public lattice of a real value: integers that the engine sums exactly.

Claim: the sum of a column's lattice points is the same whatever the order, threads or partitions.
Why: integers of at most 2^31 add without rounding, in 64 bits for a row and 128 for a table.
Source: Mironov 2012, "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.plan.interval import Interval

LEAST_EXPONENT = -1000
"""No step is smaller: its inverse must be a DOUBLE."""
BITS = 30
"""A value at the far bound is at most 2^BITS steps from zero."""
DECIMAL_BITS = 50
"""Below 2^50 steps of the last digit, DOUBLE distinguishes decimals and the points between them."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Multiples of 2^exponent / 10^digits from `low` to `high` steps.

    >>> Lattice.from_interval(Interval(0, 110), integral=True)
    Lattice(exponent=0, low=0, high=110, digits=0)
    """

    tag: ClassVar[str] = "Lattice"

    exponent: int
    low: int
    high: int
    digits: int = 0

    @classmethod
    def from_interval(
        cls, interval: Interval, *, integral: bool, bits: int = BITS, digits: int | None = None
    ) -> Lattice:
        """Return the lattice of a bounded interval: its step follows from the bounds and the type alone.

        Whole numbers keep a step of one while they fit, and decimals with `digits` after the point one of 10^-digits: `bits`
        are what the larger end may have.

        >>> Lattice.from_interval(Interval(0, 100), integral=False, digits=2).step
        Fraction(1, 100)
        """
        if digits is not None:
            times = 10**digits
            whole = cls.from_interval(
                Interval(*(end * times for end in interval.ends)), integral=True, bits=bits
            )
            return replace(whole, digits=digits)
        magnitude = interval.magnitude
        # The least e with magnitude <= 2^e, found without floats.
        exponent = 0 if magnitude == 0 else _ceil_log2(magnitude) - bits
        exponent = max(0 if integral else LEAST_EXPONENT, exponent)
        step = Fraction(2) ** exponent
        low, high = interval.ends
        return cls(exponent, math.floor(low / step), math.ceil(high / step))

    @property
    def step(self) -> Fraction:
        """The distance of neighboring points, in the value's own units."""
        return Fraction(2) ** self.exponent / Fraction(10**self.digits)

    def round_to_point(self, position: Fraction) -> int:
        """Return the point of a value, as the engine rounds it: half to even, and clamped.

        >>> [Lattice(0, 0, 3).round_to_point(Fraction(half, 2)) for half in (1, 3, 5, 9)]
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
