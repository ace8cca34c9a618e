"""Confidence intervals from the known law of the noise.

They are post-processing, so they cost no privacy loss. They cover the value without noise, after clamping and contribution
bounds; `compute_allowances` says how they are extended for what chosen clamps cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from dpsql.analysis.release_analysis import Lattice
from dpsql.engine.release.released_table import ReleasedTable, estimate_moments
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.nodes import Aggregation
from dpsql.planning.choose import get_statistic
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Mechanism

_APART = Decimal("1e-9")
_NOTHING = 1e-100


def compute_half_width(mechanism: Mechanism, weights: Sequence[Fraction], confidence: float) -> float:
    """Return t, in steps, such that |Σ weight · noise| is at most t with probability `confidence`.

    The result is exact for one weight. For several weights, it is the `find_sum_bound` of a mechanism that states one; otherwise
    the normal law bounds Gaussian noise, and the law of a sum of Laplace variables any other. This covers combined releases too:
    a mean of several noises has thinner tails than one Laplace variable of its variance. The result depends on the arguments
    alone, as everything that EXPLAIN shows must.
    """
    return _compute_half_width(
        mechanism, tuple(sorted((abs(weight) for weight in weights if weight), reverse=True)), confidence
    )


@lru_cache(maxsize=256)
def _compute_half_width(mechanism: Mechanism, sizes: tuple[Fraction, ...], confidence: float) -> float:
    if not sizes:
        return 0.0
    if len(sizes) == 1 and mechanism.tight_tail:
        return float(sizes[0]) * mechanism.compute_half_width(confidence)
    if (bound := mechanism.find_sum_bound(confidence)) is not None:
        return bound([float(size) for size in sizes])
    if mechanism.is_gaussian:
        return (
            _compute_normal_quantile(confidence)
            * mechanism.std
            * math.sqrt(sum(float(size) ** 2 for size in sizes))
        )
    return _solve_laplace_sum(mechanism.std, sizes, confidence)


def compute_mean_interval(
    above: int, below: int, mechanism: Mechanism, confidence: float
) -> tuple[Fraction, Fraction]:
    """Return all θ in [0, 1] that the noisy sums of y and 1-y do not refute, a Fieller set.

    `above` and `below` are the noisy sums, in steps. At the true mean θ the exact sums satisfy
    (1-θ)·above = θ·below, so θ stays if the noise of (1-θ)·above - θ·below explains the rest.

    Source: Fieller 1954, "Some problems in interval estimation", section 4.
    """
    explained = _make_pair_test(mechanism, confidence)

    def is_plausible(theta: float) -> bool:
        return explained(abs((1 - theta) * above - theta * below), 1 - theta, theta)

    total = above + below
    centre = min(1.0, max(0.0, above / total)) if total > 0 else 0.5
    if not is_plausible(centre):
        return Fraction(0), Fraction(1)
    return Fraction(_search_edge(is_plausible, centre, 0.0)), Fraction(
        _search_edge(is_plausible, centre, 1.0)
    )


def compute_ratio_interval(
    cells: Sequence[int],
    pair: tuple[Sequence[Fraction], Sequence[Fraction]],
    half: Fraction,
    mechanism: Mechanism,
    confidence: float,
) -> tuple[Fraction, Fraction]:
    """Return all θ in [-half, half] that noisy cells do not refute as the ratio of two of their sums, a Fieller set.

    `pair` holds the weights of the two sums, in steps; the first sum is taken about the middle of the range of the ratio.
    At the true ratio θ the exact cells satisfy first = θ·second, so θ stays if the noise explains the rest.

    Source: Fieller 1954, "Some problems in interval estimation", section 4.
    """
    total, count = ([float(weight) for weight in weights] for weights in pair)
    above, beside = (
        float(sum((w * cell for w, cell in zip(weights, cells, strict=True)), start=Fraction(0)))
        for weights in pair
    )
    bound, spread = float(half), _make_sum_bound(mechanism, confidence)

    def is_plausible(theta: float) -> bool:
        weights = [abs(first - theta * second) for first, second in zip(total, count, strict=True)]
        return abs(above - theta * beside) <= spread(weights)

    centre = min(bound, max(-bound, above / beside)) if beside > 0 else 0.0
    if not is_plausible(centre):
        return -half, half
    return Fraction(_search_edge(is_plausible, centre, -bound)), Fraction(
        _search_edge(is_plausible, centre, bound)
    )


@dataclass(frozen=True, slots=True)
class ScaledNoise:
    """The noise of a weighted sum of components, each `unit` in the value's own units."""

    mechanism: Mechanism
    weights: tuple[Fraction, ...]
    unit: float

    @property
    def std(self) -> float:
        """Return the standard deviation, in the value's own units."""
        return self.mechanism.std * math.hypot(*map(float, self.weights)) * self.unit

    @property
    def step(self) -> float:
        """Return the largest distance between neighboring values of the noise, in the value's own units."""
        return max(abs(float(weight)) for weight in self.weights) * self.unit

    @property
    def is_laplace(self) -> bool:
        """Return whether the law of a Laplace variable of the same variance serves for it."""
        found = self.mechanism
        return (
            not found.is_gaussian and sum(map(bool, self.weights)) == 1 and found.find_sum_bound(0.5) is None
        )

    def compute_half_width(self, confidence: float) -> float:
        """Return t such that the noise is at most t with this probability, in the value's own units."""
        return compute_half_width(self.mechanism, self.weights, confidence) * self.unit


