"""The claims of the mechanisms: the loss that each states bounds the one that its law has."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, LInfinityMechanism, Staircase


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(40)])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_geometric_loss_is_attained(scale: Fraction, shift: int) -> None:
    """The log ratio of the law and its shift is at most epsilon(shift), and equal to it somewhere."""
    epsilon = Geometric(scale).compute_epsilon(Fraction(shift))
    k = np.arange(-50, 51)
    losses = (np.abs(k - shift) - np.abs(k)) / float(scale)
    assert losses.max() == pytest.approx(float(epsilon))
    assert Geometric.calibrate(Fraction(shift), epsilon) == Geometric(scale)


@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(1), Fraction(9, 2), Fraction(80)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_gaussian_loss_bounds_the_renyi_divergence(variance: Fraction, shift: int) -> None:
    """D_alpha(law shifted || law) <= alpha * rho for orders from 1.1 to 64, with equality at integers."""
    mechanism = DiscreteGaussian(variance)
    rho = float(mechanism.compute_rho(Fraction(shift**2)))
    assert (
        DiscreteGaussian.calibrate(Fraction(shift**2), mechanism.compute_rho(Fraction(shift**2))) == mechanism
    )
    v = float(variance)
    k = np.arange(-1500, 1501, dtype=np.float64)
    normaliser = math.log(np.exp(-k * k / (2 * v)).sum())
    for alpha in (1.1, 1.5, 2.0, 2.5, 8.0, 64.0):
        exponent = -(alpha * (k - shift) ** 2 + (1 - alpha) * k * k) / (2 * v)
        top = exponent.max()
        divergence = (top + math.log(np.exp(exponent - top).sum()) - normaliser) / (alpha - 1)
        assert divergence <= alpha * rho * (1 + 1e-9) + 1e-12
        if alpha * shift == int(alpha * shift):
            assert divergence == pytest.approx(alpha * rho)


def test_losses_of_a_vector_add_up_by_their_norms() -> None:
    """Over coordinates the geometric loss follows the l1 norm, the Gaussian one the squared l2 norm."""
    geometric, gaussian = Geometric(Fraction(7)), DiscreteGaussian(Fraction(7))
    for vector in itertools.product((0, 1, 3), repeat=3):
        parts = [Fraction(change) for change in vector]
        assert geometric.compute_epsilon(sum(parts, Fraction(0))) == sum(
            map(geometric.compute_epsilon, parts)
        )
        squares = [part**2 for part in parts]
        assert gaussian.compute_rho(sum(squares, Fraction(0))) == sum(map(gaussian.compute_rho, squares))


def test_calibration_is_exact() -> None:
    """No rounding between a loss and the noise that has it, in either direction."""
    for numerator, denominator in ((1, 10), (1, 3), (7, 10**9), (10**9, 7)):
        loss = Fraction(numerator, denominator)
        assert Geometric.calibrate(Fraction(5), loss).compute_epsilon(Fraction(5)) == loss
        assert DiscreteGaussian.calibrate(Fraction(5), loss).compute_rho(Fraction(5)) == loss
        assert LInfinityMechanism.calibrate(Fraction(5), loss, 3).compute_epsilon(Fraction(5)) == loss
        assert Staircase.calibrate(5, 3, loss).compute_epsilon(5, 3) == loss
