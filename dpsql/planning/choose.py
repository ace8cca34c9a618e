"""The planner: choose the statistics and mechanisms of a release by the smallest predicted error at an equal loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import PublicFacts
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import is_conditional
from dpsql.plan.nodes import Aggregation
from dpsql.plan.steps import find_sampling_rate
from dpsql.planning.build_clamps import (
    BY_GROUP,
    BY_NORM,
    BY_SUM,
    ClampScope,
    ClampSelection,
    build_clamps,
)
from dpsql.planning.clamping import RULE, Clamp, compute_expected_mean, compute_sensitivities
from dpsql.planning.group_selection import Threshold, calibrate_optimal_selection, calibrate_top_k
from dpsql.planning.layouts import calibrate_staircases, iterate_layouts
from dpsql.planning.measurement import Candidate, MeasurementPlan, VectorMeasurement
from dpsql.planning.quantiles import PUBLIC, QuantileSelection
from dpsql.planning.statistics import (
    ROWS,
    UNITS,
    Statistic,
    StatisticVector,
    compute_charged_event,
    compute_sample_loss,
)
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.privacy.mechanisms import (
    DiscreteGaussian,
    Exponential,
    Geometric,
    LInfinityMechanism,
    Mechanism,
    PartitionSelection,
    Sensitivity,
    Staircase,
)

_NO_NOISE = 1e-300
"""Replaces a standard deviation of zero before the logarithm."""


@dataclass(frozen=True, slots=True)
class LossShare:
    """The privacy loss that one release may spend: `epsilon`-DP, or with Gaussian noise `rho`-zCDP.

    Both are charged the same; `rho` is None if the accountant does not support Gaussian noise. `delta` is for partition
    selection. `range_of` gives the range of an exponential mechanism that spends a share of the loss, `pure_of` the ε of any
    ε-DP release that does; without them, both are that share of `epsilon`. `refinable` says that the release may later be refined by coupled noise, which is
    known for geometric noise only.
    """

    epsilon: Fraction
    rho: Fraction | None
    delta: Fraction
    range_of: Callable[[Fraction], Fraction] | None = field(default=None, compare=False)
    refinable: bool = False
    pure_of: Callable[[Fraction], Fraction] | None = field(default=None, compare=False)

    def compute_range(self, share: Fraction) -> Fraction:
        """Return the range of an exponential mechanism that spends this share."""
        return self.epsilon * share if self.range_of is None else self.range_of(share)

    def compute_pure_epsilon(self, share: Fraction) -> Fraction:
        """Return the ε of an ε-DP release that spends this share."""
        return self.epsilon * share if self.pure_of is None else self.pure_of(share)


def choose_plan(
    analysis: Analysis,
    loss: LossShare,
    facts: PublicFacts,
    *,
    allow_clamps: bool = True,
) -> MeasurementPlan:
    """Return the measurement plan with the least predicted error among all that cost `loss`.

    The score of a plan is the mean, over its aggregates, of the log of the predicted standard deviation, so that the
    scale of an aggregate does not matter. With `allow_clamps`, plans with clamps are considered; their errors are predicted at
    the expected thresholds. Raises QueryRejected with code "delta_required" if keys are not public and no delta is left
    for partition selection.

    For a sample of the units the noise is as `dpsql.planning.statistics` allows, and `loss` is charged.
    """
    rate = find_sampling_rate(analysis.release.input)
    if rate is None:
        return _choose_plan(analysis, loss, facts, allow_clamps=allow_clamps)
    inner = LossShare(compute_sample_loss(loss.epsilon, rate), None, loss.delta)
    plan = _choose_plan(analysis, inner, facts, allow_clamps=allow_clamps)
    return replace(plan, event=compute_charged_event(loss.epsilon, plan.event, rate))


def _choose_plan(
    analysis: Analysis, loss: LossShare, facts: PublicFacts, *, allow_clamps: bool
) -> MeasurementPlan:
    """Choose a plan as `choose_plan` does, for all units, or for those of a sample as if there were no others."""
    if analysis.selects_keys and loss.delta <= 0:
        raise QueryRejected(
            "the group keys are not declared in the policy, and partition selection needs a delta above 0",
            code="delta_required",
            hint="declare the column's values in the policy, or give the budget a delta",
        )
    top = analysis.release.top
    if top is not None:
        share = Fraction(1, top.count)
        groups = calibrate_top_k(
            analysis,
            facts,
            top,
            min(loss.epsilon * share, loss.compute_range(share)),
            loss.compute_range(share),
        )
        return MeasurementPlan(analysis, (), None, groups.event, top_k=groups)
    if analysis.selects_keys and not analysis.release.aggregations:
        return _choose_key_selection(analysis, loss)
    return _choose_least_error(analysis, loss, allow_clamps=allow_clamps)


def _choose_least_error(analysis: Analysis, loss: LossShare, *, allow_clamps: bool) -> MeasurementPlan:
    """Return the plan of statistics and quantiles with the least predicted error."""
    least: MeasurementPlan | None = None
    candidates = []
    asked = _list_requested_quantiles(analysis)
    wanted = list_needed_statistics(analysis)
    layouts = (
        iterate_layouts(analysis, wanted, separate_totals=allow_clamps) if wanted else [()] * bool(asked)
    )
    for vectors in layouts:
        costly = sum((rank, end) not in PUBLIC for _, rank, end in asked)
        share = Fraction(1, max(1, len(vectors) + costly))
        quantiles = tuple(
            _calibrate_quantile_selection(analysis, *each, loss.compute_range(share)) for each in asked
        )
        choices = [BoundedRange(loss.compute_range(share)) for _ in range(costly or not vectors)]
        for name, measured, noise, clamps in (
            *((*fixed, ()) for fixed in _iterate_unclamped(analysis, vectors, loss, share)),
            *(
                found
                for selection in (_iterate_clamp_selections(analysis, loss, share) if allow_clamps else ())
                for found in _iterate_clamped(analysis, vectors, loss, share, selection)
            ),
        ):
            events = (*noise, *choices)
            event = Composed(events) if len(events) > 1 else events[0]
            plan = MeasurementPlan(analysis, measured, None, event, quantiles=quantiles, clamps=clamps)
            score = compute_mean_log_error(plan)
            parts = ", ".join(
                vector.vector.name + " clamped" * (vector.clamp is not None) for vector in measured
            )
            candidates.append(Candidate(f"{name}: {parts}", score))
            if least is None or score < min(known.score for known in candidates[:-1]):
                least = plan
    if least is None:
        return MeasurementPlan(analysis, (), None, None)
    named: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.score):
        named.setdefault(candidate.name, candidate)
    return _with_threshold(least, loss.epsilon, loss.delta, tuple(named.values()))


def _choose_key_selection(analysis: Analysis, loss: LossShare) -> MeasurementPlan:
    """Return the plan that releases keys only: the optimal mechanism, or thresholding of noisy counts that are not released.

    The score is the log of the number of units at which a group is selected with probability 1/2.
    """
    selection, event = calibrate_optimal_selection(analysis, loss.epsilon, loss.delta)
    plans = [
        (PartitionSelection.name, selection.median_units, MeasurementPlan(analysis, (), selection, event))
    ]
    for vectors in iterate_layouts(analysis, list_needed_statistics(analysis)):
        for name, measured, (noise,) in _iterate_unclamped(
            analysis, vectors, loss, Fraction(1, len(vectors))
        ):
            plan = _with_threshold(
                MeasurementPlan(analysis, measured, None, noise), loss.epsilon, loss.delta, ()
            )
            if plan.selection is not None:
                plans.append(
                    (
                        f"{name}: {', '.join(vector.name for vector in vectors)}",
                        plan.selection.median_units,
                        plan,
                    )
                )
    plans.sort(key=lambda each: each[1])
    (_, _, chosen), *_ = plans
    return replace(chosen, candidates=tuple(Candidate(name, math.log(half)) for name, half, _ in plans))


def list_needed_statistics(analysis: Analysis) -> dict[Statistic, None]:
    """Return the statistics that the aggregates, partition selection and the minimum frequency of cells need, in order."""
    statistics: dict[Statistic, None] = {}
    for item in analysis.release.aggregations:
        for moment in AGGREGATES[item.function].moments:
            if moment is not Moment.ORDER_STATISTIC:
                statistics[get_statistic(analysis, item, moment)] = None
        if analysis.bound.min_frequency > 1 and is_conditional(item.argument):
            statistics[get_statistic(analysis, item, Moment.COUNT)] = None
    withholds = bool(analysis.release.aggregations) and analysis.bound.min_frequency > 1
    if analysis.selects_keys or withholds:
        statistics[get_units_statistic(analysis)] = None
    return statistics


def get_statistic(analysis: Analysis, item: Aggregation, moment: Moment) -> Statistic:
    """Return the statistic of a moment of an aggregate."""
    return (moment, analysis.find_measure_index(item) if moment.depends_on_argument else None)


def _list_requested_quantiles(analysis: Analysis) -> dict[tuple[int, Fraction, int], None]:
    """Return the quantiles of the query, each once: measure, rank, and interval end."""
    asked: dict[tuple[int, Fraction, int], None] = {}
    for item in analysis.release.aggregations:
        measure = analysis.find_measure_index(item)
        if item.rank is not None and measure is not None:
            asked[measure, item.rank, item.interval_end] = None
    return asked


def _calibrate_quantile_selection(
    analysis: Analysis, measure: int, rank: Fraction, end: int, epsilon: Fraction
) -> QuantileSelection:
    """Return the private choice of a quantile in each group.

    Claim: the ranges of the choices in all groups add up to at most `epsilon`.
    Why: a unit has at most R rows, each in one group, where it changes the difference of two penalties by at most one
    step range; a replaced row is removed and added.
    Source: McSherry, Talwar 2007, Theorem 6; Dwork, Roth 2014, Theorem 3.16.
    """
    lattice, points = analysis.measures[measure].quantile_lattice, analysis.measures[measure].candidates
    if lattice is None:
        raise LookupError("a quantile is chosen on a lattice")
    steps = QuantileSelection.compute_step_range(rank) * analysis.bound.rows * (2 if analysis.replace else 1)
    if points is not None and end:
        # An end is at worst the bound itself.
        points = tuple(sorted({lattice.low, *points, lattice.high}))
    return QuantileSelection(measure, rank, lattice, Exponential.calibrate(steps, epsilon), end, points)


def get_units_statistic(analysis: Analysis) -> Statistic:
    """Return the statistic that counts the privacy units of a group."""
    return UNITS if analysis.bound.per_unit else ROWS


def _iterate_unclamped(
    analysis: Analysis, vectors: tuple[StatisticVector, ...], loss: LossShare, share: Fraction
) -> Iterator[tuple[str, tuple[VectorMeasurement, ...], tuple[Event, ...]]]:
    """Yield the vectors with each kind of noise that the loss allows, each vector with the same share of the loss.

    Claim: with l1 sensitivity Δ_b and scale Δ_b k/ε for each of k vectors the release is ε-DP; with l2
    sensitivity Δ_b and σ_b² = Δ_b² k/2ρ it is ρ-zCDP. A joint vector has cube noise for its l∞
    sensitivity in place of l1 noise. A vector of one component may have staircase noise (see `calibrate_staircases`), unless the
    release may be refined, which needs geometric noise.
    Why: the losses of the vectors add up, by sequential composition.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3.
    """
    sensitivities = compute_sensitivities(analysis, vectors, (), (None,) * len(vectors))
    if not vectors:
        yield Exponential.name, (), ()
        return
    part = share * len(vectors)
    pure = [
        _calibrate_pure_noise(*pair, loss.epsilon * share)
        for pair in zip(vectors, sensitivities, strict=True)
    ]
    name = next((noise.name for noise in pure if isinstance(noise, LInfinityMechanism)), Geometric.name)
    yield name, _build_measurements(vectors, sensitivities, pure), (Pure(loss.epsilon * part),)
    if not loss.refinable or analysis.selects_keys or _list_requested_quantiles(analysis):
        stepped = calibrate_staircases(
            analysis, pure, [(vector, None, loss.epsilon * share) for vector in vectors]
        )
        if stepped is not None:
            yield (
                Staircase.name,
                _build_measurements(vectors, sensitivities, stepped),
                (Pure(loss.epsilon * part),),
            )
    if loss.rho is not None:
        gaussian = [DiscreteGaussian.calibrate(each.l2_squared, loss.rho * share) for each in sensitivities]
        yield (
            DiscreteGaussian.name,
            _build_measurements(vectors, sensitivities, gaussian),
            (Gaussian(loss.rho * part),),
        )


def _calibrate_pure_noise(
    vector: StatisticVector, sensitivity: Sensitivity, epsilon: Fraction
) -> Geometric | LInfinityMechanism:
    if vector.joint and len(vector.components) > 1:
        return LInfinityMechanism.calibrate(sensitivity.linf, epsilon, len(vector.components))
    return Geometric.calibrate(sensitivity.l1, epsilon)


def _list_clamp_scopes(analysis: Analysis, loss: LossShare) -> tuple[ClampScope, ...]:
    """Return the scopes of clamps to consider.

    For a unit of several groups, a clamp across groups is never worse than one in each group: on the sum for geometric
    noise, and on the l2 norm for Gaussian noise, which is calibrated to just these norms.
    """
    if not analysis.is_grouped or analysis.bound.groups == 1:
        return (BY_GROUP,)
    if loss.rho is None:
        return (BY_SUM,)
    return (BY_SUM, BY_NORM)


def _iterate_clamp_selections(
    analysis: Analysis, loss: LossShare, share: Fraction
) -> Iterator[ClampSelection]:
    """Yield the ways to choose clamps, for vectors that have this share of the loss each."""
    spent = share * RULE.get_share(analysis, pure=loss.rho is None)
    rest = share - spent
    variance = 2 / (loss.epsilon * rest) ** 2 if loss.rho is None else 1 / (2 * loss.rho * rest)
    for scope in _list_clamp_scopes(analysis, loss):
        yield ClampSelection(scope, spent, loss.compute_range, variance)


def _iterate_clamped(
    analysis: Analysis,
    vectors: tuple[StatisticVector, ...],
    loss: LossShare,
    share: Fraction,
    clamp_selection: ClampSelection,
) -> Iterator[tuple[str, tuple[VectorMeasurement, ...], tuple[Event, ...], tuple[Clamp, ...]]]:
    """Yield the same as `_iterate_unclamped`, with clamps for the vectors that can have one.

    Claim: the choices and the noise together have the loss of `_iterate_unclamped`.
    Why: a vector with a clamp leaves a part of its share for the choice, whose range costs no more. The noise costs the
    rest whatever the choice is, by adaptive composition.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3 (both adaptive).
    """
    clamps, taken = build_clamps(analysis, vectors, clamp_selection)
    if not clamps:
        return
    vectors = tuple(
        vector if place is None else vector.with_subdivisions(clamps[place].subdivisions)
        for vector, place in zip(vectors, taken, strict=True)
    )
    parts = [share if place is None else share - clamp_selection.part for place in taken]
    choices = tuple(BoundedRange(clamp.compute_range(analysis)) for clamp in clamps)
    known = compute_sensitivities(analysis, vectors, clamps, taken)
    each = list(zip(known, parts, strict=True))
    if not clamp_selection.scope.euclidean:
        geometric = [Geometric.calibrate(found.l1, loss.epsilon * part) for found, part in each]
        points = [None if place is None else clamps[place] for place in taken]
        losses = [loss.epsilon * part for part in parts]
        stepped = calibrate_staircases(analysis, geometric, list(zip(vectors, points, losses, strict=True)))
        for name, noises in ((Geometric.name, geometric), (Staircase.name, stepped)):
            if noises is not None:
                noised = tuple(map(VectorMeasurement, vectors, known, noises, taken))
                yield name, noised, (Pure(loss.epsilon * sum(parts)), *choices), clamps
    if loss.rho is not None and clamp_selection.allows_gaussian:
        gaussian = [DiscreteGaussian.calibrate(found.l2_squared, loss.rho * part) for found, part in each]
        noised = tuple(map(VectorMeasurement, vectors, known, gaussian, taken))
        yield DiscreteGaussian.name, noised, (Gaussian(loss.rho * sum(parts)), *choices), clamps


def _build_measurements(
    vectors: tuple[StatisticVector, ...], sensitivities: list[Sensitivity], mechanisms: Sequence[Mechanism]
) -> tuple[VectorMeasurement, ...]:
    return tuple(map(VectorMeasurement, vectors, sensitivities, mechanisms))


def compute_mean_log_error(plan: MeasurementPlan) -> float:
    """Return the mean log of the predicted errors of the released aggregates: of the noise, and of the expected effect of clamps."""
    # The choice of a quantile is the same in all candidate plans.
    errors = [
        compute_predicted_std(plan, item) * _compute_error_factor(plan, item)
        for item in plan.analysis.release.aggregations
        if item.rank is None
    ]
    if plan.analysis.selects_keys:
        index, weights = plan.get_estimator(get_units_statistic(plan.analysis))
        errors.append(plan.vectors[index].compute_std(weights))
    # A plan whose noise vanishes is better than any other.
    return math.fsum(math.log(max(error, _NO_NOISE)) for error in errors) / max(1, len(errors))


def _compute_error_factor(plan: MeasurementPlan, item: Aggregation) -> float:
    """Return the root mean square error of an aggregate, as a multiple of its noise's: a clamp cuts off at most the tolerated part."""
    index, _ = plan.get_estimator(get_statistic(plan.analysis, item, AGGREGATES[item.function].moments[0]))
    place = plan.vectors[index].clamp
    learnt = place is not None and plan.clamps[place].min_support
    return math.hypot(1.0, RULE.tolerance) if learnt else 1.0


