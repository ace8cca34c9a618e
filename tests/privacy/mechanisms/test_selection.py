"""The exponential mechanism has its exact law, and the loss that it claims."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpsql.errors import InternalError
from dpsql.privacy.accounting import BoundedRange
from dpsql.privacy.accounting.accountants import ZcdpAccountant
from dpsql.privacy.mechanisms import Exponential, PermuteAndFlip
from dpsql.privacy.mechanisms.selection import find_candidate_in_floats
from tests.entropy import ScriptedEntropy, SeededEntropy

ALL_ONES = 2**64 - 1


def law(mechanism: Exponential, weights: list[int], penalties: list[int]) -> list[float]:
    """The probabilities by their formula."""
    rate = float(mechanism.rate)
    least = min(penalties)
    masses = [
        weight * math.exp(-rate * (penalty - least))
        for weight, penalty in zip(weights, penalties, strict=True)
    ]
    return [mass / math.fsum(masses) for mass in masses]


@pytest.mark.parametrize(
    ("rate", "weights", "penalties"),
    [
        ("1/2", [1, 1, 1], [0, 1, 2]),
        ("1/10", [5, 0, 1, 30], [3, 0, 7, 20]),
        ("3", [1, 10**9, 1], [0, 7, 1]),
        ("1/1000", [1], [5]),
    ],
)
def test_choices_follow_the_law(rate: str, weights: list[int], penalties: list[int]) -> None:
    """20,000 choices are as often what the formula says; what has no weight is never chosen."""
    mechanism, entropy = Exponential(Fraction(rate)), SeededEntropy(7)
    chosen = [mechanism.select_candidate(weights, penalties, entropy) for _ in range(20_000)]
    counted = np.bincount(chosen, minlength=len(weights))
    expected = np.array(law(mechanism, weights, penalties)) * len(chosen)
    there = expected > 0
    assert not counted[~there].any()
    assert there.sum() == 1 or stats.chisquare(counted[there], expected[there]).pvalue > 1e-6


def test_a_tie_reads_on() -> None:
    """Where the first word does not decide, the next ones do, and the candidates' places are exact."""
    mechanism = Exponential(Fraction(1))
    # Two equal candidates part the line at one half: the words say on which side of it.
    assert mechanism.select_candidate([1, 1], [0, 0], ScriptedEntropy([2**63])) == 1
    assert mechanism.select_candidate([1, 1], [0, 0], ScriptedEntropy([2**63 - 1])) == 0
    # Of three, one third has no last binary digit: 0101… twice is not yet decided, 1 after it is.
    third = ALL_ONES // 3
    assert mechanism.select_candidate([1, 2], [0, 0], ScriptedEntropy([third, third, 0])) == 0
    assert mechanism.select_candidate([1, 2], [0, 0], ScriptedEntropy([third, third + 1])) == 1
    # The far end of the last candidate, next to which the total is not known well enough at first.
    assert mechanism.select_candidate([1, 1], [0, 1], ScriptedEntropy([ALL_ONES, ALL_ONES, 0])) == 1


@given(
    st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 10**6)), min_size=1, max_size=40),
    st.fractions(Fraction(1, 10**4), Fraction(2)),
    st.integers(0, ALL_ONES),
    st.integers(-4_000, 4_000) | st.integers(-(2**30), 2**30),
    st.integers(0, 39),
)
def test_floats_decide_as_exact_arithmetic_does(
    given_: list[tuple[int, int]], rate: Fraction, word: int, beside: int, near: int
) -> None:
    """What floats decide is what the exact bounds decide, also for words next to where two candidates meet."""
    weights = [1 + given_[0][0], *(weight for weight, _ in given_[1:])]
    steps = [0, *(step for _, step in given_[1:])]
    mechanism = Exponential(rate)
    border = sum(law(mechanism, weights, steps)[: near % len(weights) + 1])
    for each in (word, min(ALL_ONES, max(0, int(border * 2**64) + beside))):
        found = find_candidate_in_floats(rate, weights, steps, each)
        assert found is None or found == mechanism._find_decided_candidate(weights, steps, each, 64, 60)


