"""Exact numbers of a policy: 0.1 is 1/10, not the nearest double."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from numbers import Rational

from pydantic_core import PydanticCustomError

from dpsql.policy.problem import format_value, make_problem_error

NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_RATIO = re.compile(r"([-+]?[0-9]+)/([0-9]+)")
_SPECIAL = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)
LONGEST = 400  # digits, and powers of ten: 1e999999999 would be gigabytes as a fraction
_LARGEST = 10**LONGEST


def parse_number(value: object) -> Fraction:
    """Return the number that `value` is written as.

    Takes int, Fraction, Decimal, float (by its shortest decimal text) and the text of a decimal or a
    ratio such as `1/3`. Refuses truth values, NaN, infinities (`non_finite`), other text
    (`not_a_number`) and numbers beyond 400 digits (`number_size`).

    >>> parse_number(0.1), parse_number("1e-7"), parse_number("1/3")
    (Fraction(1, 10), Fraction(1, 10000000), Fraction(1, 3))
    """
    if isinstance(value, bool):
        raise make_problem_error(
            "not_a_number", f"must be a number, not the truth value {str(value).lower()}"
        )
    if isinstance(value, Rational):
        number = Fraction(int(value.numerator), int(value.denominator))
        if abs(number) > _LARGEST:
            raise _make_size_error()
        return number
    if isinstance(value, float):
        return _to_fraction(Decimal(float.__repr__(value)))
    if isinstance(value, Decimal):
        return _to_fraction(value)
    if isinstance(value, str):
        return _parse_text(value.strip())
    raise make_problem_error("not_a_number", f"must be a number, not {format_value(value)}")


def _parse_text(text: str) -> Fraction:
    if len(text) > LONGEST:
        raise _make_size_error()
    if ratio := _RATIO.fullmatch(text):
        if not int(ratio[2]):
            raise make_problem_error("non_finite", f"must be a finite number, not {text}")
        return Fraction(int(ratio[1]), int(ratio[2]))
    if _SPECIAL.fullmatch(text):
        raise make_problem_error("non_finite", f"must be a finite number, not {text}")
    if not NUMBER.fullmatch(text):
        raise make_problem_error("not_a_number", f"must be a number, not {format_value(text)}")
    return parse_decimal_text(text)


def parse_decimal_text(text: str) -> Fraction:
    """Return the value of a text that matches `NUMBER`; refuse more than 400 digits."""
    try:
        return _to_fraction(Decimal(text))
    except ArithmeticError:  # an exponent past what decimal can hold
        raise _make_size_error() from None


def _to_fraction(number: Decimal) -> Fraction:
    if not number.is_finite():
        raise make_problem_error("non_finite", f"must be a finite number, not {number}")
    if number.is_zero():
        return Fraction(0)
    if abs(number.adjusted()) > LONGEST or len(number.as_tuple().digits) > LONGEST:
        raise _make_size_error()
    return Fraction(number)


def _make_size_error() -> PydanticCustomError:
    return make_problem_error("number_size", f"must be a number with at most {LONGEST} digits")


def format_number(number: Fraction) -> str:
    """Return the number as an owner would write it: `10000`, `0.1`, and `1/3` where decimals do not end.

    >>> [format_number(Fraction(n)) for n in ("10000", "1/10", "1/3")]
    ['10000', '0.1', '1/3']
    """
    if number.denominator == 1:
        return format_value(str(number.numerator)).strip("'")
    near = float(number) if abs(number) < 10**300 else 0.0
    return repr(near) if isfinite(near) and Fraction(repr(near)) == number else str(number)
