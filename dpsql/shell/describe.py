"""Tables and their columns, as rows for people: from the policy and the schema, never from data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dpsql.engine.description import ColumnDescription, Description, bounds_of, values_of
from dpsql.policy import Column
from dpsql.shell.statements import without_comments

_CATALOGUE = re.compile(
    r"(?:SHOW\s+(?:ALL\s+)?TABLES|(?:DESCRIBE|DESC)(?:\s+(?P<table>\S+))?)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of a catalogue under their heads, `numbers` the columns to align right, and the rules of a table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numbers: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()


def asked(statement: str) -> str | None:
    """The table that a statement asks to be described, "" for the list of tables, None for other statements.

    >>> asked("SHOW TABLES;"), asked("describe visits"), asked("SELECT 1")
    ('', 'visits', None)
    """
    bare = without_comments(statement).strip().rstrip(";").rstrip()
    found = _CATALOGUE.fullmatch(bare)
    return None if found is None else found["table"] or ""


def described(name: str, known: Description) -> Listing:
    """The columns of a table with its rules, or, for "", all tables. ProgrammingError (`table`) for one that is not there."""
    return columns(name, known) if name else tables(known)


def tables(known: Description) -> Listing:
    """Every declared table with whom its rows belong to."""
    rows = (
        (found.name, found.kind or ("private" if found.private else "public"), found.unit, len(found.columns))
        for found in known.tables
    )
    return Listing(("table", "kind", "privacy unit", "columns"), tuple(rows), numbers=(3,))


def columns(name: str, known: Description) -> Listing:
    """The columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = known.table(name)
    rows = ((each.name, each.type, each.span, ", ".join(each.notes)) for each in found.columns)
    return Listing(("column", "type", "bounds or values", "notes"), tuple(rows), rules=found.rules)


def span(column: Column | None) -> str:
    """The bounds or the public values of a column.

    >>> span(Column(type="integer", bounds=[0, 110]))
    '[0, 110]'
    """
    return ColumnDescription("", "", bounds_of(column), values_of(column)).span
