"""Emits scalar expressions from the templates of the registry.

Templates are filled with quoted identifiers, escaped constants and emitted expressions only, so no text of the user
reaches the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dpsql.aggregates.windows import OVER
from dpsql.functions.conditional import case_branches
from dpsql.plan.expr import Call, Column, Expr, Literal, Order, Released, Scalar, Windowed, windowed
from dpsql.plan.render import frame_text
from dpsql.plan.types import Pairs, Type, Value
from dpsql.sql.emit.dialect import dialect

_TRY, _VALUES = "TRY(", '"#values"'
MAX_INTEGER = 2**63 - 1
"""The largest constant of type BIGINT; its negative is the smallest that is used."""


def identifier(name: str) -> str:
    """A quoted identifier.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def constant(value: Value | Pairs) -> str:
    """A constant of exactly the engine type that its plan type stands for. In DuckDB's dialect it is written as here.

    >>> constant(3), constant(0.5), constant("it's")
    ('CAST(3 AS BIGINT)', '0.5e0', "'it''s'")
    """
    return dialect().constant(value)


def cast(text: str, kind: Type) -> str:
    """The SQL of a value as one of a type; what is always NULL has none, and a list says its own."""
    return dialect().cast(text, kind)


def column(name: Column) -> str:
    """A column of a scan."""
    return f"{identifier(name.source)}.{identifier(name.name)}"


def write(expr: Expr) -> str:
    """The SQL of an expression over scans, or over the released table."""
    match expr:
        case Column():
            return column(expr)
        case Released():
            return identifier(expr.name)
        case Literal():
            return cast("NULL", expr.type) if expr.value is None else constant(expr.value)
        case Scalar():
            # Its value takes this place before the text is sent: until then it is only looked at.
            return f"{cast('NULL', expr.type)} /* {expr} */"
        case Call():
            return _call(expr)
        case Windowed():
            return _windowed(expr)


def ordered(item: Order) -> str:
    """An item of ORDER BY."""
    direction, nulls = "DESC" if item.descending else "ASC", "FIRST" if item.nulls_first else "LAST"
    return f"{write(item.expr)} {direction} NULLS {nulls}"


def _windowed(expr: Windowed) -> str:
    """A window function, of its own type whatever the engine makes of the arguments."""
    counts = [place for place, _ in OVER[expr.function].counts]
    arguments = ", ".join(
        str(argument.value)
        if place in counts and isinstance(argument, Literal)
        else _argument(argument, expr)
        for place, argument in enumerate(expr.arguments)
    )
    parts = [f"PARTITION BY {', '.join(map(write, expr.partition))}"] * bool(expr.partition)
    parts += [f"ORDER BY {', '.join(map(ordered, expr.order))}"] * bool(expr.order)
    parts += [] if expr.frame is None else [frame_text(expr.frame)]
    ignored = " IGNORE NULLS" * expr.ignore_nulls
    called = f"{expr.function}({arguments or '*' * (expr.function == 'count')}{ignored})"
    return f"TRY_CAST({called} OVER ({' '.join(parts)}) AS {expr.type.value})"


def _argument(argument: Expr, expr: Windowed) -> str:
    """An argument, in the type of the value where it is one that the value may be."""
    text = write(argument)
    return text if argument.type is expr.type or expr.function in ("avg", "count") else cast(text, expr.type)


def _call(expr: Call) -> str:
    function = expr.function
    arguments = [
        str(argument.value)
        if index in function.literals and isinstance(argument, Literal) and argument.type is Type.INTEGER
        else write(argument)
        for index, argument in enumerate(expr.arguments)
    ]
    template = _template(expr)
    outside = [
        place for place, argument in enumerate(expr.arguments) if _TRY in template and windowed(argument)
    ]
    if outside:
        # No window may stand within TRY: it is computed before, and a function of its value is tried.
        fields = ", ".join(f"'a{place}': {arguments[place]}" for place in outside)
        for place in outside:
            arguments[place] = f"{_VALUES}.a{place}"
        return f"LIST_TRANSFORM([{{{fields}}}], LAMBDA {_VALUES}: {_filled(template, arguments)})[1]"
    return _filled(template, arguments)


def _filled(template: str, arguments: Sequence[str]) -> str:
    """The template with these arguments in its holes."""
    holes: dict[str, Callable[[], str]] = {
        "args": lambda: ", ".join(arguments),
        "rest": lambda: ", ".join(arguments[1:]),
        "and": lambda: " AND ".join(arguments),
        "or": lambda: " OR ".join(arguments),
        "case": lambda: " ".join(_branches(tuple(arguments))),
    }
    return template.format(
        *arguments, **{name: hole() for name, hole in holes.items() if f"{{{name}}}" in template}
    )


def _template(expr: Call) -> str:
    """How a call is written."""
    return dialect().call(expr)


def _branches(arguments: tuple[str, ...]) -> Iterator[str]:
    branches, otherwise = case_branches(arguments)
    for condition, value in branches:
        yield f"WHEN {condition} THEN {value}"
    yield f"ELSE {otherwise}"


def number_or_null(expr: Expr) -> str:
    """The value of an expression that is aggregated: NULL where it is no number."""
    text = write(expr)
    cleaned = isinstance(expr, Column) and expr.facts.stored
    return f"NULLIF({text}, {dialect().nan})" if expr.type is Type.DOUBLE and not cleaned else text
