"""Compile scalar expressions to SQL, by the templates of the registry, in the dialect of one statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpsql.backends.dialect import CALENDAR, Dialect
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
from dpsql.policy.names import quote_identifier

_TRY, _VALUES = "TRY(", '"#values"'
MAX_INTEGER = 2**63 - 1
"""The largest constant of type BIGINT; its negative is the smallest that is used."""


PLACEHOLDER = "a secret of this release"
"""The placeholder of the secret in SQL that is shown, bound or fingerprinted; no drawn release uses it."""


def emit_column(scan_column: Column) -> str:
    """Return a column of a scan."""
    return f"{quote_identifier(scan_column.source)}.{quote_identifier(scan_column.name)}"


def emit_cte(name: str, query: str) -> tuple[list[str], str]:
    """Return a common table expression, and its name."""
    return [f"{name} AS (\n  {query}\n)"], name


@dataclass(frozen=True, slots=True)
class Compiler:
    """The compiler of one statement: the dialect that it is written in, and what all of its parts need.

    `secret` decides which units are in a sample. `held` collects the queries that the statement reads more than once, where the
    engine materializes them; without it, they are common table expressions.

    All that is above the release boundary, and all that is looked up in public tables, is written by `DUCKDB_COMPILER`, since DuckDB
    evaluates it whatever engine holds the private rows.
    """

    dialect: Dialect = DUCKDB
    secret: str = PLACEHOLDER
    held: list[tuple[str, str]] | None = None

    def emit_constant(self, value: Value | Pairs) -> str:
        """Return a constant of exactly the engine type of its plan type; in DuckDB's dialect it is written as here.

        >>> compiler = Compiler()
        >>> compiler.emit_constant(3), compiler.emit_constant(0.5), compiler.emit_constant("it's")
        ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
        """
        return self.dialect.values.emit_constant(value)

    def emit_cast(self, text: str, kind: Type) -> str:
        """Return the SQL of a value cast to a type; NULL constants and lists need no cast."""
        return self.dialect.values.emit_cast(text, kind)

    def emit_expression(self, expr: Expr) -> str:
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
                return (
                    self.emit_cast("NULL", expr.type)
                    if expr.value is None
                    else self.emit_constant(expr.value)
                )
            case Scalar():
                # Its value replaces it before the text is sent; until then the text is only shown.
                return f"{self.emit_cast('NULL', expr.type)} /* {expr} */"
            case Call():
                return self._emit_call(expr)
            case WindowCall():
                return self._emit_window_function(expr)

    def emit_order_item(self, item: Order) -> str:
        """Return an item of ORDER BY."""
        direction, nulls = "DESC" if item.descending else "ASC", "FIRST" if item.nulls_first else "LAST"
        return f"{self.emit_expression(item.expr)} {direction} NULLS {nulls}"

    def emit_number_or_null(self, expr: Expr) -> str:
        """Return the value of an aggregated expression, with NaN as NULL."""
        text = self.emit_expression(expr)
        cleaned = isinstance(expr, Column) and expr.facts.is_stored
        return (
            self.dialect.values.emit_nan_as_null(text) if expr.type is Type.DOUBLE and not cleaned else text
        )

    def emit_with_unsigned_zero(self, argument: Expr) -> str:
        """Return a value in which negative zero becomes zero."""
        text = self.emit_number_or_null(argument)
        return f"({text} + 0)" if argument.type is Type.DOUBLE else text

    def emit_canonical_value(self, expr: Expr) -> str:
        """Return a group key with one form for each value: equal keys must not differ in how they are shown.

        -0.0 becomes 0.0, NaN NULL, and so does a day or moment that Python's calendar cannot hold.
        """
        text = self.emit_expression(expr)
        if expr.type is Type.DOUBLE:
            return self.dialect.values.emit_nan_as_null(f"{text} + 0")
        if expr.type in CALENDAR and not (isinstance(expr, Column) and expr.facts.is_stored):
            low, high = map(self.emit_constant, CALENDAR[expr.type])
            return f"CASE WHEN {text} BETWEEN {low} AND {high} THEN {text} END"
        return self.dialect.values.emit_binary_collation(text) if expr.type is Type.VARCHAR else text

    def emit_shared_cte(self, name: str, query: str) -> tuple[list[str], str]:
        """Return the common table expressions of a query that the statement reads more than once, and its name there.

        An engine that would run it each time that it is read, over files that may have changed meanwhile or in a task that is
        tried again, holds its rows in a temporary table instead.
        """
        if self.held is None or not self.dialect.capabilities.materializes_ctes:
            return emit_cte(name, query)
        called = f'{name[:-1]}{len(self.held)}"'
        self.held.append((called, query))
        return [], called

    def _emit_window_function(self, expr: WindowCall) -> str:
        """Return a window function cast to its plan type, whatever the engine makes of its arguments."""
        counts = [place for place, _ in OVER[expr.function].least_constants]
        arguments = ", ".join(
            str(argument.value)
            if place in counts and isinstance(argument, Literal)
            else self._emit_argument(argument, expr)
            for place, argument in enumerate(expr.arguments)
        )
        parts = [f"PARTITION BY {', '.join(map(self.emit_expression, expr.partition))}"] * bool(
            expr.partition
        )
        parts += [f"ORDER BY {', '.join(map(self.emit_order_item, expr.order))}"] * bool(expr.order)
        parts += [] if expr.frame is None else [format_frame(expr.frame)]
        ignored = " IGNORE NULLS" * expr.ignore_nulls
        called = f"{expr.function}({arguments or '*' * (expr.function == 'count')}{ignored})"
        return f"TRY_CAST({called} OVER ({' '.join(parts)}) AS {expr.type.value})"

    def _emit_argument(self, argument: Expr, expr: WindowCall) -> str:
        """Return an argument, cast to the value's type if it is one of the possible values."""
        text = self.emit_expression(argument)
        return (
            text
            if argument.type is expr.type or expr.function in ("avg", "count")
            else self.emit_cast(text, expr.type)
        )

    def _get_template(self, expr: Call) -> str:
        """Return how a call is written."""
        return self.dialect.functions.emit_call_template(expr)

    def _emit_call(self, expr: Call) -> str:
        function = expr.function
        arguments = [
            str(argument.value)
            if index in function.literals and isinstance(argument, Literal) and argument.type is Type.INTEGER
            else self.emit_expression(argument)
            for index, argument in enumerate(expr.arguments)
        ]
        template = self._get_template(expr)
        outside = [
            place
            for place, argument in enumerate(expr.arguments)
            if _TRY in template and has_window(argument)
        ]
        if outside:
            # TRY cannot contain a window function: it is computed first, and TRY applies to a function of its value.
            fields = ", ".join(f"'a{place}': {arguments[place]}" for place in outside)
            for place in outside:
                arguments[place] = f"{_VALUES}.a{place}"
            return (
                f"LIST_TRANSFORM([{{{fields}}}], LAMBDA {_VALUES}: {_fill_template(template, arguments)})[1]"
            )
        return _fill_template(template, arguments)


DUCKDB_COMPILER = Compiler()
"""The compiler of what DuckDB evaluates: outer queries, and what is read of public tables."""


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


def _emit_branches(arguments: tuple[str, ...]) -> Iterator[str]:
    branches, otherwise = split_case_branches(arguments)
    for condition, value in branches:
        yield f"WHEN {condition} THEN {value}"
    yield f"ELSE {otherwise}"
