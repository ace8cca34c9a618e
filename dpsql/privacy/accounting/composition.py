"""Composition theorems, and the comparison of accountants on the same releases.

They hold for releases whose ε and δ are fixed in advance; an accountant is needed for a budget that is spent while answers come in.
All results are exact, or rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Literal, NamedTuple

from dpsql.errors import LossError, NotSupportedError, PolicyError
from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant
from dpsql.privacy.accounting.events import NOTHING, Charge, Event, require_exact_positive
from dpsql.privacy.accounting.numerics import exp_minus_down, exp_minus_up, ln_down, ln_up, to_decimal_up

# The composition theorems of (ε, δ), as functions of the guarantee of each release.


_FAR = 1000  # no power beyond is computed: nothing is left of a δ that grows by it


class Guarantee(NamedTuple):
    """(`epsilon`, `delta`)-DP."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)


def sequential(releases: Iterable[Guarantee]) -> Guarantee:
    """Return the guarantee of several releases about the same units.

    Claim: (Σε, Σδ)-DP.
    Source: Dwork, Roth 2014, Theorem 3.14 (ε alone) and Theorem 3.16.

    Args:
        releases: The guarantee of each release.

    Returns:
        The guarantee of all releases together, exactly.

    Raises:
        LossError: For an ε that is not a positive Fraction, or a δ outside of [0, 1).

    >>> sequential([Guarantee(Fraction(1, 10)), Guarantee(Fraction(1, 5), Fraction(1, 10**6))])
    Guarantee(epsilon=Fraction(3, 10), delta=Fraction(1, 1000000))
    """
    guarantees = list(map(_require_guarantee, releases))
    return Guarantee(
        sum((e for e, _ in guarantees), Fraction(0)), sum((d for _, d in guarantees), Fraction(0))
    )


def advanced(releases: Iterable[Guarantee], slack: Fraction) -> Guarantee:
    """Return the guarantee of several releases, with `slack` more δ for less ε.

    Claim: (Σε·tanh(ε/2) + √(2·ln(1/slack)·Σε²), Σδ + slack)-DP, and (Σε, Σδ)-DP where that ε is smaller.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.5; Dwork, Roth 2014, Theorem 3.20 with ε·(e^ε-1) for the first sum.

    Args:
        releases: The guarantee of each release.
        slack: The additional δ, between 0 and 1.

    Returns:
        The guarantee of all releases together, rounded up.

    Raises:
        LossError: Unless 0 < slack < 1, and for an invalid guarantee.

    >>> float(advanced([Guarantee(Fraction(1, 100))] * 2945, Fraction(1, 10**6)).epsilon) < 3
    True
    """
    guarantees = list(map(_require_guarantee, releases))
    if not 0 < slack < 1:
        raise LossError("the slack must lie between 0 and 1")
    drift = Fraction(0)
    for epsilon, _ in guarantees:
        power = exp_minus_down(epsilon)
        drift += epsilon * (1 - power) / (1 + power)
    spread = -2 * ln_down(slack) * sum((e * e for e, _ in guarantees), Fraction(0))
    simple = sequential(guarantees)
    epsilon = drift + _bound_root(spread)
    if simple.epsilon <= epsilon:
        return simple
    return Guarantee(epsilon, simple.delta + slack)


def parallel(
    releases: Iterable[Guarantee], neighbors: Literal["add_remove", "replace"] = "add_remove"
) -> Guarantee:
    """Return the guarantee of several releases that each read their own partition of the units.

    Claim: (max ε, max δ)-DP, where one unit is added or removed: it is in one partition, and the others do not change. Under
    `replace` the unit's rows may move from one partition to another, so that two partitions change: the two largest ε add, and the
    two largest δ. There each release keeps its loss for a unit that is added, removed or replaced in its partition.
    Source: McSherry 2009, "Privacy Integrated Queries", Theorem 4; the second follows by sequential composition of the two.

    Args:
        releases: The guarantee of each release on its own partition.
        neighbors: `add_remove` or `replace`, the way in which neighboring databases differ.

    Returns:
        The guarantee of all releases together, exactly.

    Raises:
        LossError: Without any release, for other neighbors, and for an invalid guarantee.

    >>> losses = [Guarantee(Fraction(1, 10)), Guarantee(Fraction(1, 5))]
    >>> parallel(losses), parallel(losses, neighbors="replace").epsilon
    (Guarantee(epsilon=Fraction(1, 5), delta=Fraction(0, 1)), Fraction(3, 10))
    """
    guarantees = list(map(_require_guarantee, releases))
    if not guarantees:
        raise LossError("a composition needs at least one release")
    if neighbors not in ("add_remove", "replace"):
        raise LossError(f"neighbors must be add_remove or replace, not {neighbors!r}")
    changed = 1 if neighbors == "add_remove" else 2
    return Guarantee(
        sum(sorted(e for e, _ in guarantees)[-changed:], Fraction(0)),
        sum(sorted(d for _, d in guarantees)[-changed:], Fraction(0)),
    )


