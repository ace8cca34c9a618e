"""Rounds DECIMAL values as the engine does: exactly, where they are read as DOUBLE.

A DECIMAL with s digits after the point is m / 10^s for a whole number m, and is read as the nearest DOUBLE; what is added
and multiplied of such differs from m / 10^s by a few units in the last place.

Claim: the result is the DOUBLE nearest to the value that the engine has, where m is below 2^50.
Why: x · 10^s is then within a half of m, so that ROUND gives m. Division is rounded correctly, and m / 10^k is no closer to
a half or to a whole number than 1/m of itself, unless it is one: so a half is seen to be one, and nothing else is.
"""

from __future__ import annotations

from dpsql.analysis.decimals import decimal_digits, is_inexact, scale
from dpsql.functions import call
from dpsql.plan.expr import Call, Column, Expr, Literal
from dpsql.plan.types import Type

_COMPARES = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge"})
_WHOLE_CASTS = frozenset(
    f"cast_{sign}{size}"
    for sign in ("", "u")
    for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")
)
_TO_WHOLE = frozenset({"round", "floor", "ceil", "trunc"})
_TO_DIGITS = {"round_digits": "round", "trunc_digits": "trunc", "round_even": "round_even"}


def rounded(built: Call) -> Call:
    """The same as a call, but for ROUND, TRUNC, FLOOR, CEIL and % of a DECIMAL, which are done exactly."""
    name, value = built.function.name, built.arguments[0] if built.arguments else None
    if name == "remainder":
        return _remainder(built)
    if value is None or value.type is not Type.DOUBLE:
        return built
    computed = not isinstance(value, Column)
    digits = 0
    if name in _TO_DIGITS:
        said = built.arguments[1]
        digits = said.value if isinstance(said, Literal) and type(said.value) is int else 0
        name = _TO_DIGITS[name]
        computed = computed or digits > 0
    elif name not in _TO_WHOLE:
        return built
    own = scale(value)
    # Of a stored value, what is whole and what is a half are so in DOUBLE too.
    if own is None or not computed or (name != "trunc" and digits >= own):
        return built
    return _at(value, own, min(digits, own), name)


def decimal_text(value: Expr) -> Call | None:
    """The text of a DECIMAL with all its digits after the point; None of other values."""
    digits = decimal_digits(value)
    if digits is None:
        return None
    return _of("cast_varchar decimal", value, *(Literal(each, Type.INTEGER) for each in digits))


def before_cast(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The arguments of a call, of which a DECIMAL that is cast to a whole number or to fewer digits is rounded before."""
    if name in _WHOLE_CASTS:
        return (to_digits(arguments[0], 0), *arguments[1:])
    said = arguments[-1].value if name == "cast_decimal" and isinstance(arguments[-1], Literal) else None
    if isinstance(said, int) and said >= 0:
        return (to_digits(arguments[0], said), *arguments[1:])
    return arguments


def compared(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The arguments of a call, of which decimals that are computed are what the engine has, where it compares.

    So a + b is 0.3 where a is 0.1 and b is 0.2, and no more than that.
    """
    return tuple(map(exactly, arguments)) if name in _COMPARES else arguments


def exactly(value: Expr) -> Expr:
    """A value, which is the DOUBLE nearest to the DECIMAL that the engine has, also where it is computed.

    Equal decimals are then equal: as group keys, distinct values, and in comparisons.
    """
    if not is_inexact(value):
        return value
    power = _power(scale(value) or 0)
    return _of("divide", _of("round", _of("multiply", _of("cast_double", value), power)), power)


def _remainder(built: Call) -> Call:
    """x % y of whole numbers of the last digit that either has."""
    scales = [scale(argument) for argument in built.arguments]
    known = [found for found in scales if found is not None]
    if len(known) < len(scales) or not any(known):
        return built
    power = _power(max(known))
    wholes = (
        _of("round", _of("multiply", _of("cast_double", argument), power)) for argument in built.arguments
    )
    return _of("divide", _of("remainder", *wholes), power)


def to_digits(value: Expr, digits: int) -> Expr:
    """The argument of a cast to a DECIMAL with `digits` digits after the point (0: to a whole number), rounded as one.

    The cast of a DOUBLE takes halves to the even number, that of a DECIMAL takes them away from zero, as ROUND does.
    """
    own = scale(value) if value.type is Type.DOUBLE else None
    if own is None or own < digits:
        return value
    if digits == 0 and isinstance(value, Column):
        return call("round", value) or value
    return value if own == digits else _at(value, own, digits, "round")


def _at(value: Expr, own: int, digits: int, name: str) -> Call:
    """A value of `own` digits after the point, rounded to `digits` of them."""
    whole = _of("round", _of("multiply", _of("cast_double", value), _power(own)))
    part = _of("divide", whole, _power(own - digits))
    found = _of(name, part, Literal(0, Type.INTEGER)) if name == "round_even" else _of(name, part)
    return _of("multiply" if digits < 0 else "divide", found, _power(abs(digits))) if digits else found


def _power(digits: int) -> Literal:
    return Literal(10**digits, Type.INTEGER)


def _of(name: str, *arguments: Expr) -> Call:
    found = call(name, *arguments)
    if found is None:
        raise TypeError(f"{name} takes other arguments")
    return found
