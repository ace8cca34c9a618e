"""Optimal partition selection: whether a group is released, given how many units are in it, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from dpsql.errors import LossError
from dpsql.privacy.mechanisms.base import require_parameter, search_smallest
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.exponentials import bound_exp
from dpsql.privacy.mechanisms.release_cache import cache_for_release

_WORD = 64
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
