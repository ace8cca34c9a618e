"""Expressions in the words of SQL, for people; the engine's SQL is written in `dpsql.sql`."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.plan.expr import Call, Expr, Literal, Released
from dpsql.plan.types import Type

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "like": "LIKE",
    "ilike": "ILIKE",
    "and": "AND",
    "or": "OR",
}


def phrase(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """An expression as text; `names` says what released columns stand for.

    >>> from dpsql.functions import call
    >>> phrase(call("add", Literal(1, Type.INTEGER), Literal(2, Type.INTEGER)))
    '(1 + 2)'
    """
    match expr:
        case Literal():
            return _constant(expr)
        case Released():
            return (names or {}).get(expr.name, expr.name)
        case Call():
            return _call(expr, names)
        case _:
            return str(expr)


def _constant(expr: Literal) -> str:
    if expr.value is None:
        return "NULL"
    if expr.type in (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN):
        return str(expr.value).upper() if expr.type is Type.BOOLEAN else str(expr.value)
    return "'" + str(expr.value).replace("'", "''") + "'"


def _call(expr: Call, names: Mapping[str, str] | None) -> str:
    parts = [phrase(argument, names) for argument in expr.arguments]
    name = expr.function.name
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(parts)})"
    if name == "case":
        *pairs, otherwise = parts
        whens = " ".join(
            f"WHEN {when} THEN {then}" for when, then in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return f"CASE {whens} ELSE {otherwise} END"
    if name == "in":
        shown = parts[1:] if len(parts) <= 9 else [*parts[1:8], f"… {len(parts) - 8} more"]
        return f"({parts[0]} IN ({', '.join(shown)}))"
    if name == "is_null":
        return f"({parts[0]} IS NULL)"
    if name == "not":
        return f"(NOT {parts[0]})"
    if name.startswith("cast_"):
        return f"CAST({parts[0]} AS {name.removeprefix('cast_').upper()})"
    return f"{name.upper()}({', '.join(parts)})"
