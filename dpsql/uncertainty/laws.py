"""Confidence intervals from the known law of the noise.

They are post-processing, so they cost no privacy loss. They cover the value without noise, after clamping and contribution
bounds; they do not cover the bias of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import prod

from dpsql.mechanisms import Cube, Mechanism, Merged, Projected
from dpsql.mechanisms.projected import is_normal
from dpsql.uncertainty.projected import spread_of

_APART = Decimal("1e-9")
_NOTHING = 1e-100
_RATIOS = 256
"""Ratios of weights are rounded up to multiples of its inverse, so that few distinct quantiles are computed."""


def half_width(mechanism: Mechanism, weights: Sequence[Fraction], confidence: float) -> float:
    """t, in steps, such that |Σ weight · noise| is at most t with probability `confidence`.

    Exact for one weight; for more the normal law serves Gaussian noise, that of the cube its own, and the law
    of a sum of Laplace variables the rest. Of releases that were merged, too: a mean of several noises has thinner
    tails than one Laplace variable of its variance. It depends on its arguments alone, as all that EXPLAIN shows must.
    """
    return _half_width(
        mechanism, tuple(sorted((abs(weight) for weight in weights if weight), reverse=True)), confidence
    )


@lru_cache(maxsize=256)
def _half_width(mechanism: Mechanism, sizes: tuple[Fraction, ...], confidence: float) -> float:
    if not sizes:
        return 0.0
    if len(sizes) == 1 and not isinstance(mechanism, Merged | Projected):
        return float(sizes[0]) * mechanism.half_width(confidence)
    if is_normal(mechanism):
        return _normal(confidence) * mechanism.std * math.sqrt(sum(float(size) ** 2 for size in sizes))
    if isinstance(mechanism, Cube):
        return _cube(mechanism, confidence)([float(size) for size in sizes])
    if isinstance(mechanism, Projected):
        return spread_of(mechanism, confidence)([float(size) for size in sizes])
    return _summed(mechanism.std, sizes, confidence)


def mean_interval(
    above: int, below: int, mechanism: Mechanism, confidence: float
) -> tuple[Fraction, Fraction]:
    """All θ in [0, 1] that the noisy sums of y and 1-y do not refute, a Fieller set.

    `above` and `below` are the noisy sums, in steps. At the true mean θ the exact sums satisfy
    (1-θ)·above = θ·below, so θ stays if the noise of (1-θ)·above - θ·below explains the rest.

    Source: Fieller 1954, "Some problems in interval estimation", section 4.
    """
    explained = _two_sided(mechanism, confidence)

    def plausible(theta: float) -> bool:
        return explained(abs((1 - theta) * above - theta * below), 1 - theta, theta)

    total = above + below
    centre = min(1.0, max(0.0, above / total)) if total > 0 else 0.5
    if not plausible(centre):
        return Fraction(0), Fraction(1)
    return Fraction(_edge(plausible, centre, 0.0)), Fraction(_edge(plausible, centre, 1.0))


def ratio_interval(
    cells: Sequence[int],
    pair: tuple[Sequence[Fraction], Sequence[Fraction]],
    half: Fraction,
    mechanism: Mechanism,
    confidence: float,
) -> tuple[Fraction, Fraction]:
    """All θ in [-half, half] that noisy cells do not refute as the ratio of two of their sums, a Fieller set.

    The `pair` are the weights of the two sums, in steps, the first about the middle of what the ratio can be.
    At the true ratio θ the exact cells satisfy first = θ·second, so θ stays if the noise explains the rest.

    Source: Fieller 1954, "Some problems in interval estimation", section 4.
    """
    total, count = ([float(weight) for weight in weights] for weights in pair)
    above, beside = (
        float(sum((w * cell for w, cell in zip(weights, cells, strict=True)), start=Fraction(0)))
        for weights in pair
    )
    bound, spread = float(half), _spread(mechanism, confidence)

    def plausible(theta: float) -> bool:
        weights = [abs(first - theta * second) for first, second in zip(total, count, strict=True)]
        return abs(above - theta * beside) <= spread(weights)

    centre = min(bound, max(-bound, above / beside)) if beside > 0 else 0.0
    if not plausible(centre):
        return -half, half
    return Fraction(_edge(plausible, centre, -bound)), Fraction(_edge(plausible, centre, bound))


def _spread(mechanism: Mechanism, confidence: float) -> Callable[[Sequence[float]], float]:
    """The bound on |Σ weight · noise| at a confidence, of Gaussian noise or a cube, as a function of weights."""
    if not is_normal(mechanism):
        spread = _not_normal(mechanism, confidence)
        return lambda weights: spread(sorted(filter(None, weights), reverse=True))
    z = _normal(confidence) * mechanism.std
    return lambda weights: z * math.hypot(*weights) + sum(weights) / 2


def _not_normal(mechanism: Mechanism, confidence: float) -> Callable[[Sequence[float]], float]:
    """The same, of a cube or of what was adjusted, for sizes that fall."""
    if isinstance(mechanism, Cube):
        return _cube(mechanism, confidence)
    if isinstance(mechanism, Projected):
        return spread_of(mechanism, confidence)
    raise TypeError(f"values of several arguments have no {mechanism.name} noise")


def _cube(mechanism: Cube, confidence: float) -> Callable[[Sequence[float]], float]:
    """A bound on |Σ size · z_i| at a confidence, for coordinates of one vector z and sizes that fall.

    Claim: it holds for the discrete cube, and is as tight as the continuous one's but for a few steps.
    Why: the radius of the discrete cube is an index of at most k plus k+1 whole parts of exponential
    variables, and a coordinate is within a half of R + 1/2 times a uniform number of [-1, 1]. So |Σ size · z|
    is at most that of the continuous cube plus k+1 steps of each size. It grows with each of the sizes,
    whose ratios to the largest are rounded up.
    """
    scale, k = float(mechanism.scale), mechanism.dimensions

    def spread(sizes: Sequence[float]) -> float:
        if not sizes:
            return 0.0
        shape = tuple(math.ceil(size / sizes[0] * _RATIOS) for size in sizes)
        return sizes[0] * scale * _cube_quantile(k, shape, confidence) + (k + 1) * sum(sizes)

    return spread


@lru_cache(maxsize=4096)
def _cube_quantile(dimensions: int, shape: tuple[int, ...], confidence: float) -> float:
    """The t with P(|Σ w_i r u_i| <= t) = `confidence`, w being `shape` over `_RATIOS`.

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


