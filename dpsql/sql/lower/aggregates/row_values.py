"""Rows of values as texts, of which distinct ones are counted.

Claim: rows have one text if and only if all their values are the same, NULL being the same as NULL.
Why: each value is written with the number of its characters before it, NULL as a sign that no number is, so that a text is
read back in one way; numbers, days and truth values are written in one way each, 0.0 and -0.0 in the same.
Source: ISO/IEC 9075-2, <distinct predicate>.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from dpsql.plan.expr import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars

_COLON, _NULL = Literal(":", Type.VARCHAR), Literal("-", Type.VARCHAR)


def row_value(scalars: Scalars, node: exp.Expr, values: Sequence[Expr]) -> Expr:
    """The text of a row of values; of one value that is a text, as of several."""
    parts = [_part(scalars, node, value) for value in values]
    return reduce(lambda left, right: scalars.call(node, "||", left, right), parts)


def present(scalars: Scalars, node: exp.Expr, values: Sequence[Expr], row: Expr) -> Expr:
    """A row's text, NULL where one of its values is."""
    for value in values:
        missing = scalars.call(node, "is_null", value)
        row = scalars.call(node, "case", missing, Literal(None, Type.NULL), row)
    return row


def _part(scalars: Scalars, node: exp.Expr, value: Expr) -> Expr:
    if value.type is Type.NULL:
        return _NULL
    # 0.0 and -0.0 are equal.
    one = scalars.call(node, "add", value, Literal(0.0, Type.DOUBLE)) if value.type is Type.DOUBLE else value
    text = one if value.type is Type.VARCHAR else scalars.call(node, "cast_varchar", one)
    size = scalars.call(node, "cast_varchar", scalars.call(node, "length", text))
    whole = scalars.call(node, "||", scalars.call(node, "||", size, _COLON), text)
    return scalars.call(node, "coalesce", whole, _NULL)
