"""Private selections: the exponential mechanism, permute-and-flip, partition selection and above-threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

import numpy as np

from dpsql.errors import LossError
from dpsql.privacy.accounting.numerics import bound_exp
from dpsql.privacy.mechanisms.base import require_parameter, search_smallest
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.sampler import Coin, cache_for_release

# Private selection of one of many candidates by score: the exponential mechanism and permute-and-flip, exactly.


_WORD = 64
_MANY = 256
"""Candidates from which on floats are tried before exact arithmetic, which takes some 50 µs for each penalty."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Candidate i is chosen with probability proportional to weight[i] * exp(-`rate` * penalty[i]).

    `rate` is a loss for each step of the integer penalties. InternalError unless it is a positive Fraction.

    Claim: where a privacy unit moves the penalties of any two candidates apart by at most r steps, a choice
    has bounded range rate * r: it is (rate * r)-differentially private and ((rate * r)² / 8)-zCDP. The law
    is exact.
    Why: the ratio of a candidate's probabilities on neighbors is exp(-rate * change) over a factor that all
    share, so the logs of any two candidates' ratios lie within rate * r of each other. A uniform number is
    read bit by bit and compared with lower and upper bounds of the cumulated weights, which tighten until
    one candidate alone can hold it.
    Source: McSherry, Talwar 2007, "Mechanism design via differential privacy", Theorem 6; Dong, Durfee,
    Rogers 2020, "Optimal differential privacy composition for exponential mechanisms" (bounded range);
    Cesar, Rogers 2021, "Bounding, concentrating, and truncating", section 3 (its zCDP).

    >>> Exponential.calibrate(2, Fraction(1, 2))
    Exponential(rate=Fraction(1, 4))
    """

    tag: ClassVar[str] = "Exponential"
    name: ClassVar[str] = "exponential"

    rate: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.rate, 256, "rate")

    @classmethod
    def calibrate(cls, step_range: int, epsilon: Fraction) -> Exponential:
        """Return the mechanism with range `epsilon`, if a unit changes differences of penalties by at most `step_range`."""
        return cls(epsilon / step_range)

    def compute_range(self, step_range: int) -> Fraction:
        """Return the range of a choice, if a unit changes differences of penalties by at most that many steps."""
        return self.rate * step_range

    def describe(self) -> str:
        """Return the law in words.

        >>> Exponential(Fraction(1, 20)).describe()
        'exponential, rate 0.05'
        """
        return f"{self.name}, rate {float(self.rate):.6g}"

    def select_candidate(self, weights: Sequence[int], penalties: Sequence[int], entropy: Entropy) -> int:
        """Return the index of the chosen candidate; weights are 0 or more, and one at least is above 0."""
        least = min(penalty for weight, penalty in zip(weights, penalties, strict=True) if weight)
        steps = [penalty - least for penalty in penalties]
        prefix, bits, places = int(entropy.draw_words(1)[0]), _WORD, 40
        found = find_candidate_in_floats(self.rate, weights, steps, prefix) if len(weights) >= _MANY else None
        if found is not None:
            return found
        while True:
            found = self._find_decided_candidate(weights, steps, prefix, bits, places)
            if found is not None:
                return found
            prefix = prefix << _WORD | int(entropy.draw_words(1)[0])
            bits += _WORD
            places *= 2

    def _find_decided_candidate(
        self, weights: Sequence[int], steps: Sequence[int], prefix: int, bits: int, places: int
    ) -> int | None:
        """Return the candidate of all uniform numbers with these first bits; None where the bounds do not decide it."""
        bounds = [_bound_weight(self.rate, step, places) for step in steps]
        lows = _compute_cumulative_sums(
            weight * low for weight, (low, _) in zip(weights, bounds, strict=True)
        )
        highs = _compute_cumulative_sums(
            weight * high for weight, (_, high) in zip(weights, bounds, strict=True)
        )
        first, last = prefix * lows[-1], (prefix + 1) * highs[-1]
        for index, weight in enumerate(weights):
            if weight and highs[index] << bits <= first and last <= lows[index + 1] << bits:
                return index
        return None


@dataclass(frozen=True, slots=True)
class PermuteAndFlip:
    """Candidates come in a random order; the first is chosen whose coin, of probability exp(-`rate` * penalty), is heads.

    The penalty is that beyond the least one. InternalError unless the rate is a positive Fraction.

    Claim: where a privacy unit moves the penalties of any two candidates apart by at most r steps, a choice
    is (rate * r)-differentially private, and its candidate is never worse on average than that of the
    exponential mechanism at half the rate. The law is exact.
    Why: all penalties may be shifted by what the least of the changes is, so they change one way by at most
    r; then it is the monotone case.
    Source: McKenna, Sheldon 2020, "Permute-and-flip: a new mechanism for differentially private selection",
    Theorems 1 and 2.

    >>> PermuteAndFlip.calibrate(2, Fraction(1, 2))
    PermuteAndFlip(rate=Fraction(1, 4))
    """

    tag: ClassVar[str] = "PermuteAndFlip"
    name: ClassVar[str] = "permute-and-flip"

    rate: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.rate, 256, "rate")

    @classmethod
    def calibrate(cls, step_range: int, epsilon: Fraction) -> PermuteAndFlip:
        """Return the mechanism with loss `epsilon`, if a unit changes differences of penalties by at most `step_range`."""
        return cls(epsilon / step_range)

    def compute_range(self, step_range: int) -> Fraction:
        """Return the loss of a choice, if a unit changes differences of penalties by at most that many steps."""
        return self.rate * step_range

    def describe(self) -> str:
        """Return the law in words.

        >>> PermuteAndFlip(Fraction(1, 20)).describe()
        'permute-and-flip, rate 0.05'
        """
        return f"{self.name}, rate {float(self.rate):.6g}"

    def select_candidate(self, penalties: Sequence[int], entropy: Entropy) -> int:
        """Return the index of the chosen candidate, of one or more."""
        waiting, least = list(range(len(penalties))), min(penalties)
        while True:
            place = sample_uniform_index(len(waiting), entropy)
            index = waiting[place]
            if Coin(self.rate * (penalties[index] - least)).toss(entropy):
                return index
            waiting[place] = waiting[-1]
            waiting.pop()


def sample_uniform_index(size: int, entropy: Entropy) -> int:
    """Return one of 0 to size-1, each with the same probability; `size` is between 1 and 2**64.

    A word that would favor the first few of a last, incomplete lap is drawn again.
    """
    whole = (1 << _WORD) // size * size
    while (word := int(entropy.draw_words(1)[0])) >= whole:
        pass
    return word % size


def find_candidate_in_floats(
    rate: Fraction, weights: Sequence[int], steps: Sequence[int], word: int
) -> int | None:
    """Return the candidate of all uniform numbers whose first 64 bits are `word`, None where floats do not decide it.

    Claim: the result is that of exact arithmetic.
    Why: in double precision an exponent up to 745 is off by less than a part of 2^-50, so its exponential by less than
    2^-40 of itself, a weight by 2^-53, and a sum of n positive terms by n·2^-53: each cumulated weight is known to the
    part `margin`. Beyond that exponent all terms together are less than 2^-80 of the total, as the weight of the least
    penalty is 1 or more. A candidate is returned only if it holds the word whatever these errors are.
    Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 4.2 (error of a sum).
    """
    masses = np.array(weights, np.float64) * np.exp(-float(rate) * np.array(steps, np.float64))
    ends = np.cumsum(masses)
    total, margin = float(ends[-1]), 2.0**-39 + len(weights) * 2.0**-50
    least, most = word / 2**_WORD * total, (word + 1) / 2**_WORD * total
    index = int(np.searchsorted(ends, least, side="right"))
    if index == len(weights):
        return None
    low, high = (float(ends[index - 1]) if index else 0.0), float(ends[index])
    lost = total * 2.0**-80
    held = low * (1 + margin) + lost <= least * (1 - margin) and most * (1 + margin) + lost <= high * (
        1 - margin
    )
    return index if held else None


def _compute_cumulative_sums(values: Iterable[int]) -> list[int]:
    return list(accumulate(values, initial=0))


@cache_for_release
def _bound_weight(rate: Fraction, step: int, places: int) -> tuple[int, int]:
    """Bound exp(-rate * step) * 10**places by two integers; both are exact where nothing is lost."""
    return (10**places, 10**places) if step == 0 else bound_exp(rate * step, places)


# Optimal partition selection: whether a group is released, given how many units are in it, exactly.


ProbabilityBounds = tuple[Fraction, Fraction]
"""A lower and an upper bound of one number."""


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """A group of n units is released with probability p(n), which is as large as (ε, δ) allows from p(0) = 0 on.

    That is, p(n+1) is the least of e^ε·p(n) + δ, of 1 - e^-ε·(1 - p(n) - δ), and of 1.
    InternalError unless `epsilon` is a positive Fraction, LossError unless 0 < `delta` < 1.

    Claim: where one unit adds itself to n groups or leaves them, the tosses of all groups together are
    (nε, nδ)-differentially private: except for an event of probability at most nδ, they are nε-DP. No
    mechanism that is (ε, δ)-DP for one group releases it more often. The law is exact.
    Why: of two outcomes, released and withheld, the first two numbers are the most that (ε, δ) allows to either;
    the other direction holds because p grows. A pair of laws that is (ε, δ)-DP comes of one that tells with
    probability δ which of the two it is, and answers else by randomized response, which is ε-DP; of n tosses
    none tells with probability (1-δ)^n, and the losses of randomized responses add up. That event is what a
    `Selection` beside a `Pure` stands for.
    Up to the turn n₁, p(n) = δ·(e^nε - 1)/(e^ε - 1); from there on, m = n - n₁ further,
    p(n) = (1 - e^-mε)·(1 + δ/(e^ε - 1)) + e^-mε·p(n₁), at most 1. A uniform number is read bit by bit until it
    differs from p(n), of which bounds give as many digits as it takes.
    Source: Desfontaines, Voss, Gipson, Mandayam 2022, "Differentially private partition selection", Theorem 1;
    Kairouz, Oh, Viswanath 2015, "The composition theorem for differential privacy", section 3 (the pair).

    >>> rule = PartitionSelection(Fraction(1), Fraction(1, 10**6))
    >>> [f"{float(rule.bound_probability(units, 20)[0]):.4g}" for units in (0, 1, 2, 13, 14, 28)]
    ['0', '1e-06', '3.718e-06', '0.2575', '0.6999', '1']
    """

    tag: ClassVar[str] = "PartitionSelection"
    name: ClassVar[str] = "partition selection"

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.epsilon, 256, "loss")
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            raise LossError("the delta of a partition selection must lie between 0 and 1")

    def describe(self) -> str:
        """Return the law in words.

        >>> PartitionSelection(Fraction(1, 2), Fraction(1, 10**6)).describe()
        'partition selection, ε 0.5 and δ 1e-06 for each group'
        """
        return f"{self.name}, ε {float(self.epsilon):.6g} and δ {float(self.delta):.6g} for each group"

    def draw_selection(self, units: int, entropy: Entropy) -> bool:
        """Return whether a group of this many units is released: a Bernoulli draw that reads one word, and more only on a tie."""
        prefix, bits = int(entropy.draw_words(1)[0]), _WORD
        if units < 1:
            return False
        while prefix == (threshold := _compute_threshold(self, units, bits)):
            prefix = prefix << _WORD | int(entropy.draw_words(1)[0])
            bits += _WORD
        return prefix < threshold

    def compute_median_units(self) -> int:
        """Return the fewest units with which a group is released with probability 1/2 or more."""
        return search_smallest(lambda units: units > 0 and _compute_threshold(self, units, 1) >= 1)

    def bound_probability(self, units: int, places: int) -> ProbabilityBounds:
        """Bound of p(units), nearer to each other the more decimal `places` are asked for."""
        if units < 2:
            exact = self.delta if units == 1 else Fraction(0)
            return exact, exact
        places += len(str(int(1 / self.epsilon))) + 2 * len(str(int(1 / self.delta)))
        turn = _compute_turning_point(self)
        low, high = _bound_growth(self, min(units, turn), places)
        if units > turn:
            a, less = _bound_power(self, 1, places), _bound_power(self, units - turn, places)
            more = tuple(self.delta * one / (1 - one) for one in a)
            low = 1 + more[0] - less[1] * (1 + more[0] - low)
            high = 1 + more[1] - less[0] * (1 + more[1] - high)
        return max(Fraction(0), min(low, Fraction(1))), min(high, Fraction(1))


@cache_for_release
def _compute_threshold(rule: PartitionSelection, units: int, bits: int) -> int:
    """Return floor(p(units) * 2**bits), exactly.

    Unless p is 0, δ or 1, it is a rational function of e^(ε/q), ε having the denominator q, that is not constant;
    e^(ε/q) is transcendental (Lindemann), and so is p: bounds that tighten give one integer in the end.
    """
    places = bits // 3 + 20
    while True:
        low, high = rule.bound_probability(units, places)
        floor = (low.numerator << bits) // low.denominator
        if floor == (high.numerator << bits) // high.denominator:
            return floor
        places *= 2


@lru_cache(maxsize=256)
def _compute_turning_point(rule: PartitionSelection) -> int:
    """Return the last n that p grows to by the first of the three numbers.

    That is the lesser while p(n-1) is at most (1-δ)/(e^ε+1), which p(n-1) never is exactly.
    """

    def is_past_turning_point(units: int) -> bool:
        if not units:
            return False
        places = 40 + len(str(int(1 / rule.epsilon))) + 2 * len(str(int(1 / rule.delta)))
        while True:
            low, high = _bound_growth(rule, units, places)
            a = _bound_power(rule, 1, places)
            least, most = ((1 - rule.delta) * one / (1 + one) for one in a)
            if high <= least or low > most:
                return low > most
            places *= 2

    return search_smallest(is_past_turning_point)


def _bound_growth(rule: PartitionSelection, units: int, places: int) -> ProbabilityBounds:
    """Bound δ·(e^nε - 1)/(e^ε - 1), as δ·(1 - a^n)/(a^(n-1)·(1 - a)) with a = e^-ε; at most 1."""
    a, whole, less = (_bound_power(rule, times, places) for times in (1, units, units - 1))
    low = rule.delta * (1 - whole[1]) / (less[1] * (1 - a[0]))
    if less[0] == 0 or a[1] >= 1:
        return min(low, Fraction(1)), Fraction(1)
    return min(low, Fraction(1)), min(rule.delta * (1 - whole[0]) / (less[0] * (1 - a[1])), Fraction(1))


def _bound_power(rule: PartitionSelection, times: int, places: int) -> ProbabilityBounds:
    """Bound e^(-times·ε)."""
    if times == 0:
        return Fraction(1), Fraction(1)
    low, high = bound_exp(rule.epsilon * times, places)
    return Fraction(low, 10**places), Fraction(min(high, 10**places), 10**places)


# The sparse vector technique: find the first of a stream of scores above a threshold, for the loss of one answer.


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
