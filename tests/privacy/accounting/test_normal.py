"""The bounds of the normal law hold, and are tight: against integrals, other digits and another library's."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from speeds import examples

from dpsql.privacy.accounting.numerics import (
    MARGIN,
    PI,
    convert_to_epsilon,
    convert_to_mu,
    gaussian_delta,
    mills_ratio,
    quantile_up,
    tail,
    to_decimal,
)

WIDE = Context(prec=150, Emin=-(10**9), Emax=10**9)


def arctan_of_inverse(n: int) -> Decimal:
    """arctan(1/n) to 140 digits, by its series."""
    with localcontext(WIDE):
        term, total, k = Decimal(1) / n, Decimal(0), 0
        while abs(term) > Decimal("1e-145"):
            total += term / (2 * k + 1) * (-1) ** k
            term, k = term / (n * n), k + 1
        return total


def taylor_tail(x: Decimal) -> Decimal:
    """Φ(-x) to more than 100 digits for |x| up to 8, by the alternating series of the error function."""
    with localcontext(Context(prec=220, Emin=-(10**9), Emax=10**9)):
        term, total, n = x, Decimal(0), 0
        while abs(term) > Decimal("1e-200") or n < 100:
            total += term / (2 * n + 1)
            n += 1
            term = -term * x * x / (2 * n)
        return Decimal("0.5") - total / (2 * PI).sqrt()


def test_pi_is_pi() -> None:
    """All digits are those of Machin's formula."""
    with localcontext(WIDE):
        assert abs(4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)) - PI) < Decimal("1e-139")


@settings(max_examples=examples(60))
@given(st.decimals(min_value=-8, max_value=8, places=6))
def test_the_tail_is_right_to_its_margin(x: Decimal) -> None:
    """Series, continued fraction and the seam between them agree with another series to 90 digits."""
    with localcontext(WIDE):
        true = taylor_tail(x)
        assert abs(tail(x) - true) <= MARGIN * true


@pytest.mark.parametrize("x", [9, 20, 37, 100, 1000, 9999])
def test_far_tails_lie_between_their_bounds(x: int) -> None:
    """1/x - 1/x³ + 3/x⁵ - 15/x⁷ < R(x) < 1/x - 1/x³ + 3/x⁵, and scipy agrees as far as it goes."""
    with localcontext(WIDE):
        inverse = 1 / Decimal(x)
        upper = inverse - inverse**3 + 3 * inverse**5
        assert upper - 15 * inverse**7 < mills_ratio(Decimal(x)) < upper
        assert float(mills_ratio(Decimal(x))) == pytest.approx(
            special.erfcx(x / math.sqrt(2)) * math.sqrt(math.pi / 2), rel=1e-12
        )


@given(st.floats(min_value=-700, max_value=-0.6931471805599454))
def test_the_quantile_is_enclosed(log_tail: float) -> None:
    """The tail beyond the quantile is at most what was asked, and a part in 10^60 nearer it is more."""
    asked = Decimal(log_tail)
    x = quantile_up(asked)
    with localcontext(WIDE):
        assert tail(x).ln() <= asked
        nearer = x - Decimal("1e-60") * (1 + x)
        assert tail(nearer).ln() > asked


@settings(max_examples=examples(40), deadline=None)
@given(st.floats(min_value=0.02, max_value=12), st.floats(min_value=0, max_value=20))
def test_profile_is_the_integral_of_the_excess(mu: float, epsilon: float) -> None:
    """δ_μ(ε) is the integral of (φ(x-μ) - e^ε·φ(x))₊, by quadrature, and its bounds are tight."""
    low, high = gaussian_delta(Decimal(mu), Decimal(epsilon))
    assert 0 <= low <= high <= 1
    assert high - low <= Decimal("1e-60")
    start = epsilon / mu + mu / 2
    ends = (start, max(start, mu) + 40)
    value, error = integrate.quad(
        lambda x: stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x),
        *ends, points=[mu] if start < mu else None, epsabs=1e-13, limit=200,
    )  # fmt: skip
    assert float(low) == pytest.approx(value, rel=1e-6, abs=error + 1e-12)


BUDGETS = [
    (Fraction(3), Fraction(1, 10**6)),
    (Fraction(1, 100), Fraction(1, 10**7)),
    (Fraction(20), Fraction(1, 10**12)),
    (Fraction(1), Fraction(1, 2)),
    (Fraction(10**7), Fraction(1, 100)),
    (Fraction(1, 10**6), Fraction(1, 10**300)),
]


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS, ids=str)
def test_conversions_are_enclosed_and_tight(epsilon: Fraction, delta: Fraction) -> None:
    """The μ of a budget keeps it, and a part in 10^30 more does not; the ε of that μ is the budget's again."""
    mu = convert_to_mu(epsilon, delta)
    with localcontext(WIDE):
        assert gaussian_delta(mu, to_decimal(epsilon)).high <= to_decimal(delta)
        assert gaussian_delta(mu * (1 + Decimal("1e-30")), to_decimal(epsilon)).low > to_decimal(delta)
        back = convert_to_epsilon(mu, delta)
        assert gaussian_delta(mu, back).high <= to_decimal(delta)
        assert abs(back / to_decimal(epsilon) - 1) < Decimal("1e-30")


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**40), Fraction(10**30)], ids=str)
@pytest.mark.parametrize("delta", [Fraction(1, 10**300), 1 - Fraction(1, 10**30)], ids=str)
def test_extreme_budgets_have_a_limit(epsilon: Fraction, delta: Fraction) -> None:
    """At the ends of the range a μ is found, and it keeps the budget."""
    mu = convert_to_mu(epsilon, delta)
    assert mu > 0
    assert gaussian_delta(mu, to_decimal(epsilon)).high <= to_decimal(delta)
