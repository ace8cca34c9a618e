"""The exponential mechanism has its exact law, and the loss that it claims."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpsql.accounting import BoundedRange
from dpsql.accounting.accountants import ZcdpAccountant
from dpsql.errors import InternalError
from dpsql.mechanisms import Exponential
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
    chosen = [mechanism.choose(weights, penalties, entropy) for _ in range(20_000)]
    counted = np.bincount(chosen, minlength=len(weights))
    expected = np.array(law(mechanism, weights, penalties)) * len(chosen)
    there = expected > 0
    assert not counted[~there].any()
    assert there.sum() == 1 or stats.chisquare(counted[there], expected[there]).pvalue > 1e-6


def test_a_tie_reads_on() -> None:
    """Where the first word does not decide, the next ones do, and the candidates' places are exact."""
    mechanism = Exponential(Fraction(1))
    # Two equal candidates part the line at one half: the words say on which side of it.
    assert mechanism.choose([1, 1], [0, 0], ScriptedEntropy([2**63])) == 1
    assert mechanism.choose([1, 1], [0, 0], ScriptedEntropy([2**63 - 1])) == 0
    # Of three, one third has no last binary digit: 0101… twice is not yet decided, 1 after it is.
    third = ALL_ONES // 3
    assert mechanism.choose([1, 2], [0, 0], ScriptedEntropy([third, third, 0])) == 0
    assert mechanism.choose([1, 2], [0, 0], ScriptedEntropy([third, third + 1])) == 1
    # The far end of the last candidate, next to which the total is not known well enough at first.
    assert mechanism.choose([1, 1], [0, 1], ScriptedEntropy([ALL_ONES, ALL_ONES, 0])) == 1


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
    assert losses.max() - losses.min() <= float(mechanism.range(steps)) + 1e-9
    assert abs(losses).max() <= float(mechanism.range(steps)) + 1e-9
    if steps:
        rho = float(ZcdpAccountant().cost(BoundedRange(mechanism.range(steps))).loss_fraction)
        for order in (1.01, 1.5, 2, 5, 30, 200):
            divergence = special.logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1)
            assert divergence <= rho * order + 1e-9


def test_calibration_is_exact() -> None:
    """The range is the loss that was asked for; no rate is no mechanism."""
    assert Exponential.calibrate(7, Fraction(1, 3)).range(7) == Fraction(1, 3)
    with pytest.raises(InternalError):
        Exponential(Fraction(0))
