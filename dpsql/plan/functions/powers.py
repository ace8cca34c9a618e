"""Powers, roots, exponentials and logarithms.

Outside of their domain these are NULL or NaN, and NaN is measured as NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

from dpsql.plan.expressions import Expr, Function
from dpsql.plan.functions.enclosures import (
    IntervalRule,
    bound_image,
    expand_interval,
    make_constant_rule,
    make_double_rule,
    make_increasing_rule,
)
from dpsql.plan.functions.signatures import GUARDED, NUMBER, ONE_NUMBER, make_fixed_rule
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_NO_ZERO = "zero gives NULL, and so does TRY where the engine is set to refuse negative numbers"
_TWO = make_fixed_rule(Type.DOUBLE, NUMBER, NUMBER)
_LEAST_DOUBLE = Fraction(math.ulp(0.0))


def _make_logarithm_rule(function: Callable[[float], float]) -> IntervalRule:
    """Return the rule of a logarithm of whole numbers from 1, or of other numbers from the smallest DOUBLE."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        least = Fraction(1) if arguments[0].type is Type.INTEGER else _LEAST_DOUBLE
        return make_increasing_rule(function, within=Interval(least))(arguments, of)

    return derive_interval


def _derive_power_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive a power of a positive base is monotone in the base and in the exponent: its extremes are corners."""
    base, exponent = of
    # Negative zero is within [0, 1], and to the power of -1 it is -inf.
    inverted = exponent.low is None or exponent.low < 0
    positive = base.low is not None and (base.low > 0 or (base.low == 0 and not inverted))
    anything = Interval(0) if positive else Interval()
    if not (base.is_bounded and exponent.is_bounded):
        return anything
    (low, high), (least, most) = base.ends, exponent.ends
    if least == most and least.denominator == 1:
        if least < 0 and base.contains(0):
            return Interval(0) if least % 2 == 0 else anything
        ends = {low, high, *([Fraction(0)] if base.contains(0) else [])}
        return _compute_power_hull([(end, least) for end in ends])
    if low < 0 and (least < most or high < 0):
        return anything
    if low == 0 and least < 0:
        return anything if least < most else Interval(0)
    low = max(low, Fraction(0))
    if low == 0 and least < 0:
        return Interval(0)
    return _compute_power_hull(list(product({low, high}, {least, most}))).narrow_to(Interval(0))


def _compute_power_hull(points: list[tuple[Fraction, Fraction]]) -> Interval:
    lows = [bound_image(_make_power(exponent), base, -math.inf) for base, exponent in points]
    highs = [bound_image(_make_power(exponent), base, math.inf) for base, exponent in points]
    if None in lows or None in highs:
        return Interval()
    return Interval(min(end for end in lows if end is not None), max(end for end in highs if end is not None))


def _make_power(exponent: Fraction) -> Callable[[float], float]:
    return lambda base: math.pow(base, float(exponent))


def _derive_log_base_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive the interval of the quotient of two logarithms, which the engine computes."""
    base, number = (
        _make_logarithm_rule(math.log10)((argument,), (interval,))
        for argument, interval in zip(arguments, of, strict=True)
    )
    known = of[0].low is not None and (of[0].low > 1 or (of[0].low > 0 and (of[0].high or 1) < 1))
    return expand_interval(number / base) if known else Interval()


def _define_function(
    word: str, interval: IntervalRule, example: tuple[str, str], *, of: str = "{0}"
) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}({of}))",
        GUARDED,
        interval=interval,
        names=(word.lower(),),
        example=example,
    )


def _define_logarithm(
    word: str, function: Callable[[float], float], aliases: tuple[str, ...], example: tuple[str, str]
) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}(NULLIF({{0}}, 0)))",
        _NO_ZERO,
        interval=_make_logarithm_rule(function),
        doubled_arguments=frozenset({0}),
        names=(word.lower(), *aliases),
        example=example,
    )


POWERS = (
    _define_function(
        "SQRT", make_increasing_rule(math.sqrt, within=Interval(0), slack=Fraction(0)), ("SQRT(2.25)", "1.5")
    ),
    # Without TRY, the engine would compare the results at the least and the largest
    # argument, whose order rounding can reverse if they are close, and fail.
    _define_function("CBRT", make_increasing_rule(math.cbrt), ("CBRT(8)", "2.0"), of="TRY({0})"),
    _define_function("EXP", make_increasing_rule(math.exp, onto=Interval(0)), ("EXP(0)", "1.0")),
    _define_logarithm("LN", math.log, (), ("LN(1)", "0.0")),
    _define_logarithm("LOG10", math.log10, ("log",), ("LOG(1000)", "3.0")),
    _define_logarithm("LOG2", math.log2, (), ("LOG2(8)", "3.0")),
    Function(
        "log_base",
        "LOG(b, x)",
        _TWO,
        "TRY(LOG({0}, NULLIF({1}, 0)))",
        _NO_ZERO,
        interval=_derive_log_base_interval,
        doubled_arguments=frozenset({1}),
        names=("log",),
        example=("LOG(2, 8)", "3.0"),
    ),
    Function(
        "power",
        "POWER(x, y)",
        _TWO,
        "TRY(POWER({0}, {1}))",
        GUARDED,
        interval=make_double_rule(_derive_power_interval),
        names=("^", "power", "pow"),
        example=("POWER(2, 10)", "1024.0"),
    ),
    _define_function("GAMMA", make_constant_rule(Interval()), ("GAMMA(5)", "24.0")),
    _define_function("LGAMMA", make_constant_rule(Interval()), ("LGAMMA(1)", "0.0")),
)
