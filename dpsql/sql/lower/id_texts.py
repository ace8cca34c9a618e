"""Numbers beside columns of numbers that are read as text, as the engine writes those."""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation

from dpsql.plan.expr import Column, Expr
from dpsql.plan.types import Type

_STORED_WHOLE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})
_STORED_DECIMAL = re.compile(r"DECIMAL\(\d+, ?(\d+)\)", re.ASCII)
_LONG = Context(prec=400, traps=[Inexact, InvalidOperation])


def stored_digits(expr: Expr) -> int | None:
    """The digits after the point of the numbers that a column of texts holds; None for other expressions."""
    if not isinstance(expr, Column) or expr.type is not Type.VARCHAR:
        return None
    engine = expr.facts.engine_type
    stored = _STORED_DECIMAL.fullmatch(engine)
    return int(stored[1]) if stored else 0 if engine in _STORED_WHOLE else None


def as_stored(text: str, digits: int) -> str | None:
    """A number as the engine writes one with `digits` digits after the point; None where it has more, or is no number."""
    try:
        value = Decimal(text)
        return format(_LONG.add(_LONG.quantize(value, Decimal(1).scaleb(-digits)), 0), "f")  # -0 is 0
    except ArithmeticError:
        return None