def post_processed(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee of a result that is computed from a release without the data: that of the release.

    Claim: no function of a release, random or not, has a larger ε or δ.
    Why: an event of the function's result is a mixture of events of the release.
    Source: Dwork, Roth 2014, Proposition 2.1.

    >>> post_processed(Guarantee(Fraction(1, 10)))
    Guarantee(epsilon=Fraction(1, 10), delta=Fraction(0, 1))
    """
    return _require_guarantee(guarantee)


def sampled(guarantee: Guarantee, rate: Fraction) -> Guarantee:
    """Return the guarantee of a release from a Poisson sample, in which each unit takes part with probability `rate`, independently.

    Claim: (ln(1 + rate·(e^ε - 1)), rate·δ)-DP where one unit is added or removed, as long as nobody learns who was in the sample.
    It does not hold under `replace`, nor for rows that are sampled where a unit has several.
    Why: see `dpsql.privacy.accounting.profiles.SampledProfile`, which amplifies a whole privacy profile.
    Source: Li, Qardaji, Su 2012, "On sampling, anonymization, and differential privacy", Theorem 1; Balle, Barthe, Gaboardi 2018,
    "Privacy amplification by subsampling", Theorem 8.

    Args:
        guarantee: The guarantee of the release on the sample.
        rate: The probability of each unit to be in the sample.

    Returns:
        The guarantee for all units, rounded up.

    Raises:
        LossError: Unless 0 < rate <= 1, and for an invalid guarantee.

    >>> round(float(sampled(Guarantee(Fraction(1)), Fraction(1, 10)).epsilon), 4)
    0.1586
    """
    epsilon, delta = _require_guarantee(guarantee)
    rate = require_exact_positive(rate, "rate")
    if rate > 1:
        raise LossError("the sampling probability of a unit must be at most 1")
    if rate == 1:
        return Guarantee(epsilon, delta)
    if epsilon > _FAR:  # ln(1 + rate·(e^ε - 1)) <= ε + ln(rate + e^-ε)
        return Guarantee(min(epsilon, epsilon + ln_up(rate + exp_minus_up(epsilon))), rate * delta)
    return Guarantee(min(epsilon, ln_up(1 + rate * (_bound_exp(epsilon) - 1))), rate * delta)


def group(guarantee: Guarantee, size: int) -> Guarantee:
    """Return the guarantee for `size` units at once of a release that is (ε, δ)-DP for one unit (group privacy).

    Claim: (size·ε, δ·(e^(size·ε)-1)/(e^ε-1))-DP, at most 1 in δ; 1 at once beyond ε = 1,000.
    Why: k neighboring steps lead from one database to the other; δ grows by e^ε at each.
    Source: Dwork, Roth 2014, Theorem 2.2; Vadhan 2017, Lemma 2.2.

    Args:
        guarantee: The guarantee for one unit.
        size: The number of units in the group.

    Returns:
        The guarantee for the group, rounded up.

    Raises:
        LossError: For a size below 1, and for an invalid guarantee.

    >>> group(Guarantee(Fraction(1, 10)), 5)
    Guarantee(epsilon=Fraction(1, 2), delta=Fraction(0, 1))
    """
    epsilon, delta = _require_guarantee(guarantee)
    if size < 1:
        raise LossError("a group must have at least one unit")
    if delta == 0:
        return Guarantee(size * epsilon)
    if size > 1 and epsilon > _FAR:
        return Guarantee(size * epsilon, Fraction(1))
    factor, grown = _bound_exp(epsilon), Fraction(0)
    for _ in range(size):
        grown = Fraction(to_decimal_up(grown * factor + delta))
        if grown >= 1:
            break
    return Guarantee(size * epsilon, min(grown, Fraction(1)))


def _bound_exp(epsilon: Fraction) -> Fraction:
    with localcontext(prec=70) as context:
        return Fraction(context.next_plus(to_decimal_up(epsilon).exp()))


def _bound_root(square: Fraction) -> Fraction:
    with localcontext(prec=70) as context:
        return Fraction(context.next_plus(to_decimal_up(square).sqrt())) if square else Fraction(Decimal(0))


def _require_guarantee(guarantee: Guarantee) -> Guarantee:
    epsilon, delta = guarantee
    require_exact_positive(epsilon, "epsilon")
    if not 0 <= delta < 1:
        raise LossError("delta must be at least 0 and below 1")
    return Guarantee(Fraction(epsilon), Fraction(delta))


# The charge of a list of releases under each accountant, to choose one before a ledger is made.


@dataclass(frozen=True, slots=True)
class ComparedCharge:
    """The charge of one accountant for a list of events.

    `loss` is in the accountant's own measure, named by `symbol`; `epsilon` is what it amounts to at the delta of the
    comparison, rounded up. Both are None where the accountant does not support an event, and `refusal_reason` gives the reason.
    """

    accountant: str
    symbol: str
    loss: Fraction | None = None
    delta: Fraction | None = None
    epsilon: Fraction | None = None
    refusal_reason: str = ""


def compare(events: Iterable[Event], delta: Fraction) -> tuple[ComparedCharge, ...]:
    """Return what each accountant charges for the events, in the registry's order.

    Claim: all the events together are (epsilon, `delta`)-DP by each accountant that does not refuse, even when each
    is chosen after seeing the earlier answers, as long as the accountant was fixed beforehand.
    Why: the δ of the events themselves is subtracted from `delta`; an accountant that converts uses the rest.

    Args:
        events: The events of the releases, in any order.
        delta: The δ at which the charges are compared.

    Returns:
        One charge for each accountant; with a `refusal_reason` if it does not support an event.

    >>> from dpsql.privacy.accounting.events import Pure
    >>> for charge in compare([Pure(Fraction(1, 100))] * 1000, Fraction(1, 10**6)):
    ...     print(charge.accountant, charge.symbol, float(charge.loss), round(float(charge.epsilon), 3))
    pure ε 10.0 10.0
    basic ε 10.0 10.0
    zcdp ρ 0.04999958333749996 1.472
    gdp μ² 0.15707907085673425 1.748
    """
    asked = tuple(events)
    return tuple(_compute_charge(kind(), asked, delta) for kind in ACCOUNTANTS.values())


def compare_prefixes(
    events: Sequence[Event], delta: Fraction, most: int = 60
) -> tuple[tuple[int, tuple[ComparedCharge, ...]], ...]:
    """Return the comparison after the first n events, for at most `most` values of n, the last of which is all.

    Each is at the `delta` of the whole, as a budget's is.
    """
    count = len(events)
    stops = (
        sorted({-(-count * k // most) for k in range(1, most + 1)}) if count > most else range(1, count + 1)
    )
    return tuple((stop, compare(events[:stop], delta)) for stop in stops)


def _compute_charge(accountant: Accountant, events: Sequence[Event], delta: Fraction) -> ComparedCharge:
    try:
        costs = {event: accountant.compute_charge(event) for event in dict.fromkeys(events)}
        spend = sum((costs[event] for event in events), start=NOTHING)
        if spend.delta_fraction > delta:
            return ComparedCharge(
                accountant.name, accountant.symbol, refusal_reason="the releases need more delta themselves"
            )
        epsilon = accountant.compute_spent_epsilon(Charge(spend.loss, 0), delta, spend.delta_fraction)
    except (NotSupportedError, PolicyError) as error:
        return ComparedCharge(accountant.name, accountant.symbol, refusal_reason=error.message)
    return ComparedCharge(
        accountant.name, accountant.symbol, spend.loss_fraction, spend.delta_fraction, epsilon
    )
