"""Exact samplers: coins, geometric and Gaussian laws on the integers, with a cache that is cleared after each release.

A law holds exactly, not up to rounding: wherever the first bits of a uniform number do not decide a comparison, number and
probability are both carried on until they differ (see `Coin`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, floor, isqrt, sqrt
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.accounting.numerics import bound_exp
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy

# A cache of results that depend on exact values, cleared after each release.


P = ParamSpec("P")
R = TypeVar("R")
_MOST = 1 << 16
_CLEAR: list[Callable[[], None]] = []


def cache_for_release(function: Callable[P, R]) -> Callable[P, R]:
    """Cache results by their arguments until `clear_cache`."""
    remembered = lru_cache(maxsize=_MOST)(function)
    _CLEAR.append(remembered.cache_clear)
    return cast(Callable[P, R], remembered)


def clear_cache() -> None:
    """Clear all caches."""
    for clear in _CLEAR:
        clear()


# Bernoulli draws with probability exp(-x), exactly, though it is irrational.


_WORD = 64
_FEW = 24  # digits that a float may decide
_FLOAT_MOST = 700  # beyond, exp overflows
_MARGIN = 2.0**-40  # see `_find_float_threshold`


@dataclass(frozen=True, slots=True)
class Coin:
    """Heads with probability p = exp(-`exponent`) or, if `as_odds`, with odds exp(-`exponent`) : 1.

    As odds, p = 1 / (1 + exp(`exponent`)). The exponent is any rational >= 0.

    The uniform number behind a toss is read lazily, a word at a time, and compared with as many binary digits of the probability;
    the toss is decided at the first place where they differ. Nothing is rounded, and nearly always the first word decides.
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
    """See `_compute_threshold`, if a float surely decides it; else None. The exponent is above 0.

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


# Exact samplers of integer distributions: all noise of dpsql is drawn here.


__all__ = [
    "Entropy",
    "Integers",
    "SystemEntropy",
    "compute_eulerian_coefficients",
    "sample_below",
    "sample_discrete_gaussian",
    "sample_l2_vectors",
    "sample_l_infinity_vectors",
    "sample_lies",
    "sample_staircase",
    "sample_two_sided_geometric",
]

Integers: TypeAlias = NDArray[np.int64] | NDArray[np.object_]

_BLOCK = 1 << 14  # draws made at once: their words stay in the processor's cache
_FIRST_BITS = 16  # bits that are first spent on a coin
_REACH = 12  # exp(-12) < 2**-16: a draw passes 12 scales so rarely that it can be slow
_NARROW = 56  # digits that leave an int64 room for any number of laps seen in practice
_RATIO_MARGIN = 2.0**-40  # see `_compute_acceptance_probabilities`
_ROOT = 64  # binary digits of a root
_ROOMY = 1 << 54  # sums of up to 65 magnitudes below it are int64, and so is twice such a sum
_FLOAT_MIN, _FLOAT_MAX = (
    Fraction(1, 2**1000),
    2**1000,
)  # variances between keep their full precision as a float


def sample_two_sided_geometric(scale: Fraction, size: int, entropy: Entropy) -> Integers:
    """Return `size` independent integers k with probability (1-a)/(1+a) * a**|k|, a = exp(-1/scale).

    Returns shape `(size,)`: int64, or Python integers where the scale is so large that an int64 might
    not hold them. `scale` is in lattice steps, any rational > 0.

    Claim: the law is exact for every rational scale.
    Why: in two's complement a draw is a sign bit and a magnitude g, meaning g or ~g = -1-g. The two
    signs have odds 1 : a, as the sums over k >= 0 and k < 0 do, and given the sign, g is geometric:
    P(g) = (1-a) * a**g. As a**g is the product of a**(2**j) over the binary digits j of g that are set,
    the digits are independent, digit j being set with odds a**(2**j) : 1, and what lies beyond 2**J is
    an independent geometric with ratio a**(2**J). So a draw is J + 2 independent coins, and a further
    coin for each lap beyond 2**J.
    Source: independent digits, Marsaglia, "Random variables with independent binary digits", 1971; as
    biased coins for noise, Dwork, Kenthapadi, McSherry, Mironov and Naor 2006. The two signs are
    derived above.
    """
    starts = range(0, size, _BLOCK)
    blocks = [_sample_geometric_block(scale, min(_BLOCK, size - start), entropy) for start in starts]
    return np.concatenate([np.empty(0, np.int64), *blocks])


def sample_discrete_gaussian(variance: Fraction, size: int, entropy: Entropy) -> Integers:
    """Return `size` independent integers k with probability proportional to exp(-k**2 / (2 * variance)).

    Returns shape `(size,)`, with the types of `sample_two_sided_geometric`. `variance` is in squared lattice
    steps, any rational > 0; it is the parameter sigma**2, which the variance of the law does not pass.

    Claim: the law is exact for every rational parameter.
    Why: a two-sided geometric proposal y of scale t, kept with probability exp(-(|y| - s/t)**2 / (2s)),
    s the parameter, has weight exp(-|y|/t) * exp(-y**2/(2s) + |y|/t) up to a constant.
    Source: Canonne, Kamath and Steinke 2020, Algorithm 3.
    """
    scale = isqrt(floor(variance)) + 1
    accepted: list[NDArray[Any]] = [np.empty(0, np.int64)]
    missing = size
    while missing > 0:
        # About three in four are kept, fewer where sigma is below 2.
        proposals = sample_two_sided_geometric(Fraction(scale), min(missing, _BLOCK) * 4 // 3 + 8, entropy)
        accepted.append(proposals[_accept_proposals(proposals, variance, scale, entropy)][:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)


def sample_l_infinity_vectors(scale: Fraction, dimensions: int, vectors: int, entropy: Entropy) -> Integers:
    """Return independent vectors z of integers with probability proportional to a**max|z_i|, a = exp(-1/scale).

    Returns shape `(vectors, dimensions)`, with the types of `sample_two_sided_geometric`. `scale` is in lattice
    steps, any rational > 0.

    Claim: the law is exact for every rational scale.
    Why: given R, the vector is uniform on the cube of -R..R. If R has the weights (2R+1)**k * a**R, then
    R = r and z together have the weight a**r wherever max|z_i| <= r, and over all such r these add up to
    a**max|z_i| / (1-a). The weights of R have the generating function B(ax) / (1-ax)**(k+1), in which the
    polynomial B has the coefficients `compute_eulerian_coefficients(k)`, none negative; so R is an index i drawn with the
    weights B_i * a**i, plus k+1 independent geometric magnitudes of ratio a.
    Source: the cube with its radius, Hardt, Talwar 2010, section 4; the generating function, Brenti 1994,
    "q-Eulerian polynomials arising from Coxeter groups", Theorem 3.4. Their use here is derived above.
    """
    signed = sample_two_sided_geometric(scale, vectors * (dimensions + 1), entropy)
    magnitudes = np.where(signed < 0, ~signed, signed).reshape(vectors, dimensions + 1)
    if magnitudes.dtype == np.int64 and magnitudes.max(initial=0) >= _ROOMY:
        magnitudes = magnitudes.astype(object)
    radii = magnitudes.sum(axis=1) + _sample_eulerian_indices(scale, dimensions, vectors, entropy)
    widths = np.repeat(2 * radii + 1, dimensions)
    below = _sample_below(widths, entropy).reshape(vectors, dimensions)
    found: Integers = below - radii[:, np.newaxis]
    return found


def sample_staircase(loss: Fraction, width: int, inner: int, size: int, entropy: Entropy) -> Integers:
    """Return `size` independent integers k with probability proportional to b**⌊(|k| + width - inner) / width⌋.

    Returns shape `(size,)`, with the types of `sample_two_sided_geometric`. b = exp(-loss), `loss` any rational
    > 0; 1 <= `inner` <= `width` are in lattice steps.

    Claim: the law is exact for every rational loss.
    Why: write a magnitude as i·width + u with 0 <= u < width. Its weight is b**i times 1 where u < inner,
    and b else: so i is geometric of ratio b, and u, independent of it, lies beyond `inner` with odds
    b·(width - inner) : inner, and is uniform on its side. With a fair sign each number but 0 then has half of
    the chance of its magnitude; a 0 with a minus sign is drawn anew.
    Source: Geng, Kairouz, Oh, Viswanath 2015, Algorithm 1, for the continuous law.
    """
    accepted: list[NDArray[Any]] = [np.empty(0, np.int64)]
    missing = size
    while missing > 0:
        tried = min(missing, _BLOCK) + 8
        magnitudes = _sample_stair_magnitudes(loss, width, inner, tried, entropy)
        negative = (entropy.draw_words(tried) & np.uint64(1)).astype(np.bool_)
        drawn = np.where(negative, -magnitudes, magnitudes)[~negative | (magnitudes != 0)]
        accepted.append(drawn[:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)


def sample_l2_vectors(scale: Fraction, dimensions: int, vectors: int, entropy: Entropy) -> Integers:
    """Return independent vectors z of integers with probability proportional to a**⌈‖z‖₂⌉, a = exp(-1/scale).

    Returns shape `(vectors, dimensions)`, with the types of `sample_two_sided_geometric`. `scale` is in lattice steps, any
    rational > 0.

    Claim: the law is exact for every rational scale.
    Why: with r >= √dimensions a rational, coordinates that are two-sided geometric of the scale r·scale have the weight
    exp(-‖z‖₁/(r·scale)), and ‖z‖₁/r <= ‖z‖₂ (Cauchy, Schwarz); so a vector is kept with the probability
    exp(-(⌈‖z‖₂⌉ - ‖z‖₁/r)/scale), by a coin. Of two coordinates 79% are kept, of five 35%, of ten 9%.
    Source: derived here; Hardt, Talwar 2010, section 4 (the continuous law).
    """
    root = Fraction(isqrt(dimensions << 2 * _ROOT) + 1, 1 << _ROOT)
    accepted: list[list[int]] = []
    while len(accepted) < vectors:
        tried = min(vectors - len(accepted), _BLOCK) + 8
        drawn = sample_two_sided_geometric(root * scale, tried * dimensions, entropy).reshape(
            tried, dimensions
        )
        for vector in drawn.tolist():
            square, total = sum(each * each for each in vector), sum(map(abs, vector))
            norm = isqrt(square - 1) + 1 if square else 0
            if Coin((norm - total / root) / scale).toss(entropy):
                accepted.append(vector)
    found = accepted[:vectors]
    small = all(abs(each) < _ROOMY for vector in found for each in vector)
    return np.array(found, np.int64 if small else object).reshape(vectors, dimensions)


def sample_lies(loss: Fraction, choices: int, size: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Return `size` independent coins with odds (choices - 1)·b : 1, b = exp(-loss), for any rational loss > 0.

    They say where randomized response does not answer the truth. The law is exact.
    """
    return _sample_outer_coins(loss, choices, 1, size, entropy)


