"""Rigorous numerics: bounds on logarithms, exponentials and the normal law that round in a known direction."""

from __future__ import annotations

import math
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

# The normal law with rigorous bounds: its tail, its quantile, the privacy profile of Gaussian noise.
#
# Everything is computed in decimals of 110 digits from sums of positive terms or continued fractions, whose
# errors stay some fifteen digits below the margins that are stated and added here. No float enters a result: one
# serves as the start of a search, whose end is then checked.


_DIGITS = 110
_TRAPS = [DivisionByZero, InvalidOperation, Overflow]
_CONTEXT = Context(prec=_DIGITS, Emin=-(10**15), Emax=10**15, traps=_TRAPS)
MARGIN = Decimal("1e-90")
"""The relative error that the functions here keep to, with many digits to spare."""
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    "214808651328230664709384460955058223172535940812848111745"
)
_SERIES = 6  # up to here the tail is one half less a series, beyond a continued fraction
_FAR = 10**4  # no tail beyond so many standard deviations is told from the next
_ROUNDS = 400


class Bounds(NamedTuple):
    """A number lies between `low` and `high`, both included."""

    low: Decimal
    high: Decimal


def to_decimal(value: Fraction | Decimal) -> Decimal:
    """Return `value` as a decimal of 110 digits, to nearest."""
    if isinstance(value, Decimal):
        return value
    return _CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))


def bound_with_margin(value: Decimal) -> Bounds:
    """Return the bounds of a nonnegative number with a relative error of `MARGIN`."""
    with localcontext(_CONTEXT):
        return Bounds(value * (1 - MARGIN), value * (1 + MARGIN))


def density(x: Decimal) -> Decimal:
    """Return φ(x) = exp(-x²/2) / √(2π), up to `MARGIN`; |x| at most 10^4."""
    with localcontext(_CONTEXT):
        return (-x * x / 2).exp() / (2 * PI).sqrt()


def mills_ratio(x: Decimal) -> Decimal:
    """Return Mills' ratio Φ(-x) / φ(x) for x of 0 or more, up to `MARGIN`.

    Claim: up to x = 6, Φ(x) - 1/2 = φ(x)·Σ x^(2n+1)/(2n+1)!!, and the subtraction from 1/2 loses nine
    digits of 110; beyond, 1/(x+1/(x+2/(x+…))), whose convergents lie on both sides of the value in turn.
    Source: Abramowitz, Stegun 1964, 26.2.11 and 26.2.14.

    >>> round(mills_ratio(Decimal(0)), 12), round(mills_ratio(Decimal(10)), 12)
    (Decimal('1.253314137316'), Decimal('0.099028596472'))
    """
    with localcontext(_CONTEXT):
        if x < _SERIES:
            term = total = x
            square, odd = x * x, 1
            while term > total * MARGIN * MARGIN:
                odd += 2
                term = term * square / odd
                total += term
            return (2 * PI).sqrt() * (x * x / 2).exp() / 2 - total
        depth = 8 + int((Decimal(115) / x) ** 2)
        while True:
            one, next_one = _compute_convergent(x, depth), _compute_convergent(x, depth + 1)
            if abs(one - next_one) < one * MARGIN / 1000:
                return one
            depth *= 2


def _compute_convergent(x: Decimal, depth: int) -> Decimal:
    value = x
    for n in range(depth, 0, -1):
        value = x + n / value
    return 1 / value


def tail(x: Decimal) -> Decimal:
    """Return Φ(-x) = P(Z > x) for a standard normal Z, up to `MARGIN`; |x| at most 10^4.

    >>> round(tail(Decimal(1)), 12)
    Decimal('0.158655253931')
    """
    with localcontext(_CONTEXT):
        beyond = density(abs(x)) * mills_ratio(abs(x))
        return beyond if x >= 0 else 1 - beyond


def quantile_up(log_tail: Decimal) -> Decimal:
    """Return an x, barely too large, with Φ(-x) at most exp(`log_tail`), which is at most 1/2, as x is 0 or more.

    `log_tail` is at least -10^7. The search is free to err: its end is checked, and moved until it holds.

    >>> with localcontext(_CONTEXT):
    ...     round(quantile_up(Decimal("0.025").ln()), 12)
    Decimal('1.959963984540')
    """
    with localcontext(_CONTEXT):
        x = _guess_quantile(log_tail)
        half = (2 * PI).ln() / 2
        for _ in range(_ROUNDS):
            ratio = mills_ratio(x)
            step = ratio * (ratio.ln() - x * x / 2 - half - log_tail)
            x = max(x + step, Decimal(0))
            if abs(step) <= Decimal("1e-40") * (1 + x):
                break
        slack = Decimal("1e-75")
        while True:
            candidate = x + slack * (1 + x)
            high = bound_with_margin(mills_ratio(candidate)).high.ln() - candidate * candidate / 2 - half
            if high + MARGIN * (1 + abs(high)) <= log_tail:
                return candidate
            slack *= 1000


