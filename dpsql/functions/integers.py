"""Integer functions: division with a remainder, divisors and bits.

The engine refuses some arguments of these, such as a zero divisor or the least number of 64 bits divided
by -1. There TRY gives NULL, which costs time for each such row; where a constant excludes it the plain
form is written.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dpsql.functions.enclosures import constantly, doubles, machine
from dpsql.functions.signatures import INTEGER, NUMBER, fixed, numbers
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval, hull
from dpsql.plan.types import Type, Value

_TWO = fixed(Type.INTEGER, INTEGER, INTEGER)
_GUARDED = "a zero divisor gives NULL, and TRY what would pass 64 bits"
_CONSTANT = "the divisor is a constant that divides every number"
_BITS = "defined for all 64 bits"
_WHOLE = Interval(-(2**63), 2**63 - 1)
_ZERO = Interval(0, 0)


def _divisor(values: tuple[Value, ...]) -> str | None:
    return "0 and -1 do not divide every number" if values[0] in (0, -1) else None


def _toward_zero(end: Fraction | None) -> Fraction | None:
    return None if end is None else Fraction(math.trunc(end))


def _quotient(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    exact = of[0] / of[1]
    if exact.bounded:
        return Interval(_toward_zero(exact.low), _toward_zero(exact.high))
    if not of[0].bounded:
        return Interval()
    # Whatever divides, divides by at least one.
    return Interval(0 if all(map(_natural, of)) else -of[0].magnitude, of[0].magnitude)


def _natural(interval: Interval) -> bool:
    return interval.low is not None and interval.low >= 0


def _remainder(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """It has the dividend's sign, and is nearer to zero than the divisor and no farther than the dividend."""
    whole = all(argument.type is not Type.DOUBLE for argument in arguments)
    most = [interval.magnitude for interval in of if interval.bounded]
    if whole and of[1].bounded:
        most.append(max(Fraction(0), of[1].magnitude - 1))
    limit = min(most, default=None)
    negative = of[0].high is not None and of[0].high <= 0
    return Interval(0 if _natural(of[0]) else None if limit is None else -limit, 0 if negative else limit)


def _width(of: tuple[Interval, ...]) -> int | None:
    """The number of bits of the largest magnitude."""
    if not all(interval.bounded for interval in of):
        return None
    return max(math.ceil(interval.magnitude).bit_length() for interval in of)


