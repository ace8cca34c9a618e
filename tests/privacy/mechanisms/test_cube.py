"""The cube: its radius, its coordinates, its tails and its loss are those of the law that it states."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms import LInfinityMechanism, sampler
from dpsql.privacy.mechanisms.sampler import compute_eulerian_coefficients
from tests.entropy import RecordingEntropy, ScriptedEntropy, SeededEntropy

SMALL = [
    LInfinityMechanism(Fraction(1, 2), 2),
    LInfinityMechanism(Fraction(3), 2),
    LInfinityMechanism(Fraction(2), 3),
]


def pmf(cube: LInfinityMechanism, reach: int) -> NDArray[np.float64]:
    """The probabilities of all vectors of coordinates up to `reach`, from the law as it is stated."""
    sides = np.abs(np.arange(-reach, reach + 1))
    norms = np.max(np.meshgrid(*[sides] * cube.dimensions, indexing="ij"), axis=0)
    weights: NDArray[np.float64] = np.exp(-norms / float(cube.scale))
    return weights / weights.sum()


@pytest.mark.parametrize("power", range(8))
def test_the_polynomials_generate_the_odd_powers(power: int) -> None:
    """B(x) / (1-x)**(k+1) has the coefficients (2R+1)**k, and B those of a symmetric polynomial above 0."""
    found = compute_eulerian_coefficients(power)
    for radius in range(12):
        expanded = sum(b * math.comb(radius - i + power, power) for i, b in enumerate(found) if i <= radius)
        assert expanded == (2 * radius + 1) ** power
    assert found == found[::-1]
    assert min(found) > 0
    assert sum(found) == 2**power * math.factorial(power)


@pytest.mark.parametrize("cube", SMALL, ids=repr)
@pytest.mark.parametrize("change", [(1, 0), (1, -1), (2, 1), (-3, 3)])
def test_the_loss_is_attained_and_never_passed(cube: LInfinityMechanism, change: tuple[int, int]) -> None:
    """Over all vectors, the log ratio of the law and its shift is at most epsilon(l∞), and equal to it."""
    shift = (*change, *[0] * (cube.dimensions - 2))
    largest = max(map(abs, shift))
    epsilon = cube.compute_epsilon(Fraction(largest))
    assert LInfinityMechanism.calibrate(Fraction(largest), epsilon, cube.dimensions) == cube
    vectors = np.array(list(itertools.product(range(-8, 9), repeat=cube.dimensions)))
    norms = (np.abs(moved).max(axis=1) for moved in (vectors, vectors - np.array(shift)))
    before, after = norms
    assert (after - before).max() / float(cube.scale) == pytest.approx(float(epsilon))


@pytest.mark.parametrize("cube", SMALL, ids=repr)
def test_tails_and_variance_are_the_sums_over_the_law(cube: LInfinityMechanism) -> None:
    """Over all vectors: a coordinate's tail and variance, and sums of coordinates within their bound."""
    reach = int(20 * cube.scale) + 20
    law = pmf(cube, reach)
    steps = np.arange(-reach, reach + 1)
    single = law.sum(axis=tuple(range(1, cube.dimensions)))
    assert cube.compute_variance() == pytest.approx((steps**2 * single).sum(), rel=1e-6)
    sums = np.sum(np.meshgrid(*[steps] * cube.dimensions, indexing="ij"), axis=0)
    for threshold in range(-4, 12):
        assert cube.bound_tail(threshold) == pytest.approx(single[steps >= threshold].sum(), rel=1e-6)
        exact = law[sums >= threshold].sum()
        assert cube.bound_sum_tail(cube.dimensions, threshold) >= exact * (1 - 1e-6)


def test_one_dimension_is_the_geometric_law() -> None:
    """The cube of one dimension has the geometric tail a**t / (1+a)."""
    ratio = math.exp(-1 / 7)
    for threshold in (1, 2, 30):
        assert LInfinityMechanism(Fraction(7), 1).bound_tail(threshold) == pytest.approx(
            ratio**threshold / (1 + ratio)
        )


