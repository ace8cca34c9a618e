"""What an entry of a function states: its signature, and the interval of its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from dpsql.plan.expressions import Expr
from dpsql.plan.interval import End, Interval
from dpsql.plan.types import Type, find_common_type

# Type rules that several functions share.


TypeRule = Callable[[tuple[Type, ...]], Type | None]

NUMBER = (Type.INTEGER, Type.DOUBLE)
INTEGER = (Type.INTEGER,)
TEMPORAL = (Type.DATE, Type.TIMESTAMP)
TEXT = (Type.VARCHAR,)
TRUTH = (Type.BOOLEAN,)
ANY = tuple(kind for kind in Type if kind is not Type.LIST)


def infer_numeric_type(types: tuple[Type, ...]) -> Type | None:
    """Return the common type of numbers; NULL counts as a number."""
    shared = find_common_type(types)
    return shared if shared is None or shared.numeric or shared is Type.NULL else None


def make_numeric_rule(count: int) -> TypeRule:
    """Return the rule that takes a given count of numbers to their common type."""
    return lambda types: infer_numeric_type(types) if len(types) == count else None


def infer_comparison_type(types: tuple[Type, ...]) -> Type | None:
    """Return BOOLEAN for values of one type."""
    return None if find_common_type(types) is None else Type.BOOLEAN


def infer_logic_type(types: tuple[Type, ...]) -> Type | None:
    """Return BOOLEAN for booleans."""
    return Type.BOOLEAN if set(types) <= {Type.BOOLEAN, Type.NULL} else None


def make_fixed_rule(result: Type, *parameters: tuple[Type, ...]) -> TypeRule:
    """Build a rule of fixed length: each parameter lists the types it takes, NULL always among them."""

    def infer_type(types: tuple[Type, ...]) -> Type | None:
        if len(types) != len(parameters):
            return None
        fits = all(t in takes or t is Type.NULL for t, takes in zip(types, parameters, strict=True))
        return result if fits else None

    return infer_type


def make_variadic_rule(least: int, takes: tuple[Type, ...] = ANY, result: Type | None = None) -> TypeRule:
    """Build a rule for `least` or more arguments of one type, which is the result's unless that is given."""

    def infer_type(types: tuple[Type, ...]) -> Type | None:
        shared = find_common_type(types) if len(types) >= least else None
        if shared is None or (shared not in takes and shared is not Type.NULL):
            return None
        return result or shared

    return infer_type


def format_placeholders(count: int) -> str:
    """Return the placeholders of a template for `count` arguments.

    >>> format_placeholders(2)
    '{0}, {1}'
    """
    return ", ".join(f"{{{place}}}" for place in range(count))


ONE_NUMBER = make_fixed_rule(Type.DOUBLE, NUMBER)
"""The rule of a function of one number whose result is DOUBLE."""
GUARDED = "defined for every DOUBLE, or TRY gives NULL where the engine is set to refuse some"
"""The reason why such a function cannot fail on any row."""


# Intervals of DOUBLE functions, rounded outward where the engine rounds.


IntervalRule = Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]
"""Derives a function's interval from its arguments and their intervals."""

SLACK = Fraction(1, 2**49)
"""The relative error of exp, ln, sin and their like is below this: sixteen times what libraries claim."""


def make_constant_rule(interval: Interval) -> IntervalRule:
    """Build the rule of a function whose range does not depend on its arguments."""
    return lambda _, __: interval


def derive_first_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
    """Derive the rule of a function that gives its first argument, or NULL."""
    return of[0]


def round_to_doubles(interval: Interval) -> Interval:
    """Return the interval between the DOUBLEs around the ends.

    Claim: an interval that is made here holds every value that the engine computes within its arguments'.
    Why: rounding to the nearest DOUBLE is monotone, so what it makes of values within an interval lies between the DOUBLEs around
    the interval; and the mathematical library errs by less than `SLACK`.
    Source: IEEE 754-2019, section 4.3.1; Moore 1966, "Interval Analysis", chapter 3.

    >>> round_to_doubles(Interval(1, 2)), round_to_doubles(Interval(0, Fraction(1, 3))).high >= Fraction(1, 3)
    (Interval(1, 2), True)
    """
    low = None if interval.low is None else _round_to_double(interval.low, -math.inf)
    high = None if interval.high is None else _round_to_double(interval.high, math.inf)
    return Interval(_to_end(low), _to_end(high))


def make_arithmetic_rule(exact: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]) -> IntervalRule:
    """Build the rule of an exact operation that is rounded where an argument is a DOUBLE."""

    def derive_interval(arguments: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        if all(argument.type in (Type.INTEGER, Type.NULL) for argument in arguments):
            return exact(arguments, of)
        return round_to_doubles(exact(arguments, tuple(map(round_to_doubles, of))))

    return derive_interval


def make_double_rule(exact: Callable[[tuple[Expr, ...], tuple[Interval, ...]], Interval]) -> IntervalRule:
    """Build the rule of an exact operation that is always done in DOUBLE."""
    return lambda arguments, of: round_to_doubles(exact(arguments, tuple(map(round_to_doubles, of))))


def make_increasing_rule(
    function: Callable[[float], float],
    within: Interval | None = None,
    onto: Interval | None = None,
    slack: Fraction = SLACK,
) -> IntervalRule:
    """Build the rule of an increasing function that is NULL or not a number outside of `within`.

    >>> make_increasing_rule(math.sqrt, within=Interval(0), slack=Fraction(0))((), (Interval(-1, 4),))
    Interval(0, 2)
    """

    def derive_interval(_: tuple[Expr, ...], of: tuple[Interval, ...]) -> Interval:
        inside = (within or Interval()).narrow_to(of[0])
        ends = Interval(
            bound_image(function, inside.low, -math.inf, slack),
            bound_image(function, inside.high, math.inf, slack),
        )
        return ends if onto is None else ends.narrow_to(onto)

    return derive_interval


def bound_image(function: Callable[[float], float], end: End, away: float, slack: Fraction = SLACK) -> End:
    """Return the image of an end under an increasing function, moved towards the infinity `away` by the rounding error."""
    at = None if end is None else _round_to_double(end, away)
    if at is None or math.isinf(at):
        return None
    try:
        value = function(at)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(value):
        return None
    return _move_end(Fraction(value), slack if away > 0 else -slack)


def expand_interval(interval: Interval) -> Interval:
    """Widen an interval of exact values to the values that the engine computes with an error below `SLACK`."""
    return Interval(_move_end(interval.low, -SLACK), _move_end(interval.high, SLACK))


def _move_end(end: End, by: Fraction) -> End:
    return None if end is None else end + by * abs(end)


def _round_to_double(end: Fraction, away: float) -> float:
    """Return the nearest DOUBLE that is not before `end` on the way to the infinity `away`."""
    try:
        near = float(end)
    except OverflowError:
        sign = 1 if end > 0 else -1
        return sign * (math.inf if (end > 0) == (away > 0) else _LARGEST)
    short = Fraction(near) < end if away > 0 else Fraction(near) > end
    return math.nextafter(near, away) if short else near


def _to_end(value: float | None) -> End:
    return None if value is None or math.isinf(value) else Fraction(value)


_LARGEST = math.nextafter(math.inf, 0)
