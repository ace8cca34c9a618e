"""Bounds on the rows of a public source for any released values: unique columns, and at most one row."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.plan.expressions import Column, ReleasedColumn
from dpsql.plan.nodes import Filter, PerUnitGroupBy, Project, PublicSubquery, Release, Source, Values


def is_unique(answer: Source, columns: Iterable[Column]) -> bool:
    """Return whether these columns are a unique key of a source, whatever is released."""
    if not isinstance(answer, PublicSubquery) or not isinstance(answer.outer.source, Release):
        return False
    named = {column.name for column in columns}
    selected = {
        output.expr.name
        for output, column in zip(answer.outer.outputs, answer.columns, strict=True)
        if isinstance(output.expr, ReleasedColumn) and column.name in named
    }
    return selected >= {key.name for key in answer.outer.source.keys}


def is_single_row(source: Source) -> bool:
    """Return whether a public source has at most one row."""
    match source:
        case PublicSubquery(outer=outer):
            whole = isinstance(outer.source, Release) and not outer.source.keys
            below = isinstance(outer.source, (Project, Values)) and is_single_row(outer.source)
            return outer.limit in (0, 1) or whole or below
        case (
            Project(input=PerUnitGroupBy() | Project() as rows)
            | Project(input=Filter(input=PerUnitGroupBy() | Project() as rows))
        ):
            return is_single_row(rows)
        case PerUnitGroupBy():
            return not source.keys
        case Values():
            return len(source.rows) <= 1
        case _:
            return False
