"""Intervals of DOUBLE functions, rounded outward where the engine rounds.

Claim: an interval that is made here holds every value that the engine computes within its arguments'.
Why: rounding to the nearest DOUBLE is monotone, so what it makes of values within an interval lies
between the DOUBLEs around the interval; and the mathematical library errs by less than `SLACK`.
Source: IEEE 754-2019, section 4.3.1; Moore 1966, "Interval Analysis", chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.plan.expr import Expr
from dpsql.plan.interval import End, Interval
from dpsql.plan.types import Type

Rule = Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]
"""What an entry derives of its arguments and their intervals."""

SLACK = Fraction(1, 2**49)
"""The relative error of exp, ln, sin and their like is below this: sixteen times what libraries claim."""


def constantly(interval: Interval) -> Rule:
    """The rule of a function whose range does not depend on its arguments."""
    return lambda _, __: interval


def unchanged(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """The rule of a function that gives its first argument, or NULL."""
    return of[0]


def doubles(interval: Interval) -> Interval:
    """The interval between the DOUBLEs around the ends.

    >>> doubles(Interval(1, 2)), doubles(Interval(0, Fraction(1, 3))).high >= Fraction(1, 3)
    (Interval(1, 2), True)
    """
    low = None if interval.low is None else _double(interval.low, -math.inf)
    high = None if interval.high is None else _double(interval.high, math.inf)
    return Interval(_end(low), _end(high))


def machine(exact: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]) -> Rule:
    """The rule of an exact operation that is rounded where an argument is a DOUBLE."""

    def interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        if all(argument.type in (Type.INTEGER, Type.NULL) for argument in arguments):
            return exact(arguments, of)
        return doubles(exact(arguments, tuple(map(doubles, of))))

    return interval


def rounded(exact: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]) -> Rule:
    """The rule of an exact operation that is always done in DOUBLE."""
    return lambda arguments, of: doubles(exact(arguments, tuple(map(doubles, of))))


def increasing(
    function: Callable[[float], float],
    within: Interval | None = None,
    onto: Interval | None = None,
    slack: Fraction = SLACK,
) -> Rule:
    """The rule of an increasing function that is NULL or not a number outside of `within`.

    >>> increasing(math.sqrt, within=Interval(0), slack=Fraction(0))((), (Interval(-1, 4),))
    Interval(0, 2)
    """

    def interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        inside = (within or Interval()).meet(of[0])
        ends = Interval(
            image(function, inside.low, -math.inf, slack), image(function, inside.high, math.inf, slack)
        )
        return ends if onto is None else ends.meet(onto)

    return interval


def image(function: Callable[[float], float], end: End, away: float, slack: Fraction = SLACK) -> End:
    """An end under an increasing function, moved towards the infinity `away` by what is rounded."""
    at = None if end is None else _double(end, away)
    if at is None or math.isinf(at):
        return None
    try:
        value = function(at)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(value):
        return None
    return _moved(Fraction(value), slack if away > 0 else -slack)


def widened(interval: Interval) -> Interval:
    """An interval of exact values as one of what the engine computes for them with an error below `SLACK`."""
    return Interval(_moved(interval.low, -SLACK), _moved(interval.high, SLACK))


def _moved(end: End, by: Fraction) -> End:
    return None if end is None else end + by * abs(end)


def _double(end: Fraction, away: float) -> float:
    """The nearest DOUBLE that is not before `end` on the way to the infinity `away`."""
    try:
        near = float(end)
    except OverflowError:
        sign = 1 if end > 0 else -1
        return sign * (math.inf if (end > 0) == (away > 0) else _LARGEST)
    short = Fraction(near) < end if away > 0 else Fraction(near) > end
    return math.nextafter(near, away) if short else near


def _end(value: float | None) -> End:
    return None if value is None or math.isinf(value) else Fraction(value)


_LARGEST = math.nextafter(math.inf, 0)
