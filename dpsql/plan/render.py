"""Expressions as SQL for people. `dpsql.sql.compile` writes the SQL that the engine runs."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.plan.expressions import Call, Expr, Frame, Literal, Order, ReleasedColumn, WindowCall
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

_MOST_LISTED = 9
"""The most operands of `x IN (…)` that are shown, x included."""


def format_expression(expr: Expr, names: Mapping[str, str] | None = None) -> str:
    """Return an expression as text; `names` holds the texts of released columns.

    >>> from dpsql.plan.functions import build_function_call
    >>> format_expression(build_function_call("add", Literal(1, Type.INTEGER), Literal(2, Type.INTEGER)))
    '(1 + 2)'
    """
    match expr:
        case Literal():
            return _format_literal(expr)
        case ReleasedColumn():
            return _format_released(expr, names or {})
        case Call():
            return _format_call(expr, names)
        case WindowCall():
            return _format_window(expr, names)
        case _:
            return str(expr)


def _format_released(expr: ReleasedColumn, names: Mapping[str, str]) -> str:
    if expr.end_of is None:
        return names.get(expr.name, expr.name)
    of, which = expr.end_of
    return f"DP_INTERVAL_{which.upper()}({format_expression(of, names)})"


def _format_literal(expr: Literal) -> str:
    if expr.value is None:
        return "NULL"
    if expr.type in (Type.INTEGER, Type.DOUBLE, Type.BOOLEAN):
        return str(expr.value).upper() if expr.type is Type.BOOLEAN else str(expr.value)
    return "'" + str(expr.value).replace("'", "''") + "'"


def _format_call(expr: Call, names: Mapping[str, str] | None) -> str:
    name, many = expr.function.name, len(expr.arguments)
    taken = expr.arguments if name != "in" or many <= _MOST_LISTED else expr.arguments[: _MOST_LISTED - 1]
    parts = [format_expression(argument, names) for argument in taken]
    if name in _INFIX:
        return f"({f' {_INFIX[name]} '.join(parts)})"
    if name == "case":
        *pairs, otherwise = parts
        whens = " ".join(
            f"WHEN {when} THEN {then}" for when, then in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return f"CASE {whens} ELSE {otherwise} END"
    if name == "in":
        listed = [*parts[1:], *([f"… {many - len(taken)} more"] * (len(taken) < many))]
        return f"({parts[0]} IN ({', '.join(listed)}))"
    if name == "map":
        return f"MAP {{{': '.join(parts)}, …}}"
    if name == "histogram_of_group":
        return f"PART {parts[1]} OF {parts[0]}"
    if name == "is_null":
        return f"({parts[0]} IS NULL)"
    if name == "not":
        return f"(NOT {parts[0]})"
    if name.startswith("cast_"):
        return f"CAST({parts[0]} AS {name.removeprefix('cast_').upper()})"
    return f"{name.upper()}({', '.join(parts)})"


def _format_window(expr: WindowCall, names: Mapping[str, str] | None) -> str:
    arguments = ", ".join(format_expression(argument, names) for argument in expr.arguments)
    if expr.function == "count":
        arguments = arguments or "*"
    parts = [f"PARTITION BY {', '.join(format_expression(part, names) for part in expr.partition)}"] * bool(
        expr.partition
    )
    parts += [f"ORDER BY {', '.join(format_order_item(item, names) for item in expr.order)}"] * bool(
        expr.order
    )
    parts += [format_frame(expr.frame)] if expr.frame is not None else []
    ignored = " IGNORE NULLS" * expr.ignore_nulls
    return f"{expr.function.upper()}({arguments}{ignored}) OVER ({' '.join(parts)})"


def format_order_item(item: Order, names: Mapping[str, str] | None = None) -> str:
    """Return an item of ORDER BY as text, without where NULLs go."""
    return f"{format_expression(item.expr, names)}{' DESC' * item.descending}"


def format_frame(frame: Frame) -> str:
    """Return a frame in SQL.

    >>> from dpsql.plan.expressions import FrameKind
    >>> format_frame(Frame(FrameKind.ROWS, -1, None))
    'ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING'
    """
    first = "UNBOUNDED PRECEDING" if frame.first is None else _format_frame_end(frame.first)
    last = "UNBOUNDED FOLLOWING" if frame.last is None else _format_frame_end(frame.last)
    exclude = f" EXCLUDE {frame.exclude}" if frame.exclude else ""
    return f"{frame.kind.value} BETWEEN {first} AND {last}{exclude}"


def _format_frame_end(offset: int) -> str:
    if offset == 0:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"
