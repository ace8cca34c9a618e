"""The bounds of exp and ln hold, and are tight."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpsql.privacy.accounting.numerics import exp_minus_down, ln_down, ln_up

WIDE = Context(prec=200)
TIGHT = Fraction(1, 10**60)


def _wide(value: Fraction) -> Decimal:
    return WIDE.divide(Decimal(value.numerator), Decimal(value.denominator))


@given(st.fractions(min_value=0, max_value=1000))
def test_exp_is_bounded_from_below(value: Fraction) -> None:
    """exp_minus_down lies below e^-value, by a part in 10^60 at most."""
    true = Fraction(WIDE.exp(-_wide(value)))
    assert true * (1 - TIGHT) <= exp_minus_down(value) < true


def test_exp_of_a_far_value() -> None:
    """Where e^-value is below everything, the bound is 0 and no huge number is made."""
    assert exp_minus_down(Fraction(10**1000)) == 0


@given(st.fractions(min_value=Fraction(1, 10**20), max_value=10**20))
def test_ln_is_enclosed(value: Fraction) -> None:
    """The bounds of ln hold: it lies strictly between its bounds, which are 10^-58 apart at most."""
    true = Fraction(WIDE.ln(_wide(value)))
    error = Fraction(1, 10**100)
    assert ln_down(value) < true + error
    assert true - error < ln_up(value)
    assert ln_up(value) - ln_down(value) < 100 * TIGHT
