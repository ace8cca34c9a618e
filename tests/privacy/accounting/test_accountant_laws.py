"""Laws that every accountant of the registry keeps; a new one inherits them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from speeds import examples

from dpsql.errors import BudgetExhausted, NotSupportedError, PolicyError
from dpsql.ledger.budget import Budget
from dpsql.ledger.open import open_ledger
from dpsql.policy import fields
from dpsql.privacy.accounting.accountants import ACCOUNTANTS, Accountant, get_accountant
from dpsql.privacy.accounting.events import (
    NOTHING,
    Approximate,
    BoundedRange,
    Charge,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
    from_json,
    to_json,
)

EPSILON = st.fractions(min_value=Fraction(1, 10**9), max_value=20)
DELTA = st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(1, 2))
BUDGETS = [
    (Fraction(3), Fraction(1, 10**6)),
    (Fraction(1, 2), Fraction(1, 10**9)),
    (Fraction(8), Fraction(1, 100)),
]
UNIT = Fraction(1, Charge.UNIT)

every_accountant = pytest.mark.parametrize("accountant", [kind() for kind in ACCOUNTANTS.values()], ids=str)
every_budget = pytest.mark.parametrize("budget", BUDGETS, ids=str)


def charged(accountant: Accountant, event: Event) -> Charge | None:
    """The event's cost, or None if the accountant refuses it."""
    try:
        return accountant.compute_charge(event)
    except NotSupportedError:
        return None


def admitted(accountant: Accountant, events: list[Event], limit: Charge) -> list[Event]:
    """The events that a filter with this limit lets through, one after the other."""
    through, spent = [], NOTHING
    for event in events:
        cost = charged(accountant, event)
        if cost is not None and (spent + cost).is_within(limit):
            through.append(event)
            spent = spent + cost
    assert spent.is_within(limit)
    return through


def test_names_are_the_registry_keys() -> None:
    """A policy's name finds the accountant that answers to it; an unknown one is refused."""
    assert {name: kind().name for name, kind in ACCOUNTANTS.items()} == {name: name for name in ACCOUNTANTS}
    assert set(ACCOUNTANTS) == set(get_args(fields.Accountant))
    with pytest.raises(PolicyError) as caught:
        get_accountant("advanced")
    assert caught.value.code == "accountant_unknown"


@every_accountant
def test_accountants_hold_no_state(accountant: Accountant) -> None:
    """Accountants are values: equal, hashable, frozen."""
    assert accountant == type(accountant)()
    assert hash(accountant) == hash(type(accountant)())
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        accountant.state = 1  # type: ignore[attr-defined]


@every_accountant
@given(EPSILON, EPSILON)
def test_cost_grows_with_epsilon(accountant: Accountant, a: Fraction, b: Fraction) -> None:
    """More ε never costs less, and every release costs something."""
    low, high = accountant.compute_charge(Pure(min(a, b))), accountant.compute_charge(Pure(max(a, b)))
    assert low.is_within(high)
    assert low.loss > 0


@every_accountant
def test_the_smallest_loss_costs_a_unit(accountant: Accountant) -> None:
    """Costs round up: no release is free, however small its loss."""
    tiny = Fraction(1, 10**300)
    assert accountant.compute_charge(Pure(tiny)).loss == 1
    assert accountant.compute_charge(Selection(tiny)) == Charge(0, 1)
    gaussian = charged(accountant, Gaussian(tiny))
    assert gaussian is None or gaussian.loss == 1


@every_accountant
@given(st.lists(EPSILON, min_size=1, max_size=4), DELTA)
def test_cost_adds_over_composition(
    accountant: Accountant, epsilons: list[Fraction], delta: Fraction
) -> None:
    """A statement costs the sum of its releases, nested or not."""
    parts: tuple[Event, ...] = (*map(Pure, epsilons), Selection(delta))
    total = sum((accountant.compute_charge(part) for part in parts), start=NOTHING)
    assert accountant.compute_charge(Composed(parts)) == total
    assert accountant.compute_charge(
        Composed((Composed(parts), parts[0]))
    ) == total + accountant.compute_charge(parts[0])


