"""Round DECIMAL values as the engine does: exactly, where they are read as DOUBLE.

A DECIMAL with s digits after the point is m / 10^s for a whole number m, and is read as the nearest DOUBLE; what is added
and multiplied of such differs from m / 10^s by a few units in the last place.

Claim: the result is the DOUBLE nearest to the value that the engine has, where m is below 2^50.
Why: x · 10^s is then within a half of m, so that ROUND gives m. Division is rounded correctly, and m / 10^k is no closer to
a half or to a whole number than 1/m of itself, unless it is one: so a half is seen to be one, and nothing else is.
"""

from __future__ import annotations

from dpsql.analysis.decimals import find_decimal_digits, find_scale, is_inexact
from dpsql.plan.expressions import Call, Column, Expr, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.types import Type

_COMPARES = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge"})
_WHOLE_CASTS = frozenset(
    f"cast_{sign}{size}"
    for sign in ("", "u")
    for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")
)
_TO_WHOLE = frozenset({"round", "floor", "ceil", "trunc"})
_TO_DIGITS = {"round_digits": "round", "trunc_digits": "trunc", "round_even": "round_even"}


def round_decimal_call(built: Call) -> Call:
    """Return an equal call in which ROUND, TRUNC, FLOOR, CEIL and % of a DECIMAL are exact."""
    name, value = built.function.name, built.arguments[0] if built.arguments else None
    if name == "remainder":
        return _build_remainder(built)
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
    own = find_scale(value)
    # DOUBLE represents whole numbers and halves of stored values exactly.
    if own is None or not computed or (name != "trunc" and digits >= own):
        return built
    return _round_at_digits(value, own, min(digits, own), name)


def build_decimal_text(value: Expr) -> Call | None:
    """Build the text of a DECIMAL with all its digits after the point; None of other values."""
    digits = find_decimal_digits(value)
    if digits is None:
        return None
    return _build_call("cast_varchar decimal", value, *(Literal(each, Type.INTEGER) for each in digits))


def round_before_cast(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the arguments of a call, with a DECIMAL rounded before it is cast to a whole number or to fewer digits."""
    if name in _WHOLE_CASTS:
        return (round_to_digits(arguments[0], 0), *arguments[1:])
    said = arguments[-1].value if name == "cast_decimal" and isinstance(arguments[-1], Literal) else None
    if isinstance(said, int) and said >= 0:
        return (round_to_digits(arguments[0], said), *arguments[1:])
    return arguments


def round_before_comparison(name: str, arguments: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the arguments of a comparison, with computed decimals rounded to the engine's DECIMAL.

    So a + b is 0.3 where a is 0.1 and b is 0.2, and no more than that.
    """
    return tuple(map(round_to_decimal, arguments)) if name in _COMPARES else arguments


def round_to_decimal(value: Expr) -> Expr:
    """Round a computed value to the DOUBLE nearest to the engine's DECIMAL.

    Equal decimals are then equal: as group keys, distinct values, and in comparisons.
    """
    if not is_inexact(value):
        return value
    power = _build_power_of_ten(find_scale(value) or 0)
    return _build_call(
        "divide",
        _build_call("round", _build_call("multiply", _build_call("cast_double", value), power)),
        power,
    )


def _build_remainder(built: Call) -> Call:
    """Build x % y over whole numbers of the last digit of either."""
    scales = [find_scale(argument) for argument in built.arguments]
    known = [found for found in scales if found is not None]
    if len(known) < len(scales) or not any(known):
        return built
    power = _build_power_of_ten(max(known))
    wholes = (
        _build_call("round", _build_call("multiply", _build_call("cast_double", argument), power))
        for argument in built.arguments
    )
    return _build_call("divide", _build_call("remainder", *wholes), power)


def round_to_digits(value: Expr, digits: int) -> Expr:
    """Return the argument of a cast to a DECIMAL with `digits` digits after the point (0: to a whole number), rounded as one.

    The cast of a DOUBLE takes halves to the even number, that of a DECIMAL takes them away from zero, as ROUND does.
    """
    own = find_scale(value) if value.type is Type.DOUBLE else None
    if own is None or own < digits:
        return value
    if digits == 0 and isinstance(value, Column):
        return build_function_call("round", value) or value
    return value if own == digits else _round_at_digits(value, own, digits, "round")


def _round_at_digits(value: Expr, own: int, digits: int, name: str) -> Call:
    """Return a value of `own` digits after the point, rounded to `digits` of them."""
    whole = _build_call(
        "round", _build_call("multiply", _build_call("cast_double", value), _build_power_of_ten(own))
    )
    part = _build_call("divide", whole, _build_power_of_ten(own - digits))
    found = (
        _build_call(name, part, Literal(0, Type.INTEGER)) if name == "round_even" else _build_call(name, part)
    )
    return (
        _build_call("multiply" if digits < 0 else "divide", found, _build_power_of_ten(abs(digits)))
        if digits
        else found
    )


def _build_power_of_ten(digits: int) -> Literal:
    return Literal(10**digits, Type.INTEGER)


def _build_call(name: str, *arguments: Expr) -> Call:
    found = build_function_call(name, *arguments)
    if found is None:
        raise TypeError(f"{name} takes other arguments")
    return found
