"""Trigonometric and hyperbolic functions.

Outside of their domain these are NULL or NaN, and NaN is measured as NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpsql.plan.expressions import Expr, Function
from dpsql.plan.functions.enclosures import (
    IntervalRule,
    bound_image,
    expand_interval,
    make_constant_rule,
    make_increasing_rule,
)
from dpsql.plan.functions.signatures import GUARDED, NUMBER, ONE_NUMBER, make_fixed_rule
from dpsql.plan.interval import Interval, find_position
from dpsql.plan.types import Type

_UNIT = Interval(-1, 1)
_HALF_TURN = expand_interval(Interval(find_position(-math.pi), find_position(math.pi)))


def _make_decreasing_rule(function: Callable[[float], float], within: Interval) -> IntervalRule:
    mirrored = make_increasing_rule(lambda x: -function(x), within=within)
    return lambda arguments, of: -mirrored(arguments, of)


def _derive_cosh_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    size = abs(of[0])
    low = bound_image(math.cosh, size.low, -math.inf)
    return Interval(low, bound_image(math.cosh, size.high, math.inf)).narrow_to(Interval(1))


def _define_angle_function(word: str, interval: IntervalRule, argument: str, value: str) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        ONE_NUMBER,
        f"TRY({word}({{0}}))",
        GUARDED,
        interval=interval,
        names=(word.lower(),),
        example=(f"{word}({argument})", value),
    )


TRIGONOMETRY = (
    Function(
        "pi",
        "PI()",
        make_fixed_rule(Type.DOUBLE),
        "PI()",
        "a constant",
        interval=make_constant_rule(Interval(find_position(math.pi), find_position(math.pi))),
        strict=True,
        names=("pi",),
        example=("PI()", "3.141592653589793"),
    ),
    _define_angle_function("DEGREES", make_increasing_rule(math.degrees), "0", "0.0"),
    _define_angle_function("RADIANS", make_increasing_rule(math.radians), "180", "3.141592653589793"),
    _define_angle_function("SIN", make_constant_rule(_UNIT), "0", "0.0"),
    _define_angle_function("COS", make_constant_rule(_UNIT), "0", "1.0"),
    _define_angle_function("TAN", make_constant_rule(Interval()), "0", "0.0"),
    _define_angle_function("COT", make_constant_rule(Interval()), "0.5", "1.830487721712452"),
    _define_angle_function("ASIN", make_increasing_rule(math.asin, within=_UNIT), "0", "0.0"),
    _define_angle_function("ACOS", _make_decreasing_rule(math.acos, _UNIT), "1", "0.0"),
    _define_angle_function("ATAN", make_increasing_rule(math.atan, onto=_HALF_TURN), "0", "0.0"),
    Function(
        "atan2",
        "ATAN2(y, x)",
        make_fixed_rule(Type.DOUBLE, NUMBER, NUMBER),
        "TRY(ATAN2({0}, {1}))",
        GUARDED,
        interval=make_constant_rule(_HALF_TURN),
        names=("atan2",),
        example=("ATAN2(0, 1)", "0.0"),
    ),
    _define_angle_function("SINH", make_increasing_rule(math.sinh), "0", "0.0"),
    _define_angle_function("COSH", _derive_cosh_interval, "0", "1.0"),
    _define_angle_function("TANH", make_increasing_rule(math.tanh, onto=_UNIT), "0", "0.0"),
    _define_angle_function("ASINH", make_increasing_rule(math.asinh), "0", "0.0"),
    _define_angle_function(
        "ACOSH", make_increasing_rule(math.acosh, within=Interval(1), onto=Interval(0)), "1", "0.0"
    ),
    _define_angle_function("ATANH", make_increasing_rule(math.atanh, within=_UNIT), "0", "0.0"),
)
