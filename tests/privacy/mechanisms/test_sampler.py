"""The samplers, bit by bit: coins, ties, laps, rejections and the entropy they take."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.privacy.mechanisms import sampler
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.sampler import (
    Coin,
    Integers,
    sample_discrete_gaussian,
    sample_two_sided_geometric,
)
from tests.entropy import RecordingEntropy, ScriptedEntropy, SeededEntropy, packed

SCALES = [Fraction(3, 10), Fraction(1), Fraction(10), Fraction(1000), Fraction(2**31), Fraction(2**45)]
last = 2**64 - 1


@pytest.mark.parametrize("scale", SCALES)
def test_coins_multiply_to_the_law(scale: Fraction) -> None:
    """The exact odds of the coins give every k the probability (1-a)/(1+a) * a**|k|, to 1e-40."""
    coins, thresholds = sampler._make_coins(scale)
    *digits, beyond, sign = coins
    with localcontext() as context:
        context.prec = 80
        a = _exp(-1 / scale)

        def probability(coin: Coin, heads: bool) -> Decimal:
            odds = _exp(-coin.exponent)
            p = odds / (1 + odds) if coin.as_odds else odds
            return p if heads else 1 - p

        for k in (0, 1, -1, 2, -7, 2 ** len(digits) - 1, 2 ** len(digits) + 5, -3 * 2 ** len(digits)):
            g, law = (k if k >= 0 else ~k), probability(sign, k < 0)
            for j, digit in enumerate(digits):
                law *= probability(digit, bool(g >> j & 1))
            laps = g >> len(digits)
            law *= probability(beyond, heads=True) ** laps * probability(beyond, heads=False)
            exact = (1 - a) / (1 + a) * _exp(-abs(k) / scale)
            assert abs(law / exact - 1) < Decimal("1e-40")
    assert thresholds.ravel().tolist() == [coin.compute_threshold(16) for coin in coins]
    assert beyond.compute_threshold(16) == 0, "most draws need no more than the first word of the lap coin"


def _exp(exponent: Fraction) -> Decimal:
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


@pytest.mark.parametrize("heads", [0b0_0_0000000, 0b0_0_1010101, 0b1_0_0110110, 0b0_1_0000011, 0b1_1_1111111])
def test_ties_are_settled_coin_by_coin(heads: int) -> None:
    """Words equal to every threshold leave the draw to the exact bits that follow, none other read."""
    coins, thresholds = sampler._make_coins(Fraction(10))
    assert len(coins) == 9, "seven digits, the lap, the sign"
    words = packed([int(value) for value in thresholds.ravel()])
    for index, coin in enumerate(coins):
        tie = coin.compute_threshold(80) - (coin.compute_threshold(16) << 64)
        words.append(tie - 1 if heads >> index & 1 else tie + 1)
    lapped = heads >> 7 & 1
    entropy = ScriptedEntropy([*words, *[last] * lapped])
    magnitude = heads & 0b11111111
    expected = ~magnitude if heads >> 8 else magnitude
    assert sample_two_sided_geometric(Fraction(10), 1, entropy).tolist() == [expected]
    assert entropy.left == 0


def test_laps_are_counted_without_end_or_wrap() -> None:
    """A draw 70 laps beyond 2**J, past an int64, comes out as the exact Python integer."""
    scale = Fraction(2**56, 12)
    coins, _ = sampler._make_coins(scale)
    digits = len(coins) - 2
    assert digits == sampler._NARROW, "the widest draws that are int64 but for this"
    first = packed([2**16 - 1] * digits + [0, 0])
    entropy = ScriptedEntropy([*first, 0, *([0] * 69), last])
    drawn = sample_two_sided_geometric(scale, 1, entropy)
    assert drawn.tolist() == [~(70 << digits)]
    assert drawn.dtype == object
    assert entropy.left == 0


def gaussian_of_scale(scale: Fraction, size: int, entropy: Entropy) -> Integers:
    """A discrete Gaussian whose sigma is `scale`."""
    return sample_discrete_gaussian(scale * scale, size, entropy)


@pytest.mark.parametrize("draw", [sample_two_sided_geometric, gaussian_of_scale])
def test_wide_scales_give_python_integers(draw: Callable[[Fraction, int, Entropy], Integers]) -> None:
    """Beyond 2**52 the draws are Python integers and spread as the scale says."""
    scale = Fraction(2**80)
    drawn = draw(scale, 400, SeededEntropy(3))
    assert drawn.dtype == object
    assert {type(value) for value in drawn} == {int}
    spread = np.array([float(value / scale) for value in drawn])
    assert 0.6 < np.abs(spread).mean() < 1.3
    assert {value % 16 for value in drawn} == set(range(16)), "low digits are drawn too"
    assert draw(Fraction(2**40), 4, SeededEntropy(3)).dtype == np.int64


@pytest.mark.parametrize("scale", SCALES)
def test_words_taken_depend_on_size_and_scale_alone(scale: Fraction) -> None:
    """The vectorised requests follow from size and scale; the rest are single words for ties."""
    size = 40_000
    first, second = (RecordingEntropy(SeededEntropy(9)) for _ in range(2))
    one, other = (sample_two_sided_geometric(scale, size, entropy) for entropy in (first, second))
    assert one.tolist() == other.tolist()
    assert first.requests == second.requests
    columns = len(sampler._make_coins(scale)[0])
    blocks = [sampler._BLOCK, sampler._BLOCK, size - 2 * sampler._BLOCK]
    assert [count for count in first.requests if count > 1] == [-(-columns * n // 4) for n in blocks]
    elsewhere = RecordingEntropy(SeededEntropy(10))
    sample_two_sided_geometric(scale, size, elsewhere)
    assert [c for c in elsewhere.requests if c > 1] == [c for c in first.requests if c > 1]
    assert elsewhere.requests.count(1) < 8 * columns * size / 2**16 + 20


def test_gaussian_takes_the_same_words_from_the_same_stream() -> None:
    """A discrete Gaussian draw is a function of variance, size and stream."""
    runs = []
    for _ in range(2):
        entropy = RecordingEntropy(SeededEntropy(4))
        runs.append((sample_discrete_gaussian(Fraction(50), 5000, entropy).tolist(), entropy.requests))
    assert runs[0] == runs[1]
    assert len(runs[0][0]) == 5000


@given(
    st.integers(-(2**50), 2**50),
    st.fractions(min_value=Fraction(1, 1000), max_value=2**80, max_denominator=10**6),
)
@settings(max_examples=examples(150), deadline=None)
def test_float_acceptance_is_far_within_its_margin(proposal: int, variance: Fraction) -> None:
    """The float acceptance differs from the exact one by under 2**-48, and the margin is 2**-40."""
    scale = int(variance**0.5) + 1
    y = proposal % (20 * scale)
    exact = Coin((abs(y) - variance / scale) ** 2 / (2 * variance)).compute_threshold(120)
    float_value = sampler._compute_acceptance_probabilities(np.array([y]), variance, scale)[0]
    assert abs(Fraction(float(float_value)) - Fraction(exact, 2**120)) < Fraction(1, 2**48)
    assert sampler._RATIO_MARGIN == 2.0**-40


@pytest.mark.parametrize("wide", [False, True])
def test_acceptance_within_the_margin_is_exact(wide: bool) -> None:
    """Words next to the threshold, which no float tells apart, are accepted or not by the exact bits."""
    variance, scale, y = Fraction(50), 8, -5
    coin = Coin((5 - variance / scale) ** 2 / (2 * variance))
    threshold = coin.compute_threshold(64)
    tie = coin.compute_threshold(128) - (threshold << 64)
    proposals = np.array([y] * 4, dtype=object if wide else np.int64)
    entropy = ScriptedEntropy([threshold - 1, threshold + 1, threshold, threshold, tie - 1, tie + 1])
    assert sampler._accept_proposals(proposals, variance, scale, entropy).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert entropy.left == 0


def test_acceptance_does_not_inherit_the_rounding_of_floats() -> None:
    """A word next to the exact probability, on the side of its float, is decided by the exact one."""
    for numerator in range(1000, 1200):
        variance = Fraction(numerator, 7)
        scale, y = int(variance**0.5) + 1, 9
        exact = Coin((y - variance / scale) ** 2 / (2 * variance)).compute_threshold(64)
        rounded = (
            Fraction(float(sampler._compute_acceptance_probabilities(np.array([y]), variance, scale)[0]))
            * 2**64
        )
        word = exact + 1 if rounded > exact else exact - 1
        entropy = ScriptedEntropy([word])
        assert sampler._accept_proposals(np.array([y]), variance, scale, entropy)[0] == (word < exact)


def test_no_draws_take_no_entropy() -> None:
    """A size of zero gives an empty array and asks for nothing."""
    nothing = ScriptedEntropy([])
    assert sample_two_sided_geometric(Fraction(1), 0, nothing).shape == (0,)
    assert sample_discrete_gaussian(Fraction(1), 0, nothing).shape == (0,)
