"""Choosing the best groups: their scores decide which keys are released, and are not released themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting.events import BoundedRange, Composed, Event, Pure
from dpsql.aggregates import AGGREGATES, Moment
from dpsql.analysis.analyse import Analysis
from dpsql.analysis.stability import PublicFacts, most_rows
from dpsql.mechanisms import Entropy, Exponential, PermuteAndFlip
from dpsql.plan.expr import Column
from dpsql.plan.nodes import Filter, Join, Relation, SemiJoin, TopK, is_private

SCORES = frozenset({Moment.ROWS, Moment.UNITS, Moment.COUNT, Moment.TOTAL})
"""What groups are compared by: sums over units."""


@dataclass(frozen=True, slots=True)
class TopKSelection:
    """The best groups, chosen one after the other; a unit adds `low` to `high` steps to any score, enforced.

    Claim: one unit moves the scores of any two groups apart by at most `steps`; a choice of several groups
    costs what each costs, added up.
    Why: a unit adds to each score what is clamped to these ends, and nothing to some; of as many groups
    as it likes. Another unit in its place moves them twice as far. What is left over after a choice is
    chosen among anew.
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

    def choose(self, scores: Sequence[int], entropy: Entropy) -> list[int]:
        """The indices of the chosen groups, the best first."""
        left = list(range(len(scores)))
        found = []
        for _ in range(min(self.top.count, len(scores))):
            penalties = [-scores[index] if self.top.descending else scores[index] for index in left]
            if isinstance(self.mechanism, Exponential):
                place = self.mechanism.choose([1] * len(left), penalties, entropy)
            else:
                place = self.mechanism.choose(penalties, entropy)
            found.append(left.pop(place))
        return found

    @property
    def event(self) -> Event:
        """What the choices are charged as."""
        epsilon = self.mechanism.range(self.steps)
        each = BoundedRange(epsilon) if isinstance(self.mechanism, Exponential) else Pure(epsilon)
        return Composed((each,) * self.top.count) if self.top.count > 1 else each


def top_k_selection(
    analysis: Analysis, facts: PublicFacts, top: TopK, pure: Fraction, ranged: Fraction
) -> TopKSelection:
    """How the best groups are chosen, where a choice may have a loss of `pure` or a range of `ranged`.

    The exponential mechanism is taken where the ledger has it for less: at the same rate it errs at most
    twice as far as the other.
    """
    (item,) = analysis.release.aggregations
    (moment,) = AGGREGATES[item.function].moments
    rows = 1 if moment is Moment.UNITS else _rows(analysis, facts)
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


def _rows(analysis: Analysis, facts: PublicFacts) -> int:
    """The rows of a unit that count in one group.

    A row that is joined to public ones is in a group as often as these have its keys. No guarantee rests
    on it: as many count as this says.
    """
    keys = {key.expr for key in analysis.release.keys if isinstance(key.expr, Column)}
    if not analysis.bound.per_unit:
        return 1
    return min(analysis.bound.rows, most_rows(_keyed(analysis.release.input, keys), facts))


def _keyed(relation: Relation, keys: set[Column]) -> Relation:
    """The rows of one group: public sources are joined on their keys besides."""
    match relation:
        case Filter() | SemiJoin():
            return replace(relation, input=_keyed(relation.input, keys))
        case Join() if not is_private(relation.right):
            own = [column for column in keys if column.source == relation.right.alias]
            pairs = (*relation.on, *((column, column) for column in sorted(own, key=str)))
            return replace(relation, left=_keyed(relation.left, keys), on=pairs)
        case Join():
            return replace(relation, left=_keyed(relation.left, keys))
        case _:
            return relation
