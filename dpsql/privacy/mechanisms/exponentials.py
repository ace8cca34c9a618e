"""Exponentials of rationals: integer bounds, and decimal values with guard digits against cancellation."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

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
