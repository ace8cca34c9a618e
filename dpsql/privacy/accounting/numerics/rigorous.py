"""Rigorous bounds of exp and ln: rationals just below and just above the true value.

The `decimal` module rounds exp and ln correctly (to nearest), so the true value lies within one step of
what it returns; the argument is first rounded outward to a decimal. No float is involved.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction

_DIGITS = 70
_FAR = 2000  # e^-2000 is below any unit, and far from the smallest decimal


def _make_context(rounding: str | None = None) -> Context:
    traps = [DivisionByZero, InvalidOperation, Overflow]
    return Context(prec=_DIGITS, rounding=rounding, Emin=-9999, Emax=9999, traps=traps)


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
    if value > _FAR:
        return Fraction(0)
    context = _make_context()
    return Fraction(context.next_minus(context.exp(-to_decimal_up(value))))


def exp_minus_up(value: Fraction) -> Fraction:
    """Return a rational at least e^-value, for `value` of 0 or more.

    >>> 0 <= exp_minus_up(Fraction(0)) - 1 < Fraction(1, 10**60)
    True
    """
    context = _make_context()
    return Fraction(context.next_plus(context.exp(-to_decimal_down(min(value, Fraction(_FAR))))))


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
