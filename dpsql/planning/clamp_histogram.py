"""Histograms of the contributions of units, from which clamps are chosen and clamped totals are computed.

The statement returns one histogram for each group and clamp target: contributions binned by the grid of the clamp.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import NamedTuple, Protocol

from dpsql.plan.aggregates import Moment
from dpsql.planning.clamping import Amount, Clamp
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.privacy.mechanisms import Entropy


@dataclass(frozen=True, slots=True)
class ClampTarget:
    """The contribution that a histogram is of: the rows of a measure, one side of its total, or the groups of a unit."""

    clamp: int
    measure: int | None
    side: int


def list_clamp_targets(clamps: Sequence[Clamp]) -> tuple[ClampTarget, ...]:
    """Return the targets of all clamps, in order. By the first of a clamp, or for a total one per side, it is chosen."""
    return tuple(
        ClampTarget(place, measure, sign)
        for place, clamp in enumerate(clamps)
        for measure in clamp.measures
        for sign in clamp.sides
    )


@dataclass(frozen=True, slots=True)
class ClampHistogram:
    """The histogram of the contributions of a group's units: for each grid interval, its index and totals over its units.

    An interval may be there several times, with the totals of some of its units each. The totals are, in order: the subdivisions of a point that a unit has in this group (1 if the clamp is per group); the
    contribution; for rows of a measure, the sum of its values, and the unit's mean value times the subdivisions; last,
    the number of units. Contributions of nothing have the index -1. If the clamp is across groups, the interval is that of the
    unit's contribution to all its groups, and a unit is counted in its first group only. For a clamp on groups, the contribution is the rank of this group
    among the unit's groups, and the last total counts ranks that start an interval.
    """

    intervals: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return "ClampHistogram(…)"  # exact values are never displayed

    @classmethod
    def from_unit_counts(cls, clamp: Clamp, intervals: Mapping[int, int]) -> ClampHistogram:
        """Return the histogram with this number of units (or pairs) in each interval, by index, only for `count_units_beyond`.

        For a clamp on groups these are intervals of the number of a unit's groups: it has one of the rank that starts the
        next interval if it is in a later one.
        """
        found = cls(tuple((place, 0, units) for place, units in intervals.items()))
        if clamp.amount is not Amount.GROUPS:
            return found
        return cls(
            tuple(
                (place, 0, units)
                for place, units in enumerate(_count_exceeding_pairs(len(clamp.grid), [found]))
            )
        )

    @classmethod
    def from_packed(cls, packed: Iterable[Iterable[int | None]] | None) -> ClampHistogram:
        """Return the histogram from the list that the statement returns."""
        return cls(
            tuple(
                tuple(0 if value is None else int(value) for value in interval) for interval in packed or ()
            )
        )


def select_clamp_points(
    clamps: Sequence[Clamp],
    groups: Sequence[Sequence[ClampHistogram]],
    entropy: Entropy,
    wanted: Container[int] | None = None,
) -> tuple[Clamp, ...]:
    """Choose the points of the `wanted` clamps privately, of all by default, from the histograms of all groups.

    Groups that are not selected take part: a single unit may decide which groups these are.
    """
    targets = list_clamp_targets(clamps)
    found = []
    for place, clamp in enumerate(clamps):
        if wanted is not None and place not in wanted:
            found.append(clamp)
            continue
        sides = [index for index, target in enumerate(targets) if target.clamp == place][: len(clamp.sides)]
        exceeding = [count_units_beyond(clamp, [group[side] for group in groups]) for side in sides]
        found.append(clamp.select_points(exceeding, entropy))
    return tuple(found)


def count_units_beyond(clamp: Clamp, parts: Iterable[ClampHistogram]) -> list[int]:
    """Return the numbers of unit-group pairs, or of units, that contribute more than nothing, and more than each point of a side."""
    if clamp.amount is Amount.GROUPS:
        return _count_exceeding_units(len(clamp.grid), parts)
    return _count_exceeding_pairs(len(clamp.grid), parts)


def _count_exceeding_pairs(size: int, parts: Iterable[ClampHistogram]) -> list[int]:
    """Return the numbers of unit-group pairs beyond zero and beyond each point; those of nothing have the interval -1."""
    at = [0] * size
    for part in parts:
        for place, *_, units in part.intervals:
            if place >= 0:
                at[place] += units
    return [*list(accumulate(reversed(at)))[::-1], 0]


def _count_exceeding_units(size: int, parts: Iterable[ClampHistogram]) -> list[int]:
    """Return the numbers of units in any group, and in more groups than each point: each has one group of the next rank."""
    at = [0] * (size + 1)
    for part in parts:
        for place, _, first in part.intervals:
            at[place] += first
    return at


Packed = Sequence[Sequence[int | None]] | None
"""The intervals of a clamp histogram as the statement returns them."""


def list_clamped_statistics(clamps: Sequence[Clamp]) -> set[Statistic]:
    """Return the statistics that `compute_clamped_series` gives for the clamps that are chosen."""
    no_groups = PackedHistograms([()] * len(list_clamp_targets(clamps)))
    return set(compute_clamped_series(clamps, no_groups))


class ClampedSum(NamedTuple):
    """A sum over the units of a group up to the chosen point of a target, or beyond: that of a place in an interval."""

    target: int
    place: int


class ContributionTotals(Protocol):
    """Totals of the contributions to each group, target by target."""

    def compute_weighted_sums(
        self, target: int, chosen: int, within: tuple[int, int], beyond: tuple[int, int]
    ) -> list[int]:
        """Return, for each group, the weighted sum of two totals: over the intervals up to the chosen point, and beyond it.

        Both are given by their place in an interval, and by how often it counts.
        """
        ...


@dataclass(frozen=True, slots=True)
class PackedHistograms:
    """The packed histograms of all groups, by target."""

    series: Sequence[Sequence[Packed]]

    def __repr__(self) -> str:
        return "PackedHistograms(…)"  # exact values are never displayed

    def compute_weighted_sums(
        self, target: int, chosen: int, within: tuple[int, int], beyond: tuple[int, int]
    ) -> list[int]:
        """Return the sums of `ContributionTotals`."""
        (place, times), (after, as_often) = within, beyond
        return [
            sum(
                [
                    times * (part[place] or 0) if (part[0] or 0) <= chosen else as_often * (part[after] or 0)
                    for part in intervals or ()
                ]
            )
            for intervals in self.series[target]
        ]


@dataclass(frozen=True, slots=True)
class ClampedSums:
    """The sums that the engine computed for the points that are chosen; NULL is a sum over no unit."""

    series: Mapping[ClampedSum, Sequence[int | None]]

    def __repr__(self) -> str:
        return "ClampedSums(…)"  # exact values are never displayed

    def compute_weighted_sums(
        self, target: int, chosen: int, within: tuple[int, int], beyond: tuple[int, int]
    ) -> list[int]:
        """Return the sums of `ContributionTotals`; the engine was given the same point."""
        del chosen
        (place, times), (after, as_often) = within, beyond
        held = self.series[ClampedSum(target, place)]
        if not as_often:
            return [times * (value or 0) for value in held]
        cut = self.series[ClampedSum(target, after)]
        return [times * (value or 0) + as_often * (more or 0) for value, more in zip(held, cut, strict=True)]


def compute_clamped_moments(
    clamps: Sequence[Clamp], histograms: Sequence[ClampHistogram]
) -> dict[Statistic, int]:
    """Return the moments of `compute_clamped_series` for one group."""
    found = compute_clamped_series(clamps, PackedHistograms([[part.intervals] for part in histograms]))
    return {statistic: value for statistic, (value,) in found.items()}


def compute_clamped_series(clamps: Sequence[Clamp], totals: ContributionTotals) -> dict[Statistic, list[int]]:
    """Return the moments of groups with the contribution of each unit clamped, in subdivisions of the chosen clamps.

    If a unit has more rows than the clamp allows, each counted row
    has the unit's mean value. A total with a clamp of its own is limited by this clamp alone, which its noise is calibrated to.
    """
    found: dict[Statistic, list[int]] = {}
    apart = {clamp.total for clamp in clamps}
    for number, target in enumerate(list_clamp_targets(clamps)):
        clamp = clamps[target.clamp]
        if not clamp.chosen:
            continue
        side = clamp.sides.index(target.side)
        index, point = clamp.chosen[side], clamp.points[side]
        if clamp.amount is Amount.GROUPS:
            found[UNITS] = totals.compute_weighted_sums(number, index, (1, 1), (1, 0))
            continue
        amounts = totals.compute_weighted_sums(number, index, (2, clamp.subdivisions), (1, point))
        if clamp.total is not None:
            statistic = (Moment.TOTAL, clamp.total)
            amounts = [target.side * amount for amount in amounts]
            before = found.get(statistic)
            found[statistic] = amounts if before is None else list(map(add, before, amounts))
        elif target.measure is None:
            found[ROWS] = amounts
        else:
            found[Moment.COUNT, target.measure] = amounts
            if target.measure in apart:
                continue
            found[Moment.TOTAL, target.measure] = totals.compute_weighted_sums(
                number, index, (3, clamp.subdivisions), (4, point)
            )
    return found