def _guess_quantile(log_tail: Decimal) -> Decimal:
    if log_tail > -600:
        with localcontext(_CONTEXT):
            chance = min(float(log_tail.exp()), 0.5)
        return Decimal(abs(NormalDist().inv_cdf(chance)))
    return (-2 * log_tail - (-4 * PI * log_tail).ln()).sqrt()


def gaussian_delta(mu: Decimal, epsilon: Decimal) -> Bounds:
    """Return the least δ at which μ-GDP implies (ε, δ)-DP, for μ above 0 and ε of 0 or more.

    Claim: δ = Φ(-a) - e^ε·Φ(-b) with a = ε/μ - μ/2 and b = ε/μ + μ/2. As b² - a² = 2ε, the second term is
    φ(a) times Mills' ratio at b, which no large power enters.
    Source: Balle, Wang 2018, Theorem 8; Dong, Roth, Su 2022, Corollary 2.13.

    >>> low, high = gaussian_delta(Decimal(1), Decimal(1))
    >>> round(low, 12), high - low < Decimal("1e-80")
    (Decimal('0.126936737507'), True)
    """
    with localcontext(_CONTEXT):
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if a > _FAR:
            return Bounds(Decimal(0), density(Decimal(_FAR)))
        if a < -_FAR:
            return Bounds(1 - 2 * density(Decimal(_FAR)), Decimal(1))
        at_a, second = density(a), mills_ratio(b)
        # Beyond the functions' own errors, a and b are off by a unit in the 110th digit of ε/μ.
        blur = MARGIN * (1 + abs(a)) * (1 + b)
        if a >= 0:
            first = mills_ratio(a)
            off = (first + second) * blur
            low, high = at_a * (first - second - off), at_a * (first - second + off)
        else:
            value = tail(a) - at_a * second
            low, high = value - blur, value + blur
        return Bounds(max(low, Decimal(0)), min(high, Decimal(1)))


@lru_cache(maxsize=1024)
def convert_to_mu(epsilon: Fraction, delta: Fraction) -> Decimal:
    """Return a μ, barely too small, such that μ-GDP implies (`epsilon`, `delta`)-DP; `delta` above 0."""
    with localcontext(_CONTEXT):
        return solve_mu(to_decimal(epsilon) * (1 - MARGIN), to_decimal(delta) * (1 - MARGIN)).low


def solve_mu(epsilon: Decimal, delta: Decimal) -> Bounds:
    """Return the μ with δ_μ(ε) = `delta`, which is above 0 and below 1; it is 0 or more, and may be as large as is asked.

    The search climbs the logarithm of δ by Newton's steps from below; its end is checked, on both sides.
    """
    with localcontext(_CONTEXT):
        mu = _guess_mu(epsilon, delta)
        slack = Decimal("1e-45")
        while gaussian_delta(mu * (1 - slack), epsilon).high > delta:
            slack *= 1000
            if slack >= 1:
                return Bounds(Decimal(0), _bound_mu_above(mu, epsilon, delta))
        return Bounds(mu * (1 - slack), _bound_mu_above(mu, epsilon, delta))


def _bound_mu_above(mu: Decimal, epsilon: Decimal, delta: Decimal) -> Decimal:
    slack = Decimal("1e-45")
    while gaussian_delta(mu * (1 + slack), epsilon).low < delta:
        slack *= 1000
    return mu * (1 + slack)


def _guess_mu(epsilon: Decimal, delta: Decimal) -> Decimal:
    with localcontext(_CONTEXT):
        target = delta.ln()
        log = max(-target, Decimal(0))
        # From ρ + 2√(ρ·ln(1/δ)) = ε (Bun, Steinke 2016, Proposition 1.3), which is below.
        root = (epsilon + log).sqrt() + log.sqrt()
        mu = max(epsilon / root * Decimal(2).sqrt() if root else epsilon, delta)
        for _ in range(_ROUNDS):
            value = gaussian_delta(mu, epsilon).low
            if value <= 0:
                mu *= 2
                continue
            step = value * (target - value.ln()) / density(epsilon / mu - mu / 2)
            mu = mu + step if mu + step > 0 else mu / 2
            if abs(step) <= Decimal("1e-45") * mu:
                break
        return mu


