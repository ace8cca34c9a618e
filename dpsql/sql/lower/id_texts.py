"""Numbers beside columns of numbers that are read as text, as the engine writes those."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

from dpsql.plan.expr import Column, Expr
from dpsql.plan.types import Type

_STORED_WHOLE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})
_STORED_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.ASCII)
_LONG = Context(prec=400, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class StoredNumberFormat:
    """How the engine writes the numbers of a type: `digits` after the point, and whether it writes a `zero` before that."""

    digits: int
    zero: bool = True

    def format_number(self, number: str) -> str | None:
        """A number as it is written there; None where it has more digits, or is no number.

        >>> StoredNumberFormat(2).format_number("-0.5"), StoredNumberFormat(2, zero=False).format_number("-0.5"), StoredNumberFormat(0).format_number("0.5")
        ('-0.50', '-.50', None)
        """
        try:
            value = _LONG.quantize(Decimal(number), Decimal(1).scaleb(-self.digits))
        except ArithmeticError:
            return None
        found = format(_LONG.add(value, 0), "f")  # -0 is 0
        return found if self.zero else re.sub(r"^(-?)0\.", r"\1.", found)


def find_number_format(expr: Expr) -> StoredNumberFormat | None:
    """How the numbers are written that a column of texts holds; None for other expressions.

    Where all digits of a DECIMAL are after the point, the engine writes none before it.
    """
    if not isinstance(expr, Column) or expr.type is not Type.VARCHAR:
        return None
    stored = _STORED_DECIMAL.fullmatch(expr.facts.engine_type)
    if stored is not None:
        return StoredNumberFormat(int(stored[2]), zero=stored[1] != stored[2])
    return StoredNumberFormat(0) if expr.facts.engine_type in _STORED_WHOLE else None
