"""Selections of one of several candidates by score: exponential mechanism, permute-and-flip, report-noisy-max."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import BoundedRange, Pure
from dpsql.privacy.accounting.profiles import BoundedRangeProfile, Profile, PureProfile
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.library.base import (
    FINENESS,
    bound_steps_moved,
    compute_spacing,
    parse_exact_number,
    set_frozen_fields,
)
from dpsql.privacy.mechanisms.sampler import clear_cache
from dpsql.privacy.mechanisms.selection import Exponential, PermuteAndFlip

MOST_CANDIDATES = 10_000
_FINE = 1024
"""Steps in one scale of the noise of report-noisy-max."""
_NODES = 200
"""The points of the quadrature: exact for the polynomials of up to 400 candidates, and accurate beyond."""


class SelectionMechanism(ABC):
    """A selection of one candidate by `scores`, of which a high one is wanted.

    `sensitivity` is the most that one unit changes any score; `monotone` says that a unit changes all scores in one direction,
    as counts do under `add_remove`, which is worth half of the loss. Scores and sensitivity are exact: a float counts as the
    decimal that it is written as.

    The error is the score of the selected candidate less the highest one, so 0 or less.
    """

    __slots__ = ()

    name: ClassVar[str]
    scores: Sequence[Amount]
    epsilon: Amount
    sensitivity: Amount
    monotone: bool

    @abstractmethod
    def probabilities(self) -> Floats:
        """Return the chance of each candidate."""

    @abstractmethod
    def profile(self) -> Profile:
        """Return an upper bound of δ at each ε, over all scores."""

    @abstractmethod
    def event(self) -> Pure | BoundedRange:
        """Return the event that an accountant charges."""

    @abstractmethod
    def _select_candidate(self, entropy: Entropy) -> int: ...

    def sample(self, size: int = 1, *, entropy: Entropy | None = None) -> NDArray[np.int64]:
        """Return the indices of `size` independent selections. Each is a release of its own."""
        source = entropy or SystemEntropy()
        found = np.array([self._select_candidate(source) for _ in range(size)], np.int64)
        clear_cache()  # of what was computed from scores
        return found

    def release(self, *, entropy: Entropy | None = None) -> int:
        """Return the index of the selected candidate."""
        return int(self.sample(1, entropy=entropy)[0])

    @property
    def variance(self) -> float:
        """Return the variance of the selected candidate's score."""
        scores, chances = self._float_scores, self.probabilities()
        mean = float((scores * chances).sum())
        return float(((scores - mean) ** 2 * chances).sum())

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval that holds the error with that probability; its upper end is 0.

        DataError unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
        scores, chances = self._float_scores, self.probabilities()
        order = np.argsort(-scores, kind="stable")
        reached = int(np.searchsorted(np.cumsum(chances[order]), confidence * (1 - 1e-12)))
        worst = scores[order[min(reached, len(order) - 1)]]
        return float(worst - scores.max()), 0.0

    def shortfall(self, confidence: float) -> float:
        """Return how far below the highest score the selected one lies at most, with that probability, by the theorem.

        Claim: (2Δ/ε)·(ln(|R|/|R_opt|) + t) with probability 1 - e^-t, R_opt being the candidates with the highest score; half
        of that where scores are monotone.
        Source: McSherry, Talwar 2007, Theorem 6; Dwork, Roth 2014, Theorem 3.11; the permuted form is never worse (McKenna,
        Sheldon 2020, Theorem 2).
        """
        best = sum(score == max(self._exact_scores) for score in self._exact_scores)
        depth = math.log(len(self._exact_scores) / best) - math.log1p(-confidence)
        return float(1 / self._rate) * depth

    @property
    def _exact_scores(self) -> list[Fraction]:
        return [Fraction(score) for score in self.scores]

    @property
    def _float_scores(self) -> Floats:
        return np.array([float(score) for score in self._exact_scores])

    @property
    def _rate(self) -> Fraction:
        """ε/2Δ, or ε/Δ."""
        return parse_amount(self.epsilon) / (parse_amount(self.sensitivity) * (1 if self.monotone else 2))

    @property
    def _penalties(self) -> tuple[list[int], Fraction]:
        """Return the distances of the scores from the highest, as whole multiples of a unit, and that unit."""
        unit = Fraction(1, math.lcm(*(score.denominator for score in self._exact_scores)))
        best = max(self._exact_scores)
        return [int((best - score) / unit) for score in self._exact_scores], unit

    def _normalize_fields(self) -> None:
        if not 1 <= len(self.scores) <= MOST_CANDIDATES:
            raise LossError(
                f"a selection must have 1 to {MOST_CANDIDATES:,} candidates, not {len(self.scores):,}"
            )
        set_frozen_fields(
            self,
            scores=tuple(parse_exact_number(score) for score in self.scores),
            epsilon=parse_amount(self.epsilon),
            sensitivity=parse_amount(self.sensitivity, "sensitivity"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialMechanism(SelectionMechanism):
    """A candidate is selected with probability proportional to e^(ε·score/2Δ), or e^(ε·score/Δ) where scores are monotone.

    Claim: ε-DP, and (ε²/8)-zCDP, as its range is ε. The profile is the largest of any selection of that range.
    Why: the score and the normalizer each change by at most e^(ε/2); see `Exponential`.
    Source: McSherry, Talwar 2007, "Mechanism design via differential privacy"; Cesar, Rogers 2021 (its zCDP).

    >>> auction = ExponentialMechanism(scores=[3, 3, 3.1, 0], epsilon=2, sensitivity=3.1)
    >>> [round(float(chance), 3) for chance in auction.probabilities()]
    [0.293, 0.293, 0.303, 0.111]
    """

    name: ClassVar[str] = "exponential"

    scores: Sequence[Amount]
    epsilon: Amount
    sensitivity: Amount = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        self._normalize_fields()

    def probabilities(self) -> Floats:
        """Return the chance of each candidate."""
        weights: Floats = np.exp(float(self._rate) * (self._float_scores - self._float_scores.max()))
        found: Floats = weights / weights.sum()
        return found

    def profile(self) -> BoundedRangeProfile:
        """Return the profile of any selection with range ε."""
        return BoundedRangeProfile(parse_amount(self.epsilon))

    def event(self) -> BoundedRange:
        """Return `BoundedRange(epsilon)`."""
        return BoundedRange(parse_amount(self.epsilon))

    def _select_candidate(self, entropy: Entropy) -> int:
        penalties, unit = self._penalties
        return Exponential(self._rate * unit).select_candidate([1] * len(penalties), penalties, entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermuteAndFlipMechanism(SelectionMechanism):
    """Candidates come in a random order, and the first is selected whose coin, of probability e^(-ε·(best - score)/2Δ), is heads.

    Claim: ε-DP; the expected score is never below that of the exponential mechanism at the same ε. It is report-noisy-max with
    one-sided exponential noise of scale 2Δ/ε.
    Why: see `PermuteAndFlip`.
    Source: McKenna, Sheldon 2020, "Permute-and-flip: a new mechanism for differentially private selection"; Ding, Kifer, Sayed,
    Steinke, Wang, Xiao, Zhang 2021, "The permute-and-flip mechanism is identical to report-noisy-max with exponential noise".

    >>> flip = PermuteAndFlipMechanism(scores=[3, 0], epsilon=1)
    >>> [round(float(chance), 3) for chance in flip.probabilities()]
    [0.888, 0.112]
    """

    name: ClassVar[str] = "permute-and-flip"

    scores: Sequence[Amount]
    epsilon: Amount
    sensitivity: Amount = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        self._normalize_fields()

    def probabilities(self) -> Floats:
        """Return the chance of each candidate, integrated.

        Why: candidate i wins the noisy maximum where e_i + q_i is above all others; with u = e^-noise that is the integral over
        u in (0, 1) of the product over j != i of (1 - min(1, u·p_j/p_i)), p being the coins' chances; a best one has p = 1.
        """
        coins: Floats = np.exp(float(self._rate) * (self._float_scores - self._float_scores.max()))
        nodes, weights = _compute_gauss_nodes()
        found = np.zeros(len(coins))
        for index, coin in enumerate(coins):
            # In t = u/p_i the product changes its form where t·p_j = 1, which is beyond the interval (0, 1] for all p_j <= 1.
            t = (nodes + 1) / 2
            others = np.delete(coins, index)
            found[index] = coin * (weights / 2 * np.prod(1 - np.outer(others, t), axis=0)).sum()
        return found

    def profile(self) -> PureProfile:
        """Return the profile of any ε-DP release."""
        return PureProfile(parse_amount(self.epsilon))

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def _select_candidate(self, entropy: Entropy) -> int:
        penalties, unit = self._penalties
        return PermuteAndFlip(self._rate * unit).select_candidate(penalties, entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNoisyMax(SelectionMechanism):
    """The candidate whose score with two-sided geometric noise of scale 2Δ/ε, or Δ/ε where monotone, is the highest.

    Scores are rounded to a lattice of steps that Δ and ε alone decide, a scale/1024 or finer; of equal noisy scores the first wins.

    Claim: ε-DP.
    Why: given the others' noise, candidate i wins if its noise reaches a threshold, which a unit moves by at most 2·⌈Δ/step⌉ steps
    (its own score by half of that, the others' by the other half), or by ⌈Δ/step⌉ where all move in one direction, which rounding
    keeps; and P(noise >= t) falls by at most e^(move/scale). The lattice must not follow the scores: two neighbors' noise would
    have two laws. Noisy scores must not be shown: only the index is released.
    Source: Dwork, Roth 2014, Claim 3.9.

    >>> noisy = ReportNoisyMax(scores=[3, 0], epsilon=1)
    >>> [round(float(chance), 2) for chance in noisy.probabilities()]
    [0.8, 0.2]
    """

    name: ClassVar[str] = "report-noisy-max"

    scores: Sequence[Amount]
    epsilon: Amount
    sensitivity: Amount = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        self._normalize_fields()

    @property
    def _noise(self) -> tuple[list[int], Geometric]:
        """Return the distances of the scores from the highest, in lattice steps, and the law of the noise in these steps."""
        finest = 1 / self._rate / _FINE
        step = compute_spacing(None, finest * FINENESS)
        moved = bound_steps_moved(parse_amount(self.sensitivity), step) * (1 if self.monotone else 2)
        places = [math.floor(score / step + Fraction(1, 2)) for score in self._exact_scores]
        best = max(places)
        return [best - place for place in places], Geometric.calibrate(
            Fraction(moved), parse_amount(self.epsilon)
        )

    def probabilities(self) -> Floats:
        """Return the chance of each candidate, summed over the noise of the winner."""
        penalties, law = self._noise
        scale = float(law.scale)
        reach = math.ceil(45 * scale)
        k = np.arange(-reach, reach + 1, dtype=np.float64)
        ratio = math.exp(-1 / scale)

        def compute_noise_cdf(t: Floats) -> Floats:
            """Return P(noise <= t)."""
            side = np.exp(-np.where(t >= 0, t + 1, -t) / scale) / (1 + ratio)
            found: Floats = np.where(t >= 0, 1 - side, side)
            return found

        mass = (1 - ratio) / (1 + ratio) * np.exp(-np.abs(k) / scale)
        found = np.zeros(len(penalties))
        for index, penalty in enumerate(penalties):
            won = mass.copy()
            for other, behind in enumerate(penalties):
                if other != index:
                    lead = float(behind - penalty)
                    won *= compute_noise_cdf(k + lead - (1 if other < index else 0))
            found[index] = won.sum()
        return found

    def profile(self) -> PureProfile:
        """Return the profile of any ε-DP release."""
        return PureProfile(parse_amount(self.epsilon))

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def _select_candidate(self, entropy: Entropy) -> int:
        penalties, law = self._noise
        noisy = [
            noise - penalty
            for noise, penalty in zip(law.draw(len(penalties), entropy), penalties, strict=True)
        ]
        return noisy.index(max(noisy))


@lru_cache(maxsize=1)
def _compute_gauss_nodes() -> tuple[Floats, Floats]:
    """Return the points and weights of Gauss-Legendre quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights
