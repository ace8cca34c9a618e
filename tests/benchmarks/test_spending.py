"""What Gaussian noise spends is its exact profile, not the textbook's bound on it."""

from __future__ import annotations

import math

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from benchmarks.accuracy.spending import bisect, classical_multiplier, gaussian_delta, gaussian_epsilon

DELTA = 1e-6


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_profile_is_the_divergence_of_two_gaussians(mu: float, epsilon: float) -> None:
    """δ(ε) is the integral of the excess of one density over e^ε times the other."""
    above, _ = quad(
        lambda x: max(0.0, norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)), -10, 10 + mu, limit=500
    )
    assert gaussian_delta(mu, epsilon) == pytest.approx(above, abs=1e-6)


@pytest.mark.parametrize("multiplier", [1.0, 4.0, 20.0])
def test_epsilon_inverts_the_profile(multiplier: float) -> None:
    """The one is the other's inverse."""
    epsilon = gaussian_epsilon([multiplier], DELTA)
    assert gaussian_delta(1 / multiplier, epsilon) == pytest.approx(DELTA, rel=1e-3)


def test_gaussians_compose_by_their_squares() -> None:
    """Four of a scale are as one of half the scale."""
    assert gaussian_epsilon([8.0] * 4, DELTA) == pytest.approx(gaussian_epsilon([4.0], DELTA))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_textbook_calibration_overstates_its_loss(epsilon: float) -> None:
    """Such a mechanism may be asked for more than the textbook allows."""
    assert 0.5 * epsilon < gaussian_epsilon([classical_multiplier(epsilon, DELTA)], DELTA) < epsilon


def test_bisection_finds_the_largest_fitting_loss() -> None:
    """The loss at its result is the total, and not more."""
    found = bisect(lambda loss: loss**2, 2, 0, 10)
    assert found**2 <= 2
    assert found == pytest.approx(math.sqrt(2))
