"""Integer functions: division with a remainder, divisors and bits.

The engine refuses some arguments of these, such as a zero divisor or the least number of 64 bits divided
by -1. There TRY gives NULL, which costs time for each such row; where a constant excludes it the plain
form is written.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.plan.expressions import Expr, Function
from dpsql.plan.functions.signatures import (
    INTEGER,
    NUMBER,
    make_arithmetic_rule,
    make_constant_rule,
    make_fixed_rule,
    make_numeric_rule,
    round_to_doubles,
)
from dpsql.plan.interval import Interval, merge_intervals
from dpsql.plan.types import Type, Value

_TWO = make_fixed_rule(Type.INTEGER, INTEGER, INTEGER)
_GUARDED = "a zero divisor gives NULL, and TRY gives NULL for results beyond 64 bits"
_CONSTANT = "the divisor is a constant that divides every number"
_BITS = "defined for all 64 bits"
_WHOLE = Interval(-(2**63), 2**63 - 1)
_ZERO = Interval(0, 0)


def _find_divisor_error(values: tuple[Value, ...]) -> str | None:
    return "0 and -1 do not divide every number" if values[0] in (0, -1) else None


def _truncate_end(end: Fraction | None) -> Fraction | None:
    return None if end is None else Fraction(math.trunc(end))


def _derive_quotient_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    exact = of[0] / of[1]
    if exact.is_bounded:
        return Interval(_truncate_end(exact.low), _truncate_end(exact.high))
    if not of[0].is_bounded:
        return Interval()
    # A nonzero divisor is at least one.
    return Interval(0 if all(map(_is_natural, of)) else -of[0].magnitude, of[0].magnitude)


def _is_natural(interval: Interval) -> bool:
    return interval.low is not None and interval.low >= 0


def _derive_remainder_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive the interval of a remainder: it has the dividend's sign, and is smaller than the divisor and at most the dividend."""
    whole = all(argument.type is not Type.DOUBLE for argument in arguments)
    most = [interval.magnitude for interval in of if interval.is_bounded]
    if whole and of[1].is_bounded:
        most.append(max(Fraction(0), of[1].magnitude - 1))
    limit = min(most, default=None)
    negative = of[0].high is not None and of[0].high <= 0
    return Interval(0 if _is_natural(of[0]) else None if limit is None else -limit, 0 if negative else limit)


def _find_bit_width(of: tuple[Interval, ...]) -> int | None:
    """Find the number of bits of the largest magnitude."""
    if not all(interval.is_bounded for interval in of):
        return None
    return max(math.ceil(interval.magnitude).bit_length() for interval in of)


def _derive_and_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    highs = [interval.high for interval in of if _is_natural(interval) and interval.high is not None]
    if highs:
        return Interval(0, min(highs))
    return _derive_or_interval(_, of)


def _derive_or_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    bits = _find_bit_width(of)
    around = _WHOLE if bits is None else Interval(-(2**bits), 2**bits - 1)
    return around.narrow_to(Interval(0)) if all(map(_is_natural, of)) else around


def _derive_complement_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return (-of[0] - Interval(1, 1)).narrow_to(_WHOLE)


def _derive_left_shift_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if not (of[0].is_bounded and of[1].high is not None and of[1].high < 63):
        return Interval(0, _WHOLE.high)
    return Interval(0, max(Fraction(0), of[0].ends[1]) * 2 ** max(0, math.ceil(of[1].high))).narrow_to(_WHOLE)


def _derive_right_shift_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return merge_intervals((of[0], _ZERO))


def _derive_gcd_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return (
        Interval(0, max(of[0].magnitude, of[1].magnitude)) if all(i.is_bounded for i in of) else Interval(0)
    )


def _derive_lcm_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return Interval(0, of[0].magnitude * of[1].magnitude) if all(i.is_bounded for i in of) else Interval(0)


def _derive_sign_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    low, high = of[0].low, of[0].high
    # The sign of NaN is 0.
    return Interval(-1 if low is None or low < 0 else 0, 1 if high is None or high > 0 else 0)


