"""The formulae of the accountant zcdp, against independent computations."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.errors import NotSupportedError, PolicyError
from dpsql.privacy.accounting.accountants import PureAccountant, ZcdpAccountant
from dpsql.privacy.accounting.events import BoundedRange, Charge, Gaussian, Pure

ZCDP = ZcdpAccountant()
WIDE = Context(prec=60)
TIGHT = Decimal("1e-25")
CASES = [
    (Fraction(3), Fraction(1, 10**6)),
    (Fraction(1, 100), Fraction(1, 10**7)),
    (Fraction(1), Fraction(1, 2)),
    (Fraction(20), Fraction(1, 10**12)),
    (Fraction(1, 10**6), Fraction(1, 10**9)),
    (Fraction(200), Fraction(1, 100)),
]


def wide(value: Fraction) -> Decimal:
    """The value to 60 digits."""
    return WIDE.divide(Decimal(value.numerator), Decimal(value.denominator))


def ln_delta(alpha: Decimal, rho: Decimal, epsilon: Decimal) -> Decimal:
    """The ln of e^((α−1)(αρ−ε))/(α−1)·(1−1/α)^α, written as in the paper."""
    return (alpha - 1) * (alpha * rho - epsilon) - (alpha - 1).ln() + alpha * (1 - 1 / alpha).ln()


def least_ln_delta(rho: Fraction, epsilon: Fraction) -> Decimal:
    """The least ln_delta over α > 1, by golden section on ln(α−1) (the function is convex in α)."""
    with localcontext(WIDE):
        r, e = wide(rho), wide(epsilon)
        ratio = (Decimal(5).sqrt() - 1) / 2
        low, high = Decimal(-12), Decimal(40)
        for _ in range(150):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            if ln_delta(1 + left.exp(), r, e) < ln_delta(1 + right.exp(), r, e):
                high = right
            else:
                low = left
        return ln_delta(1 + low.exp(), r, e)


def asked_ln_delta(delta: Fraction) -> Decimal:
    """ln(delta), to 60 digits."""
    return WIDE.ln(wide(delta))


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5", "1", "2", "5", "10", "20"])
def test_pure_cost_is_the_divergence_of_randomised_response(epsilon: str) -> None:
    """ε·tanh(ε/2) is the supremum over α > 1 of D_α/α for randomised response: enough, and not too much."""
    with localcontext(WIDE):
        cost = wide(ZCDP.compute_charge(Pure(Fraction(epsilon))).loss_fraction)
        truth = 1 / (1 + (-Decimal(epsilon)).exp())
        lie = 1 - truth
        worst = Decimal(0)
        for step in range(-80, 41):
            alpha = 1 + Decimal(10) ** (Decimal(step) / 10)
            moment = truth**alpha * lie ** (1 - alpha) + lie**alpha * truth ** (1 - alpha)
            worst = max(worst, moment.ln() / (alpha - 1) / alpha)
        assert worst <= cost
        assert worst >= cost * (1 - Decimal("1e-6"))


@given(st.fractions(min_value=Fraction(1, 10**8), max_value=50))
def test_pure_cost_is_rounded_up_by_less_than_a_unit(epsilon: Fraction) -> None:
    """The cost lies above the true ε·tanh(ε/2), and below it plus a unit."""
    power = Fraction(WIDE.exp(-wide(epsilon)))
    true = epsilon * (1 - power) / (1 + power) * Charge.UNIT
    margin = Fraction(1, 10**20)
    assert true - margin <= ZCDP.compute_charge(Pure(epsilon)).loss < true + 1 + margin


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=50))
def test_pure_cost_is_at_most_half_the_square(epsilon: Fraction) -> None:
    """It never exceeds the classical ε²/2 (Bun, Steinke 2016, Proposition 1.4), nor ε."""
    cost = ZCDP.compute_charge(Pure(epsilon)).loss
    assert cost <= min(epsilon * epsilon / 2, epsilon) * Charge.UNIT + 1


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_limit_is_the_largest_rho(epsilon: Fraction, delta: Fraction) -> None:
    """At the limit the least δ is at most the budget's; a part in 10^15 above the limit it is more."""
    limit = ZCDP.compute_limit(epsilon, delta, Fraction(0)).loss_fraction
    asked = asked_ln_delta(delta)
    assert least_ln_delta(limit, epsilon) <= asked + TIGHT
    assert least_ln_delta(limit * (1 + Fraction(1, 10**15)), epsilon) > asked


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_conversion_is_rounded_up_and_tight(epsilon: Fraction, delta: Fraction) -> None:
    """The ε reported for a ρ is enough for δ_conversion, and a part in 10^12 less is not."""
    for share in (1, 10, 1000):
        spend = Charge(ZCDP.compute_limit(epsilon, delta, Fraction(0)).loss // share, 0)
        reported = ZCDP.compute_spent_epsilon(spend, delta, Fraction(0))
        asked = asked_ln_delta(delta)
        if reported > 0:
            assert least_ln_delta(spend.loss_fraction, reported) <= asked + TIGHT
            assert least_ln_delta(spend.loss_fraction, reported * (1 - Fraction(1, 10**12))) > asked


@settings(max_examples=examples(50))
@given(
    st.fractions(min_value=Fraction(1, 10**4), max_value=50),
    st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(99, 100)),
)
def test_never_looser_than_the_classical_conversion(epsilon: Fraction, delta: Fraction) -> None:
    """At least as much ρ, and at most as much ε, as ε = ρ + 2·√(ρ·ln(1/δ)) gives."""
    log = math.log(1 / delta)
    classical = (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
    limit = ZCDP.compute_limit(epsilon, delta, Fraction(0))
    assert float(limit.loss_fraction) >= classical * (1 - 1e-9)
    rho = float(limit.loss_fraction)
    spent = float(ZCDP.compute_spent_epsilon(limit, delta, Fraction(0)))
    assert spent <= (rho + 2 * math.sqrt(rho * log)) * (1 + 1e-9)


def test_releases_admitted_at_three_and_one_in_a_million() -> None:
    """With ε = 0.01 each: 300 by basic composition, 3515 by zcdp with half of δ, 3701 with all of it."""
    epsilon, delta, each = Fraction(3), Fraction(1, 10**6), Pure(Fraction(1, 100))
    pure, zcdp = PureAccountant(), ZCDP
    assert pure.compute_limit(epsilon, delta).loss // pure.compute_charge(each).loss == 300
    assert zcdp.compute_limit(epsilon, delta).loss // zcdp.compute_charge(each).loss == 3515
    assert zcdp.compute_limit(epsilon, delta, Fraction(0)).loss // zcdp.compute_charge(each).loss == 3701


@pytest.mark.parametrize(("delta", "selection"), [(0, None), (0, 0), (Fraction(1, 9), Fraction(1, 9))])
def test_zcdp_needs_delta_to_convert(delta: int | Fraction, selection: int | Fraction | None) -> None:
    """Without delta for the conversion there is no (ε, δ) to promise."""
    share = None if selection is None else Fraction(selection)
    with pytest.raises(PolicyError) as caught:
        ZCDP.compute_limit(Fraction(1), Fraction(delta), share)
    assert caught.value.code == "delta_required"


def test_pure_takes_the_whole_delta_for_selection() -> None:
    """Under basic composition nothing is converted: ε and δ are limits as they stand."""
    limit = PureAccountant().compute_limit(Fraction(2), Fraction(1, 10**6))
    assert limit == Charge(2 * Charge.UNIT, Charge.UNIT // 10**6)
    with pytest.raises(NotSupportedError) as caught:
        PureAccountant().compute_charge(Gaussian(Fraction(1, 10)))
    assert caught.value.code == "event_not_charged"


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**40), Fraction(10**30)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**300), 1 - Fraction(1, 10**30)])
def test_extreme_budgets_have_a_limit(epsilon: Fraction, delta: Fraction) -> None:
    """At the ends of the range the limit is still found, and converts back to no more than ε."""
    limit = ZCDP.compute_limit(epsilon, delta)
    assert ZCDP.compute_spent_epsilon(limit, delta) <= epsilon * (1 + Fraction(1, 10**20)) + Fraction(
        1, 10**25
    )


@pytest.mark.parametrize("epsilon", ["1/1000", "1", "4", "401/100", "79/10", "81/10", "30"])
def test_a_choice_costs_the_lesser_of_its_two_bounds(epsilon: str) -> None:
    """A bounded range costs no more than a pure release, nor than an eighth of its square, and no less than both."""
    loss = Fraction(epsilon)
    square = ZCDP.compute_charge(Gaussian(loss * loss / 8))
    pure = ZCDP.compute_charge(Pure(loss))
    assert ZCDP.compute_charge(BoundedRange(loss)).loss == min(square.loss, pure.loss)