def make_ratio_interval(
    total: ScaledNoise, count: ScaledNoise, missing: tuple[float, float], uncounted: float, confidence: float
) -> Callable[[float, float, float, float], tuple[float, float]]:
    """Return all θ in an interval that a noisy total and a noisy count do not refute as their ratio, a Fieller set.

    The noises are independent. Clamps have cut off up to `missing` from the total, below and above, and up to `uncounted` from
    the count. The result is a function of the noisy total and count and the interval's ends.

    Claim: it holds the ratio of total and count with probability `confidence`, if that ratio is in the interval and the
    clamps have cut off no more than this.
    Why: let clamps cut A off the total and B off the count. At the true ratio θ, the noisy total minus θ times the noisy count is
    the noise of both, minus A - θB. So θ stays if the noise explains what no such A and B explain. If the two laws are of
    different kinds, the noise is bounded by the sum of two bounds, each at half of the probability to fail.
    Source: Fieller 1954, "Some problems in interval estimation", section 4.
    """
    outside, steps = 1 - confidence, (total.step / 2, count.step / 2)
    below, above = missing
    if total.mechanism.is_gaussian and count.mechanism.is_gaussian:
        z = _compute_normal_quantile(confidence)

        def is_explained(distance: float, theta: float) -> bool:
            return distance <= z * math.hypot(total.std, theta * count.std)

    elif total.is_laplace and count.is_laplace:
        scales = total.std / math.sqrt(2), count.std / math.sqrt(2)

        def is_explained(distance: float, theta: float) -> bool:
            first, second = scales[0], theta * scales[1]
            return (
                distance <= 0
                or _compute_laplace_pair_tail(max(first, second), min(first, second), distance) >= outside
            )

    else:
        halves = total.compute_half_width(1 - outside / 2), count.compute_half_width(1 - outside / 2)

        def is_explained(distance: float, theta: float) -> bool:
            return distance <= halves[0] + theta * halves[1]

    def compute_interval(noisy: float, rows: float, low: float, high: float) -> tuple[float, float]:
        def is_plausible(theta: float) -> bool:
            apart = noisy - theta * rows
            least = -above + min(0.0, theta * uncounted)
            most = below + max(0.0, theta * uncounted)
            distance = max(apart - most, least - apart, 0.0)
            return is_explained(max(0.0, distance - steps[0] - abs(theta) * steps[1]), abs(theta))

        centre = min(high, max(low, noisy / rows)) if rows > 0 else low
        if not is_plausible(centre):
            return low, high
        return _search_edge(is_plausible, centre, low), _search_edge(is_plausible, centre, high)

    return compute_interval


