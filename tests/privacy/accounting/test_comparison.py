"""The comparison charges what ledgers do, and says what is not charged."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.privacy.accounting import ACCOUNTANTS, ComparedCharge, compare
from dpsql.privacy.accounting.composition import compare_prefixes
from dpsql.privacy.accounting.events import Approximate, Composed, Event, Gaussian, Pure, Selection

DELTA = Fraction(1, 10**6)


def compared(events: list[Event], delta: Fraction = DELTA) -> dict[str, ComparedCharge]:
    """The charges by their accountants."""
    return {charge.accountant: charge for charge in compare(events, delta)}


def epsilon(charge: ComparedCharge) -> float:
    """The ε that is charged; infinite where the accountant refuses."""
    return math.inf if charge.epsilon is None else float(charge.epsilon)


def test_every_accountant_is_compared() -> None:
    """One line each, in the registry's order."""
    assert [charge.accountant for charge in compare([Pure(Fraction(1))], DELTA)] == list(ACCOUNTANTS)


def test_charges_are_those_of_the_accountants() -> None:
    """The loss and delta are the sum of costs, nested or not, and the ε that which a ledger would report."""
    events: list[Event] = [Pure(Fraction(1, 10)), Composed((Pure(Fraction(1, 5)), Selection(DELTA / 10)))]
    for name, charge in compared(events).items():
        accountant = ACCOUNTANTS[name]()
        spend = accountant.compute_charge(Composed(tuple(events)))
        assert (charge.loss, charge.delta) == (spend.loss_fraction, spend.delta_fraction)
        assert charge.epsilon == accountant.compute_spent_epsilon(spend, DELTA, spend.delta_fraction)


def test_events_that_an_accountant_refuses_are_named() -> None:
    """Gaussian noise has no price under basic composition, nor a δ of its own under pure; too much δ is refused by all."""
    gaussian = compared([Gaussian(Fraction(1, 100))])
    assert "cannot charge a Gaussian" in gaussian["pure"].refusal_reason
    assert gaussian["basic"].epsilon is None
    own = compared([Approximate(Fraction(1, 10), DELTA / 2)])
    assert "cannot charge" in own["pure"].refusal_reason
    assert own["basic"].epsilon == Fraction(1, 10)
    assert all(charge.refusal_reason for charge in compare([Selection(2 * DELTA)], DELTA))
    whole = compared([Selection(DELTA)])
    assert "needs a delta" in whole["zcdp"].refusal_reason
    assert whole["basic"].epsilon == 0


def test_running_comparisons_grow() -> None:
    """After each of the releases the ε is no less than before, and the last comparison is that of all."""
    events: list[Event] = [Pure(Fraction(1, 20))] * 100
    found = compare_prefixes(events, DELTA, most=7)
    assert [stop for stop, _ in found] == sorted({stop for stop, _ in found})
    assert found[-1] == (100, compare(events, DELTA))
    assert len(found) == 7
    for index, name in enumerate(ACCOUNTANTS):
        series = [epsilon(charges[index]) for _, charges in found]
        assert series == sorted(series), name
    assert [stop for stop, _ in compare_prefixes(events[:3], DELTA)] == [1, 2, 3]
