"""Databases in memory with one table of given rows."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from dpsql.backends.quoting import quote_identifier
from dpsql.plan.types import Value


def create_database(
    table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]]
) -> duckdb.DuckDBPyConnection:
    """Create a database in memory with a table of these columns (names with engine types) and rows."""
    connection = duckdb.connect()
    add_table(connection, table, columns, rows)
    return connection


def create_empty_database() -> duckdb.DuckDBPyConnection:
    """Create a database in memory without tables."""
    return duckdb.connect()


def add_table(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Value]],
) -> None:
    """Create a table of these columns (names with engine types) and rows."""
    declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns)
    connection.execute(f"CREATE TABLE {quote_identifier(table)} ({declared})")
    unnested = ", ".join(f"unnest(CAST(? AS {kind}[]))" for _, kind in columns)
    series = [list(values) for values in zip(*rows, strict=True)] if rows else [[] for _ in columns]
    connection.execute(f"INSERT INTO {quote_identifier(table)} SELECT {unnested}", series)