def sample_below(bounds: Integers, entropy: Entropy) -> Integers:
    """Return an independent uniform integer from 0 to n-1 for each bound n >= 1."""
    return _sample_below(bounds, entropy)


def _sample_stair_magnitudes(loss: Fraction, width: int, inner: int, size: int, entropy: Entropy) -> Integers:
    """Return magnitudes of `sample_staircase`, before the sign is drawn."""
    signed = sample_two_sided_geometric(1 / loss, size, entropy)
    rows = np.where(signed < 0, ~signed, signed)
    roomy = rows.dtype == np.int64 and (int(rows.max(initial=0)) + 1) * width < _ROOMY
    kind = np.int64 if roomy else object
    beyond = (
        np.zeros(size, np.bool_) if inner == width else _sample_outer_coins(loss, width, inner, size, entropy)
    )
    starts, lengths = (np.array(pair, kind) for pair in ((0, inner), (inner, width - inner)))
    sides = beyond.astype(np.int64)
    found: Integers = rows.astype(kind) * width + starts[sides] + _sample_below(lengths[sides], entropy)
    return found


def _sample_outer_coins(
    loss: Fraction, width: int, inner: int, size: int, entropy: Entropy
) -> NDArray[np.bool_]:
    """Return coins with odds b·(width - inner) : inner, b = exp(-loss); where a word does not decide, draw more bits."""
    words = entropy.draw_words(size)
    threshold = _compute_outer_threshold(loss, width, inner, 64)
    found = words < np.uint64(threshold)
    for tie in np.flatnonzero(words == np.uint64(threshold)):
        prefix, bits = int(words[tie]), 64
        while prefix == (known := _compute_outer_threshold(loss, width, inner, bits)):
            prefix = prefix << 64 | int(entropy.draw_words(1)[0])
            bits += 64
        found[tie] = prefix < known
    return found


