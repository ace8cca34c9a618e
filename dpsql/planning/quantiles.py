"""Values in order of size, chosen among the points of their interval by how far each is from a rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.analysis.lattice import Lattice
from dpsql.mechanisms import Entropy, Exponential
from dpsql.mechanisms.selection import uniform

_BITS = 40
"""Far points, all together, are chosen with probability 2^-40 at most: so much is lost by not telling them apart."""
_FAR = 10**30
"""No table has so many rows."""
_ENDS = 8
"""The least and the greatest value are told from those inside by eighths of a row."""
_TAIL = Fraction(1, 10)
"""Ranks as near as that to 0 or 1 are moved inside where few rows lie beyond them; it costs 6% of the noise at most."""
_OUTSIDE = 6
"""A point outside all values is chosen with probability e^-6 at most, but for few rows: by what `shift` is."""
_MISSED = 4
"""An end of an interval is on the wrong side of its value with probability e^-4 at most, which is below 2.5%."""

PUBLIC = ((Fraction(0), -1), (Fraction(1), 1))
"""Ranks with their ends that nothing but the lattice says: what lies below the least value, and above the greatest."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a group's values: how many there are, how many lie before the first of `runs`, and these.

    A run is a lattice point with the number of values there, in order of size; all within reach of the rank.
    """

    count: int = 0
    before: int = 0
    runs: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return "Window(…)"  # what is exact shows nowhere

    @classmethod
    def of(cls, packed: Sequence[int] | None) -> Window:
        """From the numbers that the statement gives: count, before, then points and their counts in turn."""
        if packed is None:
            return cls()
        count, before, *rest = map(int, packed)
        return cls(count, before, tuple(zip(rest[::2], rest[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class QuantileSelection:
    """The point of a measure's lattice that a share `rank` of its values lie below, and how it is chosen.

    Of n values, with b below a point and h at it, the penalty of the point is how far offset(n) is from the
    interval [whole·b, whole·(b+h)], or `far` where that is less. For a rank p/m, whole is m and offset(n) is
    p·n. That of a rank near 0 or 1, least and greatest value among them, is further inside, as `shift` says: all points
    outside the values have none beyond them, and would be as good as the value itself, or hardly worse.

    An `end`, -1 or 1, of an interval for that point is asked for by an offset that is `reach` steps lower or higher;
    the least, or the greatest, point of the lattice counts as if any number of values lay beyond it there.

    Claim: one more row moves the penalties of any two points apart by at most `step_range`.
    Why: offset(n) moves by `least_growth` to whole less that, an end of the interval by whole or not at all; so the
    distances to both ends move by at most whole less that, up or down, and with them what is the largest of the two
    and zero. Taking the lesser with `far`, or one of the two distances for zero at a point, moves nothing further apart.
    Source: Smith 2011, "Privacy-preserving statistical estimation with optimal convergence rates",
    Algorithm 2; Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential
    mechanisms", section 3 (range).

    >>> QuantileSelection.step_range(Fraction(1, 2)), QuantileSelection.step_range(Fraction(9, 10)), QuantileSelection.step_range(Fraction(1))
    (2, 38, 16)
    """

    tag: ClassVar[str] = "Ranked"

    measure: int
    rank: Fraction
    lattice: Lattice
    mechanism: Exponential
    interval_end: int = 0

    @staticmethod
    def step_range(rank: Fraction) -> int:
        """How far one row moves the penalties of two points apart at most."""
        return 2 * (_steps_per_row(rank) - _least_growth(rank))

    @property
    def public(self) -> bool:
        """Whether nothing but the lattice says what it is."""
        return (self.rank, self.interval_end) in PUBLIC

    @property
    def steps_per_row(self) -> int:
        """The steps of penalty to a row."""
        return _steps_per_row(self.rank)

    @property
    def steps_below(self) -> int:
        """The part of them that lies below the rank."""
        return int(self.rank * self.steps_per_row)

    @property
    def steps_to_end(self) -> int:
        """The steps of penalty to a row that lie between the rank and the end of the values that is nearer."""
        return min(self.steps_below, self.steps_per_row - self.steps_below)

    @property
    def least_growth(self) -> int:
        """The steps by which one more row moves the best point, from either end of the values, at least."""
        return _least_growth(self.rank)

    @property
    def shift(self) -> int:
        """How far inside the nearer end of the values the best point lies, where that has few values beyond, in steps of penalty.

        Claim: of enough values, a point beyond that end of all of them is chosen with probability e^-6 at most.
        Why: some value's point has no penalty, as the offset is among the values, and each of the w points beyond has a
        penalty of `shift` or more: for a rate r, w e^(-r shift) is at most e^-6. The width of the lattice and the
        rate are public. Of so few values that half of them are less than the shift, the best point is their middle, which
        is farthest from both ends.
        Source: McSherry, Talwar 2007, Theorem 7.
        """
        return self._steps(_OUTSIDE) if _tail(self.rank) and not self.interval_end else 0

    @property
    def reach(self) -> int:
        """How far beyond the value that it is an end for the best point of an end lies, in steps of penalty.

        Claim: the chosen point lies above the value, for a lower end, with probability 2.5% at most.
        Why: there is always a point without penalty, and each point above the value has a penalty of reach or more: for
        w points at rate r, w e^(-r reach) is at most e^-4.
        Source: McSherry, Talwar 2007, Theorem 7.
        """
        return self._steps(_MISSED) if self.interval_end else 0

    def _steps(self, nats: int) -> int:
        """The penalty at which all points of the lattice together weigh e^-`nats` at most of one without penalty."""
        # ln 2 is below 0.7.
        tenths = (7 * _log2(self.lattice) + 10 * nats) * self.mechanism.rate.denominator
        return min(_FAR, -(-tenths // (10 * self.mechanism.rate.numerator)))

    def offset(self, count: int) -> int:
        """Where among the values, in steps of penalty from the least up, the best point lies."""
        if not self.shift:
            return self.steps_below * count + self.interval_end * self.reach
        inside = max(
            self.steps_to_end * count,
            min(self.steps_per_row // 2 * count, self.shift + self.least_growth * count),
        )
        return inside if self.rank < Fraction(1, 2) else self.steps_per_row * count - inside

    @property
    def cutoff(self) -> int:
        """The penalty beyond which points are not told apart: a constant, whatever the values are."""
        bits = _log2(self.lattice) + _BITS
        # ln 2 is below 0.7.
        return min(
            _FAR, -(-bits * 7 * self.mechanism.rate.denominator // (10 * self.mechanism.rate.numerator))
        )

    def regions(self, window: Window) -> list[tuple[int, int, int]]:
        """The points in order: the first of each region, how many they are, and their penalty.

        Those of no value share their neighbours' region, and each value's point is a region of its own.
        """
        lattice, offset = self.lattice, self.offset(window.count)
        start, below = lattice.low, window.before
        found = []
        edge, runs = self._edge(window)

        def add(size: int, here: int) -> None:
            above, under = self.steps_per_row * below - offset, offset - self.steps_per_row * (below + here)
            if start == edge and size == 1:
                above, under = (0, under) if self.interval_end < 0 else (above, 0)
            found.append((start, size, min(self.cutoff, max(0, above, under))))

        for point, here in runs:
            add(point - start, 0)
            start = point
            add(1, here)
            start, below = point + 1, below + here
        add(lattice.high + 1 - start, 0)
        return found

    def _edge(self, window: Window) -> tuple[int | None, tuple[tuple[int, int], ...]]:
        """The point beyond which an end is never refused, None for what is no end; and the runs, with one for it."""
        if not self.interval_end:
            return None, window.runs
        edge = self.lattice.low if self.interval_end < 0 else self.lattice.high
        if any(point == edge for point, _ in window.runs):
            return edge, window.runs
        return edge, ((edge, 0), *window.runs) if self.interval_end < 0 else (*window.runs, (edge, 0))

    def choose(self, window: Window, entropy: Entropy) -> int:
        """The chosen point, in lattice steps."""
        if self.public:
            return self.lattice.low if self.interval_end < 0 else self.lattice.high
        regions = self.regions(window)
        chosen = self.mechanism.choose(
            [size for _, size, _ in regions], [penalty for _, _, penalty in regions], entropy
        )
        start, size, _ = regions[chosen]
        return start + uniform(size, entropy)

    def rows(self, confidence: float) -> float:
        """How many rows beyond its rank a chosen point is at most, with that probability.

        Source: McSherry, Talwar 2007, Theorem 7, where at least one point has no penalty to speak of.
        """
        points = math.log(self.lattice.width + 1) - math.log(1 - confidence)
        return (points / float(self.mechanism.rate) + self.shift + self.reach) / self.steps_per_row

    @property
    def statistic(self) -> str:
        """What is chosen, in words."""
        end = {-1: ", the lower end of its interval", 1: ", the upper end of its interval"}.get(
            self.interval_end, ""
        )
        return f"x{self.measure} at rank {float(self.rank):.12g}{end}"

    def describe(self) -> str:
        """The law in words."""
        if self.public:
            return "the bound itself, which is public"
        return f"{self.mechanism.describe()}, over {self.lattice.width + 1:,} points"


def _log2(lattice: Lattice) -> int:
    """The logarithm of the number of points to the base 2, rounded up."""
    return (lattice.width + 1).bit_length()


def _tail(rank: Fraction) -> bool:
    """Whether a rank is so near to 0 or 1 that few rows lie beyond it."""
    return min(rank, 1 - rank) <= _TAIL


def _steps_per_row(rank: Fraction) -> int:
    """The steps of penalty to a row: twice as many as the rank needs, in a tail, where half of them may be its growth."""
    if rank in (0, 1):
        return _ENDS
    return rank.denominator * (2 if _tail(rank) else 1)


def _least_growth(rank: Fraction) -> int:
    """Half of what lies beyond a rank of a tail, so that what it is moved inside is made up for by further rows."""
    near = int(min(rank, 1 - rank) * _steps_per_row(rank))
    return near // 2 if _tail(rank) else near
