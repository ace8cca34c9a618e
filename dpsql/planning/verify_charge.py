"""The allowed loss of the noise of a release: the charge by kind, or what it allows on a sample of the units.

The planner solves for the loss on a sample. Here the inequality that amplification rests on is tried with the loss that was
derived from the noise: with e^-x in place of e^x, so that no number is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from dpsql.errors import VerificationError
from dpsql.plan.sampling import find_sampling_rate
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.privacy.accounting.numerics import ln_up
from dpsql.privacy.mechanisms import DiscreteGaussian, Exponential, Geometric, Mechanism
from dpsql.privacy.mechanisms.exponentials import bound_exp
from dpsql.privacy.synthesis.mechanism import SmallDatabase
from dpsql.privacy.synthesis.methods import SyntheticMethod
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import WeightsStream

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
