"""What a system really spends, so that all may be asked for the same total.

Only the standard library is used: this runs in the peers' environments too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The δ that Gaussian noise has at ε, where μ is sensitivity over standard deviation.

    Source: Balle, Wang 2018, Theorem 8.

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    above = _normal(mu / 2 - epsilon / mu)
    return above - math.exp(epsilon) * _normal(-mu / 2 - epsilon / mu)


def gaussian_epsilon(multipliers: Sequence[float], delta: float) -> float:
    """The least ε at δ of Gaussians with these ratios of standard deviation to sensitivity, together.

    Together they are one Gaussian: their μ² add up (Dong, Roth, Su 2022, Corollary 3.3).

    >>> round(gaussian_epsilon([4.224679], 1e-6), 3)
    1.0
    """
    mu = math.sqrt(sum(1 / multiplier**2 for multiplier in multipliers))
    high = 1.0
    while gaussian_delta(mu, high) > delta:
        high *= 2
    return bisect(lambda epsilon: -gaussian_delta(mu, epsilon), -delta, 0.0, high)


def classical_multiplier(epsilon: float, delta: float) -> float:
    """The ratio of standard deviation to sensitivity that the textbook asks for.

    Source: Dwork, Roth 2014, Theorem A.1.

    >>> round(classical_multiplier(1, 1e-6), 4)
    5.2988
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def bisect(spent: Callable[[float], float], total: float, low: float, high: float) -> float:
    """The number between `low` and `high` at which what is spent, which grows with it, is the total.

    >>> round(bisect(lambda asked: 3 * asked, 1, 0, 1), 6)
    0.333333
    """
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= total else (low, middle)
    return low


def _normal(place: float) -> float:
    """The standard normal distribution function."""
    return math.erfc(-place / math.sqrt(2)) / 2
