"""The two-sided geometric mechanism: pure differential privacy on the integers."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar, Literal

from dpsql.errors import InternalError
from dpsql.privacy.accounting.numerics import bound_exp, exp, make_guarded_context
from dpsql.privacy.mechanisms.base import (
    ComponentChanges,
    ExactText,
    Mechanism,
    MechanismRecord,
    Sensitivity,
    require_parameter,
    require_positive_loss,
    rescale_parameter,
)
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.sampler import cache_for_release, sample_two_sided_geometric

# The coupling of two-sided geometric noise with noise of a smaller scale, for gradual release.


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


_UP = 1 + Decimal(10) ** -30


class GeometricRecord(MechanismRecord):
    """A `Geometric` in a stored release."""

    kind: Literal["geometric"] = "geometric"
    scale: ExactText

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        return Geometric(self.scale)


@dataclass(frozen=True, slots=True)
class Geometric(Mechanism):
    """Integer noise k with probability (1-a)/(1+a) * a**|k|, a = exp(-1/`scale`).

    `scale` is in lattice steps. InternalError unless it is a positive Fraction.

    Claim: added to a vector of integers, coordinate by coordinate and independently, it is
    (l1_sensitivity / scale)-differentially private, and no smaller loss holds if the sensitivity is
    attained.
    Why: a shift of the center by d changes the probability of an output by at most a factor a**-|d|,
    with equality on the far side of both centers; over the coordinates the |d| add up to the l1 norm.
    Source: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", 2009.

    >>> Geometric.calibrate(l1_sensitivity=Fraction(2), epsilon=Fraction(1, 10))
    Geometric(scale=Fraction(20, 1))
    >>> Geometric(Fraction(20)).compute_epsilon(Fraction(2))
    Fraction(1, 10)
    >>> Geometric(Fraction(20)).compute_half_width(0.95)
    60
    """

    tag: ClassVar[str] = "Geometric"
    name: ClassVar[str] = "geometric"
    record_type: ClassVar[type[MechanismRecord]] = GeometricRecord

    scale: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.scale, 256, "scale")

    @classmethod
    def calibrate(cls, l1_sensitivity: Fraction, epsilon: Fraction) -> Geometric:
        """Return the mechanism with loss exactly `epsilon`; LossError unless it is a positive Fraction."""
        return cls(l1_sensitivity / require_positive_loss(epsilon, "epsilon"))

    def compute_epsilon(self, l1_sensitivity: Fraction) -> Fraction:
        """Return the loss of a release with this sensitivity, exactly."""
        return l1_sensitivity / self.scale

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> Geometric:
        """Return the mechanism with the same loss for the sensitivity `new` as this has for `old`."""
        return Geometric(rescale_parameter(self.scale, new.l1, old.l1))

    def find_refinement(self, finer: Mechanism) -> Coupling | None:
        """Return the `Coupling` with geometric noise of a smaller scale."""
        if not isinstance(finer, Geometric) or finer.scale >= self.scale:
            return None
        return Coupling(self.scale, finer.scale)

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        return GeometricRecord(scale=self.scale)

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` independent draws from the exact law."""
        draws: list[int] = sample_two_sided_geometric(self.scale, size, entropy).tolist()
        return draws

    def compute_variance(self) -> float:
        """Return 2a / (1-a)**2 in squared lattice steps, rounded to nearest."""
        rate = float(1 / self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`.

        Claim: the exact probability, rounded up. For one draw and t >= 0 it is a**t / (1+a).
        Why: the sum S of n draws is the difference of two negative binomials, with generating function
        (1-a)**(2n) / ((1-az)**n * (1-a/z)**n). Split into partial fractions at z = 1/a, its part in
        z**t, t >= 0, is a mixture, with the positive weights of `_compute_mixture_weights`, of negative binomials of
        1 to n terms; and P(one of i terms >= t) = a**t * sum over l < i of C(t+l-1, l) * (1-a)**l.
        For t < 1 symmetry gives P(S >= t) = 1 - P(S >= 1-t).
        All terms are positive, so 50 digits leave a relative error far below the 1e-30 put on top, and
        the next float up is above what is too small for a float.
        """
        distance = max(threshold, 1 - threshold)
        weights = _compute_mixture_weights(self.scale, terms)
        with localcontext(make_guarded_context(self.scale)):
            complement = 1 - exp(-1 / self.scale)
            term, total = Decimal(1), Decimal(0)
            for index, weight in enumerate(weights):
                total += weight * term
                term *= (distance + index) * complement / (index + 1)
            total *= exp(-distance / self.scale)
            upper = (total if threshold == distance else 1 - total) * _UP
        return min(1.0, math.nextafter(float(upper), math.inf))

    def describe(self) -> str:
        """Return the law in words.

        >>> Geometric(Fraction(20)).describe()
        'geometric, scale 20'
        """
        return f"{self.name}, scale {float(self.scale):.6g}"


@lru_cache(maxsize=256)
def _compute_mixture_weights(scale: Fraction, terms: int) -> tuple[Decimal, ...]:
    """Return, for l = 0 to terms-1, the weight of the negative binomials of more than l terms.

    With u = 1-a and v = 1/(1+a), the weight of n-k terms is v**n times the coefficient g_k of x**k in
    G(x) = ((1-ux)/(1-vx))**n. From (1-vx) * G'(x) = n * a*a * v * G(x)/(1-ux), where h_k are the
    coefficients of G(x)/(1-ux), follows a recurrence without a subtraction.
    """
    with localcontext(make_guarded_context(scale)):
        ratio = exp(-1 / scale)
        u, v = 1 - ratio, 1 / (1 + ratio)
        g = h = v**terms
        total, totals = g, [g]
        for k in range(terms - 1):
            g = v * (k * g + terms * ratio * ratio * h) / (k + 1)
            h = g + u * h
            total += g
            totals.append(total)
    return tuple(reversed(totals))