def test_the_tail_is_that_of_the_continuous_cube_where_steps_are_fine() -> None:
    """At many steps a scale, P(|z| > t) = Q(k+1, t) - (t/k) Q(k, t), in units of the scale."""
    from scipy.special import gammaincc

    scale = 2**30
    for k, t in itertools.product((1, 2, 5, 12), (0.5, 3.0, 20.0)):
        expected = gammaincc(k + 1, t) - t / k * gammaincc(k, t)
        assert 2 * LInfinityMechanism(Fraction(scale), k).bound_tail(int(t * scale)) == pytest.approx(
            expected, rel=1e-6
        )


@pytest.mark.parametrize("scale", [Fraction(2), Fraction(2**50), Fraction(2**70)])
def test_words_that_agree_with_a_threshold_are_settled_by_the_next(scale: Fraction) -> None:
    """An index whose uniform number agrees with a probability for 128 bits falls on its side of it."""
    for place in range(3):
        first, second, third = (
            sampler._compute_index_thresholds(scale, 3, bits)[place] for bits in (64, 128, 192)
        )
        tie = [first, second - (first << 64)]
        for step, expected in ((-1, place), (1, place + 1)):
            entropy = ScriptedEntropy([*tie, third - (second << 64) + step])
            assert sampler._sample_eulerian_indices(scale, 3, 1, entropy).tolist() == [expected]
            assert entropy.left == 0


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5), Fraction(2**40)])
def test_the_probabilities_of_an_index_are_exact_floors(scale: Fraction) -> None:
    """At 64 bits and at 640 they agree, and the coarse ones are those of a float."""
    coarse, fine = (sampler._compute_index_thresholds(scale, 4, bits) for bits in (64, 640))
    assert coarse == tuple(q >> 576 for q in fine)
    weights = np.array(compute_eulerian_coefficients(4)) * math.exp(-1 / float(scale)) ** np.arange(5)
    assert [q / 2**64 for q in coarse] == pytest.approx(np.cumsum(weights)[:-1] / weights.sum())


def test_whole_numbers_below_a_bound_reject_those_above() -> None:
    """Of the bits of a word as many are looked at as the bound has, and drawn anew where they reach it."""
    bounds = np.array([5, 1, 8])
    entropy = ScriptedEntropy([8 + 7, 2**64 - 1, 16 + 7, 4])
    assert sampler._sample_below(bounds, entropy).tolist() == [4, 0, 7]
    assert entropy.left == 0
    wide = np.array([2**70 + 1], dtype=object)
    entropy = ScriptedEntropy([2**64 - 1, 2**64 - 1, 2**63, 0])
    assert sampler._sample_below(wide, entropy).tolist() == [2**70]
    assert entropy.left == 0


@pytest.mark.parametrize("scale", [Fraction(3), Fraction(2**40), Fraction(2**80)])
def test_draws_are_whole_vectors_of_the_same_stream(scale: Fraction) -> None:
    """A draw is a function of scale, dimensions, size and stream; parts of vectors are refused."""
    cube = LInfinityMechanism(scale, 4)
    runs = [(cube.draw(400, entropy), entropy.requests) for entropy in (_recorded(3), _recorded(3))]
    assert runs[0] == runs[1]
    assert {type(value) for value in runs[0][0]} == {int}
    assert LInfinityMechanism(scale, 4).draw(0, ScriptedEntropy([])) == []
    with pytest.raises(InternalError):
        cube.draw(401, _recorded(3))
    for dimensions in (0, 65):
        with pytest.raises(InternalError):
            LInfinityMechanism(scale, dimensions)


def test_wide_draws_spread_by_their_scale() -> None:
    """Beyond an int64 the draws are Python integers, low digits are drawn too, and the spread is right."""
    cube = LInfinityMechanism(Fraction(2**80), 3)
    drawn = cube.draw(3000, SeededEntropy(3))
    assert {value % 16 for value in drawn} == set(range(16))
    assert np.std([float(value) / 2**80 for value in drawn]) == pytest.approx(math.sqrt(20 / 3), rel=0.1)


def _recorded(seed: int) -> RecordingEntropy:
    return RecordingEntropy(SeededEntropy(seed))
