"""Numbers that are compared with numeric columns read as text, written as the engine writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

from sqlglot import exp

from dpsql.plan.expressions import Column, Expr, Literal
from dpsql.plan.types import Type
from dpsql.policy.request.parameters import Parameter
from dpsql.sql.parse.rejection import QueryText

_STORED_WHOLE = frozenset({"UBIGINT", "HUGEINT", "UHUGEINT"})
_STORED_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.ASCII)
_LONG = Context(prec=400, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class StoredNumberFormat:
    """The engine's format for the numbers of a type: `digits` after the point, and whether a `zero` comes before it."""

    digits: int
    zero: bool = True

    def format_number(self, number: str) -> str | None:
        """Return a number as the engine writes it; None if it has more digits, or is no number.

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
    """Return how the numbers are written that a column of texts holds; None for other expressions.

    Where all digits of a DECIMAL are after the point, the engine writes none before it.
    """
    if not isinstance(expr, Column) or expr.type is not Type.VARCHAR:
        return None
    stored = _STORED_DECIMAL.fullmatch(expr.facts.engine_type)
    if stored is not None:
        return StoredNumberFormat(int(stored[2]), zero=stored[1] != stored[2])
    return StoredNumberFormat(0) if expr.facts.engine_type in _STORED_WHOLE else None


def is_number(node: exp.Expr) -> bool:
    """Return whether a node may be a number of any size: a literal, its negative, or a parameter."""
    inner = node.this if type(node) is exp.Neg else node
    return (type(inner) is exp.Literal and not inner.is_string) or type(node) is exp.Placeholder


def find_id_constants(
    source: QueryText, node: exp.Expr, column: Expr, given: Callable[[exp.Expr], Parameter]
) -> list[Literal] | None:
    """Return the texts of a number or list of numbers beside a numeric id that is read as text, or None.

    Claim: they are equal if and only if the numbers are, of whatever size.
    Why: the engine writes each number of one type in one way.
    """
    form = find_number_format(column)
    if form is None or not is_number(node):
        return None
    if type(node) is exp.Placeholder:
        value = given(node)
        numbers = value if isinstance(value, tuple) else (value,)
        texts = [str(number) if type(number) is int else None for number in numbers]
    else:
        inner = source.take_arguments(node, "this")[0] if type(node) is exp.Neg else node
        text, _ = source.take_arguments(inner, "this", "is_string")
        texts = [f"-{text}" if inner is not node else str(text)]
    found = [None if text is None else form.format_number(text) for text in texts]
    return None if None in found else [Literal(text, Type.VARCHAR) for text in found]
