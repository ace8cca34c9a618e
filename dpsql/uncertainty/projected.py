"""Bounds on the noise of consistency-adjusted values, from the characteristic function of a sum of independent noises.

Claim: the bounds are those of the law with Laplace noise in place of geometric noise, to within a 1,000th.
Why: a sum of independent noises has the product of their characteristic functions, and all of these are real, since the
laws are symmetric. A vector of a cube is its radius, a gamma variable, times uniform variables, so that the function of
a weighted sum of coordinates is the mean over the radius of a product of sin(x)/x; the mean is taken over even shares of
the radius. Half of the longest step is added, because the noise is on a lattice.
Source: Gil-Pelaez 1951, "Note on the inversion theorem".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms import Cube, Mechanism, Merged, Projected
from dpsql.mechanisms.projected import is_normal

Floats = NDArray[np.float64]

_RATIOS = 16
"""Ratios of weights are rounded up to multiples of its inverse, so that few quantiles are needed."""
_STEP, _REACH, _RADII = 0.125, 64.0, 128
"""The function is followed up to 64 inverse standard deviations: beyond, a 100,000th at most is left of the integral.

In steps of an eighth what lies beyond 25 standard deviations is mistaken, of which there is nothing.
"""
_HALVINGS = 40


def spread_of(mechanism: Projected, confidence: float) -> Callable[[Sequence[float]], float]:
    """The t with P(|Σ size · z_i| <= t) = `confidence`, z_i the noises of cells of one group, for sizes that fall.

    In steps of the adjusted cells.
    """
    longest = max(abs(weight) for weight, _, _ in mechanism.parts)

    def spread(sizes: Sequence[float]) -> float:
        if not sizes or not sizes[0]:
            return 0.0
        if not mechanism.std:
            return sizes[0] * longest / 2  # all noise is zero, but for what no float can tell from it
        shape = tuple(math.ceil(size / sizes[0] * _RATIOS) for size in sizes if size)
        return sizes[0] * (mechanism.std * _quantile(mechanism, shape, confidence) + longest / 2)

    return spread


@lru_cache(maxsize=4096)
def _quantile(mechanism: Projected, shape: tuple[int, ...], confidence: float) -> float:
    """The t with P(|S| <= t·std) = `confidence`, S = Σ w_i z_i, w being `shape` over `_RATIOS`."""
    weights = [part / _RATIOS for part in shape]
    at: Floats = np.arange(_STEP / 2, _REACH, _STEP, dtype=np.float64)
    found = np.ones_like(at)
    scale = mechanism.std
    for weight, times, noise in mechanism.parts:
        found *= _function(noise, [abs(weight) / scale * each for each in weights], at) ** times
    density = found / at
    low, high = 0.0, 4 * math.sqrt(len(weights)) * (1 - math.log1p(-confidence))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        within = 2 / math.pi * _STEP * float((density * np.sin(at * middle)).sum())
        low, high = (middle, high) if within < confidence else (low, middle)
    return high


def _function(noise: Mechanism, weights: Sequence[float], at: Floats) -> Floats:
    """The characteristic function of Σ w_i z_i, z_i being numbers with this noise that are drawn at once."""
    found = np.ones_like(at)
    if isinstance(noise, Merged):
        for weight, part in noise.parts:
            found *= _function(part, [weight * each for each in weights], at)
    elif is_normal(noise):
        found = np.exp(-((noise.std * at) ** 2) * sum(each**2 for each in weights) / 2)
    elif isinstance(noise, Cube):
        from scipy.special import gammaincinv  # scipy costs a tenth of a second, which not every query needs

        shares = (np.arange(_RADII) + 0.5) / _RADII
        radii: Floats = float(noise.scale) * gammaincinv(noise.dimensions + 1, shares)
        product = np.ones((_RADII, len(at)))
        for each in weights:
            product *= np.sinc(np.outer(radii, each / math.pi * at))
        found = product.mean(axis=0)
    else:
        for each in weights:
            found /= 1 + (noise.std * each * at) ** 2 / 2
    return found
