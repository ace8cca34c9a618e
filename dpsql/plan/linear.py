"""Expressions that are a released column times a factor, plus a shift."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.plan.expressions import Call, Expr, Literal, ReleasedColumn


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A released column times a factor, plus a shift."""

    column: ReleasedColumn
    factor: float = 1.0
    shift: float = 0.0


def match_linear(expr: Expr) -> LinearForm | None:
    """Return the expression as a linear function of one released column, or None."""
    if isinstance(expr, ReleasedColumn):
        return LinearForm(expr)
    if not isinstance(expr, Call):
        return None
    name, parts = expr.function.name, [part for part in expr.arguments if not isinstance(part, Literal)]
    inner = match_linear(parts[0]) if len(parts) == 1 else None
    constants = [part.value for part in expr.arguments if isinstance(part, Literal)]
    if inner is None or not all(type(value) in (int, float) for value in constants):
        return None
    numbers = [float(value) for value in constants if isinstance(value, (int, float))]
    first = expr.arguments[0] is parts[0]
    match name, numbers:
        case "negate", []:
            return LinearForm(inner.column, -inner.factor, -inner.shift)
        case "cast_double", []:
            return inner
        case "multiply", [by]:
            return LinearForm(inner.column, inner.factor * by, inner.shift * by)
        case "divide", [by] if first and by != 0:
            return LinearForm(inner.column, inner.factor / by, inner.shift / by)
        case "add", [by]:
            return LinearForm(inner.column, inner.factor, inner.shift + by)
        case "subtract", [by]:
            sign = 1.0 if first else -1.0
            return LinearForm(inner.column, inner.factor * sign, (inner.shift - by) * sign)
        case _:
            return None
