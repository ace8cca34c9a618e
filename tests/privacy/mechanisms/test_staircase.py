"""The staircase: its loss by exact enumeration, the length of its first stair, what it gains, and its parameters."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.errors import InternalError, LossError
from dpsql.privacy.mechanisms import Geometric, Staircase, sampler
from dpsql.privacy.mechanisms.sampler import sample_staircase
from tests.entropy import ScriptedEntropy, SeededEntropy

EVERY = [(width, inner) for width in (1, 2, 3, 5, 8) for inner in range(1, width + 1)]


def exponents(noise: Staircase, reach: int) -> list[int]:
    """For -reach … reach the power of exp(-loss) that the definition of Geng and Viswanath gives a number."""
    found = []
    for k in map(abs, range(-reach, reach + 1)):
        row, place = divmod(k, noise.width)
        found.append(row if place < noise.inner else row + 1)
    return found


@pytest.mark.parametrize(("width", "inner"), EVERY)
def test_a_move_up_to_the_width_costs_one_loss(width: int, inner: int) -> None:
    """The largest ratio of the law and its shift, in whole powers of exp(loss): 1 to the width, 2 to twice the width."""
    noise, reach, far = Staircase(Fraction(1), width, inner), 9 * width, 4 * width
    law = exponents(noise, reach)
    for shift in range(1, far + 1):
        pairs = zip(law, law[shift:], strict=False)
        worst = max(abs(here - there) for here, there in pairs)
        assert worst == noise.compute_epsilon(cell=shift, cells=1) == -(-shift // width)


def test_cells_that_share_a_move_lose_more() -> None:
    """Two cells that move by half a stair each may cost two stairs: the l1 norm is not what it is private for."""
    noise = Staircase(Fraction(1), 4, 2)
    law = exponents(noise, 40)
    each = max(abs(here - there) for here, there in zip(law, law[2:], strict=False))
    assert each + each == noise.compute_epsilon(cell=2, cells=2) == 2 * noise.compute_epsilon(cell=4, cells=1)


@pytest.mark.parametrize("loss", ["1/20", "1/2", "1", "3", "7"])
@pytest.mark.parametrize("width", [1, 2, 3, 10, 47])
def test_the_first_stair_has_the_least_variance(loss: str, width: int) -> None:
    """No other length leaves less, by the sum over the law."""
    steps = np.arange(0, int(width * (2 + 60 / float(Fraction(loss)))))

    def variance(inner: int) -> float:
        law = np.exp(-float(Fraction(loss)) * ((steps + width - inner) // width))
        return float(2 * (steps**2 * law).sum() / (2 * law.sum() - law[0]))

    noise = Staircase.calibrate(width, 1, Fraction(loss))
    assert noise.compute_variance() == pytest.approx(variance(noise.inner), rel=1e-9)
    assert noise.compute_variance() <= min(map(variance, range(1, width + 1))) * (1 + 1e-9)


@pytest.mark.parametrize("width", [1, 2, 5, 1000, 2**40])
@pytest.mark.parametrize("loss", ["1/10", "1", "3", "10"])
def test_staircase_noise_has_no_larger_error_than_geometric(width: int, loss: str) -> None:
    """At equal loss, and less wherever a move is longer than one step; of one step it is the same law."""
    stairs, plain = (
        Staircase.calibrate(width, 1, Fraction(loss)),
        Geometric.calibrate(Fraction(width), Fraction(loss)),
    )
    if width == 1:
        assert stairs.std == pytest.approx(plain.std)
        assert [stairs.bound_tail(t) for t in range(-3, 9)] == pytest.approx(
            [plain.bound_tail(t) for t in range(-3, 9)]
        )
    else:
        assert stairs.std < plain.std


@pytest.mark.parametrize(("loss", "ratio"), [("1/10", 0.9998), ("1", 0.9793), ("3", 0.8289)])
def test_the_gain_is_that_of_the_paper(loss: str, ratio: float) -> None:
    """Where steps are fine, the standard deviation over that of Laplace noise."""
    stairs = Staircase.calibrate(10**6, 1, Fraction(loss))
    assert stairs.std / (10**6 * math.sqrt(2) / float(Fraction(loss))) == pytest.approx(ratio, abs=1e-4)


@pytest.mark.parametrize("terms", [2, 3])
def test_a_sum_is_within_its_bound(terms: int) -> None:
    """The bound for several draws is not below their convolution."""
    noise = Staircase(Fraction(3, 2), 5, 2)
    single: NDArray[np.float64] = np.exp(-1.5 * np.array(exponents(noise, 200), dtype=np.float64))
    single /= single.sum()
    total = single
    for _ in range(terms - 1):
        total = np.convolve(total, single)
    zero = len(total) // 2
    for threshold in range(-4, 60):
        assert noise.bound_sum_tail(terms, threshold) >= total[zero + threshold :].sum() * (1 - 1e-9)


def test_a_tie_is_carried_on() -> None:
    """Where a word agrees with the chance of the outer part, the next one decides, by digits of the same number."""
    law = Fraction(1), 3, 1
    first, second = (sampler._compute_outer_threshold(*law, bits) for bits in (64, 128))
    assert first == pytest.approx(2**64 * 2 / (2 + math.e), rel=1e-12)
    assert second >> 64 == first
    rest = second & (2**64 - 1)
    for word, expected in ((rest - 1, True), (rest + 1, False)):
        assert sampler._sample_outer_coins(*law, 1, ScriptedEntropy([first, word])) == [expected]


def test_a_loss_without_noise_is_drawn_too() -> None:
    """Chances that no float can hold are settled as others are."""
    noise = Staircase.calibrate(1000, 1, Fraction(10**30))
    assert noise.inner == 1
    assert noise.draw(100, SeededEntropy(1)) == [0] * 100


@pytest.mark.parametrize(
    ("loss", "width"), [("2", 2**62), ("1/1180591620717411303424", 9), ("1", 2**200), ("1/8192", 2**53)]
)
def test_wide_stairs_do_not_wrap(loss: str, width: int) -> None:
    """Draws beyond 64 bits are whole numbers of Python's, and spread as the law says."""
    noise = Staircase.calibrate(width, 1, Fraction(loss))
    draws = sample_staircase(noise.loss, noise.width, noise.inner, 2000, SeededEntropy(3)).tolist()
    width_of_most = noise.compute_half_width(0.9)
    within = sum(abs(draw) <= width_of_most for draw in draws)
    assert abs(within - 1800) < 6 * 14
    assert abs(sum(draw > 0 for draw in draws) - 1000) < 6 * 23


def test_parameters_make_sense() -> None:
    """Stairs are whole and not longer than the width; a loss is a positive Fraction."""
    for width, inner in itertools.chain([(3, 0), (3, 4), (0, 0), (2**257, 1)], [(3.0, 1), (3, True)]):
        with pytest.raises(InternalError):
            Staircase(Fraction(1), width, inner)  # type: ignore[arg-type]
    for cell, cells in ((0, 1), (1, 0), (2**257, 1)):
        with pytest.raises(InternalError):
            Staircase.calibrate(cell, cells, Fraction(1))
    with pytest.raises(LossError):
        Staircase.calibrate(3, 1, Fraction(0))
