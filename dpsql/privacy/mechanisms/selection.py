"""Private selection of one of many candidates by score: the exponential mechanism and permute-and-flip, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import ClassVar

import numpy as np

from dpsql.privacy.mechanisms.base import require_parameter
from dpsql.privacy.mechanisms.coin import Coin
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.exponentials import bound_exp
from dpsql.privacy.mechanisms.release_cache import cache_for_release

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

    A word that would favour the first few of a last, incomplete lap is drawn again.
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
