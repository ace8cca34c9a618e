"""List tables and their columns, from the policy and the schema, never from data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dpsql.engine.schema_description import ColumnDescription, Description, format_bounds, format_values
from dpsql.policy import Column
from dpsql.sql.parse.scanner import remove_comments

_CATALOGUE = re.compile(
    r"(?:SHOW\s+(?:ALL\s+)?TABLES|(?:DESCRIBE|DESC)(?:\s+(?P<table>\S+))?)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of tables or columns, with the columns to align right and the rules of a table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    numbers: tuple[int, ...] = ()
    rules: tuple[str, ...] = ()


def parse_describe_statement(statement: str) -> str | None:
    """Return the table that a statement describes, "" for the list of tables, None for other statements.

    >>> parse_describe_statement("SHOW TABLES;"), parse_describe_statement("describe visits"), parse_describe_statement("SELECT 1")
    ('', 'visits', None)
    """
    bare = remove_comments(statement).strip().rstrip(";").rstrip()
    found = _CATALOGUE.fullmatch(bare)
    return None if found is None else found["table"] or ""


def build_listing(name: str, known: Description) -> Listing:
    """List the columns of a table with its rules, or, for "", all tables. Raises ProgrammingError for an unknown table."""
    return list_columns(name, known) if name else list_tables(known)


def list_tables(known: Description) -> Listing:
    """List the declared tables, with the privacy unit of each."""
    rows = (
        (found.name, found.kind or ("private" if found.private else "public"), found.unit, len(found.columns))
        for found in known.tables
    )
    return Listing(("table", "kind", "privacy unit", "columns"), tuple(rows), numbers=(3,))


def list_columns(name: str, known: Description) -> Listing:
    """List the columns of a table with their types, bounds and values, and the rules of the table.

    Raises ProgrammingError (`table`) for a table that is not declared.
    """
    found = known.get_table(name)
    rows = ((each.name, each.type, each.span, ", ".join(each.notes)) for each in found.columns)
    return Listing(("column", "type", "bounds or values", "notes"), tuple(rows), rules=found.rules)


def format_domain(column: Column | None) -> str:
    """Format the bounds or the public values of a column.

    >>> format_domain(Column(type="integer", bounds=[0, 110]))
    '[0, 110]'
    """
    return ColumnDescription("", "", format_bounds(column), format_values(column)).span
