"""Trigonometric and hyperbolic functions.

Outside of their domain these are NULL or not a number, and what is not a number is measured as NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpsql.functions.enclosures import Rule, constantly, image, increasing, widened
from dpsql.functions.signatures import NUMBER, fixed
from dpsql.plan.expr import Expr, Function
from dpsql.plan.interval import Interval, position
from dpsql.plan.types import Type

_GUARDED = "defined for every DOUBLE, or TRY gives NULL where the engine is set to refuse some"
_ONE = fixed(Type.DOUBLE, NUMBER)
_UNIT = Interval(-1, 1)
_HALF_TURN = widened(Interval(position(-math.pi), position(math.pi)))


def _decreasing(function: Callable[[float], float], within: Interval) -> Rule:
    mirrored = increasing(lambda x: -function(x), within=within)
    return lambda arguments, of: -mirrored(arguments, of)


def _cosh(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    size = abs(of[0])
    low = image(math.cosh, size.low, -math.inf)
    return Interval(low, image(math.cosh, size.high, math.inf)).meet(Interval(1))


def _function(word: str, interval: Rule, argument: str, value: str) -> Function:
    return Function(
        word.lower(),
        f"{word}(x)",
        _ONE,
        f"TRY({word}({{0}}))",
        _GUARDED,
        interval=interval,
        names=(word.lower(),),
        example=(f"{word}({argument})", value),
    )


ENTRIES = (
    Function(
        "pi",
        "PI()",
        fixed(Type.DOUBLE),
        "PI()",
        "a constant",
        interval=constantly(Interval(position(math.pi), position(math.pi))),
        strict=True,
        names=("pi",),
        example=("PI()", "3.141592653589793"),
    ),
    _function("DEGREES", increasing(math.degrees), "0", "0.0"),
    _function("RADIANS", increasing(math.radians), "180", "3.141592653589793"),
    _function("SIN", constantly(_UNIT), "0", "0.0"),
    _function("COS", constantly(_UNIT), "0", "1.0"),
    _function("TAN", constantly(Interval()), "0", "0.0"),
    _function("COT", constantly(Interval()), "0.5", "1.830487721712452"),
    _function("ASIN", increasing(math.asin, within=_UNIT), "0", "0.0"),
    _function("ACOS", _decreasing(math.acos, _UNIT), "1", "0.0"),
    _function("ATAN", increasing(math.atan, onto=_HALF_TURN), "0", "0.0"),
    Function(
        "atan2",
        "ATAN2(y, x)",
        fixed(Type.DOUBLE, NUMBER, NUMBER),
        "TRY(ATAN2({0}, {1}))",
        _GUARDED,
        interval=constantly(_HALF_TURN),
        names=("atan2",),
        example=("ATAN2(0, 1)", "0.0"),
    ),
    _function("SINH", increasing(math.sinh), "0", "0.0"),
    _function("COSH", _cosh, "0", "1.0"),
    _function("TANH", increasing(math.tanh, onto=_UNIT), "0", "0.0"),
    _function("ASINH", increasing(math.asinh), "0", "0.0"),
    _function("ACOSH", increasing(math.acosh, within=Interval(1), onto=Interval(0)), "1", "0.0"),
    _function("ATANH", increasing(math.atanh, within=_UNIT), "0", "0.0"),
)