def compute_predicted_std(plan: MeasurementPlan, item: Aggregation) -> float:
    """Return the standard deviation of an aggregate's noise, in the value's own units.

    For a ratio it is that of TOTAL less the midpoint times COUNT: the error of the mean times n. If these are measured
    apart, it is the expected mean in place of the midpoint: clamps of totals are expected for these values.
    """
    analysis = plan.analysis
    entry = AGGREGATES[item.function]
    index, weights = plan.get_estimator(get_statistic(analysis, item, entry.moments[0]))
    measure = analysis.find_measure_index(item)
    lattice = None if measure is None else analysis.measures[measure].lattice
    if lattice is None or not entry.moments[0].is_sum_of_values:
        return plan.vectors[index].compute_std(weights)
    if entry.ratio:
        place, counted = plan.get_estimator(get_statistic(analysis, item, Moment.COUNT))
        if place != index:
            mean = float(compute_expected_mean(lattice))
            noise = math.hypot(
                plan.vectors[index].compute_std(weights), mean * plan.vectors[place].compute_std(counted)
            )
            return noise * float(lattice.step)
        middle = Fraction(lattice.low + lattice.high, 2)
        weights = tuple(total - middle * count for total, count in zip(weights, counted, strict=True))
    return plan.vectors[index].compute_std(weights) * float(lattice.step)


