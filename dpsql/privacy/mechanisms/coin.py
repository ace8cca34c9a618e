"""Bernoulli draws with probability exp(-x), exactly, though it is irrational.

The uniform number behind a toss is read lazily, a word at a time, and compared with as many binary
digits of the probability; the toss is decided at the first place where they differ. Nothing is rounded,
and nearly always the first word decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, floor

from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.exponentials import bound_exp
from dpsql.privacy.mechanisms.release_cache import cache_for_release

_WORD = 64
_FEW = 24  # digits that a float may decide
_FLOAT_MOST = 700  # beyond, exp overflows
_MARGIN = 2.0**-40  # see `_find_float_threshold`


@dataclass(frozen=True, slots=True)
class Coin:
    """Heads with probability p = exp(-`exponent`) or, if `as_odds`, with odds exp(-`exponent`) : 1.

    As odds, p = 1 / (1 + exp(`exponent`)). The exponent is any rational >= 0.
    """

    exponent: Fraction
    as_odds: bool = False

    def compute_threshold(self, bits: int) -> int:
        """Return floor(p * 2**bits), exactly.

        >>> Coin(Fraction(1)).compute_threshold(10)
        376
        """
        return _compute_threshold(self.exponent, self.as_odds, bits)

    def settle_toss(self, prefix: int, bits: int, entropy: Entropy) -> bool:
        """Return the toss, given that the first `bits` binary digits of its uniform number are `prefix`."""
        while prefix == (threshold := self.compute_threshold(bits)):
            prefix = prefix << _WORD | int(entropy.draw_words(1)[0])
            bits += _WORD
        return prefix < threshold

    def toss(self, entropy: Entropy) -> bool:
        """Return True with probability p."""
        return self.settle_toss(0, 0, entropy)


def _find_float_threshold(exponent: Fraction, as_odds: bool, bits: int) -> int | None:
    """As `_compute_threshold`, if a float surely decides it; else None. The exponent is above 0.

    Claim: the result is floor(p * 2**bits).
    Why: 1 - exp(-x) is below x, and 1/2 - 1/(1 + exp(x)) below x/4, both above 0; where that is less than one unit, the
    threshold is the last number before the whole, or the half. Else rounding x moves p by at most x * exp(-x) * 2**-53, and the functions
    by a few units in the last place: less than 2**-50 together, and `_MARGIN` is 1,000 times as much.
    """
    if bits and exponent.numerator << bits < exponent.denominator << 2 * as_odds:
        return ((1 << bits) >> as_odds) - 1
    if bits > _FEW or exponent > _FLOAT_MOST:
        return None
    x = float(exponent)
    scaled = (1 / (1 + exp(x)) if as_odds else exp(-x)) * 2.0**bits
    rest = scaled - floor(scaled)
    return floor(scaled) if _MARGIN * 2.0**bits < rest < 1 - _MARGIN * 2.0**bits else None


@cache_for_release
def _compute_threshold(exponent: Fraction, as_odds: bool, bits: int) -> int:
    """Return floor(p * 2**bits), from bounds on exp(-exponent) that tighten until both give one integer.

    They do in the end: unless the exponent is zero, p is transcendental (Lindemann), so p * 2**bits lies
    strictly between two integers.
    """
    odds = int(as_odds)
    if not exponent:
        return (1 << bits) >> odds
    found = _find_float_threshold(exponent, as_odds, bits)
    if found is not None:
        return found
    places = bits // 3 + 20
    while True:
        unit: int = 10**places
        low, high = bound_exp(exponent, places)
        floor = (low << bits) // (unit + odds * low)
        if floor == (high << bits) // (unit + odds * high):
            return floor
        places *= 2