@lru_cache(maxsize=256)
def _compute_outer_threshold(loss: Fraction, width: int, inner: int, bits: int) -> int:
    """Return floor(p * 2**bits), exactly, for the probability p of those odds, which is transcendental because b is."""
    places = bits // 3 + 40
    while True:
        unit: int = 10**places
        weights = [b * (width - inner) for b in bound_exp(loss, places)]
        ends = [(outer << bits) // (inner * unit + outer) for outer in weights]
        if ends[0] == ends[1]:
            return ends[0]
        places *= 2


@lru_cache(maxsize=128)
def compute_eulerian_coefficients(power: int) -> tuple[int, ...]:
    """Return the coefficients B_i of the polynomial with B(x) / (1-x)**(power+1) = sum of (2R+1)**power * x**R.

    They are the Eulerian numbers of type B, none of them negative.
    Source: Brenti 1994, Theorem 3.4.

    >>> compute_eulerian_coefficients(2)
    (1, 6, 1)
    """
    found = [1]
    for n in range(1, power + 1):
        pairs = zip((*found, 0), (0, *found), strict=True)
        found = [(2 * i + 1) * here + (2 * (n - i) + 1) * before for i, (here, before) in enumerate(pairs)]
    return tuple(found)


def _sample_eulerian_indices(scale: Fraction, power: int, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return `size` indices i with probability proportional to B_i * a**i.

    A uniform number is compared with the cumulated probabilities: its first word decides unless it
    agrees with one of them, and then as many more as are needed.
    """
    words = entropy.draw_words(size)
    thresholds = np.array(_compute_index_thresholds(scale, power, 64), np.uint64)
    found = np.searchsorted(thresholds, words, side="right").astype(np.int64)
    for tie in np.flatnonzero(np.isin(words, thresholds)):
        prefix, bits = int(words[tie]), 64
        while prefix in (known := _compute_index_thresholds(scale, power, bits)):
            prefix = prefix << 64 | int(entropy.draw_words(1)[0])
            bits += 64
        found[tie] = bisect_right(known, prefix)
    return found


@lru_cache(maxsize=256)
def _compute_index_thresholds(scale: Fraction, power: int, bits: int) -> tuple[int, ...]:
    """Return floor(q * 2**bits), exactly, for the probabilities q of an index of at most 0, 1, … power-1.

    q falls as a grows, so bounds on a give bounds on q; they tighten until both have one floor, which
    they do in the end because q is transcendental, as a is (Lindemann).
    """
    weights, places = compute_eulerian_coefficients(power), bits // 3 + 40
    while True:
        unit: int = 10**places
        low, high = bound_exp(1 / scale, places)
        ends = [
            [(part << bits) // whole[-1] for part in whole[:-1]]
            for a in (high, low)
            for whole in [list(accumulate(b * a**i * unit ** (power - i) for i, b in enumerate(weights)))]
        ]
        if ends[0] == ends[1]:
            return tuple(ends[0])
        places *= 2


def _sample_below(bounds: Integers, entropy: Entropy) -> Integers:
    """Return a uniform integer from 0 to n-1 for each bound n >= 1.

    As many bits as n-1 has are drawn until they are below n: each time with probability above a half.
    """
    if bounds.dtype == object:
        return np.array([_sample_one_below(int(bound), entropy) for bound in bounds], dtype=object)
    found = np.zeros(len(bounds), np.int64)
    limits = bounds.astype(np.uint64)
    masks = limits - np.uint64(1)
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> np.uint64(shift)
    missing = np.arange(len(bounds))
    while len(missing):
        drawn = entropy.draw_words(len(missing)) & masks[missing]
        accepted = drawn < limits[missing]
        found[missing[accepted]] = drawn[accepted].astype(np.int64)
        missing = missing[~accepted]
    return found


def _sample_one_below(bound: int, entropy: Entropy) -> int:
    bits = (bound - 1).bit_length()
    while True:
        drawn = 0
        for word in entropy.draw_words(-(-bits // 64)):
            drawn = drawn << 64 | int(word)
        drawn >>= -bits % 64
        if drawn < bound:
            return drawn


@lru_cache(maxsize=64)
def _make_coins(scale: Fraction) -> tuple[tuple[Coin, ...], NDArray[np.uint16]]:
    """Return the coins of one draw (digits 0 to J-1, beyond 2**J, sign) and their thresholds, shape (J+2, 1)."""
    digits = (ceil(_REACH * scale) - 1).bit_length()
    coins = (
        *(Coin(2**j / scale, as_odds=True) for j in range(digits)),
        Coin(2**digits / scale),
        Coin(1 / scale, as_odds=True),
    )
    return coins, np.array([[coin.compute_threshold(_FIRST_BITS)] for coin in coins], np.uint16)


def _sample_geometric_block(scale: Fraction, size: int, entropy: Entropy) -> Integers:
    """Return `size` draws at once; apart from ties, the number of words drawn depends on the size and the scale only."""
    coins, thresholds = _make_coins(scale)
    count = len(coins) * size
    words = (
        entropy.draw_words(-(-count * _FIRST_BITS // 64)).view(np.uint16)[:count].reshape(len(coins), size)
    )
    heads = words < thresholds
    for tie in np.flatnonzero(words == thresholds):
        row, column = divmod(int(tie), size)
        heads[row, column] = coins[row].settle_toss(int(words[row, column]), _FIRST_BITS, entropy)
    *digits, beyond, negative = heads
    magnitude: NDArray[Any] = np.zeros(size, np.int64 if len(digits) <= _NARROW else object)
    for digit in reversed(digits):
        magnitude <<= 1
        magnitude |= digit
    for index in np.flatnonzero(beyond):
        laps = 1
        while coins[-2].toss(entropy):
            laps += 1
        if laps.bit_length() + len(digits) > 62:
            magnitude = magnitude.astype(object)
        magnitude[index] += laps << len(digits)
    return np.where(negative, ~magnitude, magnitude)


def _accept_proposals(
    proposals: Integers, variance: Fraction, scale: int, entropy: Entropy
) -> NDArray[np.bool_]:
    """Return which proposals y to keep: each with probability exp(-(|y| - variance/scale)**2 / (2 variance)).

    A uniform word decides in floating point, unless it is within `_RATIO_MARGIN` of the probability; then a
    coin carries on from it exactly.
    """
    words = entropy.draw_words(len(proposals))
    if _FLOAT_MIN < variance < _FLOAT_MAX:
        uniform, probability = words * 2.0**-64, _compute_acceptance_probabilities(proposals, variance, scale)
        accepted = uniform < probability
        doubtful = np.flatnonzero(np.abs(uniform - probability) <= _RATIO_MARGIN)
    else:
        accepted = np.zeros(len(proposals), np.bool_)
        doubtful = np.arange(len(proposals))
    for index in doubtful:
        coin = Coin((abs(int(proposals[index])) - variance / scale) ** 2 / (2 * variance))
        accepted[index] = coin.settle_toss(int(words[index]), 64, entropy)
    return accepted


def _compute_acceptance_probabilities(
    proposals: Integers, variance: Fraction, scale: int
) -> NDArray[np.float64]:
    """Return the probabilities of `_accept_proposals`, off by far less than `_RATIO_MARGIN`.

    Let e = 2**-53 and z = (|y| - variance/scale) / sigma. Rounding |y|, variance/scale <= sigma, their
    difference, sigma and the quotient moves z by at most (2 + 5|z|)e, so z*z/2 by at most
    (2|z| + 6z*z)e, and its exponential by that times exp(-z*z/2), which is below 6e. The word that it
    is compared with is off by 2e. The margin of 8,192e leaves 8,000 units in the last place for the
    library's `exp`, whose error is a few.
    """
    z = (np.abs(proposals).astype(np.float64) - float(variance / scale)) / sqrt(variance)
    probability: NDArray[np.float64] = np.exp(-0.5 * z * z)
    return probability
