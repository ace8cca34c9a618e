"""FLOAT expressions of the engine, with 32 bits, which dpsql reads as DOUBLE.

Of FLOAT and whole numbers or DECIMAL the engine makes FLOAT, of FLOAT and DOUBLE it makes DOUBLE; so in comparisons.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dpsql.analysis.decimals import find_scale
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, Scalar, WindowCall
from dpsql.plan.types import Type

ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "round_digits", "trunc_digits", "round_even"})
"""Functions whose FLOAT result is their DOUBLE result, rounded to FLOAT."""
_ALIKE = frozenset(
    {
        *("negate", "abs", "round", "floor", "ceil", "trunc", "remainder"),
        *("least", "greatest", "coalesce", "case"),
    }
)
"""Further functions that return FLOAT for FLOAT arguments, without rounding."""
_OF_FIRST = frozenset({"round_digits", "trunc_digits", "round_even"})


def is_float(expr: Expr) -> bool:
    """Return whether the engine's value is a FLOAT, which includes results of `sql.lower.floats`."""
    if expr.type is not Type.DOUBLE:
        return False
    match expr:
        case Column():
            return expr.facts.float32
        case ReleasedColumn():
            return expr.float32
        case Scalar():
            return is_float(expr.outer.outputs[0].expr)
        case WindowCall():
            return OVER[expr.function].keeps_scale and expr.function != "sum" and is_float(expr.arguments[0])
        case Call():
            name = expr.function.name
            if name == "nullif":
                return is_float(expr.arguments[0])
            return name == "cast_float" or (
                name in _ALIKE and are_floats(list_typed_arguments(name, expr.arguments))
            )
        case _:
            return False


def list_typed_arguments(name: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
    """List the arguments of a call that are of one type in the engine: neither conditions nor numbers of digits."""
    if name in _OF_FIRST:
        return (arguments[0],)
    if name == "case":
        *cases, last = arguments
        return (*cases[1::2], last) if len(arguments) % 2 else tuple(arguments[1::2])
    return tuple(arguments)


def are_floats(arguments: Sequence[Expr]) -> bool:
    """Return whether the engine reads all of these as FLOAT where they stand together."""
    found = [is_float(argument) for argument in arguments]
    return any(found) and all(
        known or is_exact(argument) for known, argument in zip(found, arguments, strict=True)
    )


def is_exact(expr: Expr) -> bool:
    """Return whether the engine's value is a whole number, a DECIMAL or NULL, which becomes a FLOAT next to one."""
    return not _reads_double(expr) and (isinstance(expr, Literal) or find_scale(expr) is not None)


def _reads_double(expr: Expr) -> bool:
    """Return whether a constant with an exponent makes a value a DOUBLE; no constant does behind a cast to another type."""
    pending, visited = [expr], set[int]()  # parts may be shared
    while pending:
        part = pending.pop()
        if part.type is not Type.DOUBLE or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, Literal) and not part.exact:
            return True
        if isinstance(part, WindowCall) or (isinstance(part, Call) and part.function.name != "cast_decimal"):
            pending += part.arguments
    return False


def find_nearest_float(value: float) -> float | None:
    """Return the FLOAT nearest to a number; None where that is infinite.

    >>> find_nearest_float(0.1), find_nearest_float(1e39)
    (0.10000000149011612, None)
    """
    try:
        (found,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(found)
