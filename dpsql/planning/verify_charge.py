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
from dpsql.privacy.mechanisms.exponentials import bound_exp

_PLACES = 90
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
        (_, of_loss), (of_rest, _) = bound_exp(loss, _PLACES), bound_exp(loss - epsilon, _PLACES)
        known = rate * 10**_PLACES + (1 - rate) * of_loss <= of_rest
    else:
        known = True
    if not known:
        raise VerificationError("the loss of the noise on a sample, amplified, exceeds the charged loss")
    return {"pure": loss, "range": loss, "gaussian": Fraction(0), "delta": charged["delta"] / rate}
