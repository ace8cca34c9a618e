"""Tables of a DuckDB database in a PostgreSQL database, with the same values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import psycopg
from postgres import Server

from dpsql.policy.engine_types import parse_element_type

_TYPES = {
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(38,0)",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "TIME": "time",
    "UUID": "uuid",
    "BLOB": "bytea",
    "BOOLEAN": "boolean",
}


def postgres_type(kind: str) -> str | None:
    """The PostgreSQL type of a DuckDB type, None for those that it does not have."""
    if kind.startswith("ENUM"):
        return "text"
    of = parse_element_type(kind)
    if of is not None:
        inner = postgres_type(of)
        return inner and f"{inner}[]"
    return kind.lower() if re.fullmatch(r"DECIMAL\(\d+,\d+\)", kind) else _TYPES.get(kind)


def load(source: duckdb.DuckDBPyConnection, target: psycopg.Connection[Any]) -> None:
    """Copies all tables of `source` with the columns that PostgreSQL can have; tables of these names are replaced."""
    source.execute("SET TimeZone = 'UTC'")
    for schema, table in source.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
        place = f'"public"."{table}"' if schema == "main" else f'"{schema}"."{table}"'
        if schema != "main":
            target.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        columns = [
            (name, postgres_type(kind))
            for name, kind in source.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?",
                [schema, table],
            ).fetchall()
        ]
        kept = [(name, kind) for name, kind in columns if kind is not None]
        target.execute(f"DROP TABLE IF EXISTS {place} CASCADE")
        declared = ", ".join(f'"{name}" {kind}' for name, kind in kept)
        target.execute(f"CREATE TABLE {place} ({declared})")
        read = ", ".join(
            f"CAST(\"{name}\" AT TIME ZONE 'UTC' AS VARCHAR) || '+00'"
            if kind == "timestamptz"
            else f'"{name}"'
            for name, kind in kept
        )
        rows = source.execute(f'SELECT {read} FROM "{schema}"."{table}"').fetchall()
        with target.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {place} VALUES ({', '.join(['%s'] * len(kept))})", rows)


@contextmanager
def database(server: Server, name: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """A new database of a server: its URL for a role that may only read, and a connection of its owner."""
    with psycopg.connect(server.url, autocommit=True) as owner:
        owner.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        owner.execute(f"CREATE DATABASE {name}")
        if not owner.execute("SELECT 1 FROM pg_roles WHERE rolname = 'reader'").fetchall():
            owner.execute("CREATE ROLE reader LOGIN")
    with psycopg.connect(server.url.replace("/postgres?", f"/{name}?"), autocommit=True) as owner:
        yield server.url.replace("ledger@/postgres?", f"reader@/{name}?"), owner


def grant(owner: psycopg.Connection[Any]) -> None:
    """Lets the reader read all tables that there are."""
    schemas = [
        row[0]
        for row in owner.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information)'")
    ]
    for schema in schemas:
        owner.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO reader')
        owner.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO reader')
