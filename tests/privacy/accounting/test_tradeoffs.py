"""What each release costs under Gaussian differential privacy: proven μ against the laws themselves."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpsql.privacy.accounting.accountants import GdpAccountant
from dpsql.privacy.accounting.events import Charge, Gaussian, Pure
from dpsql.privacy.accounting.tradeoffs import bound_lattice_gaussian_mu, bound_pure_mu, bound_range_mu

GDP = GdpAccountant()
SIGMAS = [0.2, 0.3, 0.4, 0.5, 0.7, 0.85, 1, 1.5, 2, 4, 10, 40]


def corner(here: float, there: float) -> float:
    """The μ that a test needs which says "here" with these two chances."""
    return float(stats.norm.ppf(here) - stats.norm.ppf(there))


def steps(sigma: float, least: float = 1e-250) -> np.ndarray:
    """z_k - z_(k-1), with z_k the normal quantile of P(noise <= k), from the middle outward."""
    k = np.arange(math.ceil(36 * sigma) + 2)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    chances = weights / (2 * weights.sum() - 1)
    beyond = np.cumsum(chances[::-1])[::-1]  # P(noise >= k)
    z = -stats.norm.ppf(beyond[1:][beyond[1:] > least])  # z_k for k = 0, 1, …
    return np.diff(np.concatenate([[-z[0]], z]))


@given(st.fractions(min_value=Fraction(1, 100), max_value=30))
def test_a_pure_release_has_the_corner_of_randomised_response(epsilon: Fraction) -> None:
    """μ is that of randomised response, to the last digits of a float, and not below."""
    truth = 1 / (1 + math.exp(-float(epsilon)))
    assert float(bound_pure_mu(epsilon)) == pytest.approx(
        -2 * stats.norm.ppf(1 - truth), rel=1e-3 if epsilon > 20 else 1e-9
    )


@given(st.fractions(min_value=Fraction(1, 20), max_value=20))
def test_no_choice_needs_more_than_half_the_pure_loss(epsilon: Fraction) -> None:
    """Of all two-outcome choices of range ε the one in the middle needs most, and exactly what is charged."""
    e = float(epsilon)
    parts = np.linspace(0.001, 0.999, 999) * e
    here = (np.exp(e) - np.exp(parts)) / np.expm1(e)
    there = np.expm1(e - parts) / np.expm1(e)
    # Written through upper tails, so that nothing near 1 loses digits.
    needed = -stats.norm.ppf(np.expm1(parts) / np.expm1(e)) - stats.norm.ppf(there)
    assert here == pytest.approx(1 - np.expm1(parts) / np.expm1(e))
    assert needed.max() <= float(bound_range_mu(epsilon)) * (1 + 1e-12)
    assert needed[499] == pytest.approx(float(bound_range_mu(epsilon)), rel=1e-9)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_middle_step_of_the_discrete_law_is_the_largest(sigma: float) -> None:
    """What the proof says of the steps: they never grow outward, and none is below 1/σ by more than a rounding."""
    found = steps(sigma)
    assert np.all(np.diff(found) <= 1e-9)
    assert np.all(found * sigma >= 1 - 1e-9)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_discrete_noise_costs_its_middle_step(sigma: float) -> None:
    """The charge covers the largest step, and is within a part in 1,000 for σ from 0.7 on."""
    rho = Fraction(1, 2) / Fraction(sigma) ** 2
    charged, largest = float(bound_lattice_gaussian_mu(rho)), steps(sigma).max()
    assert charged >= largest * (1 - 1e-12)
    if sigma >= 0.7:
        assert charged <= largest * 1.001
    assert charged <= 2 / sigma * (1 + 1e-12)


@pytest.mark.parametrize(("sigma", "shift"), list(itertools.product([0.5, 1, 3, 10], [1, 2, 3, 7])))
def test_the_charge_covers_every_corner_of_any_shift(sigma: float, shift: int) -> None:
    """Discrete noise with any whole sensitivity needs no more than what its ρ is charged."""
    needed = np.convolve(steps(sigma), np.ones(shift), mode="full").max()
    # Steps on the other side of the middle mirror these.
    half = steps(sigma)
    both = np.concatenate([half[:0:-1], half])
    needed = max(needed, np.convolve(both, np.ones(shift), mode="valid").max())
    rho = Fraction(shift * shift, 2) / Fraction(sigma) ** 2
    assert needed <= float(bound_lattice_gaussian_mu(rho)) * (1 + 1e-12)


def test_discrete_noise_is_not_as_private_as_continuous_noise() -> None:
    """To charge √(2ρ) for it would be wrong: at σ = 1 the difference is 4 parts in 100."""
    needed = steps(1.0).max()
    assert needed > 1.04
    assert math.sqrt(2 * float(Fraction(1, 2))) < needed


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=200))
def test_gaussian_noise_is_charged_more_for_more_rho(rho: Fraction) -> None:
    """The charge grows with ρ, from 2ρ where σ is large to at most 8ρ."""
    low, high = (
        GDP.compute_charge(Gaussian(rho)).loss,
        GDP.compute_charge(Gaussian(rho * Fraction(1001, 1000))).loss,
    )
    assert low < high
    assert 2 * rho * Charge.UNIT <= low <= 8 * rho * Charge.UNIT + 1


def test_far_losses_have_a_bound() -> None:
    """Beyond a million the simpler bound is above the exact one, and no step down in price is hidden there."""
    below, above = (GDP.compute_charge(Pure(Fraction(10**6) + step)).loss_fraction for step in (0, 1))
    assert below < above <= 8 * (10**6 + 2)
    assert above < below * Fraction(10001, 10000)
    assert GDP.compute_charge(Pure(Fraction(2) ** 2000)).loss > 0
