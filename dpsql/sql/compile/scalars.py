"""Emit scalar expressions from the templates of the registry, in the dialect of the statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Order,
    ReleasedColumn,
    Scalar,
    WindowCall,
    has_window,
)
from dpsql.plan.functions.operators import split_case_branches
from dpsql.plan.text import format_frame
from dpsql.plan.types import Pairs, Type, Value

# The dialect of emitted statements: DuckDB's, except in releases for another engine.


_DIALECT: ContextVar[Dialect] = ContextVar("dialect", default=DUCKDB)
_HELD: ContextVar[list[tuple[str, str]] | None] = ContextVar("held", default=None)


def get_dialect() -> Dialect:
    """Return the dialect of the statement that is being emitted."""
    return _DIALECT.get()


@contextmanager
def use_dialect(wanted: Dialect) -> Iterator[Dialect]:
    """Emit statements in this dialect within the context, in this thread alone.

    What is above the release boundary, and what is looked up in public tables, is always evaluated by DuckDB. So the entry points
    of emission for private rows (`statement.emit_release` and `emit_sums`) take a dialect, and all that they call asks
    `get_dialect()` for it. It is an argument of all of emission, which is not written at each call.
    """
    token = _DIALECT.set(wanted)
    try:
        yield wanted
    finally:
        _DIALECT.reset(token)


@contextmanager
def collect_held_queries() -> Iterator[list[tuple[str, str]]]:
    """Collect the queries that a statement reads more than once within the context, where the engine materializes them."""
    found: list[tuple[str, str]] = []
    token = _HELD.set(found)
    try:
        yield found
    finally:
        _HELD.reset(token)


def emit_cte(name: str, query: str) -> tuple[list[str], str]:
    """Return a common table expression, and its name."""
    return [f"{name} AS (\n  {query}\n)"], name


def emit_shared_cte(name: str, query: str) -> tuple[list[str], str]:
    """Return the common table expressions of a query that the statement reads more than once, and its name there.

    An engine that would run it each time that it is read, over files that may have changed meanwhile or in a task that is
    tried again, holds its rows in a temporary table instead.
    """
    held = _HELD.get()
    if held is None or not get_dialect().capabilities.materializes_ctes:
        return emit_cte(name, query)
    called = f'{name[:-1]}{len(held)}"'
    held.append((called, query))
    return [], called


# Emit scalar expressions from the templates of the registry.


_TRY, _VALUES = "TRY(", '"#values"'
MAX_INTEGER = 2**63 - 1
"""The largest constant of type BIGINT; its negative is the smallest that is used."""


def quote_identifier(name: str) -> str:
    """Return a quoted identifier.

    >>> quote_identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def emit_constant(value: Value | Pairs) -> str:
    """Return a constant of exactly the engine type of its plan type; in DuckDB's dialect it is written as here.

    >>> emit_constant(3), emit_constant(0.5), emit_constant("it's")
    ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
    """
    return get_dialect().values.emit_constant(value)


def emit_cast(text: str, kind: Type) -> str:
    """Return the SQL of a value cast to a type; NULL constants and lists need no cast."""
    return get_dialect().values.emit_cast(text, kind)


def emit_column(scan_column: Column) -> str:
    """Return a column of a scan."""
    return f"{quote_identifier(scan_column.source)}.{quote_identifier(scan_column.name)}"


def emit_expression(expr: Expr) -> str:
    """Return the SQL of an expression over scans, or over the released table.

    Templates are filled with quoted identifiers, escaped constants and emitted expressions only, so no text of the user reaches the
    engine.
    """
    match expr:
        case Column():
            return emit_column(expr)
        case ReleasedColumn():
            return quote_identifier(expr.name)
        case Literal():
            return emit_cast("NULL", expr.type) if expr.value is None else emit_constant(expr.value)
        case Scalar():
            # Its value replaces it before the text is sent; until then the text is only shown.
            return f"{emit_cast('NULL', expr.type)} /* {expr} */"
        case Call():
            return _emit_call(expr)
        case WindowCall():
            return _emit_window_function(expr)


