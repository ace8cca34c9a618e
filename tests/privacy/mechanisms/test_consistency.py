"""The noise of adjusted values: its draws, its variance, and how far it strays."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from entropy import SeededEntropy

from dpsql.engine.intervals import noise_laws
from dpsql.errors import InternalError
from dpsql.privacy.mechanisms import (
    CombinedNoise,
    ConsistencyNoise,
    DiscreteGaussian,
    Geometric,
    LInfinityMechanism,
)

DRAWS = 100_000
SMALL, LARGE = Geometric(Fraction(9)), Geometric(Fraction(50))
LAWS = {
    "one noise": ConsistencyNoise(((4, 1, LARGE),), 4),
    "a part beside others": ConsistencyNoise(((3, 1, LARGE), (-1, 7, LARGE)), 10),
    "many parts": ConsistencyNoise(((2, 3, LARGE), (1, 300, SMALL)), 7),
    "two kinds": ConsistencyNoise(((2, 1, LARGE), (1, 40, DiscreteGaussian(Fraction(400)))), 3),
    "merged noise": ConsistencyNoise(
        ((2, 2, CombinedNoise(((1, LARGE), (4, DiscreteGaussian(Fraction(90)))))), (1, 1, SMALL)), 3
    ),
    "cubes": ConsistencyNoise(
        ((5, 1, LInfinityMechanism(Fraction(300), 3)), (-2, 6, LInfinityMechanism(Fraction(300), 3))), 5
    ),
    "Gaussian noise": ConsistencyNoise(
        ((5, 1, DiscreteGaussian(Fraction(80))), (2, 9, DiscreteGaussian(Fraction(80)))), 5
    ),
}


@pytest.fixture(params=LAWS)
def named(request: pytest.FixtureRequest) -> str:
    """A law."""
    return str(request.param)


def drawn(named: str, cells: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Noise of so many cells of one group."""
    law = LAWS[named]
    size = 3 if named == "cubes" else cells
    return np.array(law.draw(DRAWS * size, SeededEntropy(4)), dtype=np.float64).reshape(DRAWS, size)[
        :, :cells
    ]


def test_draws_have_the_variance(named: str) -> None:
    """And none is preferred of noise and its negative."""
    found, law = drawn(named, 1), LAWS[named]
    # The fourth moment is at most six times the square of the second.
    assert np.mean(found**2) == pytest.approx(law.compute_variance(), rel=6 * math.sqrt(5 / DRAWS))
    assert abs(found.mean()) < 6 * law.std / math.sqrt(DRAWS)
    for times in (-1, 1, 3):
        assert law.bound_tail(round(times * law.std)) >= np.mean(found >= times * law.std)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("weights", [(1,), (Fraction(1, 2), 1)], ids=["alone", "together"])
def test_half_widths_hold_at_their_level(
    named: str, weights: tuple[Fraction, ...], confidence: float
) -> None:
    """A little more often, where the noise lies on a lattice of few steps or a ratio of weights is rounded up."""
    half = noise_laws.compute_half_width(LAWS[named], tuple(map(Fraction, weights)), confidence)
    share = np.mean(np.abs(drawn(named, len(weights)) @ np.array(weights, dtype=np.float64)) <= half)
    slack = 6 * math.sqrt(confidence * (1 - confidence) / DRAWS)
    assert -slack - 0.001 < share - confidence < slack + 0.02


def test_without_adjustment_the_bound_is_that_of_the_noise() -> None:
    """Where nothing is adjusted the bound is that of the noise itself, to a step."""
    for noise in (LARGE, LInfinityMechanism(Fraction(300), 2)):
        alone = ConsistencyNoise(((1, 1, noise),), 1).find_sum_bound(0.95)([1.0])
        assert alone == pytest.approx(noise.compute_half_width(0.95), rel=0.01, abs=1)


def test_no_noise_is_refused() -> None:
    """What is adjusted has parts, each at least once."""
    for parts in ((), ((1, 0, LARGE),)):
        with pytest.raises(InternalError):
            ConsistencyNoise(parts, 1)
    with pytest.raises(InternalError):
        ConsistencyNoise(((1, 1, LARGE),), 0)
