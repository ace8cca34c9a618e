"""The planner: chooses the statistics and mechanisms of a release, by the least predicted error at an equal loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpsql.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.aggregates import AGGREGATES, Moment
from dpsql.analysis.analyse import Analysis, Measurand
from dpsql.analysis.lattice import Lattice
from dpsql.analysis.stability import PublicFacts
from dpsql.errors import QueryRejected
from dpsql.mechanisms import (
    Cube,
    DiscreteGaussian,
    Exponential,
    Geometric,
    Mechanism,
    PartitionSelection,
    Sensitivity,
    Staircase,
)
from dpsql.plan.expr import is_conditional
from dpsql.plan.nodes import Aggregation
from dpsql.plan.sampling import sampling_rate
from dpsql.planning import clamping
from dpsql.planning.clamping import (
    BY_GROUP,
    BY_NORM,
    BY_SUM,
    Clamp,
    ClampScope,
    Learning,
    expected_mean,
)
from dpsql.planning.layouts import layouts
from dpsql.planning.learning_rule import FORMER, LEARNING, LearningRule
from dpsql.planning.measurement import Candidate, MeasurementPlan, VectorMeasurement
from dpsql.planning.partition_selection import Threshold, optimal_partition_selection
from dpsql.planning.quantiles import PUBLIC, QuantileSelection
from dpsql.planning.sampling import charged, loss_on_sample
from dpsql.planning.staircase import staircases
from dpsql.planning.statistics import ROWS, UNITS, Statistic, StatisticVector
from dpsql.planning.top_k import top_k_selection

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

    def range(self, share: Fraction) -> Fraction:
        """The range of an exponential mechanism that spends this share."""
        return self.epsilon * share if self.range_of is None else self.range_of(share)

    def pure(self, share: Fraction) -> Fraction:
        """The ε of an ε-DP release that spends this share."""
        return self.epsilon * share if self.pure_of is None else self.pure_of(share)


def choose(
    analysis: Analysis,
    loss: LossShare,
    facts: PublicFacts,
    *,
    learn: bool = True,
) -> MeasurementPlan:
    """The measurement plan with the least predicted error among all that cost `loss`.

    The score of a plan is the mean, over its aggregates, of the log of the predicted standard deviation, so that the
    scale of an aggregate does not matter. With `learn`, plans with clamps are considered; their errors are predicted at
    the expected thresholds. Raises QueryRejected with code "delta_required" if keys are not public and no delta is left
    for partition selection.

    Of a sample of the units, the noise is as `dpsql.planning.sampling` allows, and `loss` is charged.
    """
    rate = sampling_rate(analysis.release.input)
    if rate is None:
        return _chosen(analysis, loss, facts, learn=learn)
    inner = LossShare(loss_on_sample(loss.epsilon, rate), None, loss.delta)
    plan = _chosen(analysis, inner, facts, learn=learn)
    return replace(plan, event=charged(loss.epsilon, plan.event, rate))


def _chosen(analysis: Analysis, loss: LossShare, facts: PublicFacts, *, learn: bool) -> MeasurementPlan:
    """As `choose`, for all units, or for those of a sample as though there were no others."""
    if analysis.selects and loss.delta <= 0:
        raise QueryRejected(
            "the group keys are not declared in the policy, and partition selection needs a delta above 0",
            code="delta_required",
            hint="declare the column's values in the policy, or give the budget a delta",
        )
    top = analysis.release.top
    if top is not None:
        share = Fraction(1, top.count)
        groups = top_k_selection(
            analysis, facts, top, min(loss.epsilon * share, loss.range(share)), loss.range(share)
        )
        return MeasurementPlan(analysis, (), None, groups.event, top_k=groups)
    if analysis.selects and not analysis.release.aggregations:
        return _keys_only(analysis, loss)
    return _least_error(analysis, loss, LEARNING if learn else None)


def is_of_former_rule(version: str) -> bool:
    """Whether a version of dpsql planned releases by the rule of `former`; a version that cannot be read may have.

    >>> [is_of_former_rule(version) for version in ("0.1.0", "0.2.0", "0.3.0.dev0", "0.10.1", "1.0", "unknown")]
    [True, True, False, False, False, True]
    """
    first, _, rest = version.partition(".")
    second = rest.partition(".")[0]
    if not (first.isdecimal() and second.isdecimal()):
        return True
    return (int(first), int(second)) < (0, 3)


def former(plan: MeasurementPlan, loss: LossShare) -> MeasurementPlan | None:
    """The plan of the same release at the same loss as it was made before 0.3.0; None if that was the same one.

    Clamps had another rule, distinct values were bounded by the rows of a unit alone, and decimals were on binary lattices.
    """
    measures = tuple(map(_former_measure, plan.analysis.measures))
    few = plan.analysis.bound.rows < clamping.LEAST_ADDED
    same = measures == plan.analysis.measures and (few or not plan.vectors)
    if plan.top_k is not None or same or sampling_rate(plan.analysis.release.input) is not None:
        return None
    return _least_error(replace(plan.analysis, measures=measures), loss, FORMER)


def _former_measure(measure: Measurand) -> Measurand:
    lattice, ranked = measure.lattice, measure.quantile_lattice
    if lattice is not None and lattice.digits:
        lattice = Lattice.of(measure.interval, integral=False)
    if ranked is not None and ranked.digits and measure.candidates is None:
        ranked = Lattice.of(measure.interval, integral=False)
    return replace(measure, most_distinct=0, lattice=lattice, quantile_lattice=ranked)


def _least_error(analysis: Analysis, loss: LossShare, rule: LearningRule | None) -> MeasurementPlan:
    """The plan of statistics and quantiles with the least predicted error; without a `rule`, one without clamps."""
    least: MeasurementPlan | None = None
    candidates = []
    asked = _requested_quantiles(analysis)
    wanted = needed_statistics(analysis)
    apart = rule is not None and rule.apart
    for vectors in layouts(analysis, wanted, apart=apart) if wanted else [()] * bool(asked):
        costly = sum((rank, end) not in PUBLIC for _, rank, end in asked)
        share = Fraction(1, max(1, len(vectors) + costly))
        quantiles = tuple(_quantile_selection(analysis, *each, loss.range(share)) for each in asked)
        choices = [BoundedRange(loss.range(share)) for _ in range(costly or not vectors)]
        for name, measured, noise, clamps in (
            *((*fixed, ()) for fixed in _without_clamps(analysis, vectors, loss, share)),
            *(
                found
                for learning in _learnings(analysis, loss, share, rule)
                for found in _with_clamps(analysis, vectors, loss, share, learning)
            ),
        ):
            events = (*noise, *choices)
            event = Composed(events) if len(events) > 1 else events[0]
            plan = MeasurementPlan(analysis, measured, None, event, quantiles=quantiles, clamps=clamps)
            score = mean_error(plan)
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


def _keys_only(analysis: Analysis, loss: LossShare) -> MeasurementPlan:
    """The plan that releases keys only: the optimal mechanism, or thresholding of noisy counts that are not released.

    The score is the log of the number of units at which a group is selected with probability 1/2.
    """
    selection, event = optimal_partition_selection(analysis, loss.epsilon, loss.delta)
    plans = [
        (PartitionSelection.name, selection.median_units, MeasurementPlan(analysis, (), selection, event))
    ]
    for vectors in layouts(analysis, needed_statistics(analysis)):
        for name, measured, (noise,) in _without_clamps(analysis, vectors, loss, Fraction(1, len(vectors))):
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


def needed_statistics(analysis: Analysis) -> dict[Statistic, None]:
    """The statistics that the aggregates, partition selection and the minimum frequency of cells need, in order."""
    statistics: dict[Statistic, None] = {}
    for item in analysis.release.aggregations:
        for moment in AGGREGATES[item.function].moments:
            if moment is not Moment.RANKED:
                statistics[statistic_of(analysis, item, moment)] = None
        if analysis.bound.min_frequency > 1 and is_conditional(item.argument):
            statistics[statistic_of(analysis, item, Moment.COUNT)] = None
    withholds = bool(analysis.release.aggregations) and analysis.bound.min_frequency > 1
    if analysis.selects or withholds:
        statistics[units_statistic(analysis)] = None
    return statistics


def statistic_of(analysis: Analysis, item: Aggregation, moment: Moment) -> Statistic:
    """The statistic of a moment of an aggregate."""
    return (moment, analysis.measure(item) if moment.of_argument else None)


def _requested_quantiles(analysis: Analysis) -> dict[tuple[int, Fraction, int], None]:
    """The quantiles of the query, each once: measure, rank, and interval end."""
    asked: dict[tuple[int, Fraction, int], None] = {}
    for item in analysis.release.aggregations:
        measure = analysis.measure(item)
        if item.rank is not None and measure is not None:
            asked[measure, item.rank, item.interval_end] = None
    return asked


def _quantile_selection(
    analysis: Analysis, measure: int, rank: Fraction, end: int, epsilon: Fraction
) -> QuantileSelection:
    """The private choice of a quantile in each group.

    Claim: the ranges of the choices in all groups add up to at most `epsilon`.
    Why: a unit has at most R rows, each in one group, where it changes the difference of two penalties by at most one
    step range; a replaced row is removed and added.
    Source: McSherry, Talwar 2007, Theorem 6; Dwork, Roth 2014, Theorem 3.16.
    """
    lattice, points = analysis.measures[measure].quantile_lattice, analysis.measures[measure].candidates
    if lattice is None:
        raise LookupError("a quantile is chosen on a lattice")
    steps = QuantileSelection.step_range(rank) * analysis.bound.rows * (2 if analysis.replace else 1)
    if points is not None and end:
        # An end is at worst the bound itself.
        points = tuple(sorted({lattice.low, *points, lattice.high}))
    return QuantileSelection(measure, rank, lattice, Exponential.calibrate(steps, epsilon), end, points)


def units_statistic(analysis: Analysis) -> Statistic:
    """Return the statistic that counts the privacy units of a group."""
    return UNITS if analysis.bound.per_unit else ROWS


def _without_clamps(
    analysis: Analysis, vectors: tuple[StatisticVector, ...], loss: LossShare, share: Fraction
) -> Iterator[tuple[str, tuple[VectorMeasurement, ...], tuple[Event, ...]]]:
    """The vectors with each kind of noise that the loss allows, each vector with the same share of the loss.

    Claim: with l1 sensitivity Δ_b and scale Δ_b k/ε for each of k vectors the release is ε-DP; with l2
    sensitivity Δ_b and σ_b² = Δ_b² k/2ρ it is ρ-zCDP. A joint vector has cube noise for its l∞
    sensitivity in place of l1 noise. A vector of one component may have staircase noise (see `staircases`), unless the
    release may be refined, which needs geometric noise.
    Why: the losses of the vectors add up, by sequential composition.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3.
    """
    sensitivities = clamping.sensitivities(analysis, vectors, (), (None,) * len(vectors))
    if not vectors:
        yield Exponential.name, (), ()
        return
    part = share * len(vectors)
    pure = [_pure_noise(*pair, loss.epsilon * share) for pair in zip(vectors, sensitivities, strict=True)]
    name = next((noise.name for noise in pure if isinstance(noise, Cube)), Geometric.name)
    yield name, _zip(vectors, sensitivities, pure), (Pure(loss.epsilon * part),)
    if not loss.refinable or analysis.selects or _requested_quantiles(analysis):
        stepped = staircases(analysis, pure, [(vector, None, loss.epsilon * share) for vector in vectors])
        if stepped is not None:
            yield Staircase.name, _zip(vectors, sensitivities, stepped), (Pure(loss.epsilon * part),)
    if loss.rho is not None:
        gaussian = [DiscreteGaussian.calibrate(each.l2_squared, loss.rho * share) for each in sensitivities]
        yield DiscreteGaussian.name, _zip(vectors, sensitivities, gaussian), (Gaussian(loss.rho * part),)


def _pure_noise(vector: StatisticVector, sensitivity: Sensitivity, epsilon: Fraction) -> Geometric | Cube:
    if vector.joint and len(vector.components) > 1:
        return Cube.calibrate(sensitivity.linf, epsilon, len(vector.components))
    return Geometric.calibrate(sensitivity.l1, epsilon)


def _clamp_scopes(analysis: Analysis, loss: LossShare, rule: LearningRule) -> tuple[ClampScope, ...]:
    """The scopes of clamps to consider.

    For a unit of several groups, a clamp across groups is never worse than one in each group: on the sum for geometric
    noise, and on the l2 norm for Gaussian noise, which is calibrated to just these norms.
    """
    if not analysis.grouped or analysis.bound.groups == 1:
        return (BY_GROUP,)
    if loss.rho is None:
        return (BY_SUM,)
    return (BY_SUM, BY_NORM if rule.euclidean else BY_GROUP)


def _learnings(
    analysis: Analysis, loss: LossShare, share: Fraction, rule: LearningRule | None
) -> Iterator[Learning]:
    """The ways to choose clamps by a rule, for vectors that have this share of the loss each."""
    if rule is None:
        return
    pure = loss.rho is None
    spent = share * rule.share_of(analysis, pure=pure)
    rest = share - spent
    variance = 2 / (loss.epsilon * rest) ** 2 if loss.rho is None else 1 / (2 * loss.rho * rest)
    exponent = rule.pure_exponent if pure else rule.exponent
    for scope in _clamp_scopes(analysis, loss, rule):
        yield Learning(rule, scope, spent, exponent, loss.range, variance)


def _with_clamps(
    analysis: Analysis,
    vectors: tuple[StatisticVector, ...],
    loss: LossShare,
    share: Fraction,
    learning: Learning,
) -> Iterator[tuple[str, tuple[VectorMeasurement, ...], tuple[Event, ...], tuple[Clamp, ...]]]:
    """As `_without_clamps`, with clamps for the vectors that can have one.

    Claim: the choices and the noise together have the loss of `_without_clamps`.
    Why: a vector with a clamp leaves a part of its share for the choice, whose range costs no more. The noise costs the
    rest whatever the choice is, by adaptive composition.
    Source: Dwork, Roth 2014, Theorem 3.16; Bun, Steinke 2016, Lemma 2.3 (both adaptive).
    """
    clamps, taken = clamping.clamps_for(analysis, vectors, learning)
    if not clamps:
        return
    vectors = tuple(
        vector if place is None else vector.subdivided(clamps[place].subdivisions)
        for vector, place in zip(vectors, taken, strict=True)
    )
    parts = [share if place is None else share - learning.part for place in taken]
    choices = tuple(BoundedRange(clamp.range(analysis)) for clamp in clamps)
    known = clamping.sensitivities(analysis, vectors, clamps, taken)
    each = list(zip(known, parts, strict=True))
    if not learning.scope.euclidean:
        geometric = [Geometric.calibrate(found.l1, loss.epsilon * part) for found, part in each]
        points = [None if place is None else clamps[place] for place in taken]
        losses = [loss.epsilon * part for part in parts]
        stepped = staircases(analysis, geometric, list(zip(vectors, points, losses, strict=True)))
        for name, noises in ((Geometric.name, geometric), (Staircase.name, stepped)):
            if noises is not None:
                noised = tuple(map(VectorMeasurement, vectors, known, noises, taken))
                yield name, noised, (Pure(loss.epsilon * sum(parts)), *choices), clamps
    if loss.rho is not None and learning.gaussian:
        gaussian = [DiscreteGaussian.calibrate(found.l2_squared, loss.rho * part) for found, part in each]
        noised = tuple(map(VectorMeasurement, vectors, known, gaussian, taken))
        yield DiscreteGaussian.name, noised, (Gaussian(loss.rho * sum(parts)), *choices), clamps


def _zip(
    vectors: tuple[StatisticVector, ...], sensitivities: list[Sensitivity], mechanisms: Sequence[Mechanism]
) -> tuple[VectorMeasurement, ...]:
    return tuple(map(VectorMeasurement, vectors, sensitivities, mechanisms))


def mean_error(plan: MeasurementPlan) -> float:
    """The mean log of the predicted errors of the released aggregates: of the noise, and of what clamps are expected to cut."""
    # The choice of a quantile is the same in all candidate plans.
    errors = [
        predicted_std(plan, item) * _times_noise(plan, item)
        for item in plan.analysis.release.aggregations
        if item.rank is None
    ]
    if plan.analysis.selects:
        index, weights = plan.source(units_statistic(plan.analysis))
        errors.append(plan.vectors[index].std(weights))
    # A plan whose noise vanishes is better than any other.
    return math.fsum(math.log(max(error, _NO_NOISE)) for error in errors) / max(1, len(errors))


def _times_noise(plan: MeasurementPlan, item: Aggregation) -> float:
    """The root mean square error of an aggregate, as a multiple of its noise's: what a clamp cuts is up to the tolerated part."""
    index, _ = plan.source(statistic_of(plan.analysis, item, AGGREGATES[item.function].moments[0]))
    place = plan.vectors[index].clamp
    learnt = place is not None and plan.clamps[place].evidence
    return math.hypot(1.0, LEARNING.tolerance) if learnt else 1.0