def _make_sum_bound(mechanism: Mechanism, confidence: float) -> Callable[[Sequence[float]], float]:
    """Return the bound on |Σ weight · noise| at a confidence, of Gaussian noise or one with a `find_sum_bound`, as a function of weights."""
    if (bound := mechanism.find_sum_bound(confidence)) is not None:
        return lambda weights: bound(sorted(filter(None, weights), reverse=True))
    if not mechanism.is_gaussian:
        raise TypeError(f"values of several arguments have no {mechanism.name} noise")
    z = _compute_normal_quantile(confidence) * mechanism.std
    return lambda weights: z * math.hypot(*weights) + sum(weights) / 2


def _search_edge(plausible: Callable[[float], bool], inside: float, outside: float) -> float:
    if plausible(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if plausible(middle) else (inside, middle)
    return outside


def _make_pair_test(mechanism: Mechanism, confidence: float) -> Callable[[float, float, float], bool]:
    """Return whether |a·noise + b·noise'| is as large as this often enough, as a function of this, a and b."""
    if (bound := mechanism.find_sum_bound(confidence)) is not None:
        return lambda distance, a, b: distance <= bound([max(a, b), min(a, b)])
    if mechanism.is_gaussian:
        z = _compute_normal_quantile(confidence) * mechanism.std
        return lambda distance, a, b: distance <= z * math.hypot(a, b) + 0.5
    scale, outside = mechanism.std / math.sqrt(2), 1 - confidence
    return lambda distance, a, b: (
        distance <= 0.5
        or _compute_laplace_pair_tail(scale * max(a, b), scale * min(a, b), distance - 0.5) >= outside
    )


def _compute_laplace_pair_tail(a: float, b: float, t: float) -> float:
    """Return P(|X + Y| > t) for independent Laplace variables X, Y of scales a >= b.

    It is (a² e^(-t/a) - b² e^(-t/b)) / (a² - b²), and (1 + t/2a) e^(-t/a) for equal scales. It is 0 for scales so small that
    their squares would be 0.
    """
    if a < _NOTHING:
        return 0.0
    if a - b <= 1e-6 * a:
        return (1 + t / (2 * a)) * math.exp(-t / a)
    small = b * b * math.exp(-t / b) if b > 0 else 0.0
    return (a * a * math.exp(-t / a) - small) / (a * a - b * b)


@lru_cache(maxsize=256)
def _solve_laplace_sum(std: float, sizes: tuple[Fraction, ...], confidence: float) -> float:
    """Return the t with P(|S| <= t) = `confidence`, S the sum of independent Laplace variables, `size * std` each.

    For scales s that differ, P(|S| > t) = sum of c e^(-t/s), c the product of s²/(s² - r²) over all other
    scales r. Equal scales are separated by 1e-9 of their size, and enough digits are carried for the cancellation. Half of the
    least size is added, because the noise is on a lattice.
    Source: partial fractions of the characteristic function, the product of 1/(1 + s²w²).
    """
    with localcontext(prec=100):
        scales = [
            Decimal(size.numerator) / size.denominator * Decimal(std) / Decimal(2).sqrt() * (1 + at * _APART)
            for at, size in enumerate(sizes)
        ]
        if not std:
            return 0.0
        parts = [
            prod((s * s / (s * s - r * r) for r in scales if r is not s), start=Decimal(1)) for s in scales
        ]
        outside = 1 - Decimal(confidence)
        low, high = Decimal(0), sum(scales) * (1 - outside.ln()) * len(scales)
        for _ in range(60):
            middle = (low + high) / 2
            tail = sum(part * (-middle / s).exp() for part, s in zip(parts, scales, strict=True))
            low, high = (middle, high) if tail > outside else (low, middle)
        return float(high) + float(sizes[-1]) / 2


def _compute_normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri  # scipy costs a tenth of a second, which not every query needs

    return float(ndtri(0.5 + confidence / 2))


# What chosen clamps cut off, as far as intervals allow for it.


Allowance = tuple[float, float]
"""How far the value without noise and clamp may be below and above that without noise."""
Allowances = NDArray[np.float64]
"""As `Allowance`, for many groups: the shape is (groups, 2)."""
NOTHING = (0.0, 0.0)
MANY_GROUPS = 64
"""Divided evenly among more groups, what is overlooked is less than a twentieth of the noise, and is left out."""
SPREAD = 1.5
"""What units lose in all their few groups, in parts of what they have beyond the clamp: more than one for l2 norms.
Measured on amounts of real units, where it was 1.1 to 1.7."""

WITHIN = 0.5
"""The part of what is tolerated in a group of average size that needs no allowance: it is a fifth of the noise."""


def compute_allowance(plan: MeasurementPlan, item: Aggregation, groups: int, confidence: float) -> Allowance:
    """Return the allowance for an aggregate in a group of a release with this number of equal groups, in the value's own units.

    The contributions of all units beyond the clamp are divided among the groups. A mean has no allowance here: a clamp on the
    rows of a unit does not change the mean of the unit. `compute_allowances` covers means whose total and count are measured
    separately.
    """
    clamp, (moment, *more) = find_clamp(plan, item), AGGREGATES[item.function].moments
    if clamp is None or more or groups > MANY_GROUPS:
        return NOTHING
    below, above = _convert_to_value_units(
        clamp, _find_lattice(plan, item, moment), clamp.estimate_overlooked_amounts(confidence)
    )
    return below / max(1, groups), above / max(1, groups)


def compute_allowances(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> tuple[Allowances, ...]:
    """Return the allowance for each moment of an aggregate in these rows of a released table.

    There is none for a mean from one vector, for a quantile, and without a chosen clamp.

    Claim: an allowance is the loss, in that group, of as many units as the choice tolerates and overlooks, for the worse of two
    kinds of units. The first have few groups each; the part `WITHIN` of the tolerated loss in a group of average size is
    subtracted. The second, under an l2 norm, are spread over the groups like all units together; their loss in a group of average
    size is subtracted.
    Why: the losses of units fall on groups in proportion to the contributions there, so the largest group loses most. The noise
    is the same in all groups, and the clamp was chosen for groups of average size. See `_compute_spread` for the second kind.

    Claim: it costs no privacy loss.
    Why: it is a function of the chosen clamps and of released values.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    moments = AGGREGATES[item.function].moments
    nothing = (np.zeros((len(rows), 2)),) * len(moments)
    if item.rank is not None or not plan.clamps:
        return nothing
    places = [plan.get_estimator(get_statistic(plan.analysis, item, moment))[0] for moment in moments]
    if len(moments) > 1 and len(set(places)) == 1:
        return nothing
    found = []
    for moment, place in zip(moments, places, strict=True):
        clamp = plan.vectors[place].clamp
        if clamp is None:
            found.append(nothing[0])
            continue
        lattice, shares = _find_lattice(plan, item, moment), _compute_group_shares(plan, table, item, moment)
        most = plan.analysis.bound.groups
        found.append(
            _compute_group_allowances(plan.clamps[clamp], lattice, shares, most, confidence)[list(rows)]
        )
    return tuple(found)


def _compute_group_allowances(
    clamp: Clamp, lattice: Lattice | None, shares: NDArray[np.float64], most: int, confidence: float
) -> Allowances:
    """Return the allowances for a moment in all groups, each with such a share; a unit is in `most` groups at most."""
    groups = max(1, len(shares))
    overlooked = np.array(
        _convert_to_value_units(clamp, lattice, clamp.estimate_overlooked_amounts(confidence))
    )
    even = 1 / groups if groups <= MANY_GROUPS else 0.0
    found = np.outer(np.maximum(shares, even), overlooked)
    if clamp.min_support and groups > 1:
        of_few = np.array(
            _convert_to_value_units(clamp, lattice, clamp.estimate_clipped_amounts(clamp.tolerated_units))
        )
        of_many = np.zeros(2)
        if clamp.euclidean:
            spread = _compute_spread(shares, most)
            of_many += _convert_to_value_units(
                clamp, lattice, clamp.estimate_clipped_amounts(spread * clamp.tolerated_units, spread)
            )
        found += np.maximum(
            np.outer(np.maximum(0, SPREAD * shares - WITHIN / groups), of_few),
            np.outer(np.maximum(0, shares - 1 / groups), of_many),
        )
    return found


def _compute_spread(shares: NDArray[np.float64], most: int) -> float:
    """Return how many times its l2 norm a unit contributes to all groups, if it is spread over them as all units are.

    Claim: a unit with the norm r loses `spread` times r - R in all groups under a clamp at R, of which each group bears its
    share. No unit with `most` groups has a larger ratio than the root of `most`.
    Why: with the shares s of the groups it contributes r·s/‖s‖ to them, whose sum is r/‖s‖, and is scaled by R/r.
    Source: the inequality of Cauchy and Schwarz.
    """
    norm = float(np.linalg.norm(shares))
    return max(1.0, min(1 / norm, math.sqrt(most))) if norm else 1.0


def _compute_group_shares(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, moment: Moment
) -> NDArray[np.float64]:
    """Return the part of each group in all that is released of a moment."""
    values, divisor = estimate_moments(plan, item, moment, table.components)
    sizes = np.array([each / divisor for each in values], dtype=np.float64)
    together = abs(float(sizes.sum()))
    sizes = np.maximum(0, sizes) if together == sizes.sum() else np.abs(sizes)
    whole = max(together, float(sizes.max(initial=0.0)))
    found: NDArray[np.float64] = sizes / whole if whole else sizes
    return found


def _find_lattice(plan: MeasurementPlan, item: Aggregation, moment: Moment) -> Lattice | None:
    """Return the lattice of the values of a total; None for what is counted."""
    index = plan.analysis.find_measure_index(item)
    return None if index is None or moment is not Moment.TOTAL else plan.analysis.measures[index].lattice


def _convert_to_value_units(clamp: Clamp, lattice: Lattice | None, beyond: Sequence[float]) -> Allowance:
    """Return what is beyond the point of each side, of rows, or of a total of values of a lattice, in the value's own units."""
    by_side = dict(zip(clamp.sides, beyond, strict=True))
    if lattice is None:
        return 0.0, by_side[1]
    step = float(lattice.step)
    if clamp.total is not None:
        return by_side.get(-1, 0.0) * step, by_side.get(1, 0.0) * step
    return by_side[1] * max(0, -lattice.low) * step, by_side[1] * max(0, lattice.high) * step


def find_clamp(plan: MeasurementPlan, item: Aggregation) -> Clamp | None:
    """Return the chosen clamp of an aggregate other than a mean or a quantile; None if it has none."""
    entry = AGGREGATES[item.function]
    if entry.ratio or item.rank is not None or not plan.clamps:
        return None
    vector, _ = plan.get_estimator(get_statistic(plan.analysis, item, entry.moments[0]))
    place = plan.vectors[vector].clamp
    return None if place is None else plan.clamps[place]


def predict_half_width(plan: MeasurementPlan, item: Aggregation, confidence: float) -> float | None:
    """Return the half-width of an aggregate's interval in the value's own units: for its noise, and for what a clamp cuts off.

    Return None if it depends on the data, as that of a mean depends on the number of rows, and that of a median on how close
    the values are.
    """
    half, clamp = predict_noise_half_width(plan, item, confidence), find_clamp(plan, item)
    if half is None or clamp is None:
        return half
    return half + sum(compute_allowance(plan, item, clamp.released_groups, confidence)) / 2


def predict_noise_half_width(plan: MeasurementPlan, item: Aggregation, confidence: float) -> float | None:
    """Return the same as `predict_half_width`, for the noise only."""
    moment, *more = AGGREGATES[item.function].moments
    if more or plan.find_quantile_index(item) is not None:
        return None
    block, weights = plan.get_estimator(get_statistic(plan.analysis, item, moment))
    half = compute_half_width(plan.vectors[block].mechanism, weights, confidence)
    index = plan.analysis.find_measure_index(item)
    lattice = None if index is None else plan.analysis.measures[index].lattice
    return half if lattice is None or not moment.is_sum_of_values else half * float(lattice.step)
