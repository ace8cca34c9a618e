"""The discrete cube (l∞) mechanism: noise for several integers that may all move at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import ClassVar, Literal

import numpy as np
from pydantic import StrictInt

from dpsql.errors import InternalError
from dpsql.privacy.accounting.numerics import exp, make_guarded_context
from dpsql.privacy.mechanisms.base import (
    ComponentChanges,
    ExactText,
    Floats,
    Mechanism,
    MechanismRecord,
    Sensitivity,
    require_parameter,
    require_positive_loss,
)
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.sampler import compute_eulerian_coefficients, sample_l_infinity_vectors

_UP = 1 + Decimal(10) ** -30
_RADII = 128
_RATIOS = 256
"""Ratios of weights are rounded up to multiples of its inverse, so that few quantiles are needed."""
MOST_DIMENSIONS = 64
"""The maximum number of coordinates of one cube; more need several cubes, or another mechanism."""


class LInfinityRecord(MechanismRecord):
    """A `LInfinityMechanism` in a stored release."""

    kind: Literal["cube"] = "cube"
    scale: ExactText
    dimensions: StrictInt

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        return LInfinityMechanism(self.scale, self.dimensions)


@dataclass(frozen=True, slots=True)
class LInfinityMechanism(Mechanism):
    """Noise z on `dimensions` integers with probability proportional to a**max|z_i|, a = exp(-1/`scale`).

    `scale` is in lattice steps. InternalError unless it is a positive Fraction and there are 1 to 64
    dimensions. The coordinates are uncorrelated, but not independent: they share their radius.

    Claim: added to a vector of integers it is (linf_sensitivity / scale)-differentially private, and no
    smaller loss holds if the sensitivity is attained. Of several groups, each with its own draw, the
    losses add up: there the sensitivity is the sum over the groups of the largest changes in each.
    Why: a shift of the center by d changes max|z_i| by at most max|d_i| (triangle inequality), so the
    probability of an output by at most a factor a**-max|d_i|.
    Coordinates that move by different lengths D_i are multiplied by whole numbers m_i such that all
    m_i * D_i are at most D: then the vector moves by at most D, and dividing the noisy coordinate by m_i
    is post-processing. It is noise on a box with sides in the ratio of the D_i, as far as m_i * D_i
    attain D.
    Source: Hardt, Talwar 2010, "On the geometry of differential privacy", section 4 (the K-norm
    mechanism); Awan, Slavkovic 2021, "Structure and sensitivity in differential privacy", for the cube.

    >>> LInfinityMechanism.calibrate(linf_sensitivity=Fraction(2), epsilon=Fraction(1, 10), dimensions=3)
    LInfinityMechanism(scale=Fraction(20, 1), dimensions=3)
    >>> LInfinityMechanism(Fraction(20), 3).compute_epsilon(Fraction(2))
    Fraction(1, 10)
    """

    tag: ClassVar[str] = "Cube"
    name: ClassVar[str] = "cube"
    record_type: ClassVar[type[MechanismRecord]] = LInfinityRecord
    independent: ClassVar[bool] = False

    scale: Fraction
    dimensions: int

    def __post_init__(self) -> None:
        require_parameter(self.scale, 256, "scale")
        if not 1 <= self.dimensions <= MOST_DIMENSIONS:
            raise InternalError(f"no cube has {self.dimensions} dimensions")

    @classmethod
    def calibrate(cls, linf_sensitivity: Fraction, epsilon: Fraction, dimensions: int) -> LInfinityMechanism:
        """Return the mechanism with loss exactly `epsilon`; LossError unless it is a positive Fraction."""
        return cls(linf_sensitivity / require_positive_loss(epsilon, "epsilon"), dimensions)

    def compute_epsilon(self, linf_sensitivity: Fraction) -> Fraction:
        """Return the loss of a release with this sensitivity, exactly."""
        return linf_sensitivity / self.scale

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> LInfinityMechanism:
        """Return the mechanism with the same loss for the sensitivity `new` as this has for `old`."""
        return LInfinityMechanism(self.scale * new.linf / old.linf, self.dimensions)

    def find_sum_bound(self, confidence: float) -> Callable[[Sequence[float]], float]:
        """Return a bound on |Σ size · z_i| at a confidence, for coordinates of one vector z and sizes that fall.

        Claim: it holds for the discrete cube, and is as tight as the continuous one's up to a few steps.
        Why: the radius of the discrete cube is an index of at most k plus k+1 whole parts of exponential
        variables, and a coordinate is within a half of R + 1/2 times a uniform number of [-1, 1]. So |Σ size · z|
        is at most that of the continuous cube plus k+1 steps of each size. It grows with each of the sizes,
        whose ratios to the largest are rounded up.
        """
        scale, k = float(self.scale), self.dimensions

        def bound_sum(sizes: Sequence[float]) -> float:
            if not sizes:
                return 0.0
            shape = tuple(math.ceil(size / sizes[0] * _RATIOS) for size in sizes)
            return sizes[0] * scale * _compute_sum_quantile(k, shape, confidence) + (k + 1) * sum(sizes)

        return bound_sum

    def compute_characteristic_function(self, weights: Sequence[float], at: Floats) -> Floats:
        """Return the characteristic function of Σ weight · draw, for coordinates of one vector of the continuous law.

        Why: a vector is its radius, a gamma variable, times uniform variables, so it is the mean over the radius of a
        product of sin(x)/x; the mean is taken over even parts of the radius.
        """
        from scipy.special import gammaincinv  # scipy costs a tenth of a second, which not every query needs

        shares = (np.arange(_RADII) + 0.5) / _RADII
        radii: Floats = float(self.scale) * gammaincinv(self.dimensions + 1, shares)
        product = np.ones((_RADII, len(at)))
        for each in weights:
            product *= np.sinc(np.outer(radii, each / math.pi * at))
        found: Floats = product.mean(axis=0)
        return found

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        return LInfinityRecord(scale=self.scale, dimensions=self.dimensions)

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return the coordinates of independent vectors, one vector after the other.

        InternalError unless `size` is a multiple of `dimensions`.
        """
        vectors, left = divmod(size, self.dimensions)
        if left:
            raise InternalError(f"{size} numbers cannot be split into vectors of {self.dimensions}")
        draws: list[int] = (
            sample_l_infinity_vectors(self.scale, self.dimensions, vectors, entropy).ravel().tolist()
        )
        return draws

    def compute_variance(self) -> float:
        """Return the variance of a coordinate in squared lattice steps, rounded to nearest.

        Why: given the radius R a coordinate is uniform on -R..R, with variance R(R+1)/3. As 4R(R+1) is
        (2R+1)**2 - 1, the mean of R(R+1) is a quarter of the ratio of two sums of (2R+1)**j * a**R; of
        their difference, over a common denominator, the coefficients are whole numbers, none negative.
        """
        k = self.dimensions
        ours, wider = compute_eulerian_coefficients(k), compute_eulerian_coefficients(k + 2)
        spread = [
            more - here + 2 * before - beyond
            for more, here, before, beyond in zip(
                wider, (*ours, 0, 0), (0, *ours, 0), (0, 0, *ours), strict=True
            )
        ]
        with localcontext(make_guarded_context(self.scale)):
            ratio = exp(-1 / self.scale)
            found = _evaluate_polynomial(spread, ratio) / (
                12 * _evaluate_polynomial(ours, ratio) * (1 - ratio) ** 2
            )
            return float(found)

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 coordinates of a vector sum to >= `threshold`.

        Claim: for one term it is the exact probability, rounded up; for more a bound.
        Why: given the radius R >= t >= 1, R-t+1 of the 2R+1 values of a coordinate are >= t. So the
        probability is the sum over R >= t of (R-t+1) * (2R+1)**(k-1) * a**R, over that of all
        (2R+1)**k * a**R. With R = t+s and 2R+1 = 2t + (2s+1) it is a**t times sums over s >= 0 of
        (2s+1)**j * a**s with positive weights, for which `_compute_moments` has closed forms. For t < 1 symmetry
        gives P(z >= t) = 1 - P(z >= 1-t). A sum of n coordinates is >= t only if R >= t/n.
        All terms are positive, so 50 digits leave a relative error far below the 1e-30 put on top, and
        the next float up is above what is too small for a float.
        """
        if terms > 1 and threshold < 1:
            return 1.0
        k = self.dimensions
        distance = max(threshold, 1 - threshold) if terms == 1 else -(-threshold // terms)
        with localcontext(make_guarded_context(self.scale)):
            moments = _compute_moments(self.scale, k)
            power = k if terms > 1 else k - 1
            shares = [math.comb(power, j) * (2 * distance) ** (power - j) for j in range(power + 1)]
            if terms > 1:
                total = sum((share * moments[j] for j, share in enumerate(shares)), Decimal(0))
            else:
                halves = ((moments[j + 1] + moments[j]) / 2 for j in range(k))
                total = sum((share * half for share, half in zip(shares, halves, strict=True)), Decimal(0))
            total *= exp(-distance / self.scale) / moments[k]
            upper = (total if terms > 1 or threshold == distance else 1 - total) * _UP
        return min(1.0, math.nextafter(float(upper), math.inf))

    def describe(self) -> str:
        """Return the law in words.

        >>> LInfinityMechanism(Fraction(20), 3).describe()
        'cube, scale 20, of 3 numbers at once'
        """
        return f"{self.name}, scale {float(self.scale):.6g}, of {self.dimensions} numbers at once"


@lru_cache(maxsize=4096)
def _compute_sum_quantile(dimensions: int, shape: tuple[int, ...], confidence: float) -> float:
    """Return the t with P(|Σ w_i r u_i| <= t) = `confidence`, w being `shape` over `_RATIOS`.

    Here u_1, …, u_k are uniform on [-1, 1] and r is a gamma variable of shape k+1, the radius of a cube.
    Why: given r, the tail of Σ w_i u_i is a sum over the signs s of ± (Σ s_i w_i - t/r)^j, where that is above
    zero, over j! 2^j Π w_i. With x = t / Σ s_i w_i and r = x + v the mean over r is (Σ s_i w_i)^j e^-x times
    the sum over b of C(k-j, b) x^(k-j-b) (j+b)! / k!.
    Source: the sum of uniform variables, Feller 1971, "An introduction to probability theory", vol. 2, I.9.
    """
    weights, j, k = [Decimal(part) / _RATIOS for part in shape], len(shape), dimensions
    with localcontext(prec=60):
        below = math.factorial(j) * 2**j * prod(weights) * math.factorial(k)

        def tail(t: Decimal) -> Decimal:
            found = Decimal(0)
            for signs in itertools.product((1, -1), repeat=j):
                reach = sum((sign * weight for sign, weight in zip(signs, weights, strict=True)), Decimal(0))
                if reach > 0:
                    x = t / reach
                    parts = (
                        math.comb(k - j, b) * x ** (k - j - b) * math.factorial(j + b)
                        for b in range(k - j + 1)
                    )
                    found += prod(signs) * reach**j * (-x).exp() * sum(parts)
            whole: Decimal = 2 * found / below
            return whole

        outside = 1 - Decimal(confidence)
        low, high = Decimal(0), sum(weights) * (k + 1 - outside.ln()) * 4
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle) > outside else (low, middle)
        return float(high)


@lru_cache(maxsize=64)
def _compute_moments(scale: Fraction, most: int) -> tuple[Decimal, ...]:
    """Return the sums over s >= 0 of (2s+1)**j * a**s, for j up to `most`, in the context of the scale.

    Why: such a sum is the polynomial with the coefficients `compute_eulerian_coefficients(j)` at a, over (1-a)**(j+1).
    Source: Brenti 1994, "q-Eulerian polynomials arising from Coxeter groups", Theorem 3.4.
    """
    with localcontext(make_guarded_context(scale)):
        ratio = exp(-1 / scale)
        powers = accumulate([1 - ratio] * (most + 1), lambda x, y: x * y)
        return tuple(
            _evaluate_polynomial(compute_eulerian_coefficients(j), ratio) / power
            for j, power in enumerate(powers)
        )


def _evaluate_polynomial(coefficients: Sequence[int], at: Decimal) -> Decimal:
    total = Decimal(0)
    for coefficient in reversed(coefficients):
        total = total * at + coefficient
    return total
