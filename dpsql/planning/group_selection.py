"""Select groups privately: partition selection and top-k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import PublicFacts, bound_rows
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Column
from dpsql.plan.nodes import Filter, Join, Relation, SemiJoin, TopK, is_private
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Pure, Selection
from dpsql.privacy.mechanisms import Entropy, Exponential, Mechanism, PartitionSelection, PermuteAndFlip

# Partition selection: the choice of the released groups if group keys are not public, by a threshold or the optimal mechanism.


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


# Private top-k selection of groups by an aggregate. The keys are released, the aggregates are not.


SCORES = frozenset({Moment.ROWS, Moment.UNITS, Moment.COUNT, Moment.TOTAL})
"""The moments that groups can be ranked by: sums over units."""


@dataclass(frozen=True, slots=True)
class TopKSelection:
    """The top k groups, chosen one after another. A unit's contribution to a score is clamped to [`low`, `high`] steps.

    Claim: one unit changes the difference of the scores of two groups by at most `steps`; the loss of k choices is the
    sum of their losses.
    Why: the contribution of a unit to each score is 0 or within these bounds, in any number of groups. Replacing a unit
    doubles the change. Each choice is among the groups that are left.
    Source: McSherry, Talwar 2007, "Mechanism design via differential privacy", section 3 (its auction);
    Durfee, Rogers 2019, "Practical differentially private top-k selection with pay-what-you-get
    composition", section 3 (peeling).
    """

    tag: ClassVar[str] = "Best"

    low: int
    high: int
    rows: int
    steps: int
    top: TopK
    mechanism: Exponential | PermuteAndFlip

    def select_groups(self, scores: Sequence[int], entropy: Entropy) -> list[int]:
        """Return the indices of the chosen groups, in rank order."""
        left = list(range(len(scores)))
        found = []
        for _ in range(min(self.top.count, len(scores))):
            penalties = [-scores[index] if self.top.descending else scores[index] for index in left]
            if isinstance(self.mechanism, Exponential):
                place = self.mechanism.select_candidate([1] * len(left), penalties, entropy)
            else:
                place = self.mechanism.select_candidate(penalties, entropy)
            found.append(left.pop(place))
        return found

    def bound_shortfall(self, groups: int, confidence: float) -> float:
        """Return how far, in steps, a chosen group's score is from the best that was left, at most, with that probability for all choices.

        Claim: a choice among n groups is off by (ln n + t)/rate or more with probability e^-t at most, by either mechanism.
        Why: a group that is off by c is chosen by the exponential mechanism with probability e^(-rate·c) at most, as the best has
        weight 1; by permute-and-flip only if its coin of that chance is heads. There are n groups, and as many unions as choices.
        Source: McSherry, Talwar 2007, Theorem 6; Dwork, Roth 2014, Corollary 3.12; McKenna, Sheldon 2020, section 3.
        """
        choices = min(self.top.count, groups)
        depth = math.log(groups) + math.log(choices) - math.log1p(-confidence)
        return depth / float(self.mechanism.rate)

    @property
    def event(self) -> Event:
        """Return the event that is charged for all choices."""
        epsilon = self.mechanism.compute_range(self.steps)
        each = BoundedRange(epsilon) if isinstance(self.mechanism, Exponential) else Pure(epsilon)
        return Composed((each,) * self.top.count) if self.top.count > 1 else each


def calibrate_top_k(
    analysis: Analysis, facts: PublicFacts, top: TopK, pure: Fraction, ranged: Fraction
) -> TopKSelection:
    """Return the selection whose choices each have a loss of at most `pure`, or a range of at most `ranged`.

    The exponential mechanism is used if the range is more than 1.5 times the loss: at the same rate its error is at most
    twice that of permute-and-flip.
    """
    (item,) = analysis.release.aggregations
    (moment,) = AGGREGATES[item.function].moments
    rows = 1 if moment is Moment.UNITS else _bound_group_rows(analysis, facts)
    low, high = 0, rows
    if moment is Moment.TOTAL:
        lattice = analysis.measures[0].lattice
        if lattice is None:
            raise LookupError("what is added up lies on a lattice")
        low, high = min(0, rows * lattice.low), max(0, rows * lattice.high)
    steps = max(1, high - low) * (2 if analysis.replace else 1)
    mechanism: Exponential | PermuteAndFlip
    if 2 * ranged > 3 * pure:
        mechanism = Exponential.calibrate(steps, ranged)
    else:
        mechanism = PermuteAndFlip.calibrate(steps, pure)
    return TopKSelection(low, high, rows, steps, top, mechanism)


def _bound_group_rows(analysis: Analysis, facts: PublicFacts) -> int:
    """Return the bound on the rows of a unit in one group.

    A row that is joined to public rows is in a group once for each of them with the group's keys. The guarantee does not
    rest on this number: the emitted SQL enforces it.
    """
    keys = {key.expr for key in analysis.release.keys if isinstance(key.expr, Column)}
    if not analysis.bound.per_unit:
        return 1
    return min(analysis.bound.rows, bound_rows(_add_key_conditions(analysis.release.input, keys), facts))


def _add_key_conditions(relation: Relation, keys: set[Column]) -> Relation:
    """Return the rows of one group: the group keys of public sources are added to their join conditions."""
    match relation:
        case Filter() | SemiJoin():
            return replace(relation, input=_add_key_conditions(relation.input, keys))
        case Join() if not is_private(relation.right):
            own = [column for column in keys if column.source == relation.right.alias]
            pairs = (*relation.on, *((column, column) for column in sorted(own, key=str)))
            return replace(relation, left=_add_key_conditions(relation.left, keys), on=pairs)
        case Join():
            return replace(relation, left=_add_key_conditions(relation.left, keys))
        case _:
            return relation
