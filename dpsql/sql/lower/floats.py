"""Rounds FLOAT values, of 32 bits, as the engine does, where they are read as DOUBLE.

Claim: a comparison, a text and what is computed of FLOAT columns and constants are those of the engine, below the largest FLOAT;
beyond it a result is NULL.
Why: every FLOAT is a DOUBLE, and one that is rounded to the nearest FLOAT after an operation of DOUBLE on two FLOATs is the FLOAT
that the operation on FLOAT gives, as 53 >= 2 * 24 + 2 digits. A constant beside a FLOAT is one.
Source: Figueroa 1995, "When is double rounding innocuous?", for +, -, * and /.
"""

from __future__ import annotations

from dpsql.analysis.floats import ROUNDED, are_floats, is_float, nearest_float, together
from dpsql.analysis.intervals import interval
from dpsql.functions import call, typed
from dpsql.plan.expr import Call, Expr, Literal
from dpsql.plan.types import Type

_COMPARES = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge", "nullif"})
_COMPUTES = ROUNDED | {"remainder", "least", "greatest", "coalesce", "case"}
_EXACT_WHOLE = 2**24
"""FLOAT has every whole number up to here."""


def in_floats(built: Call) -> Call:
    """Return a call of which the arguments, and the result, are rounded to FLOAT where they are FLOAT in the engine."""
    name = built.function.name
    if name not in _COMPARES | _COMPUTES:
        return built
    values = together(name, built.arguments)
    if not are_floats(values):
        return built
    if name == "nullif" and not is_float(values[0]):
        equal = call("eq", _as_float(values[0]), values[1])  # what is compared as FLOAT stays what it is
        return (equal and call("case", equal, Literal(None, Type.NULL), values[0])) or built
    read = {id(argument): _as_float(argument) for argument in values}
    arguments = tuple(read.get(id(argument), argument) for argument in built.arguments)
    built = built if arguments == built.arguments else typed(built.function, arguments) or built
    return (call("cast_float", built) or built) if name in ROUNDED else built


def of_one_width(*values: Expr) -> tuple[Expr, ...]:
    """Return values that the engine reads as one type, as IN and BETWEEN do: all as FLOAT, or a FLOAT as a DOUBLE."""
    if not any(map(is_float, values)):
        return values
    if are_floats(values):
        return tuple(map(_as_float, values))
    return tuple((call("cast_double", value) or value) if is_float(value) else value for value in values)


def float_text(value: Expr) -> Call | None:
    """Return the text of a FLOAT, which has the digits that tell it from other FLOATs; None for other values."""
    return call("cast_varchar float", value) if is_float(value) else None


def _as_float(argument: Expr) -> Expr:
    if is_float(argument) or argument.type is Type.NULL:
        return argument
    if isinstance(argument, Literal) and isinstance(argument.value, (int, float)):
        nearest = nearest_float(argument.value)
        return argument if nearest is None or nearest == argument.value else Literal(nearest, Type.DOUBLE)
    exact = argument.type is Type.INTEGER and interval(argument).within(_EXACT_WHOLE)
    return argument if exact else _rounded(argument)


def _rounded(value: Expr) -> Expr:
    """Return a number rounded to FLOAT; what is no number is left for the function that reads it to refuse."""
    return call("cast_float", value) or value
