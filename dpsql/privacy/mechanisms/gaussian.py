"""The discrete Gaussian mechanism: concentrated differential privacy on the integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dpsql.privacy.mechanisms.base import (
    ComponentChanges,
    ExactText,
    Floats,
    Mechanism,
    MechanismRecord,
    Sensitivity,
    require_parameter,
    require_positive_loss,
    rescale_parameter,
)
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.sampler import sample_discrete_gaussian

_SUMMED = 2.0**16  # variances up to it have their tails summed, beyond it integrated
_UP = 1 + 2.0**-30  # see `_bound_tail`
_FLOOR = 1e-300  # added where a float may have lost a smaller probability


class DiscreteGaussianRecord(MechanismRecord):
    """A `DiscreteGaussian` in a stored release."""

    kind: Literal["discrete gaussian"] = "discrete gaussian"
    variance: ExactText

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        return DiscreteGaussian(self.variance)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(Mechanism):
    """Integer noise k with probability proportional to exp(-k**2 / (2 * `variance`)).

    `variance` is in squared lattice steps: the parameter sigma**2, which the variance of the law does
    not pass. InternalError unless it is a positive Fraction.

    Claim: added to a vector of integers, coordinate by coordinate and independently, it is
    (l2_sensitivity**2 / (2 * variance))-zCDP.
    Why: the Rényi divergence of order alpha between the law and the law shifted by an integer d is at
    most alpha * d**2 / (2 * variance), as for the continuous Gaussian, because the sum of
    exp(-(k-x)**2 / (2 * variance)) over the integers k is largest where x is an integer; over the
    coordinates the d**2 add up to the squared l2 norm.
    Source: Canonne, Kamath and Steinke 2020, Theorem 4.

    >>> DiscreteGaussian.calibrate(l2_squared=Fraction(4), rho=Fraction(1, 50))
    DiscreteGaussian(variance=Fraction(100, 1))
    >>> DiscreteGaussian(Fraction(100)).compute_rho(Fraction(4))
    Fraction(1, 50)
    >>> DiscreteGaussian(Fraction(100)).compute_half_width(0.95)
    20
    """

    tag: ClassVar[str] = "DiscreteGaussian"
    name: ClassVar[str] = "discrete gaussian"
    record_type: ClassVar[type[MechanismRecord]] = DiscreteGaussianRecord

    variance: Fraction

    def __post_init__(self) -> None:
        require_parameter(self.variance, 512, "variance")

    @classmethod
    def calibrate(cls, l2_squared: Fraction, rho: Fraction) -> DiscreteGaussian:
        """Return the mechanism with loss exactly `rho` (zCDP); LossError unless it is a positive Fraction."""
        return cls(l2_squared / (2 * require_positive_loss(rho, "rho")))

    def compute_rho(self, l2_squared: Fraction) -> Fraction:
        """Return the zCDP loss of a release whose l2 sensitivity has this square, exactly."""
        return l2_squared / (2 * self.variance)

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> DiscreteGaussian:
        """Return the mechanism with the same loss for the sensitivity `new` as this has for `old`."""
        return DiscreteGaussian(rescale_parameter(self.variance, new.l2_squared, old.l2_squared))

    @property
    def is_gaussian(self) -> bool:
        """Return True."""
        return True

    def compute_characteristic_function(self, weights: Sequence[float], at: Floats) -> Floats:
        """Return the characteristic function of Σ weight · draw, for independent draws; that of the continuous law."""
        found: Floats = np.exp(-((self.std * at) ** 2) * sum(each**2 for each in weights) / 2)
        return found

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        return DiscreteGaussianRecord(variance=self.variance)

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` independent draws from the exact law."""
        draws: list[int] = sample_discrete_gaussian(self.variance, size, entropy).tolist()
        return draws

    def compute_variance(self) -> float:
        """Return the variance of the law in squared lattice steps, rounded to nearest.

        It falls short of the parameter by a share of order exp(-2 * pi**2 * variance) (Poisson
        summation), which from 4 on a float does not show.
        """
        if self.variance >= 4:
            return float(self.variance)
        steps = np.arange(1, 100)
        weights = np.exp(-(steps**2) / (2 * float(self.variance)))
        return float((steps**2 * weights).sum() / (0.5 + weights.sum()))

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`.

        Claim: for t >= 1 the sum of n draws is >= t with probability at most exp(-t*t / (2nV)), V the
        parameter, and at most (1+c)**n times the probability for one draw of parameter nV, where
        c = 2 / (exp(pi**2 * V) - 1), without that factor if n = 1. Below 1 the bound is 1.
        Why: by Poisson summation the sum of exp(-(k-x)**2 / (2W)) over the integers k is sqrt(2 pi W)
        times a factor that is largest at x = 0, where it lies between 1 and 1 + 2/(exp(2 pi**2 W) - 1).
        With x = sV that gives E[exp(sX)] <= exp(s*s*V/2), hence the first bound (Chernoff). For the
        second, completing the square in the convolution of parameters kV and V leaves such a sum with
        W = kV/(k+1) >= V/2; n-1 of these factors and one for the last normalizer are at most 1+c each.
        Source: the first, Canonne, Kamath and Steinke 2020; the second is derived here.
        """
        if threshold < 1:
            return 1.0
        exponent = Fraction(threshold * threshold) / (2 * terms * self.variance)
        if exponent > 700:
            return _FLOOR
        chernoff = math.exp(-float(exponent)) * _UP
        # 9.8 < pi**2, so that c is rounded up.
        blur = 0.0 if terms == 1 else terms * math.log1p(2 / math.expm1(min(700.0, 9.8 * self.variance)))
        if blur > 1:
            return chernoff
        return min(chernoff, _bound_tail(threshold, float(terms * self.variance), blur))

    def describe(self) -> str:
        """Return the law in words.

        >>> DiscreteGaussian(Fraction(100)).describe()
        'discrete gaussian, standard deviation 10'
        """
        return f"{self.name}, standard deviation {self.std:.6g}"


def _bound_tail(threshold: int, variance: float, blur: float) -> float:
    """Return exp(`blur`) times an upper bound on P(one draw of this parameter >= `threshold`), threshold >= 1.

    Summed where that is cheap; what lies 40 sigma beyond the threshold is less than a float can show.
    Otherwise the weights f(k) = exp(-k*k / (2 * variance)) are compared with integrals, and their total
    with sqrt(2 pi variance), which it is never below: beyond sigma f is convex, so f(k) is at most its
    integral from k - 1/2 to k + 1/2; before, as f decreases, at most that from k-1 to k.
    The exponents, at most 700, are off by a few times 700 * 2**-53, and the functions by a few units in
    the last place: `_UP` covers 1,000 times as much.
    """
    sigma = math.sqrt(variance)
    if variance <= _SUMMED:
        span = math.ceil(40 * sigma) + 1
        offsets = np.arange(span, dtype=np.float64)
        beyond = np.exp(-((threshold + offsets) ** 2) / (2 * variance)).sum()
        half = np.exp(-(offsets**2) / (2 * variance)).sum()
        tail = float(beyond / (2 * half - 1))
    else:
        start = threshold - 0.5 if threshold - 0.5 >= sigma else threshold - 1.0
        tail = math.erfc(start / (sigma * math.sqrt(2))) / 2
    return min(1.0, tail * math.exp(blur) * _UP + _FLOOR)