@every_accountant
@given(EPSILON)
def test_gaussian_noise_costs_no_more_than_the_pure_release(
    accountant: Accountant, epsilon: Fraction
) -> None:
    """The Gaussian release offered for ε costs the ledger at most what ε does."""
    rho = accountant.find_gaussian_rho(epsilon)
    if rho is None:
        assert charged(accountant, Gaussian(epsilon)) is None
    else:
        assert accountant.compute_charge(Gaussian(rho)).is_within(accountant.compute_charge(Pure(epsilon)))
        assert (
            accountant.compute_charge(Gaussian(rho + UNIT)).loss
            > accountant.compute_charge(Pure(epsilon)).loss
        )


@every_accountant
@given(EPSILON, EPSILON)
def test_separate_choices_cost_no_more_than_joint_ones(
    accountant: Accountant, a: Fraction, b: Fraction
) -> None:
    """Choices of a bounded range are ε-DP, so never dearer, and parts of a sum cost at most the sum."""
    together = accountant.compute_charge(BoundedRange(a + b))
    assert together.is_within(accountant.compute_charge(Pure(a + b)))
    apart = accountant.compute_charge(BoundedRange(a)) + accountant.compute_charge(BoundedRange(b))
    assert apart.loss <= together.loss + 1


@every_accountant
@settings(max_examples=examples(30))
@given(EPSILON, EPSILON, DELTA, DELTA)
def test_limit_grows_with_the_budget(
    accountant: Accountant, a: Fraction, b: Fraction, c: Fraction, d: Fraction
) -> None:
    """A larger ε or δ never has a smaller limit."""
    small = accountant.compute_limit(min(a, b), min(c, d))
    assert small.is_within(accountant.compute_limit(max(a, b), min(c, d)))
    assert small.is_within(accountant.compute_limit(min(a, b), max(c, d)))


@every_accountant
@every_budget
def test_the_share_for_selection_is_the_delta_limit(
    accountant: Accountant, budget: tuple[Fraction, Fraction]
) -> None:
    """A stated share is what selection may spend; it cannot pass delta."""
    epsilon, delta = budget
    assert accountant.compute_limit(epsilon, delta, delta / 3).delta == delta / 3 * Charge.UNIT // 1
    assert accountant.compute_limit(epsilon, delta, Fraction(0)).delta == 0
    with pytest.raises(PolicyError):
        accountant.compute_limit(epsilon, delta, delta * 2)


@every_accountant
@every_budget
@settings(max_examples=examples(20))
@given(data=st.data())
def test_remaining_epsilon_is_the_largest_that_fits(
    accountant: Accountant, budget: tuple[Fraction, Fraction], data: st.DataObject
) -> None:
    """One more query of the remaining ε fits, and of a unit more does not."""
    limit = accountant.compute_limit(*budget)
    spent = Charge(data.draw(st.integers(0, limit.loss - 1)), 0)
    left = accountant.compute_remaining_epsilon(spent, limit)
    assert (spent + accountant.compute_charge(Pure(left))).is_within(limit)
    assert not (spent + accountant.compute_charge(Pure(left + UNIT))).is_within(limit)


@every_accountant
@every_budget
def test_nothing_remains_of_a_spent_budget(accountant: Accountant, budget: tuple[Fraction, Fraction]) -> None:
    """At the limit, and past it, the remaining ε is 0."""
    limit = accountant.compute_limit(*budget)
    assert accountant.compute_remaining_epsilon(limit, limit) == 0
    assert accountant.compute_remaining_epsilon(limit + Charge(1, 0), limit) == 0


