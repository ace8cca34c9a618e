"""The two-sided geometric mechanism: pure differential privacy on the integers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

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
from dpsql.privacy.mechanisms.coupling import Coupling
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.exponentials import exp, make_guarded_context
from dpsql.privacy.mechanisms.sampler import sample_two_sided_geometric

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