def _derive_factorial_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive the interval of a factorial, which is NULL below 0 and above 33."""
    low = 0 if of[0].low is None else max(0, min(33, math.floor(of[0].low)))
    high = 33 if of[0].high is None else max(low, min(33, math.floor(of[0].high)))
    return round_to_doubles(Interval(math.factorial(low), math.factorial(high)))


INTEGER_FUNCTIONS = (
    Function(
        "quotient_by",
        "x // y",
        _TWO,
        "({0} // {1})",
        _CONSTANT,
        interval=_derive_quotient_interval,
        strict=True,
        literals=frozenset({1}),
        check=_find_divisor_error,
        names=("//",),
        example=("-7 // 2", "-3"),
    ),
    Function(
        "quotient",
        "x // y",
        _TWO,
        "TRY({0} // NULLIF({1}, 0))",
        _GUARDED,
        interval=_derive_quotient_interval,
        doubled_arguments=frozenset({1}),
        names=("//",),
        example=("7 // 0", "NULL"),
    ),
    Function(
        "remainder_by",
        "x % y",
        _TWO,
        "({0} % {1})",
        _CONSTANT,
        interval=_derive_remainder_interval,
        strict=True,
        literals=frozenset({1}),
        check=_find_divisor_error,
        names=("%", "mod"),
        example=("-7 % 2", "-1"),
    ),
    Function(
        "remainder",
        "x % y",
        make_numeric_rule(2),
        "TRY({0} % NULLIF({1}, 0))",
        _GUARDED,
        interval=make_arithmetic_rule(_derive_remainder_interval),
        doubled_arguments=frozenset({1}),
        names=("%", "mod"),
        example=("7.5 % 2", "1.5"),
    ),
    Function(
        "sign",
        "SIGN(x)",
        make_fixed_rule(Type.INTEGER, NUMBER),
        "CAST(SIGN({0}) AS BIGINT)",
        "defined for every number",
        interval=_derive_sign_interval,
        strict=True,
        names=("sign",),
        example=("SIGN(-2.5)", "-1"),
    ),
    Function(
        "bit_and",
        "x & y",
        _TWO,
        "({0} & {1})",
        _BITS,
        interval=_derive_and_interval,
        strict=True,
        names=("&",),
        example=("6 & 3", "2"),
    ),
    Function(
        "bit_or",
        "x | y",
        _TWO,
        "({0} | {1})",
        _BITS,
        interval=_derive_or_interval,
        strict=True,
        names=("|",),
        example=("6 | 3", "7"),
    ),
    Function(
        "bit_xor",
        "XOR(x, y)",
        _TWO,
        "XOR({0}, {1})",
        _BITS,
        interval=_derive_or_interval,
        strict=True,
        names=("xor",),
        example=("XOR(6, 3)", "5"),
    ),
    Function(
        "bit_not",
        "~x",
        make_fixed_rule(Type.INTEGER, INTEGER),
        "(~ {0})",
        _BITS,
        interval=_derive_complement_interval,
        strict=True,
        names=("~",),
        example=("~6", "-7"),
    ),
    Function(
        "shift_left",
        "x << y",
        _TWO,
        "TRY({0} << {1})",
        "TRY gives NULL for negative numbers and for results beyond 64 bits",
        interval=_derive_left_shift_interval,
        names=("<<",),
        example=("6 << 3", "48"),
    ),
    Function(
        "shift_right",
        "x >> y",
        _TWO,
        "({0} >> {1})",
        "a shift out of range gives 0",
        interval=_derive_right_shift_interval,
        strict=True,
        names=(">>",),
        example=("6 >> 1", "3"),
    ),
    Function(
        "bit_count",
        "BIT_COUNT(x)",
        make_fixed_rule(Type.INTEGER, INTEGER),
        "CAST(BIT_COUNT({0}) AS BIGINT)",
        _BITS,
        interval=make_constant_rule(Interval(0, 64)),
        strict=True,
        names=("bit_count",),
        example=("BIT_COUNT(7)", "3"),
    ),
    Function(
        "gcd",
        "GCD(x, y)",
        _TWO,
        "TRY(GCD({0}, {1}))",
        "TRY gives NULL for results beyond 64 bits",
        interval=_derive_gcd_interval,
        names=("gcd", "greatest_common_divisor"),
        example=("GCD(12, 18)", "6"),
    ),
    Function(
        "lcm",
        "LCM(x, y)",
        _TWO,
        "TRY(LCM({0}, {1}))",
        "TRY gives NULL for results beyond 64 bits",
        interval=_derive_lcm_interval,
        names=("lcm", "least_common_multiple"),
        example=("LCM(4, 6)", "12"),
    ),
    Function(
        "factorial",
        "FACTORIAL(n)",
        make_fixed_rule(Type.DOUBLE, INTEGER),
        "CAST(TRY(FACTORIAL(TRY_CAST({0} AS INTEGER))) AS DOUBLE)",
        "TRY gives NULL below 0 and above 33",
        interval=_derive_factorial_interval,
        integral=True,
        names=("factorial",),
        example=("FACTORIAL(5)", "120.0"),
    ),
)
