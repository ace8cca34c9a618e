"""The reference page of the scalar functions, generated from the registry: docs/reference/functions.md."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cache

from dpsql.plan.expressions import Function, Literal
from dpsql.plan.functions import BY_UNIT, FAMILIES, FUNCTIONS, SYNONYMS
from dpsql.plan.functions.dates import UNITS
from dpsql.plan.functions.strings import MOST_COMPARED
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_HEAD = """\
# Functions
The functions that a query may apply to private rows and to released values: {names} names and operators, {typed} by
name and types of arguments. Everything else is refused. This page is generated from the registry, `dpsql/plan/functions/`,
by `python -m dpsql.plan.functions`; a test keeps it current.

- *Takes* lists the types of the arguments; NULL is always allowed. Every integer type is read as BIGINT, FLOAT and
  DECIMAL as DOUBLE. *Constant* arguments must be constants of the query; they are checked before anything is charged.
- *Within* is the range for all arguments; narrower bounds of columns, filters and constants give narrower
  ranges, by the rule of each function. A sum needs a range.
- *Why no row fails*: a row for which the engine would raise an error gives NULL, since an error would reveal the row.
- NaN counts as NULL.
- *Texts* have at most 16 times the bytes of the row's longest stored text, or 128 KiB, and the work on the texts of one row is
  bounded over the whole statement, both before anything is charged: [types](types.md). Shorten a text first,
  `LEFT(s, 1000)`, if a statement is refused as `too_long`. Edit distances and similar functions read the first {most:,} characters.
"""
_KINDS = tuple(kind for kind in Type if kind not in (Type.NULL, Type.LIST))
_GROUPS = {
    frozenset(_KINDS): "any",
    frozenset({Type.INTEGER, Type.DOUBLE}): "number",
    frozenset({Type.DATE, Type.TIMESTAMP}): "moment",
}
_UNIT = re.compile(rf"\b({'|'.join(UNITS)})\b", re.IGNORECASE)
_BAR = r"\|"
_WORDS = (
    "CASE",
    "IN",
    "IS",
    "LIKE",
    "ILIKE",
    "GLOB",
    "SIMILAR",
    "NOT",
    "AND",
    "OR",
    "CAST",
    "EXTRACT",
    "BETWEEN",
)


def list_names() -> frozenset[str]:
    """List all that functions and operators may be called in a query."""
    called = {name for function in FUNCTIONS.values() for name in function.names if " " not in name}
    compared = {"=", "<>", "<", "<=", ">", ">=", "is distinct from"}
    return frozenset({*called, *compared, *map(str.lower, _WORDS), *BY_UNIT, *SYNONYMS})


@cache
def list_signatures(function: Function) -> tuple[tuple[Type, ...], ...]:
    """List the types of arguments that an entry takes, without NULL; of any number of arguments the fewest."""
    holes = {int(hole) for hole in re.findall(r"\{(\d+)\}", function.sql)}
    lengths: Iterable[int] = (len(holes),) if "{" not in re.sub(r"\{\d+\}", "", function.sql) else range(1, 4)
    for length in lengths:
        places = [
            [kind for kind in _KINDS if _accepts_type(function, length, place, kind)]
            for place in range(length)
        ]
        found = tuple(types for types in itertools.product(*places) if function.result(types) is not None)
        if found:
            return found
    return ()


def _accepts_type(function: Function, length: int, place: int, kind: Type) -> bool:
    """Return whether an argument can be of a type where the others are NULL."""
    types = (*[Type.NULL] * place, kind, *[Type.NULL] * (length - place - 1))
    return function.result(types) is not None


def render_markdown() -> str:
    """Return the whole document."""
    typed = sum(
        len(function.names or (function.name,)) * len(list_signatures(function))
        for function in FUNCTIONS.values()
    )
    lines = [_HEAD.format(names=len(list_names()), typed=typed, most=MOST_COMPARED)]
    for title, family in FAMILIES.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| written | also | takes | gives | within | why no row fails | example |",
        ]
        lines += ["|---|---|---|---|---|---|---|", *_render_rows(family)]
    return "\n".join(lines) + "\n"


def _render_rows(entries: Iterable[Function]) -> Iterator[str]:
    """Yield a row for each entry; those that differ by their unit of time alone share one."""
    for _, alike in itertools.groupby(entries, _get_row_key):
        functions = list(alike)
        first = functions[-1] if len(functions) > 1 else functions[0]
        written = _format_cell(_replace_units(first) if len(functions) > 1 else first.signature)
        units = [found[0].lower() for entry in functions if (found := _UNIT.search(entry.signature))]
        also = (
            [name.upper() for name in first.names[1:]]
            if len(functions) == 1
            else [f"unit: {', '.join(units)}"]
        )
        text, value = first.example
        cells = (
            written,
            ", ".join(also),
            _describe_arguments(first),
            " or ".join(sorted({str(first.result(types)) for types in list_signatures(first)})),
            _format_range(first),
            first.total,
            f"{_format_cell(text)} → {_format_cell(value)}",
        )
        yield f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


def _get_row_key(function: Function) -> str:
    return (
        f"{_replace_units(function)} {_describe_arguments(function)}"
        if _UNIT.search(function.name)
        else function.name
    )


def _replace_units(function: Function) -> str:
    return re.sub(
        rf"'({'|'.join(UNITS)})'|(?<=\) )({'|'.join(UNITS)})\b",
        lambda found: "'unit'" if found[1] else "UNIT",
        function.signature,
        flags=re.IGNORECASE,
    )


def _format_cell(text: str) -> str:
    return f"`{text}`" if text else ""


def _describe_arguments(function: Function) -> str:
    """Return the types of each argument; one entry for all arguments of a variadic function."""
    found = list_signatures(function)
    if "…" in function.signature:
        return f"{_describe_types(types[-1] for types in found)}, …"
    places = [_describe_types(kinds) for kinds in zip(*found, strict=True)]
    return ", ".join(
        f"constant {kind}" if place in function.literals else kind for place, kind in enumerate(places)
    )


def _describe_types(kinds: Iterable[Type]) -> str:
    found = frozenset(kinds)
    return _GROUPS.get(found) or " or ".join(str(kind) for kind in _KINDS if kind in found)


def _format_range(function: Function) -> str:
    """Return the range of the results where nothing is known of the arguments."""
    intervals = set()
    for types in list_signatures(function):
        arguments = tuple(Literal(None, kind) for kind in types)
        if function.literals:
            return ""
        intervals.add(function.interval(arguments, tuple(Interval() for _ in types)))
    (around, *others) = intervals
    known = not others and around.is_within(2**62) and around != Interval(0, 1)
    return str(around) if known else ""
