"""Exact numbers of a policy: 0.1 is 1/10, not the nearest double."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational

from pydantic_core import PydanticCustomError

from dpsql.policy.problem import refusal, show

NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_RATIO = re.compile(r"([-+]?[0-9]+)/([0-9]+)")
_SPECIAL = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
LONGEST = 400  # digits, and powers of ten: 1e999999999 would be gigabytes as a fraction
_LARGEST = 10**LONGEST


def exact(value: object) -> Fraction:
    """The number that `value` is written as.

    Takes int, Fraction, Decimal, float (by its shortest decimal text) and the text of a decimal or a
    ratio such as `1/3`. Refuses truth values, NaN, infinities (`non_finite`), other text
    (`not_a_number`) and numbers beyond 400 digits (`number_size`).

    >>> exact(0.1), exact("1e-7"), exact("1/3")
    (Fraction(1, 10), Fraction(1, 10000000), Fraction(1, 3))
    """
    if isinstance(value, bool):
        raise refusal("not_a_number", f"must be a number, not the truth value {str(value).lower()}")
    if isinstance(value, Rational):
        number = Fraction(int(value.numerator), int(value.denominator))
        if abs(number) > _LARGEST:
            raise _too_long()
        return number
    if isinstance(value, float):
        return _decimal(Decimal(float.__repr__(value)))
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, str):
        return _text(value.strip())
    raise refusal("not_a_number", f"must be a number, not {show(value)}")


def _text(text: str) -> Fraction:
    if len(text) > LONGEST:
        raise _too_long()
    if ratio := _RATIO.fullmatch(text):
        if not int(ratio[2]):
            raise refusal("non_finite", f"must be a finite number, not {text}")
        return Fraction(int(ratio[1]), int(ratio[2]))
    if _SPECIAL.fullmatch(text):
        raise refusal("non_finite", f"must be a finite number, not {text}")
    if not NUMBER.fullmatch(text):
        raise refusal("not_a_number", f"must be a number, not {show(text)}")
    return decimal_fraction(text)


def decimal_fraction(text: str) -> Fraction:
    """The value of a text that matches `NUMBER`; refuses what is beyond 400 digits."""
    try:
        return _decimal(Decimal(text))
    except ArithmeticError:  # an exponent past what decimal can hold
        raise _too_long() from None


def _decimal(number: Decimal) -> Fraction:
    if not number.is_finite():
        raise refusal("non_finite", f"must be a finite number, not {number}")
    if number.is_zero():
        return Fraction(0)
    if abs(number.adjusted()) > LONGEST or len(number.as_tuple().digits) > LONGEST:
        raise _too_long()
    return Fraction(number)


def _too_long() -> PydanticCustomError:
    return refusal("number_size", f"must be a number with at most {LONGEST} digits")


def show_number(number: Fraction) -> str:
    """The number as an owner would write it: `10000`, `0.1`, and `1/3` where decimals do not end.

    >>> [show_number(Fraction(n)) for n in ("10000", "1/10", "1/3")]
    ['10000', '0.1', '1/3']
    """
    if number.denominator == 1:
        return show(str(number.numerator)).strip("'")
    near = float(number) if abs(number) < 10**300 else 0.0
    return repr(near) if isfinite(near) and Fraction(repr(near)) == number else str(number)
