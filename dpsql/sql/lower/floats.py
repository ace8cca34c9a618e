"""Round FLOAT values, of 32 bits, as the engine does, where they are read as DOUBLE.

Claim: a comparison, a text and what is computed of FLOAT columns and constants are those of the engine, below the largest FLOAT;
beyond it a result is NULL.
Why: every FLOAT is a DOUBLE, and one that is rounded to the nearest FLOAT after an operation of DOUBLE on two FLOATs is the FLOAT
that the operation on FLOAT gives, as 53 >= 2 * 24 + 2 digits. A constant beside a FLOAT is one.
Source: Figueroa 1995, "When is double rounding innocuous?", for +, -, * and /.
"""

from __future__ import annotations

from dpsql.analysis.floats import ROUNDED, are_floats, find_nearest_float, is_float, list_typed_arguments
from dpsql.analysis.intervals import derive_interval
from dpsql.plan.expressions import Call, Expr, Literal
from dpsql.plan.functions import build_function_call, build_typed_call
from dpsql.plan.types import Type

_COMPARES = frozenset({"eq", "ne", "in", "is_distinct", "is_not_distinct", "lt", "le", "gt", "ge", "nullif"})
_COMPUTES = ROUNDED | {"remainder", "least", "greatest", "coalesce", "case"}
_EXACT_WHOLE = 2**24
"""FLOAT represents every whole number up to here."""


def round_float_call(built: Call) -> Call:
    """Return a call whose arguments and result are rounded to FLOAT where the engine has FLOAT."""
    name = built.function.name
    if name not in _COMPARES | _COMPUTES:
        return built
    values = list_typed_arguments(name, built.arguments)
    if not are_floats(values):
        return built
    if name == "nullif" and not is_float(values[0]):
        equal = build_function_call(
            "eq", _to_float(values[0]), values[1]
        )  # comparisons in FLOAT need no rounding
        return (equal and build_function_call("case", equal, Literal(None, Type.NULL), values[0])) or built
    read = {id(argument): _to_float(argument) for argument in values}
    arguments = tuple(read.get(id(argument), argument) for argument in built.arguments)
    built = built if arguments == built.arguments else build_typed_call(built.function, arguments) or built
    return (build_function_call("cast_float", built) or built) if name in ROUNDED else built


def unify_float_width(*values: Expr) -> tuple[Expr, ...]:
    """Return values that the engine reads as one type, as IN and BETWEEN do: all as FLOAT, or a FLOAT as a DOUBLE."""
    if not any(map(is_float, values)):
        return values
    if are_floats(values):
        return tuple(map(_to_float, values))
    return tuple(
        (build_function_call("cast_double", value) or value) if is_float(value) else value for value in values
    )


def build_float_text(value: Expr) -> Call | None:
    """Return the text of a FLOAT, which has the digits that tell it from other FLOATs; None for other values."""
    return build_function_call("cast_varchar float", value) if is_float(value) else None


def _to_float(argument: Expr) -> Expr:
    if is_float(argument) or argument.type is Type.NULL:
        return argument
    if isinstance(argument, Literal) and isinstance(argument.value, (int, float)):
        nearest = find_nearest_float(argument.value)
        return argument if nearest is None or nearest == argument.value else Literal(nearest, Type.DOUBLE)
    exact = argument.type is Type.INTEGER and derive_interval(argument).is_within(_EXACT_WHOLE)
    return argument if exact else _round_to_float(argument)


def _round_to_float(value: Expr) -> Expr:
    """Round a number to FLOAT; other values are left to the function that reads them to refuse."""
    return build_function_call("cast_float", value) or value
