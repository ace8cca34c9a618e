"""The sparse vector technique: find the first of a stream of scores above a threshold, for the loss of one answer."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.geometric import Geometric


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """The test of each score against the `threshold`, both with noise, until one is above it.

    The noise of the threshold, `near`, is drawn once by `draw_noisy_threshold`; that of a score, `far`, for each score anew. Scores are whole
    numbers, and may be chosen after the answers before.

    Claim: with scores that one unit changes by at most d, all answers up to the first "above" together are
    (d/near.scale + 2d/far.scale)-DP, however many there are; a second one after it would cost as much again.
    Why: let the threshold's noise be larger by d for the neighbor, at the price of the first term. Then each score below the
    threshold is still below it, with its own noise unchanged, and the one above is above it with noise that is larger by 2d, at
    the price of the second. Noise of each score is needed, the noise of the threshold must be new after each "above", and the
    noisy score must not be shown: without any of these the claim is wrong.
    Source: Dwork, Roth 2014, Theorem 3.23; Lyu, Su, Li 2017, "Understanding the sparse vector technique for differential
    privacy", Theorem 2 and section 3 (the variants that fail).

    >>> AboveThreshold(100, Geometric(Fraction(10)), Geometric(Fraction(20))).compute_epsilon(1)
    Fraction(1, 5)
    """

    tag: ClassVar[str] = "AboveThreshold"
    name: ClassVar[str] = "above threshold"

    threshold: int
    near: Geometric
    far: Geometric

    @classmethod
    def calibrate(cls, threshold: int, sensitivity: int, epsilon: Fraction) -> AboveThreshold:
        """Return the mechanism with loss `epsilon`: two fifths of it for the threshold.

        Source: Lyu, Su, Li 2017, section 4.2: the sum of the noises has the least variance at 1 to 2^(2/3).
        """
        part = epsilon * 2 / 5
        return cls(
            threshold,
            Geometric.calibrate(Fraction(sensitivity), part),
            Geometric.calibrate(Fraction(2 * sensitivity), epsilon - part),
        )

    def compute_epsilon(self, sensitivity: int | Fraction) -> Fraction:
        """Return the loss of all answers up to the first "above", where a unit changes scores by at most that much."""
        return self.near.compute_epsilon(Fraction(sensitivity)) + self.far.compute_epsilon(
            Fraction(2 * sensitivity)
        )

    def draw_noisy_threshold(self, entropy: Entropy) -> int:
        """Return the noisy threshold, which is not shown."""
        (noise,) = self.near.draw(1, entropy)
        return self.threshold + noise

    def is_above_threshold(self, score: int, noisy_threshold: int, entropy: Entropy) -> bool:
        """Return whether a score with noise reaches the noisy threshold."""
        (noise,) = self.far.draw(1, entropy)
        return score + noise >= noisy_threshold

    def describe(self) -> str:
        """Return the laws in words."""
        return f"above {self.threshold}, {self.near.describe()} on it and {self.far.describe()} on each score"
