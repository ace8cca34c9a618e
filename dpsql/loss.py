"""How a loss is asked for: numbers from a program to exact fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dpsql.errors import LossError

Amount = int | float | str | Decimal | Fraction


def amount(value: Amount, name: str = "epsilon") -> Fraction:
    """The exact value that was written: 0.1 is one tenth, not the float nearest to it.

    Raises LossError unless it is a finite number above zero.

    >>> amount(0.1), amount("1e-7")
    (Fraction(1, 10), Fraction(1, 10000000))
    """
    exact = None
    if not isinstance(value, bool) and isinstance(value, (int, float, str, Decimal, Fraction)):
        try:
            exact = Fraction(value) if isinstance(value, (int, Fraction)) else Fraction(Decimal(str(value)))
        except (ValueError, ArithmeticError):
            exact = None
    if exact is None or exact <= 0:
        raise LossError(f"{name} must be a finite number above zero, not {value!r}", hint=f"{name}=0.1")
    return exact
