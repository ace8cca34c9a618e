"""What exists for an analyst, as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.engine.description import ColumnDescription, Description, bounds_of, values_of
from dpsql.policy import Column
from dpsql.shell.view import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def tables(described: Description) -> Table:
    """Every declared table with whom its rows belong to."""
    rows = [
        (found.name, "private" if found.private else "public", found.unit, str(len(found.columns)))
        for found in described.tables
    ]
    return table(("table", "kind", "privacy unit", "columns"), rows, right=(3,))


def columns(name: str, described: Description) -> list[RenderableType]:
    """The columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = described.table(name)
    rows = [(each.name, each.type, each.span, ", ".join(each.notes)) for each in found.columns]
    return [table(("column", "type", "bounds or values", "notes"), rows), *found.rules]


def span(column: Column | None) -> str:
    """The bounds or the public values of a column.

    >>> span(Column(type="integer", bounds=[0, 110]))
    '[0, 110]'
    """
    return ColumnDescription("", "", bounds_of(column), values_of(column)).span
