"""Bits of whole numbers in DuckDB; dpsql computes with 64.

Claim: an INTEGER expression has as many bits as the type that DuckDB gives it, of signed types of up to 64 bits.
Why: arithmetic and choices have the widest type of their arguments; an untyped constant takes the type of what it stands
beside, where its value fits, and else INTEGER or BIGINT.
Source: DuckDB's documentation, "Numeric types" and "Typecasting", on combination casting and integer literals.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.plan.expressions import Call, Column, Expr, Literal, is_null
from dpsql.plan.functions.conditional import split_case_branches
from dpsql.plan.types import Type

WIDE = 64
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32}
_CASTS = {f"cast_{name.lower()}": size for name, size in _BITS.items()}
_COUNTS = {"sign": 8, "bit_count": 8}
"""Functions whose result type does not depend on their arguments."""
_FIRST = frozenset(("negate", "abs", "bit_not", "nullif"))
"""Functions whose results have the type of their first argument."""
_WIDEST = frozenset(
    ("add", "subtract", "multiply", "quotient", "quotient_by", "remainder", "remainder_by", "bit_and", "bit_or", "bit_xor",
     "shift_left", "shift_right", "coalesce", "greatest", "least")
)  # fmt: skip
"""Functions whose results have the widest type of their arguments."""


def derive_bits(expr: Expr) -> int:
    """Return the number of bits of a whole number in DuckDB; 64 if fewer are not known."""
    if isinstance(expr, Column):
        return _BITS.get(expr.facts.engine_type, expr.facts.bits)
    if _find_constant(expr) is not None:
        return _combine_bits([expr])
    if not isinstance(expr, Call) or expr.type is not Type.INTEGER:
        return WIDE
    name = expr.function.name
    if name in _FIRST:
        return _combine_bits(expr.arguments[:1])
    if name in _WIDEST:
        return _combine_bits(expr.arguments)
    if name == "case":
        branches, otherwise = split_case_branches(expr.arguments)
        return _combine_bits([*(value for _, value in branches), otherwise])
    return _CASTS.get(name) or _COUNTS.get(name) or WIDE


def _combine_bits(exprs: Sequence[Expr]) -> int:
    """Return the bits of the type that several numbers are cast to; NULL has any."""
    given = [expr for expr in exprs if not is_null(expr)]
    constants = [value for expr in given if (value := _find_constant(expr)) is not None]
    least = max((derive_bits(expr) for expr in given if _find_constant(expr) is None), default=0)
    beyond = [
        value for value in constants if not least or not -(2 ** (least - 1)) <= value < 2 ** (least - 1)
    ]
    return max(least, *(32 if abs(value) < 2**31 else WIDE for value in beyond)) if beyond else least or WIDE


def _find_constant(expr: Expr) -> int | None:
    """Find the value of an untyped constant, with its sign."""
    if isinstance(expr, Call) and expr.function.name == "negate":
        value = _find_constant(expr.arguments[0])
        return None if value is None else -value
    if isinstance(expr, Literal) and expr.type is Type.INTEGER and isinstance(expr.value, int):
        return expr.value
    return None
