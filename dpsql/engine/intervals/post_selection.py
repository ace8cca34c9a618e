"""Post-selection inference: confidence intervals of counts in groups that passed the threshold of partition selection.

Given selection, the noise of a count is biased upward: near the threshold, the usual interval about the noisy count would
cover the exact count too rarely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import Expr, ReleasedColumn, Scalar, walk
from dpsql.plan.nodes import Aggregation
from dpsql.plan.provenance import Provenance
from dpsql.plan.steps import list_releases
from dpsql.planning.choose import get_statistic
from dpsql.planning.group_selection import Threshold
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Mechanism

_NEARLY, _WIDE, _GRID = 0.999, 0.9999, 100


@dataclass(frozen=True, slots=True)
class PostSelection:
    """The law of a noisy count, the sum of `terms` components in steps, given that it is at least `threshold`.

    A unit of the count is `scale` steps. A selected group has at least `min_units` units.

    Claim: over all releases in which the group is selected, `compute_interval` covers the exact count with probability at least
    `confidence`.
    Why: for n units, the probability that a selected noisy count is at least this one is
    P(S >= noisy - n) / P(S >= threshold - n), S being the noise. It grows with n, since the law is log-concave, so the n
    that neither it nor its counterpart rejects form an interval. The interval is extended to the noisy count. For the same
    reason it is at most P(S >= noisy - threshold) / P(S >= 0) for an n below the threshold, where both tails of a small
    noise can be too small for floating-point numbers.
    Source: Lee, Sun, Sun, Taylor 2016, "Exact post-selection inference, with application to the lasso",
    section 5 (the truncated pivot).
    """

    mechanism: Mechanism
    terms: int
    scale: int
    threshold: int
    min_units: int
    noisy_count: int

    @classmethod
    def from_cells(cls, plan: MeasurementPlan, chosen: Threshold, cells: tuple[int, ...]) -> PostSelection:
        """Return the law for the components of the vector that the threshold was compared with."""
        mechanism, deciding = plan.vectors[chosen.vector].mechanism, [cells[at] for at in chosen.components]
        return cls(
            mechanism, len(deciding), chosen.scale, chosen.threshold, chosen.min_frequency, sum(deciding)
        )

    def compute_upper_tail(self, units: int) -> float:
        """Return the probability, given selection, of a noisy count at least as large as this one."""
        return self._compute_conditional_tail(self.noisy_count, units)

    def compute_lower_tail(self, units: int) -> float:
        """Return the probability, given selection, of a noisy count at most as large as this one."""
        return 1 - self._compute_conditional_tail(self.noisy_count + 1, units)

    def compute_interval(self, confidence: float) -> tuple[float, float]:
        """Return the confidence interval of the number of units."""
        return _compute_ends(self, confidence)

    def find_quantiles(self, places: NDArray[np.float64], reach: float) -> NDArray[np.float64] | None:
        """Return the quantiles, at `places`, of the distribution `compute_upper_tail` of the number of units, interpolated.

        They are None if noise of at most `reach` steps changes selection with probability at most 1/1000.
        """
        if self._compute_noise_tail(math.ceil(self.threshold - self.noisy_count + reach)) >= _NEARLY:
            return None
        units, shares = _compute_tail_grid(self)
        return np.interp(places, shares, units)

    def _compute_conditional_tail(self, noisy: int, units: int) -> float:
        """Return the probability, given selection, of a noisy count of at least `noisy` steps where there are `units`."""
        center = self.scale * units
        share = self._compute_noise_tail(noisy - center) / self._compute_noise_tail(self.threshold - center)
        if center > self.threshold:
            return share
        return min(share, self._compute_noise_tail(noisy - self.threshold) / self._compute_noise_tail(0))

    def _compute_noise_tail(self, threshold: int) -> float:
        """Return the probability that the noise is `threshold` or more; its law is symmetric."""
        if threshold >= 1:
            return _bound_tail(self.mechanism, self.terms, threshold)
        return 1 - _bound_tail(self.mechanism, self.terms, 1 - threshold)


@lru_cache(maxsize=65536)
def _bound_tail(mechanism: Mechanism, terms: int, threshold: int) -> float:
    """Return the upper tail of the noise, cached: many counts compare it with the same numbers."""
    return mechanism.bound_sum_tail(terms, threshold)


@lru_cache(maxsize=4096)
def _compute_tail_grid(selection: PostSelection) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return a grid of numbers of units, and `compute_upper_tail` of each, which is non-decreasing."""
    _, high = selection.compute_interval(_WIDE)
    units = np.unique(np.linspace(selection.min_units, math.ceil(high), _GRID).astype(np.int64))
    shares = np.array([selection.compute_upper_tail(int(count)) for count in units])
    return units, np.maximum.accumulate(shares)


