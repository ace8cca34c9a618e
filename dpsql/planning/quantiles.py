"""Private quantiles: the exponential mechanism over the points of a lattice, with penalties in ranks."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.analysis.release_analysis import Lattice
from dpsql.privacy.mechanisms import Entropy, Exponential
from dpsql.privacy.mechanisms.selection import sample_uniform_index

_BITS = 40
"""Penalties are cut off where all points beyond are chosen with probability at most 2^-40 together."""
_FAR = 10**30
"""A number above the rows of any table."""
_ENDS = 8
"""Penalty steps per row for the minimum and the maximum: they differ from inner values by eighths of a row."""
_TAIL = Fraction(1, 10)
"""Ranks this close to 0 or 1 are moved inward if few rows are beyond them; this adds at most 6% of noise."""
_OUTSIDE = 6
"""`shift` is such that a point outside all values is chosen with probability at most e^-6, unless there are few rows."""
_MISSED = 4
"""An interval end is on the wrong side of its quantile with probability at most e^-4, which is below 2.5%."""

PUBLIC = ((Fraction(0), -1), (Fraction(1), 1))
"""The ranks and interval ends that the lattice alone gives: below the minimum and above the maximum."""


@dataclass(frozen=True, slots=True)
class RankWindow:
    """The exact values of a group near a rank: `count` of all values, the number `count_before` the first run, and the runs.

    A run is a lattice point and the number of values there. Runs are sorted, and cover all points with penalties below
    the cutoff.
    """

    count: int = 0
    count_before: int = 0
    runs: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return "Window(…)"  # exact values are never displayed

    @classmethod
    def from_packed(cls, packed: Sequence[int] | None) -> RankWindow:
        """Return the window from the list that the statement returns: count, before, then points and counts in turn."""
        if packed is None:
            return cls()
        count, before, *rest = map(int, packed)
        return cls(count, before, tuple(zip(rest[::2], rest[1::2], strict=True)))


@dataclass(frozen=True, slots=True)
class QuantileSelection:
    """The private choice of a quantile: a lattice point below which a share `rank` of the values lie.

    Let w be `steps_per_row`. Of n values, with b below a point and h at it, the penalty of the point is the distance of
    offset(n) from the interval [w·b, w·(b+h)], at most `cutoff`. For a rank p/m, w is m and offset(n) is p·n. For a rank
    near 0 or 1 the offset is moved inward by `shift`: no value is beyond the points outside all values, so their penalty
    would be as low as that of the quantile, or hardly higher.

    The candidates are all points of the lattice, or those `candidate_points` them that public values have, in order.

    An `interval_end` of -1 or 1 moves the offset `reach` steps down or up. There the least or greatest point of the
    lattice is treated as if any number of values were beyond it.

    Claim: one more row changes the difference of the penalties of two points by at most `compute_step_range`.
    The candidates do not change.
    Why: offset(n) grows by g to w - g, g being `least_growth`; an end of the interval grows by w or not at all. So the
    distances to both ends change by at most w - g in either direction, and so does the maximum of the two and zero. The
    minimum with `cutoff`, or dropping one of the distances at a point, enlarges no difference.
    Source: Smith 2011, "Privacy-preserving statistical estimation with optimal convergence rates",
    Algorithm 2; Dong, Durfee, Rogers 2020, "Optimal differential privacy composition for exponential
    mechanisms", section 3 (range).

    >>> QuantileSelection.compute_step_range(Fraction(1, 2)), QuantileSelection.compute_step_range(Fraction(9, 10)), QuantileSelection.compute_step_range(Fraction(1))
    (2, 38, 16)
    """

    tag: ClassVar[str] = "Ranked"

    measure: int
    rank: Fraction
    lattice: Lattice
    mechanism: Exponential
    interval_end: int = 0
    candidate_points: tuple[int, ...] | None = None

    @staticmethod
    def compute_step_range(rank: Fraction) -> int:
        """Return the most by which one row changes the difference of the penalties of two points."""
        return 2 * (_compute_steps_per_row(rank) - _compute_least_growth(rank))

    @property
    def is_public(self) -> bool:
        """Return whether the choice is an end of the lattice, which is public."""
        return (self.rank, self.interval_end) in PUBLIC

    @property
    def candidates(self) -> int:
        """Return the number of points that may be chosen. It has as many bits as its base-2 logarithm, rounded up."""
        return self.lattice.width + 1 if self.candidate_points is None else len(self.candidate_points)

    @property
    def steps_per_row(self) -> int:
        """Return the penalty steps per row."""
        return _compute_steps_per_row(self.rank)

    @property
    def steps_below(self) -> int:
        """Return the penalty steps per row below the rank."""
        return int(self.rank * self.steps_per_row)

    @property
    def steps_to_end(self) -> int:
        """Return the penalty steps per row between the rank and the nearer end of the values."""
        return min(self.steps_below, self.steps_per_row - self.steps_below)

    @property
    def least_growth(self) -> int:
        """Return the least number of steps by which one more row moves the offset, from either end of the values."""
        return _compute_least_growth(self.rank)

    @property
    def shift(self) -> int:
        """Return the least distance of the offset from the nearer end of the values, in penalty steps; 0 if not moved inward.

        Claim: with enough values, a point beyond that end is chosen with probability at most e^-6.
        Why: the point of some value has no penalty, since the offset is among the values, and each of the w points
        beyond has a penalty of at least `shift`: for a rate r, w e^(-r shift) is at most e^-6. The number of candidates
        and the rate are public. If half of the values are fewer than the shift, the offset is their middle, which is
        farthest from both ends.
        Source: McSherry, Talwar 2007, Theorem 7.
        """
        return self._compute_penalty_steps(_OUTSIDE) if _is_tail(self.rank) and not self.interval_end else 0

    @property
    def reach(self) -> int:
        """Return the distance of the offset of an interval end from that of the quantile, in penalty steps.

        Claim: the chosen lower end is above the quantile with probability at most 2.5%, and the upper end below it.
        Why: some point has no penalty, and each point above the quantile has a penalty of at least `reach`: for w points
        at rate r, w e^(-r reach) is at most e^-4.
        Source: McSherry, Talwar 2007, Theorem 7.
        """
        return self._compute_penalty_steps(_MISSED) if self.interval_end else 0

    def _compute_penalty_steps(self, nats: int) -> int:
        """Return the penalty at which all points together weigh at most e^-`nats` times a point without penalty."""
        # ln 2 is below 0.7.
        tenths = (7 * self.candidates.bit_length() + 10 * nats) * self.mechanism.rate.denominator
        return min(_FAR, -(-tenths // (10 * self.mechanism.rate.numerator)))

    def compute_offset(self, count: int) -> int:
        """Return the target rank among `count` values, in penalty steps from the least value up."""
        (found,) = self.compute_offsets([count])
        return found

    def compute_offsets(self, counts: Sequence[int]) -> list[int]:
        """Return the target rank among each number of values, in penalty steps from the least value up."""
        shift, below = self.shift, self.steps_below
        if not shift:
            moved = self.interval_end * self.reach
            return [below * count + moved for count in counts]
        each, growth, end = self.steps_per_row, self.least_growth, self.steps_to_end
        inside = [max(end * count, min(each // 2 * count, shift + growth * count)) for count in counts]
        if self.rank < Fraction(1, 2):
            return inside
        return [each * count - rows for count, rows in zip(counts, inside, strict=True)]

    @property
    def cutoff(self) -> int:
        """Return the greatest penalty: a constant that does not depend on the data."""
        bits = self.candidates.bit_length() + _BITS
        # ln 2 is below 0.7.
        return min(
            _FAR, -(-bits * 7 * self.mechanism.rate.denominator // (10 * self.mechanism.rate.numerator))
        )

    def list_regions(self, window: RankWindow) -> list[tuple[int, int, int]]:
        """Return the lattice as regions of equal penalty, in order: first point, number of points, penalty.

        The point of a value is a region of its own; the points between two values form one region.
        """
        lattice, offset, cutoff = self.lattice, self.compute_offset(window.count), self.cutoff
        each, start, below = self.steps_per_row, lattice.low, window.count_before
        found = []
        edge, runs = self._find_edge(window)

        def add_region(size: int, here: int) -> None:
            above, under = each * below - offset, offset - each * (below + here)
            if start == edge and size == 1:
                above, under = (0, under) if self.interval_end < 0 else (above, 0)
            found.append((start, size, min(cutoff, max(0, above, under))))

        for point, here in runs:
            add_region(point - start, 0)
            start = point
            add_region(1, here)
            start, below = point + 1, below + here
        add_region(lattice.high + 1 - start, 0)
        return found

    def _find_edge(self, window: RankWindow) -> tuple[int | None, tuple[tuple[int, int], ...]]:
        """Return the lattice end that has no penalty for the interval end, or None; and the runs, with one for this point."""
        if not self.interval_end:
            return None, window.runs
        edge = self.lattice.low if self.interval_end < 0 else self.lattice.high
        if any(point == edge for point, _ in window.runs):
            return edge, window.runs
        return edge, ((edge, 0), *window.runs) if self.interval_end < 0 else (*window.runs, (edge, 0))

    def select_point(self, window: RankWindow, entropy: Entropy) -> int:
        """Return the chosen point, in lattice steps."""
        if self.is_public:
            return self.lattice.low if self.interval_end < 0 else self.lattice.high
        regions = self.list_regions(window)
        sizes = [self._count_candidates(start, size) for start, size, _ in regions]
        chosen = self.mechanism.select_candidate(sizes, [penalty for _, _, penalty in regions], entropy)
        start, place = regions[chosen][0], sample_uniform_index(sizes[chosen], entropy)
        return (
            start + place
            if self.candidate_points is None
            else self.candidate_points[bisect_left(self.candidate_points, start) + place]
        )

    def round_outward(self, point: int) -> int:
        """Return the point of an interval end, moved outward by one; other points, ends of the lattice and whole numbers as they are.

        Claim: an interval that holds the quantile of the values on the lattice then holds that of the values.
        Why: each value is less than a step from its point, so their quantiles are, too.
        """
        if not self.interval_end or self.is_public or self.lattice.step == 1:
            return point
        return min(max(point + self.interval_end, self.lattice.low), self.lattice.high)

    def _count_candidates(self, start: int, size: int) -> int:
        """Return the number of candidates in a region."""
        if self.candidate_points is None:
            return size
        return bisect_left(self.candidate_points, start + size) - bisect_left(self.candidate_points, start)

    def bound_row_error(self, confidence: float) -> float:
        """Return the error of the chosen point in rows, at this confidence.

        Source: McSherry, Talwar 2007, Theorem 7, where at least one point has a negligible penalty.
        """
        points = math.log(self.candidates) - math.log(1 - confidence)
        return (points / float(self.mechanism.rate) + self.shift + self.reach) / self.steps_per_row

    @property
    def statistic(self) -> str:
        """Return the chosen statistic, for EXPLAIN and receipts."""
        end = {-1: ", the lower end of its interval", 1: ", the upper end of its interval"}.get(
            self.interval_end, ""
        )
        return f"x{self.measure} at rank {float(self.rank):.12g}{end}"

    def describe(self) -> str:
        """Return the mechanism, for EXPLAIN and receipts."""
        if self.is_public:
            return "the bound itself, which is public"
        what = "points" if self.candidate_points is None else "public values"
        return f"{self.mechanism.describe()}, over {self.candidates:,} {what}"


def _is_tail(rank: Fraction) -> bool:
    """Return whether a rank is so close to 0 or 1 that few rows may be beyond it."""
    return min(rank, 1 - rank) <= _TAIL


def _compute_steps_per_row(rank: Fraction) -> int:
    """Return the penalty steps per row: the rank's denominator, doubled for ranks near 0 or 1, so that half a step can be the growth."""
    if rank in (0, 1):
        return _ENDS
    return rank.denominator * (2 if _is_tail(rank) else 1)


def _compute_least_growth(rank: Fraction) -> int:
    """Return, for ranks near 0 or 1, half of the steps beyond the rank: the inward shift then vanishes as rows are added."""
    near = int(min(rank, 1 - rank) * _compute_steps_per_row(rank))
    return near // 2 if _is_tail(rank) else near
