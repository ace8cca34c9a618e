"""Windows over windows within a unit: a second step reads the columns of a first one.

Claim: the rows are the same, with the values of the second step under the names that they had.
Why: both steps have all items of the rows, in one form for each value, so that rows that are equal in one are equal in the other.
Source: ISO/IEC 9075-2, <window function>, over a derived table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpsql.plan.expressions import Column, Expr, WindowCall, substitute_columns
from dpsql.plan.nodes import PerUnitWindows, Project

ColumnMapping = Mapping[Column, Column]
"""The columns of a step by what they are above it, or below."""


def build_two_steps(
    source: PerUnitWindows,
    alias: str,
    first: Mapping[Column, WindowCall],
    second: Sequence[WindowCall],
    show: Callable[[WindowCall, Column, ColumnMapping], Expr] = lambda _, value, __: value,
) -> Project:
    """Build the rows of `source` with the windows of `second` in place of its own, in a step of that alias over one with the columns `first`.

    `show` makes what is shown of a window of `source`, the value of the second step, and the columns of that step.
    """
    own, asked = source.columns[: len(source.items)], source.columns[len(source.items) :]
    below = next(iter(first)).source
    inner = _rename_columns(own, below, "i")
    windows = tuple(_substitute_columns(window, inner) for window in first.values())
    counted = PerUnitWindows(source.input, below, source.items, windows, (*inner.values(), *first))
    outer = _rename_columns(own, alias, "i") | _rename_columns(tuple(first), alias, "n")
    values = tuple(_rename_columns(asked, alias, "w").values())
    windows = tuple(_substitute_columns(window, outer) for window in second)
    taken = PerUnitWindows(counted, alias, counted.columns, windows, (*outer.values(), *values))
    columns = (show(window, value, outer) for window, value in zip(source.windows, values, strict=True))
    return Project(taken, source.alias, (*(outer[column] for column in own), *columns), source.columns)


def _rename_columns(columns: Sequence[Column], source: str, letter: str) -> dict[Column, Column]:
    """Replace these columns by those of another source."""
    return {column: Column(source, f"{letter}{place}", column.facts) for place, column in enumerate(columns)}


def _substitute_columns(window: WindowCall, read: ColumnMapping) -> WindowCall:
    """Return the window over other columns."""
    return replace(
        window,
        arguments=tuple(substitute_columns(part, read) for part in window.arguments),
        partition=tuple(substitute_columns(part, read) for part in window.partition),
        order=tuple(replace(part, expr=substitute_columns(part.expr, read)) for part in window.order),
    )
