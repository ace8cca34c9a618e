"""Windows over windows: the columns of a first step of windows within a unit are read by those of a second.

Claim: the rows are the same, with the values of the second step under the names that they had.
Why: both steps have all items of the rows, in one form for each value, so that rows that are equal in one are equal in the other.
Source: ISO/IEC 9075-2, <window function>, over a derived table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dpsql.plan.expr import Column, Expr, Windowed, substituted
from dpsql.plan.nodes import PerUnitWindows, Project

Read = Mapping[Column, Column]
"""The columns of a step by what they are above it, or below."""


def in_two_steps(
    source: PerUnitWindows,
    alias: str,
    first: Mapping[Column, Windowed],
    second: Sequence[Windowed],
    show: Callable[[Windowed, Column, Read], Expr] = lambda _, value, __: value,
) -> Project:
    """The rows of `source` with the windows of `second` in place of its own, in a step of that alias over one with the columns `first`.

    `show` makes what is shown of a window of `source`, the value of the second step, and the columns of that step.
    """
    own, asked = source.columns[: len(source.items)], source.columns[len(source.items) :]
    below = next(iter(first)).source
    inner = _renamed(own, below, "i")
    windows = tuple(_over(window, inner) for window in first.values())
    counted = PerUnitWindows(source.input, below, source.items, windows, (*inner.values(), *first))
    outer = _renamed(own, alias, "i") | _renamed(tuple(first), alias, "n")
    values = tuple(_renamed(asked, alias, "w").values())
    windows = tuple(_over(window, outer) for window in second)
    taken = PerUnitWindows(counted, alias, counted.columns, windows, (*outer.values(), *values))
    columns = (show(window, value, outer) for window, value in zip(source.windows, values, strict=True))
    return Project(taken, source.alias, (*(outer[column] for column in own), *columns), source.columns)


def _renamed(columns: Sequence[Column], source: str, letter: str) -> dict[Column, Column]:
    """Columns of another source for these."""
    return {column: Column(source, f"{letter}{place}", column.facts) for place, column in enumerate(columns)}


def _over(window: Windowed, read: Read) -> Windowed:
    """The window over other columns."""
    return replace(
        window,
        arguments=tuple(substituted(part, read) for part in window.arguments),
        partition=tuple(substituted(part, read) for part in window.partition),
        order=tuple(replace(part, expr=substituted(part.expr, read)) for part in window.order),
    )