def _both(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    highs = [interval.high for interval in of if _natural(interval) and interval.high is not None]
    if highs:
        return Interval(0, min(highs))
    return _either(_, of)


def _either(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    bits = _width(of)
    around = _WHOLE if bits is None else Interval(-(2**bits), 2**bits - 1)
    return around.meet(Interval(0)) if all(map(_natural, of)) else around


def _complement(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return (-of[0] - Interval(1, 1)).meet(_WHOLE)


def _left(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    if not (of[0].bounded and of[1].high is not None and of[1].high < 63):
        return Interval(0, _WHOLE.high)
    return Interval(0, max(Fraction(0), of[0].ends[1]) * 2 ** max(0, math.ceil(of[1].high))).meet(_WHOLE)


def _right(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return hull((of[0], _ZERO))


def _common_divisor(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return Interval(0, max(of[0].magnitude, of[1].magnitude)) if all(i.bounded for i in of) else Interval(0)


def _common_multiple(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    return Interval(0, of[0].magnitude * of[1].magnitude) if all(i.bounded for i in of) else Interval(0)


def _sign(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    low, high = of[0].low, of[0].high
    # Of what is not a number the sign is 0.
    return Interval(-1 if low is None or low < 0 else 0, 1 if high is None or high > 0 else 0)


def _factorial(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Below 0 and above 33 it is NULL."""
    low = 0 if of[0].low is None else max(0, min(33, math.floor(of[0].low)))
    high = 33 if of[0].high is None else max(low, min(33, math.floor(of[0].high)))
    return doubles(Interval(math.factorial(low), math.factorial(high)))


ENTRIES = (
    Function(
        "quotient_by",
        "x // y",
        _TWO,
        "({0} // {1})",
        _CONSTANT,
        interval=_quotient,
        strict=True,
        literals=frozenset({1}),
        check=_divisor,
        names=("//",),
        example=("-7 // 2", "-3"),
    ),
    Function(
        "quotient",
        "x // y",
        _TWO,
        "TRY({0} // NULLIF({1}, 0))",
        _GUARDED,
        interval=_quotient,
        doubled=frozenset({1}),
        names=("//",),
        example=("7 // 0", "NULL"),
    ),
    Function(
        "remainder_by",
        "x % y",
        _TWO,
        "({0} % {1})",
        _CONSTANT,
        interval=_remainder,
        strict=True,
        literals=frozenset({1}),
        check=_divisor,
        names=("%", "mod"),
        example=("-7 % 2", "-1"),
    ),
    Function(
        "remainder",
        "x % y",
        numbers(2),
        "TRY({0} % NULLIF({1}, 0))",
        _GUARDED,
        interval=machine(_remainder),
        doubled=frozenset({1}),
        names=("%", "mod"),
        example=("7.5 % 2", "1.5"),
    ),
    Function(
        "sign",
        "SIGN(x)",
        fixed(Type.INTEGER, NUMBER),
        "CAST(SIGN({0}) AS BIGINT)",
        "defined for every number",
        interval=_sign,
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
        interval=_both,
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
        interval=_either,
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
        interval=_either,
        strict=True,
        names=("xor",),
        example=("XOR(6, 3)", "5"),
    ),
    Function(
        "bit_not",
        "~x",
        fixed(Type.INTEGER, INTEGER),
        "(~ {0})",
        _BITS,
        interval=_complement,
        strict=True,
        names=("~",),
        example=("~6", "-7"),
    ),
    Function(
        "shift_left",
        "x << y",
        _TWO,
        "TRY({0} << {1})",
        "TRY gives NULL for negative numbers and what would pass 64 bits",
        interval=_left,
        names=("<<",),
        example=("6 << 3", "48"),
    ),
    Function(
        "shift_right",
        "x >> y",
        _TWO,
        "({0} >> {1})",
        "a shift out of range gives 0",
        interval=_right,
        strict=True,
        names=(">>",),
        example=("6 >> 1", "3"),
    ),
    Function(
        "bit_count",
        "BIT_COUNT(x)",
        fixed(Type.INTEGER, INTEGER),
        "CAST(BIT_COUNT({0}) AS BIGINT)",
        _BITS,
        interval=constantly(Interval(0, 64)),
        strict=True,
        names=("bit_count",),
        example=("BIT_COUNT(7)", "3"),
    ),
    Function(
        "gcd",
        "GCD(x, y)",
        _TWO,
        "TRY(GCD({0}, {1}))",
        "TRY gives NULL for what would pass 64 bits",
        interval=_common_divisor,
        names=("gcd", "greatest_common_divisor"),
        example=("GCD(12, 18)", "6"),
    ),
    Function(
        "lcm",
        "LCM(x, y)",
        _TWO,
        "TRY(LCM({0}, {1}))",
        "TRY gives NULL for what would pass 64 bits",
        interval=_common_multiple,
        names=("lcm", "least_common_multiple"),
        example=("LCM(4, 6)", "12"),
    ),
    Function(
        "factorial",
        "FACTORIAL(n)",
        fixed(Type.DOUBLE, INTEGER),
        "CAST(TRY(FACTORIAL(TRY_CAST({0} AS INTEGER))) AS DOUBLE)",
        "TRY gives NULL below 0 and above 33",
        interval=_factorial,
        integral=True,
        names=("factorial",),
        example=("FACTORIAL(5)", "120.0"),
    ),
)
