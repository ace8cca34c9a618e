"""ClickHouse in this process for the tests of engines, and tables of a DuckDB database in it, with the same values."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.backends.clickhouse.native import read_rows

_TYPES = {
    "TINYINT": "Int8",
    "SMALLINT": "Int16",
    "INTEGER": "Int32",
    "BIGINT": "Int64",
    "UBIGINT": "UInt64",
    "HUGEINT": "Int128",
    "FLOAT": "Float32",
    "DOUBLE": "Float64",
    "VARCHAR": "String",
    "DATE": "Date32",
    "TIMESTAMP": "DateTime64(6, 'UTC')",
    "TIMESTAMP WITH TIME ZONE": "DateTime64(6, 'UTC')",
    "UUID": "String",
    "BOOLEAN": "Bool",
}


def require() -> None:
    """Skips a test where chdb is missing, but not in CI."""
    if importlib.util.find_spec("chdb") is None and not os.environ.get("CI"):
        pytest.skip("chdb is not installed")


@contextlib.contextmanager
def running() -> Iterator[Any]:
    """A connection to a folder of chdb, the only one of this process; the folder is removed at the end."""
    import chdb

    folder = tempfile.mkdtemp(prefix="chdb-")
    connection = chdb.connect(folder)
    try:
        yield connection
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def read(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement of the owner's connection."""
    return read_rows(connection.query(sql, "Native").bytes())


def clickhouse_type(kind: str) -> str | None:
    """The ClickHouse type of a DuckDB type, None for those that it does not have."""
    if kind.startswith("ENUM"):
        return "String"
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    return f"Decimal({found[1]}, {found[2]})" if found else _TYPES.get(kind)


def load(source: duckdb.DuckDBPyConnection, connection: Any, folder: Path, database: str) -> None:
    """Makes a database anew with all tables of `source`, with the columns that ClickHouse can have, and uses it.

    Schemas are databases. Each table has several parts, and NULL is allowed in all columns.
    """
    source.execute("SET TimeZone = 'UTC'")
    schemas = {
        "main",
        *(row[0] for row in source.execute("SELECT schema_name FROM duckdb_tables()").fetchall()),
    }
    for schema in sorted(schemas):
        place = database if schema == "main" else schema
        connection.query(f"DROP DATABASE IF EXISTS {place}")
        connection.query(f"CREATE DATABASE {place}")
    for schema, table in source.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
        columns = [
            (name, kind, clickhouse_type(kind))
            for name, kind in source.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?",
                [schema, table],
            ).fetchall()
        ]
        kept = [(name, wanted) for name, _, wanted in columns if wanted is not None]
        hold(
            connection,
            f'{database if schema == "main" else schema}."{table}"',
            kept,
            folder,
            (source, f'"{schema}"."{table}"'),
        )
    connection.query(f"USE {database}")


def hold(
    connection: Any,
    name: str,
    columns: list[tuple[str, str]],
    folder: Path,
    rows: tuple[duckdb.DuckDBPyConnection, str],
    *,
    parts: int = 3,
) -> None:
    """Makes a table anew of the rows of a table or query of DuckDB, in several parts."""
    source, query = rows
    declared = ", ".join(f'"{column}" Nullable({kind})' for column, kind in columns)
    connection.query(f"DROP TABLE IF EXISTS {name}")
    connection.query(f"CREATE TABLE {name} ({declared}) ENGINE = MergeTree ORDER BY tuple()")
    items = ", ".join(_sent(column, kind) for column, kind in columns)
    read = ", ".join(_received(column, kind) for column, kind in columns)
    file = folder / "rows.parquet"
    for part in range(parts):
        numbered = f'(SELECT *, ROW_NUMBER() OVER () AS "#row" FROM {query})'
        source.execute(
            f"COPY (SELECT {items} FROM {numbered} WHERE \"#row\" % {parts} = {part}) TO '{file}' (FORMAT parquet)"
        )
        connection.query(f"INSERT INTO {name} SELECT {read} FROM file('{file}', 'Parquet')")


def _sent(column: str, kind: str) -> str:
    """How DuckDB writes a value: moments as numbers, wide numbers as texts."""
    if kind.startswith("DateTime64"):
        return f'epoch_us(CAST("{column}" AS TIMESTAMP)) AS "{column}"'
    return f'CAST("{column}" AS VARCHAR) AS "{column}"' if kind in ("Int128", "String") else f'"{column}"'


def _received(column: str, kind: str) -> str:
    """How ClickHouse reads it."""
    if kind.startswith("DateTime64"):
        return f"fromUnixTimestamp64Micro(\"{column}\", 'UTC')"
    return f'CAST("{column}" AS Nullable({kind}))'