def test_floats_decide_nearly_always() -> None:
    """Of 2,000 words none is left to exact arithmetic among a thousand candidates of a wide lattice."""
    entropy, weights, steps = SeededEntropy(3), [1, 2**40] * 500, list(range(1000))
    words = [int(word) for word in entropy.draw_words(2_000)]
    assert None not in {find_candidate_in_floats(Fraction(1, 50), weights, steps, word) for word in words}


PENALTIES = st.lists(st.integers(0, 20), min_size=2, max_size=5)


@given(
    PENALTIES,
    st.lists(st.integers(-3, 3), min_size=5, max_size=5),
    st.fractions(Fraction(1, 50), Fraction(1)),
)
def test_the_loss_is_as_claimed(penalties: list[int], moves: list[int], rate: Fraction) -> None:
    """Neighbours' logs lie within the range, and every Rényi divergence within what zCDP is charged."""
    other = [penalty + move for penalty, move in zip(penalties, moves, strict=False)]
    changes = [b - a for a, b in zip(penalties, other, strict=True)]
    steps = max(changes) - min(changes)
    mechanism, weights = Exponential(rate), [1] * len(penalties)
    p, q = (np.array(law(mechanism, weights, each)) for each in (penalties, other))
    losses = np.log(p) - np.log(q)
    assert losses.max() - losses.min() <= float(mechanism.compute_range(steps)) + 1e-9
    assert abs(losses).max() <= float(mechanism.compute_range(steps)) + 1e-9
    if steps:
        rho = float(
            ZcdpAccountant().compute_charge(BoundedRange(mechanism.compute_range(steps))).loss_fraction
        )
        for order in (1.01, 1.5, 2, 5, 30, 200):
            divergence = special.logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1)
            assert divergence <= rho * order + 1e-9


def flipped(rate: float, penalties: list[int]) -> list[float]:
    """The probabilities of permute-and-flip, over all orders of the candidates."""
    found = [0.0] * len(penalties)
    orders = list(permutations(range(len(penalties))))
    for order in orders:
        left = 1 / len(orders)
        for index in order:
            kept = math.exp(-rate * (penalties[index] - min(penalties)))
            found[index] += left * kept
            left *= 1 - kept
    return found


@pytest.mark.parametrize("penalties", [[0, 1, 2], [3, 3], [5], [-2, 0, 0, 7]], ids=str)
def test_flips_follow_the_law(penalties: list[int]) -> None:
    """20,000 choices are as often what all orders together say."""
    mechanism, entropy = PermuteAndFlip(Fraction(1, 2)), SeededEntropy(11)
    chosen = [mechanism.select_candidate(penalties, entropy) for _ in range(20_000)]
    expected = np.array(flipped(0.5, penalties)) * len(chosen)
    counted = np.bincount(chosen, minlength=len(penalties))
    assert len(penalties) == 1 or stats.chisquare(counted, expected).pvalue > 1e-6


@given(PENALTIES, st.lists(st.integers(-3, 3), min_size=5, max_size=5))
def test_flips_lose_as_much_as_claimed(penalties: list[int], moves: list[int]) -> None:
    """No candidate is more likely by more than the rate for each step that penalties move apart."""
    other = [penalty + move for penalty, move in zip(penalties, moves, strict=False)]
    changes = [b - a for a, b in zip(penalties, other, strict=True)]
    mechanism = PermuteAndFlip(Fraction(1, 3))
    loss = float(mechanism.compute_range(max(changes) - min(changes)))
    for ours, theirs in zip(flipped(1 / 3, penalties), flipped(1 / 3, other), strict=True):
        assert abs(math.log(ours / theirs)) <= loss + 1e-9


@given(PENALTIES)
def test_flips_are_never_worse(penalties: list[int]) -> None:
    """On average no worse than the exponential mechanism of the same loss, at half the rate."""
    ours = flipped(1 / 2, penalties)
    theirs = law(Exponential(Fraction(1, 4)), [1] * len(penalties), penalties)
    assert np.dot(ours, penalties) <= np.dot(theirs, penalties) + 1e-9


def test_calibration_is_exact() -> None:
    """The range is the loss that was asked for; no rate is no mechanism."""
    assert Exponential.calibrate(7, Fraction(1, 3)).compute_range(7) == Fraction(1, 3)
    with pytest.raises(InternalError):
        Exponential(Fraction(0))
    with pytest.raises(InternalError):
        PermuteAndFlip(Fraction(0))