@lru_cache(maxsize=4096)
def _compute_ends(selection: PostSelection, confidence: float) -> tuple[float, float]:
    """Return the confidence interval, cached: small counts recur."""
    outside = (1 - confidence) / 2
    low = _search_first(lambda units: selection.compute_upper_tail(units) >= outside, selection.min_units)
    high = max(
        selection.min_units,
        _search_first(lambda units: selection.compute_lower_tail(units) < outside, selection.min_units) - 1,
    )
    noisy = selection.noisy_count / selection.scale
    return min(float(low), noisy), max(float(high), noisy)


def _search_first(holds: Callable[[int], bool], least: int) -> int:
    """Return the smallest whole number from `least` on where `holds`, given that it holds from there on."""
    if holds(least):
        return least
    step = 1
    while not holds(least + step):
        step *= 2
    low, high = least + step // 2, least + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# The confidence of intervals of rows that a query keeps by their noisy values.


Noises = frozenset[object]
"""The noises of a released row that an expression reads: indices of vectors, and quantiles."""
_OF_OTHERS = "of other rows or releases"


def compute_kept_row_confidence(confidence: float, rows: int, released: int) -> float:
    """Return the confidence of the intervals of `rows` kept rows among `released` ones.

    Claim: where m of N released rows are kept, intervals at 1 - (1 - c)·m/N miss, on average over answers, at most 1 - c of the
    values of the kept rows. It costs no privacy loss. Where no noisy value of a column decides which rows are kept, its intervals
    at c do.
    Why: a kept value is more likely to be one whose noise let it be kept. The value of one row is kept and missed with a
    probability of at most (1 - c)·m/N, m being the number that is kept with it; over N rows, in parts of m, that is 1 - c. Noise
    that nothing looked at has its own law in whatever rows are kept.
    Source: Benjamini, Yekutieli 2005, "False discovery rate-adjusted multiple confidence intervals for selected parameters",
    Theorem 1; Dwork, Roth 2014, Proposition 2.1 (post-processing).

    >>> compute_kept_row_confidence(0.95, 5, 200), compute_kept_row_confidence(0.95, 200, 200), compute_kept_row_confidence(0.95, 0, 0)
    (0.99875, 0.95, 0.95)
    """
    return 1 - (1 - confidence) * rows / released if 0 < rows < released else confidence


@dataclass(frozen=True, slots=True)
class RowChoice:
    """A branch of a query with its released table, and the `ends` of intervals whose noise decides which rows are kept."""

    table: ReleasedTable
    ends: tuple[ReleasedColumn, ...]

    @classmethod
    def from_ends(cls, table: ReleasedTable, trace: Provenance, ends: Sequence[ReleasedColumn]) -> RowChoice:
        """Make the choice from all ends of intervals that the query reads of the release."""
        deciding = collect_deciding_noises(table.plan, trace)
        return cls(
            table,
            tuple(
                end
                for end in ends
                if deciding and has_shared_noise(deciding, collect_noises(table.plan, [end]))
            ),
        )


def collect_deciding_noises(plan: MeasurementPlan, trace: Provenance) -> Noises:
    """Return the noises that decide which rows of a branch are kept."""
    return collect_noises(plan, trace.filters)


def collect_noises(plan: MeasurementPlan, exprs: Iterable[Expr]) -> Noises:
    """Return the noises that expressions over a release read."""
    items = {item.name: item for item in plan.analysis.release.aggregations}
    found = set[object]()
    for part in {part for expr in exprs for part in walk(expr)}:
        if isinstance(part, ReleasedColumn) and part.end_of is not None:
            found |= collect_noises(plan, [part.end_of[0]])
        elif isinstance(part, ReleasedColumn) and part.name in items:
            found.update(_list_aggregate_noises(plan, items[part.name]))
        elif isinstance(part, Scalar) and list_releases(part.outer):
            found.add(_OF_OTHERS)
    return frozenset(found)


def has_shared_noise(one: Noises, other: Noises) -> bool:
    """Return whether two sets of noises have one in common; what reads other rows or releases shares any."""
    if _OF_OTHERS in one | other:
        return bool(one and other)
    return not one.isdisjoint(other)


def _list_aggregate_noises(plan: MeasurementPlan, item: Aggregation) -> Iterable[object]:
    if item.rank is not None:
        return [replace(item, name="", interval_end=0)]
    return {
        plan.get_estimator(get_statistic(plan.analysis, item, moment))[0]
        for moment in AGGREGATES[item.function].moments
    }
