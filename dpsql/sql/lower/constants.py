"""Lowers constants: numbers, date and timestamp literals, and values of parameters."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, Inexact

from sqlglot import exp

from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type, Value, type_of
from dpsql.sql.emit.scalars import MAX_INTEGER
from dpsql.sql.read.rejection import Source

_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?", re.ASCII)
_WRITTEN = re.compile(r"\d+\.?\d*|\.\d+", re.ASCII)
_DIGITS = Context(prec=38, traps=[Inexact])
"""The numbers that DuckDB adds, subtracts and multiplies exactly."""
_EXACT: Mapping[type[exp.Expr], Callable[[Decimal, Decimal], Decimal]] = {
    exp.Add: _DIGITS.add,
    exp.Sub: _DIGITS.subtract,
    exp.Mul: _DIGITS.multiply,
}


def constant(source: Source, node: exp.Expr, value: Value) -> Literal:
    """A value within the range of its type."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INTEGER:
        source.refuse(node, "constant", "the integer does not fit 64 bits", "write it as 1e30")
    if isinstance(value, float) and not math.isfinite(value):
        source.refuse(node, "constant", "a constant must be finite")
    return Literal(value, type_of(value))


def number(source: Source, node: exp.Expr, text: str) -> Literal:
    """The number that a text writes."""
    try:
        return constant(source, node, int(text))
    except ValueError:
        pass
    try:
        return constant(source, node, float(text))
    except ValueError:
        source.refuse(node, "syntax", f"{text} is not a number")


def folded(node: exp.Expr, arguments: tuple[Expr, ...]) -> Literal | None:
    """What arithmetic on constants with decimals comes to, as in DuckDB: exactly, and only then as DOUBLE.

    So 0.06 + 0.01 is 0.07. None for anything else, and where the digits are too many for DuckDB too.
    """
    if type(node) not in _EXACT or not all(isinstance(argument, Literal) for argument in arguments):
        return None
    try:
        value = _decimal(node)
    except Inexact:
        return None
    return None if value is None or value.as_tuple().exponent == 0 else Literal(float(value), Type.DOUBLE)


def _decimal(node: exp.Expr) -> Decimal | None:
    match node:
        case exp.Literal() if not node.is_string and _WRITTEN.fullmatch(str(node.this)):
            return Decimal(str(node.this))
        case exp.Paren():
            return _decimal(node.this)
        case exp.Neg():
            value = _decimal(node.this)
            return None if value is None else value.copy_negate()
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = _decimal(node.this), _decimal(node.expression)
            return None if left is None or right is None else _EXACT[type(node)](left, right)
        case _:
            return None


def moment(source: Source, node: exp.Expr, target: Type, text: str) -> Literal:
    """The date or timestamp that a text writes; for a DATE, a time of day is left out as in DuckDB."""
    try:
        at = dt.datetime.fromisoformat(text) if _MOMENT.fullmatch(text) else None
    except ValueError:
        at = None
    if at is None:
        source.refuse(
            node,
            "constant",
            f"{text!r} is not a {target}",
            "write it as '2026-01-31' or '2026-01-31 12:00:00'",
        )
    return Literal(at.date(), Type.DATE) if target is Type.DATE else Literal(at, Type.TIMESTAMP)
