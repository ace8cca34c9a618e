"""Partition selection: the choice of the released groups if group keys are not public, by a threshold or the optimal mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.analysis.release_analysis import Analysis
from dpsql.privacy.accounting.events import Composed, Event, Pure, Selection
from dpsql.privacy.mechanisms import Entropy, Mechanism, PartitionSelection


@dataclass(frozen=True, slots=True)
class Threshold:
    """Thresholding: a group is selected if the sum of these noisy `components` of a vector is at least `threshold`.

    One unit of the count is `scale` steps. A group of fewer than `min_frequency` units is never selected.
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
        """Return the threshold as a number of units or rows."""
        return Fraction(self.threshold, self.scale)

    @property
    def median_units(self) -> int:
        """Return the least number of units of a group that is selected with probability 1/2 or more."""
        return max(self.min_frequency, math.ceil(self.count))

    def calibrate_to(self, mechanism: Mechanism, groups: int) -> Threshold:
        """Return the threshold for this noise, and for units in at most this many groups."""
        surplus = mechanism.compute_sum_threshold(len(self.components), self.delta / groups)
        return replace(self, threshold=self.scale * self.min_frequency + surplus)


def compute_sufficient_epsilon(delta: Fraction) -> Fraction:
    """Return an ε of the selection in one group beyond which no more is spent: a group of two units is then almost always shown.

    Claim: with it a group of one unit is shown with probability δ, and a larger group withheld with probability below e^-64.
    Why: it is at least ln(1/δ) + 64, so that e^ε·δ is above 1, and p(2) is 1 - e^-ε·(1 - 2δ) or more.
    Without a limit, the digits of e^-ε would make the work before a charge grow with a number that an analyst writes.
    """
    return Fraction(int(1 / delta).bit_length() + 64)


@dataclass(frozen=True, slots=True)
class OptimalPartitionSelection:
    """Optimal partition selection: each group is selected with a probability that depends on its number of units.

    A group of `min_frequency` units is treated as one of a single unit, and smaller groups are never selected. `groups`
    is the most groups that one unit changes; `delta` is the total for all of them.
    """

    tag: ClassVar[str] = "KeyTosses"

    mechanism: PartitionSelection
    groups: int
    delta: Fraction
    min_frequency: int

    @property
    def median_units(self) -> int:
        """Return the least number of units of a group that is selected with probability 1/2 or more."""
        return self.mechanism.compute_median_units() + self.min_frequency - 1

    def draw_selection(self, units: int, entropy: Entropy) -> bool:
        """Return whether a group of this many units is selected; random."""
        return self.mechanism.draw_selection(units - self.min_frequency + 1, entropy)


def calibrate_optimal_selection(
    analysis: Analysis, epsilon: Fraction, delta: Fraction
) -> tuple[OptimalPartitionSelection, Event]:
    """Return the optimal partition selection for this loss and at most this delta, and the event that is charged.

    Claim: the selected groups are (ε, δ)-DP.
    Why: a unit enters or leaves at most G groups, and a replaced unit leaves and enters at most G; each of these groups
    has an equal share of ε and of δ, or less where `compute_sufficient_epsilon` is less than its share. `min_frequency` subtracts the
    same number from the counts of both neighbors.
    Source: Desfontaines, Voss, Gipson, Mandayam 2022, sections 3 and 5.
    """
    groups = analysis.bound.groups * (2 if analysis.replace else 1)
    spent = min(delta, Fraction(1, 4))
    each = spent / groups
    mechanism = PartitionSelection(min(epsilon / groups, compute_sufficient_epsilon(each)), each)
    chosen = OptimalPartitionSelection(mechanism, groups, spent, max(1, analysis.bound.min_frequency))
    return chosen, Composed((Pure(epsilon), Selection(spent)))
