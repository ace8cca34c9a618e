"""Fold expressions of constants to one constant.

Claim: the constant is what the engine makes of the expression as it would be emitted; nothing of the data is read.
Why: the expression names no column and no released value, and an engine without data evaluates it. Where a conversion
or a division fails, which is NULL on rows, the statement is refused before any charge.
Source: the manual of DuckDB, "Expressions": an expression of constants has one value in a statement.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.analysis.floats import is_exact
from dpsql.backends import constant_checks
from dpsql.plan.expressions import Call, Expr, Literal, walk
from dpsql.plan.types import Type
from dpsql.sql.compile.scalars import emit_cast, emit_expression
from dpsql.sql.lower.constants import to_literal
from dpsql.sql.parse.rejection import QueryText

_GIVES_NULL = frozenset({"nullif", "case"})
"""Functions that may return NULL for constants that are not NULL, on purpose."""


def is_constant(expr: Expr) -> bool:
    """Return whether an expression is built of constants alone."""
    return all(isinstance(part, (Call, Literal)) for part in walk(expr))


def fold_constant(source: QueryText, node: exp.Expr | None, expr: Expr) -> Expr:
    """Fold an expression of constants; return any other expression, or one without a place in the text, unchanged.

    Raises QueryRejected where such an expression has no value.
    """
    if node is None or isinstance(expr, Literal) or not is_constant(expr) or expr.type is Type.LIST:
        return expr
    text = (
        emit_cast(emit_expression(expr), expr.type) if expr.type is not Type.NULL else emit_expression(expr)
    )
    failure = constant_checks.find_evaluation_error(text)
    found = None if failure is not None else constant_checks.evaluate_constant(text)
    if failure is not None or (found is None and not _may_be_null(expr)):
        source.refuse(
            node,
            "constant",
            "this constant expression cannot be computed: a conversion, a division or an overflow fails",
            "write the value itself, or NULL if none is meant",
        )
    return replace(to_literal(source, node, found), type=expr.type, exact=is_exact(expr))


def _may_be_null(expr: Expr) -> bool:
    """Return whether the constants mean NULL, rather than a computation that fails."""
    return any(
        (isinstance(part, Literal) and part.value is None)
        or (isinstance(part, Call) and part.function.name in _GIVES_NULL)
        for part in walk(expr)
    )
