"""Which groups are shown where keys are not public: by their noisy counts, or each by a toss of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting.events import Composed, Event, Pure, Selection
from dpsql.analysis.analyse import Analysis
from dpsql.mechanisms import Entropy, Mechanism, PartitionSelection


@dataclass(frozen=True, slots=True)
class Threshold:
    """Which groups are shown: those where these noisy components of a vector add up to `threshold` or more.

    A unit of the count is `scale` steps; a group of fewer than `min_frequency` units is never shown.
    """

    tag: ClassVar[str] = "KeySelection"

    vector: int
    components: tuple[int, ...]
    scale: int
    threshold: int
    delta: Fraction
    min_frequency: int

    @property
    def count(self) -> Fraction:
        """The threshold as a number of units or rows."""
        return Fraction(self.threshold, self.scale)

    @property
    def median_units(self) -> int:
        """The fewest units of a group that is shown half of the time or more."""
        return max(self.min_frequency, math.ceil(self.count))

    def calibrated(self, mechanism: Mechanism, groups: int) -> Threshold:
        """The threshold for components with that noise, of units that are in so many groups."""
        surplus = mechanism.sum_threshold(len(self.components), self.delta / groups)
        return replace(self, threshold=self.scale * self.min_frequency + surplus)


@dataclass(frozen=True, slots=True)
class OptimalPartitionSelection:
    """A group of as many units as `min_frequency` or more is shown by a toss, as if it had one where it has the fewest.

    `groups` are those that one unit changes at most, `delta` is that of all of them.
    """

    tag: ClassVar[str] = "KeyTosses"

    mechanism: PartitionSelection
    groups: int
    delta: Fraction
    min_frequency: int

    @property
    def median_units(self) -> int:
        """The fewest units of a group that is shown half of the time or more."""
        return self.mechanism.half() + self.min_frequency - 1

    def selects(self, units: int, entropy: Entropy) -> bool:
        """Whether a group of so many units is shown."""
        return self.mechanism.shows(units - self.min_frequency + 1, entropy)


def optimal_partition_selection(
    analysis: Analysis, epsilon: Fraction, delta: Fraction
) -> tuple[OptimalPartitionSelection, Event]:
    """The tosses that cost this loss and at most this delta, and what they are charged as.

    Claim: but for an event of probability δ at most, the groups that are shown are ε-DP.
    Why: a unit enters or leaves at most G groups, and one that is replaced leaves as many as it enters; each of them
    has a share of ε and of δ. That a group has fewer units than the least by which one is shown takes the same
    number off both of the neighbours.
    Source: Desfontaines, Voss, Gipson, Mandayam 2022, sections 3 and 5.
    """
    groups = analysis.bound.groups * (2 if analysis.replace else 1)
    spent = min(delta, Fraction(1, 4))
    mechanism = PartitionSelection(epsilon / groups, spent / groups)
    chosen = OptimalPartitionSelection(mechanism, groups, spent, max(1, analysis.bound.min_frequency))
    return chosen, Composed((Pure(epsilon), Selection(spent)))