def predicted_std(plan: MeasurementPlan, item: Aggregation) -> float:
    """The standard deviation of an aggregate's noise, in the value's own units.

    For a ratio it is that of TOTAL less the midpoint times COUNT: the error of the mean times n. If these are measured
    apart, it is the expected mean in place of the midpoint: clamps of totals are expected for these values.
    """
    analysis = plan.analysis
    entry = AGGREGATES[item.function]
    index, weights = plan.source(statistic_of(analysis, item, entry.moments[0]))
    measure = analysis.measure(item)
    lattice = None if measure is None else analysis.measures[measure].lattice
    if lattice is None or not entry.moments[0].in_steps:
        return plan.vectors[index].std(weights)
    if entry.ratio:
        place, counted = plan.source(statistic_of(analysis, item, Moment.COUNT))
        if place != index:
            mean = float(expected_mean(lattice))
            noise = math.hypot(plan.vectors[index].std(weights), mean * plan.vectors[place].std(counted))
            return noise * float(lattice.step)
        middle = Fraction(lattice.low + lattice.high, 2)
        weights = tuple(total - middle * count for total, count in zip(weights, counted, strict=True))
    return plan.vectors[index].std(weights) * float(lattice.step)


def _with_threshold(
    plan: MeasurementPlan, epsilon: Fraction, delta: Fraction, candidates: tuple[Candidate, ...]
) -> MeasurementPlan:
    """Adds the threshold of partition selection, which hides the keys of groups of a single unit.

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
        delta = min(delta, _least_loss(plan, epsilon / parts) / 4, Fraction(1, 4))
    if not analysis.selects or plan.event is None:
        return replace(plan, candidates=candidates)
    index, weights = plan.source(units_statistic(analysis))
    components = tuple(at for at, weight in enumerate(weights) if weight)
    scale = int(1 / weights[components[0]])
    chosen = Threshold(index, components, scale, 0, delta, analysis.bound.min_frequency)
    chosen = chosen.calibrated(plan.vectors[index].mechanism, plan.groups(index))
    noise = plan.event.events if isinstance(plan.event, Composed) else (plan.event,)
    event = Composed((*noise, Selection(delta)))
    return replace(plan, selection=chosen, event=event, candidates=candidates)


def _least_loss(plan: MeasurementPlan, epsilon: Fraction) -> Fraction:
    """The least loss of a vector in the measure of its noise: ρ for Gaussian noise, `epsilon` for any other.

    It includes the loss of choosing a clamp.
    """
    gaussian = (
        vector.mechanism.rho(vector.sensitivity.l2_squared)
        for vector in plan.vectors
        if isinstance(vector.mechanism, DiscreteGaussian)
    )
    return min([epsilon, *gaussian])
