"""Databases in memory of one table with given rows."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql.backends.quoting import quote_identifier
from dpsql.plan.types import Value


def create_database(
    table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]]
) -> duckdb.DuckDBPyConnection:
    """A database with a table of these columns, names with engine types, and rows; it ends with the connection."""
    connection = duckdb.connect()
    add_table(connection, table, columns, rows)
    return connection


def create_empty_database() -> duckdb.DuckDBPyConnection:
    """A database without tables; it ends with the connection."""
    return duckdb.connect()


def add_table(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Value]],
) -> None:
    """Makes a table of these columns, names with engine types, and rows."""
    declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns)
    connection.execute(f"CREATE TABLE {quote_identifier(table)} ({declared})")
    unnested = ", ".join(f"unnest(CAST(? AS {kind}[]))" for _, kind in columns)
    series = [list(values) for values in zip(*rows, strict=True)] if rows else [[] for _ in columns]
    connection.execute(f"INSERT INTO {quote_identifier(table)} SELECT {unnested}", series)