@every_accountant
@every_budget
def test_epsilon_spent_runs_from_nothing_to_the_budget(
    accountant: Accountant, budget: tuple[Fraction, Fraction]
) -> None:
    """The reported ε grows with the spend, from 0 to the budget's ε, and not past it but for rounding."""
    epsilon, delta = budget
    limit = accountant.compute_limit(epsilon, delta)
    reported = [accountant.compute_spent_epsilon(Charge(limit.loss * i // 10, 0), delta) for i in range(11)]
    assert reported[0] == 0
    assert reported == sorted(reported)
    assert epsilon - Fraction(1, 10**20) < reported[-1] <= epsilon + Fraction(1, 10**25)


@every_accountant
@settings(max_examples=examples(50))
@given(
    st.lists(
        st.one_of(EPSILON.map(Pure), EPSILON.map(lambda e: Gaussian(e / 10)), DELTA.map(Selection)),
        max_size=30,
    )
)
def test_admitted_sequences_never_pass_the_limit(accountant: Accountant, events: list[Event]) -> None:
    """Whatever is asked, in whatever order, what is let through adds to at most the limit."""
    limit = accountant.compute_limit(Fraction(30), Fraction(1, 2))
    through = admitted(accountant, events, limit)
    if through:
        assert accountant.compute_charge(Composed(tuple(through))).is_within(limit)


@every_accountant
def test_a_ledger_spends_the_limit_to_the_unit(accountant: Accountant) -> None:
    """A ledger under this accountant admits the remaining ε, says that nothing is left, and refuses what is more."""
    epsilon, delta = BUDGETS[0]
    with closing(open_ledger(":memory:", {"t": Budget(accountant.name, epsilon, delta)})) as ledger:
        ledger.charge({"t": Composed((Pure(Fraction(1, 3)), Selection(delta / 5)))}, analyst="a", query="1")
        rest = ledger.get_state("t").remaining_epsilon
        with pytest.raises(BudgetExhausted):
            ledger.charge({"t": Pure(rest + UNIT)}, analyst="a", query="2")
        ledger.charge({"t": Pure(rest)}, analyst="a", query="3")
        state = ledger.get_state("t")
        assert state.remaining_epsilon < Fraction(1, 10**12)
        assert state.spent_epsilon == pytest.approx(epsilon)
        assert [from_json(to_json(entry.event)) for entry in ledger.list_entries()] == [
            entry.event for entry in ledger.list_entries()
        ]


@every_accountant
@given(EPSILON, DELTA)
def test_a_release_with_delta_costs_as_much_as_its_parts(
    accountant: Accountant, epsilon: Fraction, delta: Fraction
) -> None:
    """(ε, δ)-DP is ε-DP but for a chance of δ: where it is charged, it costs what the two cost beside each other."""
    cost = charged(accountant, Approximate(epsilon, delta))
    if cost is not None:
        assert cost == accountant.compute_charge(Composed((Pure(epsilon), Selection(delta))))


@every_accountant
@every_budget
@pytest.mark.parametrize("each", [Fraction(1, 50), Fraction(1, 4), Fraction(1)], ids=str)
def test_admitted_randomised_response_is_private(
    accountant: Accountant, budget: tuple[Fraction, Fraction], each: Fraction
) -> None:
    """Ground truth: as many randomised responses as are admitted keep the exact (ε, δ) of the budget.

    Their exact delta is a binomial sum (Kairouz, Oh, Viswanath 2015); what selection may spend is added.
    """
    epsilon, delta = budget
    limit = accountant.compute_limit(epsilon, delta)
    count = limit.loss // accountant.compute_charge(Pure(each)).loss
    if count == 0:
        return
    heads = np.arange(count + 1)
    loss = (2 * heads - count) * float(each)
    chance = stats.binom.pmf(heads, count, 1 / (1 + np.exp(-float(each))))
    exact = float(
        np.sum(chance * np.maximum(0, -np.expm1(float(epsilon) - loss)), where=loss > float(epsilon))
    )
    assert exact + float(limit.delta_fraction) <= float(delta) * (1 + 1e-9)


@every_accountant
@every_budget
@pytest.mark.parametrize("each", [Fraction(1, 10**4), Fraction(1, 50), Fraction(1, 2)], ids=str)
def test_admitted_gaussian_noise_is_private(
    accountant: Accountant, budget: tuple[Fraction, Fraction], each: Fraction
) -> None:
    """Ground truth: as many Gaussian releases as are admitted keep the exact (ε, δ) of the budget.

    Together they are µ-GDP with µ² = 2Σρ, and the exact delta is known (Balle, Wang 2018, Theorem 8).
    """
    epsilon, delta = budget
    limit, cost = accountant.compute_limit(epsilon, delta), charged(accountant, Gaussian(each))
    if cost is None or cost.loss > limit.loss:
        return
    mu, e = float(2 * each * (limit.loss // cost.loss)) ** 0.5, float(epsilon)
    exact = stats.norm.cdf(mu / 2 - e / mu) - np.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
    assert exact + float(limit.delta_fraction) <= float(delta)