def _edge(plausible: Callable[[float], bool], inside: float, outside: float) -> float:
    if plausible(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if plausible(middle) else (inside, middle)
    return outside


def _two_sided(mechanism: Mechanism, confidence: float) -> Callable[[float, float, float], bool]:
    """Whether |a·noise + b·noise'| is as large as this often enough, as a function of this, a and b."""
    if is_normal(mechanism):
        z = _normal(confidence) * mechanism.std
        return lambda distance, a, b: distance <= z * math.hypot(a, b) + 0.5
    if isinstance(mechanism, Projected):
        spread = spread_of(mechanism, confidence)
        return lambda distance, a, b: distance <= spread([max(a, b), min(a, b)])
    scale, outside = mechanism.std / math.sqrt(2), 1 - confidence
    return lambda distance, a, b: (
        distance <= 0.5 or _two_laplace(scale * max(a, b), scale * min(a, b), distance - 0.5) >= outside
    )


def _two_laplace(a: float, b: float, t: float) -> float:
    """P(|X + Y| > t) of independent Laplace X, Y of scales a >= b.

    It is (a² e^(-t/a) - b² e^(-t/b)) / (a² - b²), and (1 + t/2a) e^(-t/a) for equal scales; nothing
    where there is no noise to speak of, whose square would be zero.
    """
    if a < _NOTHING:
        return 0.0
    if a - b <= 1e-6 * a:
        return (1 + t / (2 * a)) * math.exp(-t / a)
    small = b * b * math.exp(-t / b) if b > 0 else 0.0
    return (a * a * math.exp(-t / a) - small) / (a * a - b * b)


@lru_cache(maxsize=256)
def _summed(std: float, sizes: tuple[Fraction, ...], confidence: float) -> float:
    """The t with P(|S| <= t) = `confidence`, S the sum of independent Laplace variables, `size * std` each.

    For scales s that differ, P(|S| > t) = sum of c e^(-t/s), c the product of s²/(s² - r²) over all other
    scales r. Equal ones are moved apart by 1e-9 of themselves; the digits are enough for what cancels. Half of
    the least size is added, because the noise is on a lattice.
    Source: partial fractions of the characteristic function, the product of 1/(1 + s²w²).
    """
    with localcontext(prec=100):
        scales = [
            Decimal(size.numerator) / size.denominator * Decimal(std) / Decimal(2).sqrt() * (1 + at * _APART)
            for at, size in enumerate(sizes)
        ]
        if not std:
            return 0.0
        parts = [
            prod((s * s / (s * s - r * r) for r in scales if r is not s), start=Decimal(1)) for s in scales
        ]
        outside = 1 - Decimal(confidence)
        low, high = Decimal(0), sum(scales) * (1 - outside.ln()) * len(scales)
        for _ in range(60):
            middle = (low + high) / 2
            tail = sum(part * (-middle / s).exp() for part, s in zip(parts, scales, strict=True))
            low, high = (middle, high) if tail > outside else (low, middle)
        return float(high) + float(sizes[-1]) / 2


def _normal(confidence: float) -> float:
    from scipy.special import ndtri  # scipy costs a tenth of a second, which not every query needs

    return float(ndtri(0.5 + confidence / 2))
