"""The charge of a list of releases under each accountant, to choose one before a ledger is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import NotSupportedError, PolicyError
from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant
from dpsql.privacy.accounting.charge import NOTHING, Charge
from dpsql.privacy.accounting.events import Event


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