@lru_cache(maxsize=1024)
def convert_to_epsilon(mu: Decimal, delta: Fraction) -> Decimal:
    """Return an ε, barely too large, such that `mu`-GDP implies (ε, `delta`)-DP; both above 0."""
    with localcontext(_CONTEXT):
        bound = to_decimal(delta) * (1 - MARGIN)
        if gaussian_delta(mu, Decimal(0)).high <= bound:
            return Decimal(0)
        # From ρ + 2√(ρ·ln(1/δ)), which is above: ln δ is concave in ε, so that a step stays above the root.
        rho, target = mu * mu / 2, bound.ln()
        epsilon = rho + 2 * (rho * max(-target, Decimal(0))).sqrt()
        for _ in range(_ROUNDS):
            a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
            value = gaussian_delta(mu, epsilon).low
            if value <= 0:
                epsilon /= 2
                continue
            step = value * (value.ln() - target) / (density(a) * mills_ratio(b))
            epsilon = max(epsilon + step, Decimal(0))
            if abs(step) <= Decimal("1e-45") * epsilon:
                break
        slack = Decimal("1e-45")
        while gaussian_delta(mu, epsilon * (1 + slack)).high > bound:
            slack *= 1000
        return epsilon * (1 + slack)


# Rigorous bounds of exp and ln: rationals just below and just above the true value.
#
# The `decimal` module rounds exp and ln correctly (to nearest), so the true value lies within one step of
# what it returns; the argument is first rounded outward to a decimal. No float is involved.


_EXP_DIGITS = 70
_EXP_FAR = 2000  # e^-2000 is below any unit, and far from the smallest decimal


def _make_context(rounding: str | None = None) -> Context:
    traps = [DivisionByZero, InvalidOperation, Overflow]
    return Context(prec=_EXP_DIGITS, rounding=rounding, Emin=-9999, Emax=9999, traps=traps)


def to_decimal_down(value: Fraction) -> Decimal:
    """Return the largest decimal of 70 digits that is at most `value`."""
    return _make_context(ROUND_FLOOR).divide(Decimal(value.numerator), Decimal(value.denominator))


def to_decimal_up(value: Fraction) -> Decimal:
    """Return the smallest decimal of 70 digits that is at least `value`."""
    return _make_context(ROUND_CEILING).divide(Decimal(value.numerator), Decimal(value.denominator))


def exp_minus_down(value: Fraction) -> Fraction:
    """Return a rational at most e^-value, for `value` of 0 or more.

    >>> 0 <= Fraction(1) - exp_minus_down(Fraction(0)) < Fraction(1, 10**60)
    True
    """
    if value > _EXP_FAR:
        return Fraction(0)
    context = _make_context()
    return Fraction(context.next_minus(context.exp(-to_decimal_up(value))))


def exp_minus_up(value: Fraction) -> Fraction:
    """Return a rational at least e^-value, for `value` of 0 or more.

    >>> 0 <= exp_minus_up(Fraction(0)) - 1 < Fraction(1, 10**60)
    True
    """
    context = _make_context()
    return Fraction(context.next_plus(context.exp(-to_decimal_down(min(value, Fraction(_EXP_FAR))))))


def ln_down(value: Fraction) -> Fraction:
    """Return a rational at most ln(value), for `value` above 0."""
    context = _make_context()
    return Fraction(context.next_minus(context.ln(to_decimal_down(value))))


def ln_up(value: Fraction) -> Fraction:
    """Return a rational at least ln(value), for `value` above 0.

    >>> 0 < ln_up(Fraction(2)) - ln_down(Fraction(2)) < Fraction(1, 10**60)
    True
    """
    context = _make_context()
    return Fraction(context.next_plus(context.ln(to_decimal_up(value))))


# Exponentials of rationals: integer bounds, and decimal values with guard digits against cancellation.


_PLACES = 50


def make_guarded_context(scale: Fraction) -> Context:
    """Return a context with enough digits to leave 50 after the cancellation in 1 - exp(-1/scale)."""
    return Context(prec=_PLACES + len(str(math.ceil(scale))))


def exp(exponent: Fraction) -> Decimal:
    """Return e to that power, rounded in the current context."""
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


def bound_exp(exponent: Fraction, places: int) -> tuple[int, int]:
    """Bound exp(-exponent) * 10**places by two integers.

    With ten spare digits the value is known to 1e-9 of a unit: `Decimal.exp` is correctly rounded, and a
    relative error r in the exponent x moves exp(-x) by about r * x * exp(-x) < r. One unit each way is
    then beyond doubt.
    """
    context = Context(prec=places + 10)
    quotient = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = int(context.scaleb(context.exp(quotient.copy_negate()), places))
    return max(0, value - 1), value + 2
