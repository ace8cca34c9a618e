"""Independent verification of a measurement plan: its loss is derived again, without the planner's formulas.

The planner bounds sensitivities in closed form. Here the components of every extreme row are computed, and the loss
follows from the parameters of the mechanisms, not from the loss that they were calibrated to.

Claim: if `verify_plan` returns, the loss of the plan is at most that of its event. Of a plan whose clamps are not chosen yet this
holds for the points that are tried; `release` verifies the plan again when they are chosen, before noise is drawn.
Why: components are linear in a row's moments, so norms are largest at the extreme rows; a unit's rows in all
groups together are at most R of them. Chosen points are released, so that a refusal by them tells nothing more.
Source: Dwork, McSherry, Nissim, Smith 2006, Theorem 1; Bun, Steinke 2016, Proposition 1.6.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import itemgetter
from typing import Any

from dpsql.analysis.release_analysis import Analysis
from dpsql.errors import VerificationError
from dpsql.plan.aggregates import Moment
from dpsql.plan.steps import find_sampling_rate
from dpsql.planning.clamping import Amount, Clamp
from dpsql.planning.group_selection import OptimalPartitionSelection, TopKSelection
from dpsql.planning.measurement import MeasurementPlan, SynthesisPlan, VectorMeasurement
from dpsql.planning.quantiles import QuantileSelection
from dpsql.planning.statistics import ROWS, UNITS, StatisticVector
from dpsql.planning.verify_norms import Norms, bound_staircase_steps, build_norms_function, derive_norms
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.privacy.accounting.numerics import bound_exp, ln_up
from dpsql.privacy.mechanisms import (
    DiscreteGaussian,
    Exponential,
    Geometric,
    LInfinityMechanism,
    Mechanism,
    Staircase,
)
from dpsql.privacy.synthesis.mechanism import SmallDatabase
from dpsql.privacy.synthesis.mst import Mst, SyntheticMethod
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import WeightsStream

# The allowed loss of the noise of a release: the charge by kind, or what it allows on a sample of the units.


_CHARGE_PLACES = 90
"""Decimal places to which the inequality is tried: more than the planner rounds away."""


def split_charge_by_kind(event: Event | None) -> dict[str, Fraction]:
    """Return the loss that an event charges, by kind of noise, and its δ."""
    total = dict.fromkeys(("pure", "gaussian", "range", "delta"), Fraction(0))
    stack = [] if event is None else [event]
    while stack:
        match stack.pop():
            case Composed(events=events):
                stack += events
            case Pure(epsilon=epsilon):
                total["pure"] += epsilon
            case Gaussian(rho=rho):
                total["gaussian"] += rho
            case Selection(delta=delta):
                total["delta"] += delta
            case BoundedRange(epsilon=epsilon):
                total["range"] += epsilon
    return total


def derive_allowed_loss(plan: MeasurementPlan, loss: Fraction) -> dict[str, Fraction]:
    """Return the allowed loss of each kind of noise, whose total is `loss`: the charge, or what amplification makes of it.

    Raises VerificationError where more is lost on a sample than is charged.
    """
    charged, rate = split_charge_by_kind(plan.event), find_sampling_rate(plan.analysis.release.input)
    return charged if rate is None else derive_sample_loss(charged, loss, rate, replace=plan.analysis.replace)


def derive_sample_loss(
    charged: Mapping[str, Fraction], loss: Fraction, rate: Fraction, *, replace: bool
) -> dict[str, Fraction]:
    """Return the allowed loss of each kind of noise on a sample, whose total is `loss`, for a charge of `charged`.

    Claim: if 1 + q(e^loss - 1) <= e^ε, the release is (ε, q·δ0)-DP; divided by e^loss, q + (1-q)e^-loss <= e^-(loss-ε).
    Source: Balle, Barthe, Gaboardi 2018, Theorem 8.

    The planner solves for the loss on a sample. Here the inequality that amplification rests on is tried with the loss that was
    derived from the noise: with e^-x in place of e^x, so that no number is large.

    Raises VerificationError where it is not so, or not known.
    """
    epsilon = charged["pure"]
    if replace or charged["gaussian"] or charged["range"] or not 0 < rate < 1:
        raise VerificationError(
            "amplification by sampling needs a pure loss and units that are added or removed, not replaced"
        )
    if loss > epsilon:
        (_, of_loss), (of_rest, _) = (
            bound_exp(loss, _CHARGE_PLACES),
            bound_exp(loss - epsilon, _CHARGE_PLACES),
        )
        known = rate * 10**_CHARGE_PLACES + (1 - rate) * of_loss <= of_rest
    else:
        known = True
    if not known:
        raise VerificationError("the loss of the noise on a sample, amplified, exceeds the charged loss")
    return {"pure": loss, "range": loss, "gaussian": Fraction(0), "delta": charged["delta"] / rate}


# The loss of a synthetic table or a stream, derived again from its laws, without the formulas that calibrated it.


def derive_synthesis_loss(
    found: SyntheticMethod | WeightsStream | RandomizedTable, l1: Fraction, *, replaced: bool
) -> dict[str, Fraction]:
    """Return the loss of each kind of step for a histogram that one unit moves by at most `l1`, from the laws."""
    spent = dict.fromkeys(("pure", "gaussian", "range"), Fraction(0))

    def add_loss(noise: Mechanism, moved: Fraction, length: Fraction, times: int = 1) -> None:
        if isinstance(noise, Geometric):
            spent["pure"] += times * moved / noise.scale
        elif isinstance(noise, DiscreteGaussian):
            spent["gaussian"] += times * length / (2 * noise.variance)
        else:
            raise VerificationError(f"verification has no rule for {noise.name} noise of a synthetic table")

    if isinstance(found, WeightsStream):
        spent |= derive_synthesis_loss(found.start, l1, replaced=replaced)
        # The noise of the threshold makes up for a unit once, that of the score which is above for it twice.
        spent["pure"] += found.updates * (l1 / found.test.near.scale + 2 * l1 / found.test.far.scale)
        add_loss(found.count, l1, l1**2, found.updates)
        return spent
    if isinstance(found, RandomizedTable):
        # Each row that a unit moves is answered anew: the product of the odds, of all columns, and the number of rows by one.
        logs = (ln_up(max(odds, 1 / odds)) for odds in found.odds)
        spent["pure"] += l1 * (sum(logs, Fraction(0)) + 1 / found.count.scale)
        return spent
    distances = l1 * len(found.workload)
    add_loss(found.check, distances, distances**2)
    if isinstance(found, SmallDatabase):
        add_loss(found.count, l1, l1**2)
        spent["range"] += found.selection.compute_range(1) * 2 * l1 * found.size
        return spent
    # A replaced unit takes its rows out of one cell of a marginal, and puts as many into another.
    squared = 2 * (l1 / 2) ** 2 if replaced else l1**2
    if isinstance(found, Mst):
        # A tree of c columns has c - 1 pairs, each of which is measured once, and chosen where there are others.
        pairs = len(found.shape) - 1
        add_loss(found.noise, l1, squared, pairs + 1)
        add_loss(found.pair_noise, l1, squared, pairs)
        spent["range"] += _derive_range(found.selection, 2 * l1, pairs if pairs > 1 else 0)
        return spent
    add_loss(found.noise, l1, squared, len(found.shape) + found.rounds)
    spent["range"] += _derive_range(found.selection, 2 * l1, found.rounds)
    return spent


def _derive_range(selection: Exponential | None, moved: Fraction, times: int) -> Fraction:
    """Return the bounded range of `times` choices together, whose scores one unit moves apart by at most `moved`."""
    if selection is None and times:
        raise VerificationError("a choice of a synthetic table has no mechanism")
    return Fraction(0) if selection is None else selection.compute_range(1) * moved * times


_PLACES = 40
"""Decimal places to which irrational probabilities are compared."""


def verify_plan(plan: MeasurementPlan) -> None:
    """Raise VerificationError unless the event charges for at least the loss of the noise."""
    if plan.top_k is not None:
        _verify_top_k(plan, plan.top_k)
        return
    if plan.synthesis is not None:
        _verify_synthesis(plan, plan.synthesis)
        return
    spent = derive_loss_by_kind(plan)
    chosen = sum((_derive_quantile_range(part, plan.analysis) for part in plan.quantiles), start=Fraction(0))
    chosen += sum((_derive_clamp_range(clamp, plan.analysis) for clamp in plan.clamps), start=Fraction(0))
    charged = derive_allowed_loss(plan, sum(spent.values(), start=chosen))
    if chosen > charged["range"]:
        raise VerificationError(
            "the range of the exponential mechanism for quantiles or clamps exceeds the charged loss"
        )
    if spent["pure"] > charged["pure"] or spent["gaussian"] > charged["gaussian"]:
        raise VerificationError("the loss of the noise exceeds the charged loss")
    if plan.analysis.selects_keys:
        _verify_selection(plan, charged["delta"])


def derive_loss_by_kind(plan: MeasurementPlan) -> dict[str, Fraction]:
    """Return the loss of the noise and of partition selection, by kind: "pure" or "gaussian". Before clamps are chosen, the largest."""
    spent = {"pure": Fraction(0), "gaussian": Fraction(0)}
    totals = {clamp.total for clamp in plan.clamps}
    for measured in plan.vectors:
        clamp = None if measured.clamp is None else plan.clamps[measured.clamp]
        own = None if clamp is None else clamp.total
        read = {
            statistic for component in measured.vector.components for statistic, _ in component.combination
        }
        # The engine limits a total by one clamp alone, which the noise of all that reads it is calibrated to.
        if any(moment is Moment.TOTAL and index in totals - {own} for moment, index in read):
            raise VerificationError(f"{measured.vector.name} reads a total that two clamps limit")
        norms_at = build_norms_function(measured.vector, plan.analysis, clamp)
        kind, loss = max(
            (
                _derive_loss(vector, held, plan.analysis, norms_at(held.points if held else ()))
                for vector, held in _iterate_at_points(plan, measured)
            ),
            key=itemgetter(1),
        )
        spent[kind] += loss
    if isinstance(plan.selection, OptimalPartitionSelection):
        spent["pure"] += plan.selection.mechanism.epsilon * _count_changed_groups(plan.analysis)
    return spent


def _verify_top_k(plan: MeasurementPlan, top_k: TopKSelection) -> None:
    """Try a unit with the lowest and the highest contribution to all scores, and the replacement of one by the other."""
    if plan.analysis.selects_keys or plan.analysis.domains is None:
        raise VerificationError("top-k selection needs public keys")
    shares = (0, top_k.low, top_k.high)
    moves = {a - b if plan.analysis.replace else a for a, b in itertools.product(shares, repeat=2)}
    loss = top_k.mechanism.compute_range(max(moves) - min(moves)) * top_k.top.count
    charged = derive_allowed_loss(plan, loss)
    kind = "range" if isinstance(top_k.mechanism, Exponential) else "pure"
    if loss > charged[kind]:
        raise VerificationError("the loss of top-k selection exceeds the charged loss")


def _verify_synthesis(plan: MeasurementPlan, synthesis: SynthesisPlan) -> None:
    """Try the extreme rows of a unit, all of them in one cell of a marginal, and add up the losses of the steps."""
    found, analysis = synthesis.mechanism, plan.analysis
    if find_sampling_rate(analysis.release.input) is not None:
        raise VerificationError("amplification by sampling is not supported for a synthetic table")
    if analysis.selects_keys or analysis.domains is None:
        raise VerificationError("a synthetic table has columns whose values are not public")
    if found.shape != tuple(map(len, analysis.domains)):
        raise VerificationError("the columns of a synthetic table differ from those of its rows")
    l1 = Fraction(derive_norms(synthesis.vector, analysis)[0])
    spent = derive_synthesis_loss(found, l1, replaced=analysis.replace)
    charged = split_charge_by_kind(plan.event)
    if spent["range"] > charged["range"]:
        raise VerificationError("the range of the choices of a synthetic table exceeds the charged loss")
    if spent["pure"] > charged["pure"] or spent["gaussian"] > charged["gaussian"]:
        raise VerificationError("the loss of the noise of a synthetic table exceeds the charged loss")


def _iterate_at_points(
    plan: MeasurementPlan, measured: VectorMeasurement
) -> Iterator[tuple[VectorMeasurement, Clamp | None]]:
    """Yield the measurement; if its clamp is not chosen, with each point that is tried."""
    clamp = None if measured.clamp is None else plan.clamps[measured.clamp]
    if clamp is None or clamp.chosen:
        yield measured, clamp
        return
    for tried in iterate_tried_points(clamp):
        yield measured.with_clamp(tried, plan.analysis), tried


def _iterate_plans_at_points(plan: MeasurementPlan, measured: VectorMeasurement) -> Iterator[MeasurementPlan]:
    """Yield the plan; if the clamp of the vector is not chosen, with each point that is tried."""
    if measured.clamp is None or plan.clamps[measured.clamp].chosen:
        yield plan
        return
    for clamp in iterate_tried_points(plan.clamps[measured.clamp]):
        yield plan.with_clamps(
            tuple(clamp if at == measured.clamp else one for at, one in enumerate(plan.clamps))
        )


def iterate_tried_points(clamp: Clamp) -> Iterator[Clamp]:
    """Yield the clamp at the points that are tried before one is chosen: the least, the expected and the greatest of each side.

    Claim: if noise is in proportion to the norm that the planner derives, the loss at no point of the grid is larger than at
    one of these.
    Why: let N be the norm that is derived here and D the planner's; the loss is in proportion to N/D. Under a clamp across
    groups N and D are homogeneous in the points, so that N/D depends on the proportion of the sides alone: equal, or one as
    small as it may be. The l1 norms of a clamp per group are both min(Gτ, S) times that of one row or step, for G groups and
    a greatest contribution S. Of its squared l2 norms, D is τ·min(Gτ, S), and N is fτ² + r² where f groups are full and one
    has the rest r < τ, with fτ + r = min(Gτ, S): so N is at most D, and equal to it at the greatest point, τ = S. A clamp on
    groups multiplies both by the point.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3.
    """
    last = len(clamp.grid) - 1
    if len(clamp.sides) == 1:
        tried: set[tuple[int, ...]] = {(0,), (clamp.default_index,), (last,)}
    else:
        tried = {(0, 0), (clamp.default_index, clamp.default_index), (last, last), (last, 0), (0, last)}
    for chosen in sorted(tried):
        yield replace(clamp, chosen=chosen)


def _derive_loss(
    measured: VectorMeasurement, clamp: Clamp | None, analysis: Analysis, found: Norms
) -> tuple[str, Fraction]:
    """Return the kind and the loss of the noise of a vector whose norms were `found`."""
    l1, l2_squared, linf = found
    known = measured.sensitivity
    if (
        _exceeds_norm(l1, known.l1)
        or _exceeds_norm(l2_squared, known.l2_squared)
        or _exceeds_norm(linf, known.linf)
    ):
        raise VerificationError(f"the sensitivity of {measured.vector.name} was planned smaller than it is")
    rule = RULES.get(type(measured.mechanism))
    if rule is None:
        raise VerificationError(f"verification has no rule for {measured.mechanism.name} noise")
    total = Fraction(l1)
    largest = total if linf is l1 else Fraction(linf)
    change = VectorChange(measured.vector, analysis, clamp, total, Fraction(l2_squared), largest)
    return rule(measured.mechanism, change)


def _divide_fractions(above: Fraction, below: Fraction) -> Fraction:
    """Return a quotient that is reduced once."""
    return Fraction(above.numerator * below.denominator, above.denominator * below.numerator)


def _exceeds_norm(found: int | Fraction, known: Fraction) -> bool:
    """Return whether a norm is above another; in whole numbers, of which there are many to a plan."""
    return found.numerator * known.denominator > known.numerator * found.denominator


@dataclass(frozen=True, slots=True)
class VectorChange:
    """The change of a vector by one unit, by this derivation: the l1 norm, the squared l2 norm, the sum of l∞ norms."""

    vector: StatisticVector
    analysis: Analysis
    clamp: Clamp | None
    l1: Fraction
    l2_squared: Fraction
    linf: Fraction


def _derive_geometric_loss(noise: Geometric, change: VectorChange) -> tuple[str, Fraction]:
    return "pure", _divide_fractions(change.l1, noise.scale)


def _derive_gaussian_loss(noise: DiscreteGaussian, change: VectorChange) -> tuple[str, Fraction]:
    variance = noise.variance
    return "gaussian", Fraction(
        change.l2_squared.numerator * variance.denominator,
        2 * change.l2_squared.denominator * variance.numerator,
    )


def _derive_l_infinity_loss(noise: LInfinityMechanism, change: VectorChange) -> tuple[str, Fraction]:
    if noise.dimensions != len(change.vector.components):
        raise VerificationError(
            f"{change.vector.name} has {len(change.vector.components)} components, not {noise.dimensions}"
        )
    return "pure", change.linf / noise.scale


def _derive_staircase_loss(noise: Staircase, change: VectorChange) -> tuple[str, Fraction]:
    return "pure", bound_staircase_steps(
        change.vector, change.analysis, change.clamp, noise.width
    ) * noise.loss


RULES: dict[type[Mechanism], Callable[[Any, VectorChange], tuple[str, Fraction]]] = {
    Geometric: _derive_geometric_loss,
    DiscreteGaussian: _derive_gaussian_loss,
    LInfinityMechanism: _derive_l_infinity_loss,
    Staircase: _derive_staircase_loss,
}
"""The loss of each mechanism, "pure" or "gaussian", derived from its law and not by the mechanism itself."""


def _derive_clamp_range(clamp: Clamp, analysis: Analysis) -> Fraction:
    """Return the range of the choice of a clamp: the contribution to each group is above all points, or above none.

    A clamp on groups counts the unit once, and a clamp across groups once per side.
    """
    if clamp.amount is Amount.GROUPS:
        came = went = 1
    else:
        came = went = len(clamp.sides) if clamp.across_groups else analysis.bound.groups
    steps = came + (went if analysis.replace else 0)
    return clamp.mechanism.rate * steps


def _derive_quantile_range(part: QuantileSelection, analysis: Analysis) -> Fraction:
    """Return the range of the choice of a quantile, from the effect of one row below or above a point on its penalty.

    Numbers of values of each magnitude are tried: for a rank that is moved inward, the growth changes at two of them.
    """
    if part.is_public:
        return Fraction(0)
    moves = {0}
    counts = [0, *(2**power + odd for power in range(100) for odd in (0, 1))]
    below, above = part.compute_offsets(counts), part.compute_offsets([count + 1 for count in counts])
    for grown in {after - before for before, after in zip(below, above, strict=True)}:
        moves |= {part.steps_per_row - grown, grown - part.steps_per_row, grown, -grown}
    times = analysis.bound.rows * (2 if analysis.replace else 1)
    return part.mechanism.rate * (max(moves) - min(moves)) * times


def _verify_selection(plan: MeasurementPlan, delta: Fraction) -> None:
    chosen = plan.selection
    if chosen is None:
        raise VerificationError("group keys would be released without partition selection")
    if isinstance(chosen, OptimalPartitionSelection):
        _verify_tosses(plan.analysis, chosen, delta)
        return
    measured, bound = plan.vectors[chosen.vector], plan.analysis.bound
    # The components must count units, or rows where a unit has one; then one more unit adds one `scale`.
    weights = measured.vector.find_weights(UNITS if bound.per_unit and bound.rows > 1 else ROWS)
    scaled = tuple(
        Fraction(at in chosen.components, chosen.scale) for at in range(len(measured.vector.components))
    )
    if weights != scaled:
        raise VerificationError("the selection does not count privacy units")
    alone = chosen.scale * max(bound.min_frequency, 1)
    # The other vectors do not decide, and each would be calibrated to each point again.
    alone_in_plan = replace(plan, vectors=(measured,), selection=replace(chosen, vector=0))
    for held in _iterate_plans_at_points(alone_in_plan, measured):
        noise, threshold = held.vectors[0].mechanism, held.threshold
        clamp = None if measured.clamp is None else held.clamps[measured.clamp]
        groups = bound.groups if clamp is None else clamp.points[0]
        above = 0 if threshold is None else threshold.threshold - alone
        if Fraction(noise.bound_sum_tail(len(chosen.components), above)) * groups > delta:
            raise VerificationError(
                "the key of a single unit would be released with a higher probability than delta allows"
            )
    if chosen.min_frequency < bound.min_frequency:
        raise VerificationError("a key of fewer units than the policy's min_frequency could be released")


def _count_changed_groups(analysis: Analysis) -> int:
    """Return how many groups one unit changes: those that it enters, and where it replaces another those of that one."""
    return analysis.bound.groups + (analysis.bound.groups if analysis.replace else 0)


def _verify_tosses(analysis: Analysis, chosen: OptimalPartitionSelection, delta: Fraction) -> None:
    """Check both inequalities of (ε, δ) for partition selection, from no unit up to a probability near 1."""
    rule = chosen.mechanism
    if not analysis.bound.per_unit and analysis.bound.rows != 1:
        raise VerificationError("the selection does not count privacy units")
    if rule.delta * _count_changed_groups(analysis) > delta or chosen.min_frequency < max(
        1, analysis.bound.min_frequency
    ):
        raise VerificationError(
            "the key of a single unit would be released with a higher probability than delta allows"
        )
    half = rule.compute_median_units()
    tried = {*range(4), half // 2, half - 2, half - 1, half, half + 1, 2 * half}
    shrunk = Fraction(bound_exp(rule.epsilon, _PLACES)[0], 10**_PLACES)
    for units in tried:
        (_, less), (more, _) = (
            rule.bound_probability(units, _PLACES),
            rule.bound_probability(units + 1, _PLACES),
        )
        if (more - rule.delta) * shrunk > less or (1 - less - rule.delta) * shrunk > 1 - more:
            raise VerificationError(
                "partition selection selects a group with a higher probability than its loss allows"
            )
