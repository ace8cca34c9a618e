"""Decimal arithmetic with guard digits, for tails and variances that lose many to cancellation."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

_PLACES = 50


def digits(scale: Fraction) -> Context:
    """Digits enough to leave 50 of them after the cancellation in 1 - exp(-1/scale)."""
    return Context(prec=_PLACES + len(str(math.ceil(scale))))


def exp(exponent: Fraction) -> Decimal:
    """e to that power, rounded in the current context."""
    return (Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
