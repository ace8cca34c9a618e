"""Clamps: the rule by which they are chosen, and the sensitivities that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, log, prod
from typing import ClassVar

from dpsql.analysis.release_analysis import Analysis, Lattice
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.types import TaggedEnum
from dpsql.planning.statistics import StatisticVector, UnitChange, compute_sensitivity, compute_unit_change
from dpsql.privacy.mechanisms import (
    Entropy,
    Exponential,
    Sensitivity,
)

# The rule by which clamps are chosen: public constants.


MOST_RELEASED = 256
"""No more groups of a public domain are expected to have units: in a larger one many may be empty."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The constants of releases with at most `groups` groups: the part of the loss that the choice spends, and the exponent.

    Claim: more groups want a smaller part, and a larger exponent.
    Why: what units have beyond a clamp is divided among the groups, and noise is added to each. So in few groups a clamp
    must leave few units beyond it, and the choice must tell few units apart.
    """

    groups: int
    exponent: int
    share: Fraction
    pure_share: Fraction


TIERS = (
    Tier(4, 1, Fraction(1, 6), Fraction(1, 4)),
    Tier(15, 2, Fraction(1, 6), Fraction(1, 5)),
    Tier(63, 3, Fraction(1, 12), Fraction(1, 6)),
    Tier(2**30, 4, Fraction(1, 25), Fraction(1, 12)),
)
"""Measured by `benchmarks.clamps`."""


def get_tier(groups: int) -> Tier:
    """Return the constants of releases with this number of groups."""
    return next(each for each in TIERS if groups <= each.groups)


@dataclass(frozen=True, slots=True)
class ClampSelectionRule:
    """The public constants by which clamps are chosen.

    `share` is the part of a statistic's loss that the choice of its clamp spends, and `exponent` the power of the inverse
    of a point that is its prior weight; `pure_share` is the share of pure accounting. Where the number of groups is known, the
    constants follow from it (`TIERS`): the share where it is public, the exponent where it is released. `tolerance` is the
    mean error that units beyond the clamp may cause in a group, as a part of the noise. `slack` is the surplus of evidence,
    as a log of odds, that a point below the greatest needs.
    """

    share: Fraction
    pure_share: Fraction
    exponent: int
    tolerance: Fraction
    slack: int

    def get_share(self, analysis: Analysis, *, pure: bool) -> Fraction:
        """Return the part of a statistic's loss that the choice of its clamp spends."""
        is_public = not analysis.is_grouped or analysis.domains is not None
        found = get_tier(count_released_groups(analysis)) if is_public else self
        return found.pure_share if pure else found.share

    def compute_min_support(self, mechanism: Exponential) -> int:
        """Return the `slack`, in steps of the mechanism's rate: the units that must contribute beyond all odds."""
        return -(-self.slack // mechanism.rate)


RULE = ClampSelectionRule(
    share=Fraction(1, 5), pure_share=Fraction(1, 4), exponent=4, tolerance=Fraction(2, 5), slack=12
)
"""The constants for which intervals hold the true value, including what clamps cut off, in `benchmarks.clamps`."""


def count_released_groups(analysis: Analysis) -> int:
    """Return the number of groups of a release, if their keys are public; else 1, until they are selected."""
    return 1 if analysis.domains is None else min(MOST_RELEASED, prod(map(len, analysis.domains)))


# Clamping thresholds for the contributions of units, chosen privately from the data.


OCTAVES = 14
"""The least point is the greatest contribution, halved this many times."""
EXPECTED_VALUE = 8
"""One part in eight of a bound is the expected magnitude of values whose total and count are measured apart: the geometric
mean of the factors by which bounds exceed the values, from 1 to 64."""
_LEAST_WEIGHT = 2**10
"""The prior weight of the greatest point: with it, those of the points below it are as different as they should be."""
BEYOND_CONFIDENCE = 0.95
"""The confidence at which it is said how many units contribute more than a clamp."""
NORM_BITS = 46
"""The most bits of a contribution to a group that is squared. With these, no sum of squares overflows."""
SUBDIVISIONS = 2**16
"""The subdivisions of a row or lattice step in which clamped contributions and means are counted. A clamp across groups
has more subdivisions, so that each group has as many."""


class Amount(TaggedEnum):
    """The contribution of a unit that is clamped: its rows, its total of a measure, or its groups."""

    ROWS = "rows", "ROWS"
    TOTAL = "total", "TOTAL"
    GROUPS = "groups", "GROUPS"


@dataclass(frozen=True, slots=True)
class Clamp:
    """A clamp on the rows of a unit, on each side of its total of one measure, or on its groups.

    `measures` are the measure of a total; for rows, the measures that share the clamp (None: rows of any kind); for
    groups, None. `sides` are the signs that a total can have. `across_groups` says that the clamp limits the unit's
    contribution to all its groups together; contributions above it are scaled down in each group. `subdivisions` are
    those of a row or lattice step in which clamped contributions are counted. `grid` ends with the greatest contribution
    of a unit. `exponent` is the power of the inverse of a point that is its weight where many groups are released.
    `chosen` has the index of the chosen point of each side, and is empty before the release; `default_index` is
    the index that the noise is calibrated to until then. `euclidean` says that a clamp across groups limits the l2 norm
    of the contributions, and not their sum. `tolerance` is the square of the number of units beyond the clamp that are
    tolerated for each of the `released_groups` groups, and `min_support` the number that is needed beyond these and the prior odds:
    see `compute_penalties`. Without `min_support` any point may be chosen, and `exponent` holds for any number of groups.

    Claim: the choices of both sides together have a range of `mechanism.rate` times n, where n is the most groups of a
    unit; 1 for a clamp on groups; the number of sides for a clamp across groups; and twice as much under `replace`.
    Why: the penalties of a point follow from the unit-group pairs, the units by their groups, or the units by their
    contribution to all groups. Adding one of these raises the penalty of any point by at most one, and lowers none (see
    `compute_penalties`); a unit is one of them, or as many as its groups. The contribution of a unit to a group has one sign.
    Source: McSherry, Talwar 2007, Theorem 6; Dong, Durfee, Rogers 2020, section 3 (range); Durfee 2023,
    "Unbounded differentially private quantile and maximum estimation", section 5 (clamps for sums).

    A *clamp* is a threshold on a public grid. It limits the rows of a unit, its total in lattice steps, or its groups; rows and
    totals are limited in each group, or across all groups of the unit, in their sum or in their l2 norm. The noise is calibrated to
    the threshold. The exponential mechanism chooses the threshold and releases it, so the scale of the noise is a function of
    released values.
    """

    tag: ClassVar[str] = "Clamp"

    amount: Amount
    measures: tuple[int | None, ...]
    sides: tuple[int, ...]
    grid: tuple[int, ...]
    mechanism: Exponential
    exponent: int = 1
    default_index: int = 0
    chosen: tuple[int, ...] = ()
    across_groups: bool = False
    subdivisions: int = 1
    euclidean: bool = False
    tolerance: Fraction | int = 0
    released_groups: int = 1
    min_support: int = 0

    @property
    def total(self) -> int | None:
        """Return the measure of a clamped total; None for rows and groups."""
        return self.measures[0] if self.amount is Amount.TOTAL else None

    @property
    def upper_limit(self) -> int:
        """Return the greatest contribution of a unit, in rows, lattice steps or groups, as was derived."""
        return self.grid[-1]

    @property
    def statistic(self) -> str:
        """Return the clamped contribution, for EXPLAIN and receipts."""
        measure = "" if self.total is None else f" of x{self.total}"
        where = (
            ""
            if self.amount is Amount.GROUPS
            else " in all its groups, by l2 norm"
            if self.euclidean
            else " in all its groups"
            if self.across_groups
            else " in a group"
        )
        return f"{self.amount.value}{measure} of a unit{where}"

    @property
    def points(self) -> tuple[int, ...]:
        """Return the threshold of each side: the chosen one, or before the release the expected one."""
        return tuple(self.grid[index] for index in self.chosen or (self.default_index,) * len(self.sides))

    @property
    def weights(self) -> tuple[int, ...]:
        """Return the prior weight of each point, above zero: its inverse to a power, in whole numbers."""
        power = self.power
        scale = _LEAST_WEIGHT * self.upper_limit**power
        return tuple(scale // point**power for point in self.grid)

    @property
    def power(self) -> int:
        """Return the power of the inverse of a point that is its weight: the exponent, or less where few groups are released.

        It is a function of released values: the number of groups is public, or selected before.
        """
        return (
            min(self.exponent, get_tier(self.released_groups).exponent) if self.min_support else self.exponent
        )

    @property
    def max_n_clipped(self) -> int:
        """Return the most units beyond the threshold of a side, with `BEYOND_CONFIDENCE`; at the expected threshold before the release.

        Claim: for a rate r, weights w and t tolerated units, at most t + ln(w/w' * n/β)/r units contribute more than
        the selected of n points but with probability β, where w' is the weight of the greatest point. It costs no privacy
        loss.
        Why: if N units contribute more than a point, its penalty is above that of the greatest by at least N - t. So it is
        chosen with a probability of at most w/w' * exp(-r(N - t)), which is β/n where N is as above. No unit contributes
        more than the greatest.
        Source: McSherry, Talwar 2007, Theorem 7; Dwork, Roth 2014, Theorem 3.11.
        """
        weights = self.weights
        places = [place for place in self.chosen or (self.default_index,) if place < len(self.grid) - 1]
        if not places:
            return 0
        odds = max(log(Fraction(weights[place], weights[-1])) for place in places)
        rest = odds + log(len(self.grid) / (1 - BEYOND_CONFIDENCE))
        return self.tolerated_units + ceil(Fraction(rest) / self.mechanism.rate)

    def estimate_overlooked_amounts(self, confidence: float) -> tuple[float, ...]:
        """Return the contributions beyond the point of each side, of all units to all groups, that an interval allows for.

        Claim: they are those of as many units as are overlooked with the probability that the interval may miss, if each
        contributes twice the point, or the greatest contribution if that is less. It costs no privacy loss.
        Why: each unit beyond a point makes it less likely by a factor of exp(rate), so ln(1/(1-confidence))/rate units
        make it less likely by a factor of 1-confidence. How far beyond they are, no choice with a small loss can tell:
        one unit more would have to change it. Twice the point is the mean beyond it in the tail of a power law of 2, and
        is wide for those of all lighter tails. It was measured (`benchmarks.clamps`).
        Source: Dwork, Roth 2014, Theorem 3.11 (utility of the exponential mechanism).
        """
        return self.estimate_clipped_amounts(
            log(1 / (1 - confidence)) / float(self.mechanism.rate) if self.min_support else 0.0
        )

    def estimate_clipped_amounts(self, units: float, spread: float = 1) -> tuple[float, ...]:
        """Return the contribution of this many units beyond the point of each side: each twice the point, or the greatest one.

        Contributions are measured as the clamp does. For an l2 norm, the contribution of a unit to all its groups together
        is `spread` times its norm, so its greatest norm is as much less than its greatest contribution.
        """
        return tuple(units * max(0, min(point, self.upper_limit / spread - point)) for point in self.points)

    def compute_range(self, analysis: Analysis) -> Fraction:
        """Return the range of the choices of both sides together."""
        return self.mechanism.compute_range(
            compute_step_range(analysis, self.amount, len(self.sides) if self.across_groups else 0)
        )

    def bound_groups(self, analysis: Analysis) -> int:
        """Return the bound on the groups of a unit."""
        return self.points[0] if self.amount is Amount.GROUPS else analysis.bound.groups

    @property
    def tolerated_units(self) -> int:
        """Return the number of units beyond the clamp that are tolerated."""
        return isqrt(int(self.released_groups**2 * self.tolerance))

    @property
    def norm_shift(self) -> int:
        """Return the power of two by which contributions are divided, rounded up, before they are squared."""
        return max(0, self.upper_limit.bit_length() - NORM_BITS)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Return the integers that the contribution of a unit is compared with: the points, or for l2 norms their squares.

        Claim: a sum of squares that is no more than a threshold has a norm of no more than the point.
        Why: contributions are rounded up before they are squared, and points are rounded down.
        """
        if not self.euclidean:
            return self.grid
        shift = self.norm_shift
        return tuple((point >> shift) ** 2 for point in self.grid)

    def compute_penalties(self, above: Sequence[int]) -> list[int]:
        """Return the penalty of each point of a side, from the numbers of units (or pairs) `above` zero and above each point.

        More than the `tolerated_units` number above a point count against it. The greatest point is favored by the number that
        is lacking, of units which contribute something, for a clear choice. So a clamp is lowered by evidence only: if few
        units contribute, the greatest point is chosen.

        Claim: one more unit raises each penalty by one or not at all, and lowers none.
        Why: if it contributes something, it is above a point or not, so one of the two numbers grows by one, and the
        penalty grows with each by at most as much.
        """
        some, *beyond = above
        found = [max(0, more - self.tolerated_units) for more in beyond]
        found[-1] -= max(0, self._needed_units - (some - beyond[-1]))
        return found

    @property
    def _needed_units(self) -> int:
        """Return the number of units without which the greatest point is favored.

        The prior odds of the least and the greatest point are their ratio to the `power`: the log of these odds, in steps
        of the mechanism's rate, is needed in addition to the `min_support` and the tolerated units.
        """
        if not self.min_support:
            return 0
        # The natural log of 2 is less than 0.7.
        odds = Fraction(7, 10) * self.power * (self.upper_limit // self.grid[0]).bit_length()
        return self.min_support + self.tolerated_units + -(-odds // self.mechanism.rate)

    def select_points(self, above: Sequence[Sequence[int]], entropy: Entropy) -> Clamp:
        """Return the clamp with a chosen point for each side; `above` has the numbers of units that `compute_penalties` takes."""
        chosen = (
            self.mechanism.select_candidate(self.weights, self.compute_penalties(side), entropy)
            for side in above
        )
        return replace(self, chosen=tuple(chosen))


def compute_expected_mean(lattice: Lattice) -> Fraction:
    """Return the expected mean of values, in lattice steps: a part of the way from the point nearest to zero to the farthest end.

    >>> compute_expected_mean(Lattice(0, 0, 80)), compute_expected_mean(Lattice(0, -40, 8)), compute_expected_mean(Lattice(0, 1960, 2000))
    (Fraction(10, 1), Fraction(-5, 1), Fraction(1965, 1))
    """
    nearest = min(max(0, lattice.low), lattice.high)
    farthest = max(lattice.low, lattice.high, key=abs)
    return nearest + Fraction(farthest - nearest, EXPECTED_VALUE)


def compute_step_range(analysis: Analysis, amount: Amount, sides: int) -> int:
    """Return the most by which one unit changes the difference of the penalties of two points, summed over the sides.

    `sides` is the number of sides of a clamp across groups, and 0 for a clamp per group.
    """
    people = 2 if analysis.replace else 1
    if amount is Amount.GROUPS:
        return people
    return people * (sides or analysis.bound.groups)


def compute_clamped_bound(analysis: Analysis, clamp: Clamp) -> ContributionBound:
    """Return the contribution bound with the groups of a unit limited by a clamp."""
    return replace(analysis.bound, groups=clamp.bound_groups(analysis))


@lru_cache(maxsize=256)
def compute_grid(most: int) -> tuple[int, ...]:
    """Return grid points up to `most`, four for each power of two, computed without floats.

    >>> compute_grid(10)
    (1, 2, 3, 4, 5, 6, 8, 9, 10)
    """
    start = max(1, most >> OCTAVES)
    points = {start, most}
    power = 1
    while (point := isqrt(isqrt(power * start**4))) < most:
        points.add(point)
        power *= 2
    return tuple(sorted(points))


def compute_clamped_sensitivity(vector: StatisticVector, clamp: Clamp, analysis: Analysis) -> Sensitivity:
    """Return the sensitivity of a vector whose contributions are clamped.

    Claim: let τ be the larger point, times the vector's contribution per row for a clamp on rows; S the greatest
    contribution of a unit to all groups; G its most groups. Adding or removing a unit moves all components of all
    groups by at most l1 = min(Gτ, S) in l1 norm, and by at most √(τ·l1) in l2 norm. For a clamp across groups both norms
    are at most the sum of the points of all sides; if it is euclidean, the l2 norm is at most the root of the sum of
    their squares, and the l1 norm √G times that. `replace` is as in `compute_sensitivity`: an ungrouped single component
    moves by at most the distance of the points.
    Why: the contribution to one group has norm at most τ, and these norms sum to at most S; a sum of squares of numbers
    up to τ is at most τ times their sum. Subdivisions are rounded down, so they sum to at most the point, or their
    squares to at most its square. The l2 norm is at most the l1 norm, which is at most √G times it (Cauchy-Schwarz). The
    sides of a total are in different groups; under `replace`, the side above of one unit and the side below of the other
    move a group together, so the squares of l2 norms are at most twice that of the sum of the points. A clamp on groups is
    a smaller contribution bound.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Definition 3.8.
    """
    if clamp.amount is Amount.GROUPS:
        return compute_sensitivity(
            vector,
            compute_clamped_bound(analysis, clamp),
            grouped=analysis.is_grouped,
            replace=analysis.replace,
        )
    rows = clamp.amount is Amount.ROWS
    unit, points = vector.contribution if rows else clamp.subdivisions, clamp.points
    top = max(points) * unit
    l1 = min(analysis.bound.groups * top, clamp.upper_limit * unit)
    l2_squared = top * l1
    if clamp.euclidean:
        squares = sum(point**2 for point in points)
        l1, l2_squared = compute_ceil_sqrt(analysis.bound.groups * squares) * unit, squares * unit**2
    elif clamp.across_groups:
        l1 = min(sum(points), clamp.upper_limit) * unit
        l2_squared = l1 * l1
    if not analysis.replace:
        return Sensitivity(Fraction(l1), Fraction(l2_squared))
    if not analysis.is_grouped and vector.range is not None:
        span = points[0] * vector.range if rows else sum(points)
        return Sensitivity(Fraction(span), Fraction(span * span))
    if clamp.euclidean and not rows:
        return Sensitivity(Fraction(2 * l1), Fraction(2 * (sum(points) * unit) ** 2))
    one_sign = vector.nonnegative or (not rows and len(clamp.sides) == 1)
    return Sensitivity(Fraction(2 * l1), Fraction((2 if one_sign else 4) * l2_squared))


def compute_ceil_sqrt(square: int) -> int:
    """Return the least integer that is at least the square root.

    >>> [compute_ceil_sqrt(square) for square in (0, 1, 2, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return isqrt(square - 1) + 1 if square else 0


def compute_clamped_unit_change(
    vector: StatisticVector, clamp: Clamp | None, analysis: Analysis
) -> UnitChange | None:
    """Return the changes of single components that one unit causes, with a clamp; None if there is no such bound.

    A unit's contribution to a group is at most the larger point, and differs from that of another unit by at most the sum
    of both points; for rows, times the contribution of a row.
    """
    grouped, replaced = analysis.is_grouped, analysis.replace
    if clamp is not None and clamp.amount is Amount.GROUPS:
        return compute_unit_change(
            vector, compute_clamped_bound(analysis, clamp), grouped=grouped, replace=replaced
        )
    moved = compute_unit_change(vector, analysis.bound, grouped=grouped, replace=replaced)
    if clamp is None or moved is None:
        return moved
    share, span = max(clamp.points), sum(clamp.points)
    if clamp.amount is Amount.ROWS:
        share, span = share * vector.contribution, clamp.points[0] * (vector.range or 2 * vector.contribution)
    return UnitChange.from_contribution(share, span, analysis.bound, grouped=grouped, replace=replaced)


def compute_sensitivities(
    analysis: Analysis,
    vectors: Sequence[StatisticVector],
    clamps: Sequence[Clamp],
    taken: Sequence[int | None],
) -> list[Sensitivity]:
    """Return the sensitivity of each vector, of those that have taken a clamp at its points."""
    return [
        compute_sensitivity(vector, analysis.bound, grouped=analysis.is_grouped, replace=analysis.replace)
        if place is None
        else compute_clamped_sensitivity(vector, clamps[place], analysis)
        for vector, place in zip(vectors, taken, strict=True)
    ]
