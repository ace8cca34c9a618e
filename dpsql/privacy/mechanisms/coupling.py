"""The coupling of two-sided geometric noise with noise of a smaller scale, for gradual release."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.exponentials import bound_exp
from dpsql.privacy.mechanisms.release_cache import cache_for_release
from dpsql.privacy.mechanisms.sampler import sample_two_sided_geometric

_WORD = 64


@dataclass(frozen=True, slots=True)
class Coupling:
    """Two-sided geometric noise of the scale `old`, and of the smaller scale `new` for the same exact value.

    InternalError unless 0 < new < old.

    Claim: let V1 be noise of the law Geometric(old), and V2 drawn by `refine` from V1. Then V2 has the law
    Geometric(new), and V1 - V2 is independent of V2. So V1 added to exact integers X is a post-processing of V2
    added to them: a release of X + V1 followed by one of X + V2, drawn once, costs what X + V2 costs alone.
    Why: write a = exp(-1/old), b = exp(-1/new), b < a, and D(r) = |1 - r·e^it|² = 1 + r² - 2r·cos t, so that the
    characteristic function of ratio r is (1-r)²/D(r). Taking cos t from D(a) gives
    D(b) = (b/a)·D(a) + (a-b)(1-ab)/a, and the quotient of the characteristic functions of V1 and V2 is

        (1-a)²·D(b) / ((1-b)²·D(a)) = w + (1-w)·(1-a)²/D(a),   w = (1-a)²·b / ((1-b)²·a), 0 < w < 1,

    that of a W which is 0 with chance w, and else of the law of V1. So V1 = V2 + W with W independent of V2 has
    the law of V1, and `refine` draws from the law of V2 given V1 = v: by Bayes the chance of y is in proportion to
    b^|y|·(w·[y = v] + (1-w)·(1-a)/(1+a)·a^|v-y|). For v >= 0, with β = b/a and γ = ab, it adds up over
    four parts, of which the chances are, over 1-b²,

        y = v by W = 0: β^(v+1)·(1-a²),    y < 0: γ·(1-β),    y > v: β^v·γ·(1-β),    0..v: (1-γ)·(1-β^(v+1)).

    Below 0 and beyond v the distance is geometric of ratio γ; within 0..v, y is geometric of ratio β taken modulo
    v+1. For v < 0 signs are turned, as both laws are symmetric.
    Source: Koufogiannis, Han, Pappas 2016, "Gradual release of sensitive data under differential privacy",
    Theorem 5 (the continuous law); the discrete law is derived above.

    >>> law = Coupling(Fraction(10), Fraction(5))
    >>> round(law.compute_chance_thresholds(0)[0] / 2**64, 6)  # of V1 = 0: it is kept about half of the time
    0.49751
    """

    old: Fraction
    new: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.new < self.old:
            raise InternalError(f"noise of scale {self.old} cannot be refined to scale {self.new}")

    def refine(self, noise: Sequence[int], entropy: Entropy) -> list[int]:
        """Return a draw of V2 for each V1, independent of the others."""
        parts = [
            self._draw_part(abs(old), int(word), entropy)
            for old, word in zip(noise, entropy.draw_words(len(noise)), strict=True)
        ]
        near = _draw_magnitudes(1 / (1 / self.new - 1 / self.old), len(noise), entropy)
        far = _draw_magnitudes(1 / (1 / self.new + 1 / self.old), len(noise), entropy)
        return [
            self._place_draw(old, part, inner, outer)
            for old, part, inner, outer in zip(noise, parts, near, far, strict=True)
        ]

    def compute_chance_thresholds(self, distance: int, bits: int = _WORD) -> tuple[int, ...]:
        """Return floor(c · 2**bits) for the cumulative probabilities c of the first three parts, where |V1| is `distance`.

        Bounds on the chances tighten until both have one floor. They do in the end: the chances are rational
        functions of e to a rational power, none of them constant, and so are transcendental (Lindemann).
        """
        return _compute_chance_thresholds(self, distance, bits)

    def _draw_part(self, distance: int, prefix: int, entropy: Entropy) -> int:
        """Draw one of the four parts: compare a uniform number with their cumulative probabilities, with more bits where needed."""
        bits = _WORD
        while prefix in (known := self.compute_chance_thresholds(distance, bits)):
            prefix = prefix << _WORD | int(entropy.draw_words(1)[0])
            bits += _WORD
        return bisect_right(known, prefix)

    @staticmethod
    def _place_draw(old: int, part: int, inner: int, outer: int) -> int:
        distance = abs(old)
        place = (distance, -1 - outer, distance + 1 + outer, inner % (distance + 1))[part]
        return place if old >= 0 else -place


def _draw_magnitudes(scale: Fraction, size: int, entropy: Entropy) -> list[int]:
    """Return independent geometric magnitudes 0, 1, … of ratio exp(-1/scale)."""
    signed: list[int] = sample_two_sided_geometric(scale, size, entropy).tolist()
    return [~draw if draw < 0 else draw for draw in signed]


@cache_for_release
def _compute_chance_thresholds(law: Coupling, distance: int, bits: int) -> tuple[int, ...]:
    places = bits // 3 + 40
    while True:
        floors = [
            _bound_chance_thresholds(law, distance, bits, places, upper=upper) for upper in (False, True)
        ]
        if floors[0] == floors[1]:
            return floors[0]
        places *= 2


def _bound_chance_thresholds(
    law: Coupling, distance: int, bits: int, places: int, *, upper: bool
) -> tuple[int, ...]:
    """Return the floors of lower or upper bounds on the chances; each factor below is bounded on its own."""
    unit: int = 10**places
    rate, more = 1 / law.old, 1 / law.new - 1 / law.old

    def bound_power(exponent: Fraction, *, high: bool) -> int:
        return bound_exp(exponent, places)[high]

    def bound_complement(exponent: Fraction, *, high: bool) -> int:
        return unit - bound_power(exponent, high=not high)

    both = rate + 1 / law.new
    parts = (
        bound_power(more * (distance + 1), high=upper) * bound_complement(2 * rate, high=upper) * unit,
        bound_power(both, high=upper) * bound_complement(more, high=upper) * unit,
        bound_power(more * distance, high=upper)
        * bound_power(both, high=upper)
        * bound_complement(more, high=upper),
    )
    whole = bound_complement(2 / law.new, high=not upper) * unit * unit
    if whole <= 0 or min(parts) < 0:
        return (-1 - upper,)  # nothing is known yet
    return tuple((part << bits) // whole for part in accumulate(parts))
