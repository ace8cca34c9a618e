"""Claims of texts that do not hold as they are printed, shown by numbers, each beside the form that does."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammainc, ndtr

from dpsql.errors import LossError
from dpsql.privacy.accounting.measurement import measure
from dpsql.privacy.accounting.numerics import gaussian_delta
from dpsql.privacy.accounting.profiles import LaplaceProfile
from dpsql.privacy.mechanisms import (
    GaussianMechanism,
    GeometricMechanism,
    LaplaceMechanism,
    RandomizedResponse,
    VectorMechanism,
    WishartMechanism,
)
from dpsql.privacy.mechanisms.library.second_moments import WishartProfile

Floats = NDArray[np.float64]


def classical_delta(epsilon: float, delta: float) -> float:
    """The least δ at that ε of Gaussian noise with σ = √(2·ln(1.25/δ))/ε, for a sensitivity of 1."""
    mu = epsilon / math.sqrt(2 * math.log(1.25 / delta))
    return float(gaussian_delta(Decimal(mu), Decimal(epsilon)).high)


def test_the_classical_gaussian_calibration_fails_for_a_large_epsilon() -> None:
    """Printed without a condition on ε, its δ is 150 times too large at ε = 20 and 1e-5; below 1 it holds, and the library refuses 1."""
    for delta in (1e-3, 1e-5, 1e-8):
        for epsilon in (0.01, 0.3, 0.99):
            assert classical_delta(epsilon, delta) < delta
        assert classical_delta(30, delta) > 10 * delta
        broken = next(e for e in range(1, 100) if classical_delta(e, delta) > delta)
        assert 5 < broken < 20
    assert classical_delta(20, 1e-5) > 150 * 1e-5
    for epsilon in (1, 10):
        with pytest.raises(LossError, match="only proved for epsilon below 1"):
            GaussianMechanism(epsilon=epsilon, delta=1e-5, calibration="classical")
    for epsilon in (0.3, 1, 10, 30):
        noise = GaussianMechanism(epsilon=epsilon, delta=1e-5)
        assert 0.999e-5 < float(noise.profile().delta(Decimal(str(epsilon))).high) <= 1e-5


def test_delta_is_no_probability_beyond_which_pure_privacy_holds() -> None:
    """The ratio e^ε is not kept "with probability 1 - δ": Gaussian noise that is (1, 1e-5)-DP passes it 5 times as often."""
    noise = GaussianMechanism(epsilon=1, delta=1e-5)
    mu = 1 / noise.variance**0.5
    passed = float(ndtr(mu / 2 - 1 / mu))
    assert passed > 4e-5
    exact = passed - math.e * float(ndtr(-mu / 2 - 1 / mu))
    assert exact == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "impossible"), [(0.1, 0.0328), (1, 0.2835), (3, 0.6321)])
def test_the_wishart_mechanism_as_published_is_not_pure(epsilon: float, impossible: float) -> None:
    """W(d+1, (3/2nε)·I): of 20,000 drawn outcomes that part cannot come from the neighbour; so δ is at least that at any ε."""
    generator = np.random.default_rng(8)
    for d in (1, 3):
        normal = generator.standard_normal((20_000, d + 1, d)) * math.sqrt(3 / (2 * epsilon))  # with n = 1
        noise = np.einsum("ski,skj->sij", normal, normal)
        neighbour = noise.copy()
        neighbour[:, 0, 0] -= 1  # the row (1, 0, 0) is not there: what remains must be a Wishart matrix, too
        share = (np.linalg.eigvalsh(neighbour)[:, 0] < 0).mean()
        assert share == pytest.approx(impossible, abs=0.02)
    profile = WishartProfile(degrees=2, shift=2 * epsilon / 3)
    for at in (epsilon, 2 * epsilon, 20):
        assert float(profile.delta(Decimal(str(at))).low) >= impossible - 1e-3
    assert impossible == pytest.approx(1 - math.exp(-epsilon / 3), abs=1e-3)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "0.9", "1"])
@pytest.mark.parametrize("delta", ["1e-2", "1e-6"])
def test_the_wishart_mechanism_as_corrected_keeps_its_delta(epsilon: str, delta: str) -> None:
    """With k = d + ⌊28·ln(4/δ)/ε²⌋ the exact δ is far below; the least k that keeps δ needs less than a fifth of it."""
    corrected = WishartMechanism(epsilon=epsilon, delta=delta, dimensions=4)
    least = WishartMechanism(epsilon=epsilon, delta=delta, dimensions=4, calibration="profile")
    assert corrected.degrees == 4 + math.floor(28 * math.log(4 / float(delta)) / float(epsilon) ** 2)
    assert float(corrected.profile().delta(Decimal(epsilon)).high) <= float(delta)
    assert float(least.profile().delta(Decimal(epsilon)).high) <= float(delta)
    fewer = WishartProfile(least.degrees - 4)
    assert float(fewer.delta(Decimal(epsilon)).high) > float(delta)
    assert least.degrees < corrected.degrees / 5 + 4


def test_the_wishart_profile_is_that_of_the_matrices() -> None:
    """δ by 100,000 matrices and the ratio of their densities, for rows of any direction, at the bound and within."""
    generator = np.random.default_rng(12)
    d, k = 3, 14
    normal = generator.standard_normal((100_000, k, d))
    noise = np.einsum("ski,skj->sij", normal, normal)
    for row in (np.array([1.0, 0, 0]), np.array([0.6, 0, 0.8]), np.array([0.3, 0.4, 0.1])):
        outer, norm = np.outer(row, row), float(row @ row)
        exact = WishartProfile(k - d + 1, norm)
        _, log_here = np.linalg.slogdet(noise)
        sign, log_less = np.linalg.slogdet(noise - outer)
        # Without the row against with it, whose density at an outcome is that of the outcome less the row.
        possible = (sign > 0) & (np.linalg.eigvalsh(noise - outer)[:, 0] > 0)
        without = np.where(possible, (k - d - 1) / 2 * (log_here - log_less) - norm / 2, np.inf)
        _, log_more = np.linalg.slogdet(noise + outer)
        with_row = (k - d - 1) / 2 * (log_here - log_more) + norm / 2
        for epsilon in (0.0, 0.2, 0.6):
            deltas = [np.maximum(-np.expm1(epsilon - loss), 0).mean() for loss in (without, with_row)]
            assert float(exact.delta(Decimal(str(epsilon))).high) == pytest.approx(max(deltas), abs=6e-3)
            assert (
                exact.delta(Decimal(str(epsilon))).high
                <= WishartProfile(k - d + 1).delta(Decimal(str(epsilon))).high
            )


def test_the_density_of_the_wishart_mechanism_never_loses_its_floor() -> None:
    """A part of the outcomes remains impossible on the neighbour, whatever ε is: no pure loss, and no μ-GDP."""
    profile = WishartMechanism(epsilon=1, delta=1e-2, calibration="profile").profile()
    floor = float(gammainc(profile.degrees / 2, 0.5))
    assert floor > 0
    for epsilon in (50, 500, 5000):
        low, high = profile.delta(Decimal(epsilon))
        assert floor * (1 - 1e-9) <= float(low) <= float(high) <= floor * (1 + 1e-3)
    assert floor < float(profile.delta(Decimal(1)).high) <= 0.01
    assert profile.tail is None


def test_independent_laplace_noise_by_the_l2_norm_is_not_private() -> None:
    """Scale Δ₂/ε in each of 4 coordinates loses √4·ε where all move alike; by the l1 norm, or as one vector, it loses ε."""
    change = np.full(4, 0.5)  # of l2 norm 1 and l1 norm 2
    assert np.linalg.norm(change) == 1
    loss_of_scale_one = np.abs(change).sum()
    assert loss_of_scale_one == 2
    outcome = np.full(4, -3.0)
    assert np.abs(outcome - change).sum() - np.abs(outcome).sum() == pytest.approx(loss_of_scale_one)
    by_l1 = LaplaceMechanism(epsilon=1, sensitivity=2, dimensions=4, step="0.001")
    assert np.abs(change).sum() / float(by_l1.law.scale * by_l1.spacing) <= 1
    whole = VectorMechanism(epsilon=1, sensitivity=1, dimensions=4)
    scale = float(whole.law.scale * whole.spacing)
    assert (np.linalg.norm(outcome - change) - np.linalg.norm(outcome)) / scale <= 1
    assert whole.variance < by_l1.variance


def test_a_geometric_law_needs_an_exponential_parameter() -> None:
    """Geom(ε/Δ) is no law where ε/Δ <= 1, and loses ln(ε/Δ) beyond; Geom(e^(ε/Δ)) is the mechanism, with 2α/(1-α)²."""
    alpha = 0.5
    assert (alpha - 1) / (alpha + 1) < 0, "a negative probability"
    assert math.log(2.0) != 2.0
    noise = GeometricMechanism(epsilon=2)
    alpha = math.exp(2)
    assert noise.density(np.array([3.0]))[0] == pytest.approx((alpha - 1) / (alpha + 1) * alpha**-3)
    assert noise.variance == pytest.approx(2 * alpha / (1 - alpha) ** 2)


def test_two_alpha_is_below_the_loss_of_randomised_response() -> None:
    """ε is 2·artanh(α): 2α is what it tends to, and is too small for every α, by 39% at 0.9."""
    for alpha in ("0.01", "0.1", "0.5", "0.9"):
        loss = float(RandomizedResponse.of_truth(alpha).loss)
        assert loss == pytest.approx(2 * math.atanh(float(alpha)))
        assert loss > 2 * float(alpha)
    assert 2 * 0.9 / float(RandomizedResponse.of_truth("0.9").loss) < 0.62


def test_a_finite_tail_does_not_make_every_larger_mu_hold() -> None:
    """μ_t is 0 for Laplace noise of loss 1, and it is 0.5-GDP for all that not: the condition is necessary, not enough."""
    laplace = LaplaceProfile(Fraction(1))
    assert laplace.tail == 0
    assert laplace.delta(Decimal(0)).low > gaussian_delta(Decimal("0.5"), Decimal(0)).high
    low, high = measure(laplace)
    assert Decimal("1.03") < low < high < Decimal("1.032")


def test_a_strict_inequality_leaves_nothing() -> None:
    """The ratio of Laplace noise is e^ε on a whole side, not "below e^ε": the definition is "at most"."""
    scale = 1.0
    outcomes = np.array([-1.0, -5.0])
    ratio = np.exp((np.abs(outcomes - 1) - np.abs(outcomes)) / scale)
    assert ratio == pytest.approx(math.e)


def test_a_proportion_of_so_many_rows_moves_by_one_of_them() -> None:
    """Of n rows, n known, a replaced one moves the proportion by 1/n; a removed one by as much, but n is then no longer known."""
    for rows in range(1, 8):
        proportions = [Fraction(ones, rows) for ones in range(rows + 1)]
        assert max(b - a for a, b in itertools.pairwise(proportions)) == Fraction(1, rows)
        removed = [
            abs(Fraction(ones, rows) - Fraction(ones - one, rows - 1))
            for ones in range(rows + 1)
            for one in (0, 1)
            if rows > 1 and 0 <= ones - one <= rows - 1
        ]
        assert max(removed, default=Fraction(1, rows)) == Fraction(1, rows)


def test_one_query_has_no_small_database_as_printed() -> None:
    """8·ln(k)/α² rows are none for k = 1, and the printed bound of the probability is 1, which is not below 1."""
    for queries in (1, 2, 3):
        rows = 8 * math.log(queries) / 0.1**2
        fails = queries * math.exp(-(0.1**2) * rows / 4)
        assert (fails < 1) == (rows > 0) == (queries > 1)
