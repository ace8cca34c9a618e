"""The sparse vector technique has its loss, exactly, and the variants that are known to fail do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from dpsql.privacy.mechanisms import Geometric
from dpsql.privacy.mechanisms.selection import AboveThreshold
from tests.entropy import SeededEntropy

MADE = AboveThreshold.calibrate(3, 1, Fraction(1))
REACH = 120


def pmf(law: Geometric) -> np.ndarray:
    """The probabilities of -REACH to REACH."""
    rate = math.exp(-1 / float(law.scale))
    return (1 - rate) / (1 + rate) * rate ** np.abs(np.arange(-REACH, REACH + 1))


def at_least(law: Geometric) -> np.ndarray:
    """P(draw >= t) for t from -REACH to REACH."""
    return np.cumsum(pmf(law)[::-1])[::-1]


def probability(
    scores: Sequence[int], above: Sequence[bool], made: AboveThreshold, *, quiet: bool = False
) -> float:
    """That these answers are given to these scores, summed over the noise of the threshold; `quiet`: scores have none."""
    near, reached = pmf(made.near), at_least(made.far)
    places = np.arange(-REACH, REACH + 1)
    total = near.copy()
    for score, answer in zip(scores, above, strict=True):
        gap = np.clip(made.threshold + places - score, -REACH, REACH)
        found = (gap <= 0).astype(float) if quiet else reached[gap + REACH]
        total = total * (found if answer else 1 - found)
    return float(total.sum())


def test_the_loss_is_as_claimed() -> None:
    """Of all answers up to the first "above", over neighbours that move each score by at most 1, as they like."""
    worst = 0.0
    for length in (1, 2, 3):
        answers = [[False] * (length - 1) + [True], [False] * length]
        for scores in itertools.product((0, 3, 9), repeat=length):
            for moves in itertools.product((-1, 0, 1), repeat=length):
                other = [score + move for score, move in zip(scores, moves, strict=True)]
                for answer in answers:
                    ratio = math.log(probability(scores, answer, MADE) / probability(other, answer, MADE))
                    worst = max(worst, abs(ratio))
    assert 0.5 < worst <= float(MADE.compute_epsilon(1)) + 1e-9
    assert MADE.compute_epsilon(1) == 1


def test_above_threshold_follows_its_law() -> None:
    """3,000 first answers are as often "above" as the sum says."""
    entropy = SeededEntropy(2)
    for score in (0, 5):
        found = (
            sum(
                MADE.is_above_threshold(score, MADE.draw_noisy_threshold(entropy), entropy)
                for _ in range(3_000)
            )
            / 3_000
        )
        assert abs(found - probability([score], [True], MADE)) < 5 / math.sqrt(4 * 3_000)


@pytest.mark.parametrize("pairs", [3, 30])
def test_a_threshold_that_is_kept_tells_more_with_each_score_above(pairs: int) -> None:
    """The variant that goes on with the same noisy threshold loses more with each further "above", without end."""
    scores, other, answers = [0, 6] * pairs, [1, 5] * pairs, [False, True] * pairs
    lost = math.log(probability(scores, answers, MADE) / probability(other, answers, MADE))
    assert lost > (5 if pairs > 3 else 0.5) * float(MADE.compute_epsilon(1))


def test_scores_without_noise_tell_everything() -> None:
    """The variant without noise for each score gives answers that are impossible on a neighbour: no ε holds."""
    assert probability([3, 4], [False, True], MADE, quiet=True) > 0.01
    assert probability([4, 3], [False, True], MADE, quiet=True) == 0


def test_the_noisy_score_must_not_be_shown() -> None:
    """The variant that shows the noisy score that was above: with each "below" before it, it says more of the threshold."""
    near, reached = pmf(MADE.near), at_least(MADE.far)
    places = np.arange(-REACH, REACH + 1)

    def shown(below: Sequence[int], score: int, value: int) -> float:
        total = near * (MADE.threshold + places <= value)
        for each in below:
            total = total * (1 - reached[np.clip(MADE.threshold + places - each, -REACH, REACH) + REACH])
        return math.log(float(total.sum())) - abs(value - score) / float(MADE.far.scale)

    # Many scores that were below a threshold which is at most the low value that is shown.
    lost = shown([2] * 60, 3, -10) - shown([3] * 60, 4, -10)
    assert abs(lost) > 2 * float(MADE.compute_epsilon(1))
