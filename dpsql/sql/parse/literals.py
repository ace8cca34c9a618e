"""Constants in a parser's tree, and the types that are evident from the tree alone."""

from __future__ import annotations

from sqlglot import exp

FRACTIONAL_TYPES = frozenset({exp.DType.DOUBLE, exp.DType.DECIMAL, exp.DType.FLOAT})


def unwrap_sign(node: exp.Expr | None) -> exp.Expr | None:
    """Return the operand inside parentheses and minus signs."""
    while isinstance(node, (exp.Paren, exp.Neg)):
        node = node.this
    return node


def is_whole_number(node: exp.Expr | None) -> bool:
    """Return whether a node is a literal whole number that is not negative."""
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()


def is_fractional(node: exp.Expr | None, dialect: str) -> bool:
    """Return whether the type of a number is evidently none of whole numbers."""
    node = unwrap_sign(node)
    match node:
        case exp.Literal():
            return not node.is_string and not str(node.this).isdigit()
        case exp.Cast():
            return node.to.this in FRACTIONAL_TYPES
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return is_fractional(node.this, dialect) or is_fractional(node.expression, dialect)
        case exp.Avg():
            return dialect == "postgres" or is_fractional(node.this, dialect)
        case exp.Sum() | exp.Min() | exp.Max():
            return is_fractional(node.this, dialect)
        case exp.Anonymous():
            return node.this in ("sqrt", "exp", "ln")
        case _:
            return False


def is_text(node: exp.Expr | None) -> bool:
    """Return whether a node is evidently a text that no parser takes for a number."""
    node = unwrap_sign(node)
    if isinstance(node, exp.DPipe):
        return True
    if not isinstance(node, exp.Literal) or not node.is_string:
        return False
    return not any(letter.isdigit() for letter in str(node.this)) and bool(str(node.this).strip())


def find_number(node: exp.Expr | None) -> float | None:
    """Find the number that a constant is."""
    sign = 1
    while isinstance(node, (exp.Paren, exp.Neg)):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    return sign * float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def is_parameter(node: exp.Expr | None) -> bool:
    """Return whether a node is a parameter, in parentheses or not."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Parameter)
