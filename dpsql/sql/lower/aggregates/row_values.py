"""Rows of values as texts, so that distinct rows can be counted.

Claim: two rows have the same text if and only if all their values are the same, where NULL is the same as NULL.
Why: each value is preceded by its number of characters, and NULL is a sign that is not a number, so that a text can be read
back in one way only. Each number, date and truth value has one spelling; 0.0 and -0.0 have the same.
Source: ISO/IEC 9075-2, <distinct predicate>.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars

_COLON, _NULL = Literal(":", Type.VARCHAR), Literal("-", Type.VARCHAR)


def build_row_text(scalars: Scalars, node: exp.Expr, values: Sequence[Expr]) -> Expr:
    """Build the text of a row of values; of one value that is a text, as of several."""
    parts = [_build_value_text(scalars, node, value) for value in values]
    return reduce(lambda left, right: scalars.build_call(node, "||", left, right), parts)


def guard_missing_values(scalars: Scalars, node: exp.Expr, values: Sequence[Expr], row: Expr) -> Expr:
    """Return a row's text, NULL where one of its values is."""
    for value in values:
        missing = scalars.build_call(node, "is_null", value)
        row = scalars.build_call(node, "case", missing, Literal(None, Type.NULL), row)
    return row


def _build_value_text(scalars: Scalars, node: exp.Expr, value: Expr) -> Expr:
    if value.type is Type.NULL:
        return _NULL
    # 0.0 and -0.0 are equal.
    one = (
        scalars.build_call(node, "add", value, Literal(0.0, Type.DOUBLE))
        if value.type is Type.DOUBLE
        else value
    )
    text = one if value.type is Type.VARCHAR else scalars.build_call(node, "cast_varchar", one)
    size = scalars.build_call(node, "cast_varchar", scalars.build_call(node, "length", text))
    whole = scalars.build_call(node, "||", scalars.build_call(node, "||", size, _COLON), text)
    return scalars.build_call(node, "coalesce", whole, _NULL)