def emit_order_item(item: Order) -> str:
    """Return an item of ORDER BY."""
    direction, nulls = "DESC" if item.descending else "ASC", "FIRST" if item.nulls_first else "LAST"
    return f"{emit_expression(item.expr)} {direction} NULLS {nulls}"


def _emit_window_function(expr: WindowCall) -> str:
    """Return a window function cast to its plan type, whatever the engine makes of its arguments."""
    counts = [place for place, _ in OVER[expr.function].least_constants]
    arguments = ", ".join(
        str(argument.value)
        if place in counts and isinstance(argument, Literal)
        else _emit_argument(argument, expr)
        for place, argument in enumerate(expr.arguments)
    )
    parts = [f"PARTITION BY {', '.join(map(emit_expression, expr.partition))}"] * bool(expr.partition)
    parts += [f"ORDER BY {', '.join(map(emit_order_item, expr.order))}"] * bool(expr.order)
    parts += [] if expr.frame is None else [format_frame(expr.frame)]
    ignored = " IGNORE NULLS" * expr.ignore_nulls
    called = f"{expr.function}({arguments or '*' * (expr.function == 'count')}{ignored})"
    return f"TRY_CAST({called} OVER ({' '.join(parts)}) AS {expr.type.value})"


def _emit_argument(argument: Expr, expr: WindowCall) -> str:
    """Return an argument, cast to the value's type if it is one of the possible values."""
    text = emit_expression(argument)
    return (
        text
        if argument.type is expr.type or expr.function in ("avg", "count")
        else emit_cast(text, expr.type)
    )


def _emit_call(expr: Call) -> str:
    function = expr.function
    arguments = [
        str(argument.value)
        if index in function.literals and isinstance(argument, Literal) and argument.type is Type.INTEGER
        else emit_expression(argument)
        for index, argument in enumerate(expr.arguments)
    ]
    template = _get_template(expr)
    outside = [
        place for place, argument in enumerate(expr.arguments) if _TRY in template and has_window(argument)
    ]
    if outside:
        # TRY cannot contain a window function: it is computed first, and TRY applies to a function of its value.
        fields = ", ".join(f"'a{place}': {arguments[place]}" for place in outside)
        for place in outside:
            arguments[place] = f"{_VALUES}.a{place}"
        return f"LIST_TRANSFORM([{{{fields}}}], LAMBDA {_VALUES}: {_fill_template(template, arguments)})[1]"
    return _fill_template(template, arguments)


def _fill_template(template: str, arguments: Sequence[str]) -> str:
    """Return the template with these arguments in its holes."""
    holes: dict[str, Callable[[], str]] = {
        "args": lambda: ", ".join(arguments),
        "rest": lambda: ", ".join(arguments[1:]),
        "and": lambda: " AND ".join(arguments),
        "or": lambda: " OR ".join(arguments),
        "case": lambda: " ".join(_emit_branches(tuple(arguments))),
    }
    return template.format(
        *arguments, **{name: hole() for name, hole in holes.items() if f"{{{name}}}" in template}
    )


def _get_template(expr: Call) -> str:
    """Return how a call is written."""
    return get_dialect().functions.emit_call_template(expr)


def _emit_branches(arguments: tuple[str, ...]) -> Iterator[str]:
    branches, otherwise = split_case_branches(arguments)
    for condition, value in branches:
        yield f"WHEN {condition} THEN {value}"
    yield f"ELSE {otherwise}"


def emit_number_or_null(expr: Expr) -> str:
    """Return the value of an aggregated expression, with NaN as NULL."""
    text = emit_expression(expr)
    cleaned = isinstance(expr, Column) and expr.facts.is_stored
    return f"NULLIF({text}, {get_dialect().values.nan})" if expr.type is Type.DOUBLE and not cleaned else text
