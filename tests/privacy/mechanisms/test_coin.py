"""Coins: their thresholds are exact to the last bit, and so are the tosses that meet them."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.privacy.mechanisms.sampler import Coin
from tests.entropy import RecordingEntropy, ScriptedEntropy, SeededEntropy

exponents = st.fractions(min_value=0, max_value=60, max_denominator=10**9).filter(bool)
last = 2**64 - 1


def reference(coin: Coin, bits: int, digits: int = 400) -> Decimal:
    """The value of p * 2**bits to 400 digits, by another route than the code's."""
    with localcontext() as context:
        context.prec = digits
        growth = (Decimal(coin.exponent.numerator) / Decimal(coin.exponent.denominator)).exp()
        return Decimal(2) ** bits / (growth + 1 if coin.as_odds else growth)


@given(exponents, st.booleans(), st.integers(0, 400))
@settings(max_examples=examples(150), deadline=None)
def test_threshold_is_the_floor(exponent: Fraction, as_odds: bool, bits: int) -> None:
    """The threshold is floor(p * 2**bits), against a 400-digit reference computed another way."""
    coin = Coin(exponent, as_odds)
    assert coin.compute_threshold(bits) == int(reference(coin, bits))


def test_threshold_of_probabilities_near_their_ends() -> None:
    """Probabilities a hair under 1 and 1/2, and next to 0, still get the floor, not the rounding."""
    hair = Fraction(1, 10**40)
    assert Coin(hair).compute_threshold(16) == 2**16 - 1
    assert Coin(hair, as_odds=True).compute_threshold(16) == 2**15 - 1
    assert Coin(Fraction(10**30)).compute_threshold(128) == 0
    assert Coin(Fraction(0)).compute_threshold(16) == 2**16
    assert Coin(Fraction(0), as_odds=True).compute_threshold(16) == 2**15


@pytest.mark.parametrize(("delta", "heads"), [(-1, True), (1, False)])
@pytest.mark.parametrize("coin", [Coin(Fraction(1, 3)), Coin(Fraction(2, 7), as_odds=True)])
def test_settle_decides_ties_by_the_next_bits(coin: Coin, delta: int, heads: bool) -> None:
    """A uniform number that agrees with p for 16 + 64 + 64 bits is decided by the first that differs."""
    second = coin.compute_threshold(80) - (coin.compute_threshold(16) << 64)
    third = coin.compute_threshold(144) - (coin.compute_threshold(80) << 64)
    script = ScriptedEntropy([second, third + delta, 0])
    assert coin.settle_toss(coin.compute_threshold(16), 16, script) is heads
    assert script.left == 1


def test_settle_draws_nothing_when_decided() -> None:
    """A prefix off the threshold is settled without entropy."""
    coin, nothing = Coin(Fraction(1)), ScriptedEntropy([])
    assert coin.settle_toss(coin.compute_threshold(16) - 1, 16, nothing)
    assert not coin.settle_toss(coin.compute_threshold(16) + 1, 16, nothing)
    assert Coin(Fraction(0)).toss(nothing)


def test_toss_takes_one_word() -> None:
    """A toss reads one word, save once in 2**64 times, and lands on the right side of p."""
    coin = Coin(Fraction(1))
    entropy = RecordingEntropy(SeededEntropy(5))
    heads = sum(coin.toss(entropy) for _ in range(2000))
    assert entropy.requests == [1] * 2000
    assert abs(heads / 2000 - float(reference(coin, 0))) < 0.06
    assert not coin.toss(ScriptedEntropy([last]))
    assert coin.toss(ScriptedEntropy([0]))


@pytest.mark.parametrize("as_odds", [False, True])
@pytest.mark.parametrize("bits", [80, 400])
def test_decimals_decide_no_threshold_that_is_near(bits: int, as_odds: bool) -> None:
    """Where p has more binary digits than decimals are computed at first, a hair on either side of it still decides."""
    whole = 2**bits
    for digits in range(1 + whole // 97, whole >> as_odds, whole // 7):
        with localcontext(prec=1000):
            p = Decimal(digits | 1) / whole
            exponent = Fraction((1 / p - 1 if as_odds else 1 / p).ln())
        hair = Fraction(1, 10**600)
        assert Coin(exponent - hair, as_odds).compute_threshold(bits) == digits | 1
        assert Coin(exponent + hair, as_odds).compute_threshold(bits) == (digits | 1) - 1


@pytest.mark.parametrize("as_odds", [False, True])
def test_a_float_decides_no_threshold_that_is_near(as_odds: bool) -> None:
    """Just above and just below a whole number of 65,536ths the thresholds differ, whatever a float rounds."""
    with localcontext(prec=60):
        for digits in range(1, 2 ** (16 - as_odds), 997):
            p = Decimal(digits) / 2**16
            exponent = Fraction((1 / p - 1 if as_odds else 1 / p).ln())
            hair = Fraction(1, 10**40)
            assert Coin(exponent - hair, as_odds).compute_threshold(16) == digits
            assert Coin(exponent + hair, as_odds).compute_threshold(16) == digits - 1
