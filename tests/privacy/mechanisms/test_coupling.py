"""The coupling of two geometric laws: its chances are those of Bayes' rule, and the pair costs what the second does."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from entropy import ScriptedEntropy, SeededEntropy
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms.geometric import Coupling

PAIRS = [
    Coupling(Fraction(2), Fraction(1)),
    Coupling(Fraction(5), Fraction(49, 10)),
    Coupling(Fraction(3), Fraction(1, 2)),
    Coupling(Fraction(1, 3), Fraction(1, 7)),
]
REACH = 120


def geometric(scale: Fraction) -> NDArray[np.float64]:
    """The two-sided geometric law on -REACH..REACH, as it is stated."""
    ratio = math.exp(-1 / float(scale))
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-REACH, REACH + 1.0))


def conditional(law: Coupling, old: int) -> NDArray[np.float64]:
    """P(V2 = y | V1 = old) as the sampler draws it, from its chances and the two geometric distances."""
    distance = abs(old)
    near = math.exp(-float(1 / law.new - 1 / law.old))
    far = math.exp(-float(1 / law.new + 1 / law.old))
    ends = [0, *law.compute_chance_thresholds(distance), 2**64]
    stay, below, beyond, within = ((high - low) / 2**64 for low, high in itertools.pairwise(ends))
    places = np.arange(-REACH, REACH + 1)
    found = np.where(places < 0, below * (1 - far) * far ** np.maximum(-1 - places, 0.0), 0.0)
    found += np.where(
        places > distance, beyond * (1 - far) * far ** np.maximum(places - distance - 1.0, 0.0), 0.0
    )
    inside = (places >= 0) & (places <= distance)
    found[inside] += within * near ** places[inside] / (near ** np.arange(distance + 1)).sum()
    found[distance + REACH] += stay
    return found if old >= 0 else found[::-1]


@pytest.mark.parametrize("law", PAIRS, ids=repr)
@pytest.mark.parametrize("old", [0, 1, -1, 2, 7, -12, 40])
def test_the_conditional_law_is_that_of_bayes(law: Coupling, old: int) -> None:
    """b^|y| · P(W = old - y), with W of the law whose characteristic function is the quotient, normalised."""
    a, b = math.exp(-1 / float(law.old)), math.exp(-1 / float(law.new))
    kept = (1 - a) ** 2 * b / ((1 - b) ** 2 * a)
    places = np.arange(-REACH, REACH + 1)
    step = (1 - kept) * (1 - a) / (1 + a) * a ** np.abs(old - places.astype(float)) + kept * (old == places)
    joint = geometric(law.new) * step
    assert joint.sum() == pytest.approx(geometric(law.old)[old + REACH], rel=1e-9)
    np.testing.assert_allclose(conditional(law, old), joint / geometric(law.old)[old + REACH], atol=1e-12)


@pytest.mark.parametrize("law", PAIRS, ids=repr)
def test_noise_that_is_refined_has_the_smaller_law(law: Coupling) -> None:
    """Σ P(V1 = v) P(V2 = y | V1 = v) is the geometric law of the new scale."""
    first = geometric(law.old)
    mixed = sum(
        (first[v + REACH] * conditional(law, v) for v in range(1 - REACH, REACH)),
        start=np.zeros(2 * REACH + 1),
    )
    some = slice(REACH - 10, REACH + 11)
    np.testing.assert_allclose(mixed[some], geometric(law.new)[some], atol=1e-9)


@pytest.mark.parametrize("law", PAIRS[:3], ids=repr)
@pytest.mark.parametrize("shift", [1, 2])
def test_both_answers_together_lose_as_much_as_the_second(law: Coupling, shift: int) -> None:
    """Over all pairs of answers near two exact values, the log ratio is at most shift / new, and attains it.

    Were the second drawn for itself, the pair would lose shift / old more.
    """
    worst = 0.0
    first = geometric(law.old)
    laws = {v: conditional(law, v) for v in range(-14, 15)}
    for one in range(-12, 13):
        for two in range(-12, 13):
            here = first[one + REACH] * laws[one][two + REACH]
            there = first[one - shift + REACH] * laws[one - shift][two - shift + REACH]
            worst = max(worst, abs(math.log(here / there)))
    assert worst == pytest.approx(shift / float(law.new), rel=1e-6)


def test_chances_are_floors_of_the_exact_ones() -> None:
    """200 binary digits of the chances of a pair, against 120 decimal digits of the formula."""
    law, distance, bits = Coupling(Fraction(7, 3), Fraction(2)), 5, 200
    with localcontext(prec=120):

        def power(exponent: Fraction) -> Decimal:
            return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()

        a, b = power(1 / law.old), power(1 / law.new)
        beta, gamma = b / a, a * b
        parts = (
            beta ** (distance + 1) * (1 - a * a),
            gamma * (1 - beta),
            beta**distance * gamma * (1 - beta),
        )
        expected = [int(sum(parts[: count + 1]) / (1 - b * b) * 2**bits) for count in range(len(parts))]
    assert list(law.compute_chance_thresholds(distance, bits)) == expected
    assert [chance >> 136 for chance in expected] == list(law.compute_chance_thresholds(distance))


def test_a_tie_is_carried_on() -> None:
    """A word that equals the first digits of a chance does not decide: the next ones do."""
    law = Coupling(Fraction(2), Fraction(1))
    tie = law.compute_chance_thresholds(3)[0]
    next_digits = law.compute_chance_thresholds(3, 128)[0] & (2**64 - 1)
    lower = law._draw_part(3, tie, ScriptedEntropy([next_digits - 1]))
    assert (lower, law._draw_part(3, tie, ScriptedEntropy([next_digits + 1]))) == (0, 1)


def test_signs_are_turned() -> None:
    """What is drawn from -v is minus what is drawn from v."""
    law, noise = Coupling(Fraction(30), Fraction(20)), list(range(1, 200))
    turned = law.refine([-each for each in noise], SeededEntropy(3))
    assert [-each for each in turned] == law.refine(noise, SeededEntropy(3))


@pytest.mark.parametrize(("old", "new"), [(1, 1), (1, 2), (1, 0), (1, -1)])
def test_noise_is_refined_to_less_alone(old: int, new: int) -> None:
    """Nothing is refined to as much noise or more."""
    with pytest.raises(InternalError, match="cannot be refined"):
        Coupling(Fraction(old), Fraction(new))


def test_wide_noise_and_small_steps_are_drawn() -> None:
    """Scales of 2^70 and losses that differ by a billionth part take no longer than others."""
    law = Coupling(Fraction(2**70), Fraction(2**70) * (1 - Fraction(1, 10**9)))
    assert law.refine([0, 2**71, -(2**75)], SeededEntropy(1))[1] == 2**71
