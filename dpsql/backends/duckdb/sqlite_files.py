"""Tables of SQLite files, read by Python's own module into memory: DuckDB's extension would come from the network.

Claim: no value decides over a column's type or makes a statement fail later, and nothing of the file is run.
Why: SQLite gives any value in any column, so each is taken as a text and read as a CSV file's texts are, by the policy's types.
The file is opened read-only, and of it tables alone are read: no view, no virtual table, no trigger.
Source: SQLite's documentation, "Datatypes In SQLite" and "Uniform Resource Identifiers".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql LIKE 'CREATE TABLE%' ORDER BY name"
_KINDS = (
    ("INT", "BIGINT"),
    ("BOOL", "BOOLEAN"),
    ("DATETIME", "TIMESTAMP"),
    ("TIMESTAMP", "TIMESTAMP"),
    ("DATE", "DATE"),
    *((word, "DOUBLE") for word in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")),
)
_ROWS = 10_000
"""Rows that are handed over at a time."""


def list_tables(file: Path) -> list[str]:
    """The names of the file's own tables. Raises sqlite3.Error for a file that is none of SQLite's."""
    with closing(_open_file(file)) as connection:
        return [str(name) for (name,) in connection.execute(_TABLES)]


def list_columns(file: Path, table: str) -> list[str]:
    """The columns of a table. Raises LookupError where there is none of that name."""
    with closing(_open_file(file)) as connection:
        return _list_columns(connection, table)


def describe_columns(file: Path, table: str) -> list[tuple[str, str]]:
    """The columns of a table with the types that their declarations suggest, which bind no value.

    >>> [_suggest_type(kind) for kind in ("INTEGER", "varchar(9)", "Double Precision", "DATETIME", "")]
    ['BIGINT', 'VARCHAR', 'DOUBLE', 'TIMESTAMP', 'VARCHAR']
    """
    with closing(_open_file(file)) as connection:
        kinds = dict(connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (table,)).fetchall())
        return [(name, _suggest_type(str(kinds[name]))) for name in _list_columns(connection, table)]


def _suggest_type(declared: str) -> str:
    return next((kind for word, kind in _KINDS if word in declared.upper()), "VARCHAR")


def iterate_batches(file: Path, table: str) -> Iterator[list[list[str | None]]]:
    """The rows of a table, some at a time: each column as a list of texts."""
    with closing(_open_file(file)) as connection:
        listed = ", ".join(_quote_identifier(name) for name in _list_columns(connection, table))
        cursor = connection.execute(f"SELECT {listed} FROM {_quote_identifier(table)}")
        while rows := cursor.fetchmany(_ROWS):
            yield [list(map(_to_text, column)) for column in zip(*rows, strict=True)]


def _open_file(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def _list_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    found = connection.execute(
        "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,)
    )
    names = [str(name) for (name,) in found]
    if not names or table.lower() not in (name.lower() for (name,) in connection.execute(_TABLES)):
        raise LookupError(table)
    return names


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_text(value: Any) -> str | None:
    """A value as text; of bytes there is none."""
    return None if value is None or isinstance(value, bytes) else str(value)
