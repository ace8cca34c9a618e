"""The μ of each kind of release: exact or an upper bound, rounded up, with its proof.

A pair of laws whose likelihood ratio takes few values has a trade-off function that is linear between few
corners. That of μ-GDP is convex, so it lies below the chord wherever it lies below the corners: a release is
μ-GDP if and only if Φ⁻¹(P) - Φ⁻¹(Q) is at most μ at each corner (P, Q), the chances of a most powerful test
to say "here" when somebody is and is not (Dong, Roth, Su 2022, Definition 2.6 and Proposition 2.4).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from dpsql.privacy.accounting.numerics import MARGIN, PI, quantile_up, to_decimal_up

_DIGITS = 110
_LARGE = 10**6  # beyond, a simpler bound serves
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR)


def compute_squared_mu(mu: Decimal) -> Fraction:
    """Return the square of a μ."""
    return Fraction(mu) ** 2


@lru_cache(maxsize=1024)
def bound_pure_mu(epsilon: Fraction) -> Decimal:
    """Return the μ of a release that is ε-DP, rounded up.

    Claim: μ = -2Φ⁻¹(1/(1+e^ε)), and no smaller one serves all ε-DP releases.
    Why: such a release is a post-processing of randomized response, whose only corner is
    (e^ε/(1+e^ε), 1/(1+e^ε)). Beyond ε = 10^6 the bound Φ(-x) <= e^(-x²/2)/2 gives μ² <= 8ε.
    Source: Liu, Sun, Jiang, Kong 2022, "Identification, amplification and measurement: a bridge to Gaussian
    differential privacy", the comparison of ε-DP with μ-GDP; Kairouz, Oh, Viswanath 2015, Theorem 2.

    >>> round(bound_pure_mu(Fraction(1)), 12)
    Decimal('1.232035385345')
    """
    if epsilon > _LARGE:
        return _UP.next_plus(_UP.sqrt(_UP.multiply(8, to_decimal_up(epsilon))))
    asked = to_decimal_up(epsilon)
    with localcontext(prec=_DIGITS):
        log_tail = -(asked + (1 + (-asked).exp()).ln())
        return _UP.multiply(2, quantile_up(log_tail - MARGIN * (1 + asked)))


def bound_range_mu(epsilon: Fraction) -> Decimal:
    """Return the μ of choices whose ranges add up to at most ε, rounded up.

    Claim: that of an (ε/2)-DP release, -2Φ⁻¹(1/(1+e^(ε/2))), and no smaller one serves all such choices.
    Why: the worst choice of range ε has two outcomes (Dong, Durfee, Rogers 2020, Lemma 3.2), so one corner,
    with P/Q = e^t and (1-P)/(1-Q) = e^(t-ε) for some t in [0, ε]: the log odds of P and Q differ by ε. With
    g the normal quantile as a function of the log odds, μ is g(p) - g(p-ε). g is odd, and g' falls on both
    sides of 0: g' = Φ(z)Φ(-z)/φ(z) at z = g, and 2tφ/z + t² - 1/4 > 0 for t = Φ(z) - 1/2, because it falls to 0
    as z grows. So the largest difference is the one about 0, 2g(ε/2). For several choices: 4g(s/2)² over s
    grows, so that squares of μ add up to at most that of the sum. (With x = g(s), it grows if the log odds
    s(x) satisfy x·s' <= 2s; s' > x and s'' < 1 as for the inverse of Mills' ratio, so 2s - x·s' never falls.)
    Source: Dong, Durfee, Rogers 2020, "Optimal Differential Privacy Composition for Exponential Mechanisms",
    for the worst choice; the rest is derived here.

    >>> bound_range_mu(Fraction(2)) == bound_pure_mu(Fraction(1))
    True
    """
    return bound_pure_mu(epsilon / 2)


@lru_cache(maxsize=1024)
def bound_laplace_mu(epsilon: Fraction) -> Decimal:
    """Return the μ of continuous Laplace noise of scale sensitivity/ε on one number, rounded up.

    Claim: μ = -2Φ⁻¹(e^(-ε/2)/2), and no smaller one holds.
    Why: with F the law of the noise in units of its scale and T = Φ⁻¹∘F, the corners are (x, x-ε), so μ is the
    largest T(x) - T(x-ε). T is odd, and T' = Φ(-T)/φ(T) falls for x > 0, being Mills' ratio: so the largest
    difference is the one about 0, 2T(ε/2).
    Source: derived here; Liu, Sun, Jiang, Kong 2022 measure it.

    >>> round(bound_laplace_mu(Fraction(1)), 12)
    Decimal('1.030063997624')
    """
    with localcontext(prec=_DIGITS):
        asked = to_decimal_up(epsilon)
        log_tail = -asked / 2 - Decimal(2).ln()
        return _UP.multiply(2, quantile_up(log_tail - MARGIN * (1 + asked)))


@lru_cache(maxsize=1024)
def bound_geometric_mu(scale: Fraction, shift: int) -> Decimal:
    """Return the μ of two-sided geometric noise on one integer that moves by `shift` at most, rounded up.

    Claim: with q(k) = -Φ⁻¹(a^k/(1+a)) and a = e^(-1/scale), μ is q(⌈v/2⌉) + q(⌊v/2⌋+1) for a shift of v. At
    v = 1 that is the μ of any (1/scale)-DP release.
    Why: the corners are (z_k, z_(k-v)) with z_k = Φ⁻¹(P(noise <= k)), which is q(k+1) for k >= 0 and -q(-k) below.
    q is concave, as for Laplace noise, so the steps of z fall outward, and v of them that adjoin add up to most
    about the middle.
    Source: derived here.

    >>> bound_geometric_mu(Fraction(2), 1) == bound_pure_mu(Fraction(1, 2))
    True
    """
    halves = ((shift + 1) // 2, shift // 2 + 1)
    with localcontext(prec=_DIGITS):
        rate = to_decimal_up(1 / scale)
        total = Decimal(0)
        for power in halves:
            log_tail = -power * rate - (1 + (-rate).exp()).ln()
            total = _UP.add(total, quantile_up(log_tail - MARGIN * (1 + power * rate)))
        return total


@lru_cache(maxsize=1024)
def bound_lattice_gaussian_mu(rho: Fraction) -> Decimal:
    """Return the μ of discrete Gaussian noise on integers at ρ = l2_sensitivity²/(2σ²), rounded up.

    Claim: μ = 2Φ⁻¹(1/2 + √(ρ/π)/2), at most 2√(2ρ). Continuous or rounded Gaussian noise has √(2ρ), which is
    less: discrete noise is not quite as private under this measure, by a part of 1/(24σ²) in μ.
    Why: shift the law p by v and let z_k = Φ⁻¹(P(noise <= k)); the corners are (z_k, z_(k-v)), so μ is the
    largest z_k - z_(k-v), at most v times the largest step d_k = z_k - z_(k-1), attained at v = 1. The
    coordinates of a vector compose by √Σμ², so μ is at most the l2 norm times that step.
    The largest step is the middle one, 2Φ⁻¹((1+p_0)/2). For p_(k+1)·p_(k-1)/p_k² is e^(-1/σ²) at every k; it
    is at most ψ(d, m) where d_k is a local maximum, at least that at a local minimum, with ψ the same ratio for
    three adjoining intervals of length d on the normal law, m >= 0 the middle one's center. ψ falls in d (the
    outer intervals lose more to a narrower law) and in m (the variance of a normal law cut to an interval falls
    as the interval moves off 0; Griffiths, Hurst, Sherman 1970). So no maximum off the middle can lie above a
    minimum before it, nor the limit 1/σ of the steps, where ψ tends to e^(-d²).
    By Poisson summation p_0 <= y = 1/(σ√(2π)). Over y, Φ⁻¹((1+y)/2) grows, as it is convex and 0 at 0: so the
    step times σ is bounded by its value at the least σ, which is 1/√(2ρ), as sensitivities on integers are 1 or
    more. There y = √(ρ/π). The bound 2/σ of a step is that above for σ >= 0.849, and follows below it, where
    w = e^(-1/(2σ²)) <= 1/2, from (1-p_0)/2 >= w/(1+2w) >= w/2 >= Φ(-1/σ).
    Source: derived here; Dong, Roth, Su 2022, Corollary 3.3 (vectors).

    >>> mu = bound_lattice_gaussian_mu(Fraction(1, 200))  # counts with σ = 10
    >>> round(mu, 8)
    Decimal('0.10004170')
    """
    exact = to_decimal_up(rho)
    simple = _UP.sqrt(_UP.multiply(8, exact))
    with localcontext(prec=_DIGITS):
        y = _UP.next_plus(_UP.sqrt(_UP.divide(exact, PI * (1 - MARGIN))))
        if y >= Decimal("0.999"):
            return _UP.next_plus(simple)
        log_tail = _DOWN.next_minus(_DOWN.ln(_DOWN.divide(_DOWN.subtract(1, y), Decimal(2))))
        return min(_UP.multiply(2, quantile_up(log_tail)), _UP.next_plus(simple))


@lru_cache(maxsize=1024)
def bound_discrete_gaussian_mu(variance: Fraction, l2_squared: Fraction) -> Decimal:
    """Return the μ of discrete Gaussian noise of this parameter for a vector of integers of this squared l2 sensitivity, rounded up.

    Claim: μ = l2_sensitivity·2Φ⁻¹((1+y)/2) with y = 1/√(2π·variance), at most 2·l2_sensitivity/√variance.
    Why: the proof of `bound_lattice_gaussian_mu` bounds the steps of one integer by that at any parameter; coordinates compose
    by √Σμ². Where the parameter is known it is less than the bound there, which is for the least parameter.
    Source: derived there.

    >>> mu = bound_discrete_gaussian_mu(Fraction(10**12), Fraction(10**12))
    >>> round(mu, 12), mu > 1
    (Decimal('1.000000000000'), True)
    """
    length = _UP.sqrt(to_decimal_up(l2_squared))
    length = length if length * length >= to_decimal_up(l2_squared) else _UP.next_plus(length)
    with localcontext(prec=_DIGITS):
        below = _DOWN.sqrt(
            _DOWN.multiply(2 * PI * (1 - MARGIN), _DOWN.divide(variance.numerator, variance.denominator))
        )
        y = _UP.next_plus(_UP.divide(1, _DOWN.next_minus(below)))
        root = _DOWN.next_minus(_DOWN.sqrt(_DOWN.divide(variance.numerator, variance.denominator)))
        simple = _UP.divide(2, root)
        if y < Decimal("0.999"):
            log_tail = _DOWN.next_minus(_DOWN.ln(_DOWN.divide(_DOWN.subtract(1, y), Decimal(2))))
            simple = min(_UP.multiply(2, quantile_up(log_tail)), simple)
        return _UP.multiply(_UP.next_plus(length), simple)