def _with_threshold(
    plan: MeasurementPlan, epsilon: Fraction, delta: Fraction, candidates: tuple[Candidate, ...]
) -> MeasurementPlan:
    """Add the threshold of partition selection, which hides the keys of groups of a single unit.

    Claim: the release has the privacy of its noise and choices, except for an event of probability at most δ.
    Why: consider the groups that a unit brings to exactly `min_frequency` units. Without the unit they have fewer units
    and are never selected. With it, each is selected with probability at most δ/G, since the noise must reach the
    threshold, and there are at most G of them. Given that none of them is selected, which has probability at least 1-δ,
    nothing of them is released on either side. Noise is drawn independently for each group, so the law of the other
    groups is that of the noise alone. This is approximate concentrated (or pure, or Gaussian) privacy with this δ,
    for any δ and any loss; and P ≤ e^ε Q/(1-δ), which then holds one way, implies P ≤ e^ε Q + δ. If a unit replaces
    another, each side has such groups of its own, and both events have probability at least 1-δ. If the groups of a unit
    are clamped, G is the chosen threshold: a unit does not count in groups beyond it.
    Also, δ is at most a quarter of the least loss of a vector, in the measure of its noise, so that keys do not cost more
    than counts. The claim does not rest on this.
    Source: Korolova, Kenthapadi, Mishra, Ntoulas 2009, section 4; Desfontaines et al. 2022, section 5; Bun, Steinke
    2016, section 8 (approximate zCDP).
    """
    analysis = plan.analysis
    parts = len(plan.vectors) + len(plan.quantiles)
    if parts:
        delta = min(delta, _compute_least_loss(plan, epsilon / parts) / 4, Fraction(1, 4))
    if not analysis.selects_keys or plan.event is None:
        return replace(plan, candidates=candidates)
    index, weights = plan.get_estimator(get_units_statistic(analysis))
    components = tuple(at for at, weight in enumerate(weights) if weight)
    scale = int(1 / weights[components[0]])
    chosen = Threshold(index, components, scale, 0, delta, analysis.bound.min_frequency)
    chosen = chosen.calibrate_to(plan.vectors[index].mechanism, plan.bound_groups(index))
    noise = plan.event.events if isinstance(plan.event, Composed) else (plan.event,)
    event = Composed((*noise, Selection(delta)))
    return replace(plan, selection=chosen, event=event, candidates=candidates)


def _compute_least_loss(plan: MeasurementPlan, epsilon: Fraction) -> Fraction:
    """Return the least loss of a vector in the measure of its noise: ρ for Gaussian noise, `epsilon` for any other.

    It includes the loss of choosing a clamp.
    """
    gaussian = (
        vector.mechanism.compute_rho(vector.sensitivity.l2_squared)
        for vector in plan.vectors
        if isinstance(vector.mechanism, DiscreteGaussian)
    )
    return min([epsilon, *gaussian])
