"""Expressions that are a released column times a factor, plus a shift."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.plan.expr import Call, Expr, Literal, Released


@dataclass(frozen=True, slots=True)
class Linear:
    """A released column times a factor, plus a shift."""

    column: Released
    factor: float = 1.0
    shift: float = 0.0


def linear(expr: Expr) -> Linear | None:
    """The expression as a linear function of one released column; None if it is not."""
    if isinstance(expr, Released):
        return Linear(expr)
    if not isinstance(expr, Call):
        return None
    name, parts = expr.function.name, [part for part in expr.arguments if not isinstance(part, Literal)]
    inner = linear(parts[0]) if len(parts) == 1 else None
    constants = [part.value for part in expr.arguments if isinstance(part, Literal)]
    if inner is None or not all(type(value) in (int, float) for value in constants):
        return None
    numbers = [float(value) for value in constants if isinstance(value, (int, float))]
    first = expr.arguments[0] is parts[0]
    match name, numbers:
        case "negate", []:
            return Linear(inner.column, -inner.factor, -inner.shift)
        case "cast_double", []:
            return inner
        case "multiply", [by]:
            return Linear(inner.column, inner.factor * by, inner.shift * by)
        case "divide", [by] if first and by != 0:
            return Linear(inner.column, inner.factor / by, inner.shift / by)
        case "add", [by]:
            return Linear(inner.column, inner.factor, inner.shift + by)
        case "subtract", [by]:
            sign = 1.0 if first else -1.0
            return Linear(inner.column, inner.factor * sign, (inner.shift - by) * sign)
        case _:
            return None
