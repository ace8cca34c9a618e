"""Copies of public tables in a DuckDB of their own, in which look-ups and queries of public tables are evaluated.

DuckDB computes everything above the release boundary wherever the private rows lie, so that it means the same. Public rows are
copied in the transaction of the query that reads them, as they are stored; emission reads the copies as it reads tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import duckdb

from dpsql.backends.duckdb import LOCKED, connect_with, lock_down
from dpsql.errors import BackendError, OperationalError
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.engine_types import (
    UNLIMITED,
    infer_column_type,
    parse_element_type,
    parse_struct_fields,
    rename_types,
)
from dpsql.policy.names import quote_identifier, quote_table_name

_CONFIG = {**LOCKED, "memory_limit": "2GB"}
_ZONED = "TIMESTAMP WITH TIME ZONE"
_SPLIT = 100_000
"""Rows that are put into a copy at once."""
NO_COLUMN = '"#" INTEGER'
"""The column of a copy of which no column is read: the engine has no table without one."""

Columns = Sequence[tuple[str, str]]
"""The names of columns, with their engine types."""


class PublicCopies:
    """An engine in memory that holds copies of the `public` tables, by the names of the policy.

    Raises BackendError for any failure.
    """

    def __init__(self, public: Iterable[str] = ()) -> None:
        self._public = frozenset(map(normalize_name, public))
        self._connection = connect_with(_CONFIG)
        lock_down(self._connection)
        self._copied_names: set[str] = set()

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser reads a text as one statement: queries are in its SQL."""
        try:
            return len(self._connection.extract_statements(text)) == 1
        except duckdb.Error:
            return False

    def copy_missing_tables(
        self,
        sql: str,
        tables: Mapping[str, Columns],
        read_rows: Callable[[str, Columns], list[tuple[Any, ...]]],
    ) -> None:
        """Copy the public ones of the `tables` whose names stand in an emitted statement; `read_rows` returns the rows of a table's columns.

        A value is as Python holds it, days and moments of the calendar alone; a table without columns has some value.
        """
        for name, columns in tables.items():
            is_read = normalize_name(name) in self._public and quote_table_name(name) in sql
            if is_read and name not in self._copied_names:
                readable = [(column, kind) for column, kind in columns if _is_readable_type(kind)]
                self._copy_table(name, readable, read_rows(name, readable))
                self._copied_names.add(name)

    def run_query(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows and the engine types of an emitted query over copies."""
        failed = False
        try:
            cursor = self._connection.execute(sql)
            types = [str(column[1]) for column in cursor.description or ()]
            return cursor.fetchall(), types
        except duckdb.Error:
            failed = True
        raise BackendError if failed else AssertionError

    def drop_copies(self) -> None:
        """Drop all copies."""
        for name in self._copied_names:
            self._connection.execute(f"DROP TABLE IF EXISTS {quote_table_name(name)}")
        self._copied_names.clear()

    def close(self) -> None:
        """Close the engine."""
        self._connection.close()

    def _copy_table(self, name: str, columns: Columns, rows: list[tuple[Any, ...]]) -> None:
        schema, _ = split_table_name(name)
        if schema:
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
        kinds = [_get_copy_type(kind) for _, kind in columns]
        declared = ", ".join(
            f"{quote_identifier(column)} {kind}" for (column, _), kind in zip(columns, kinds, strict=True)
        )
        self._connection.execute(
            f"CREATE OR REPLACE TABLE {quote_table_name(name)} ({declared or NO_COLUMN})"
        )
        values = ", ".join(map(_emit_unnested_values, kinds)) or "unnest(CAST(? AS INTEGER[]))"
        for start in range(0, len(rows), _SPLIT):
            series = [list(each) for each in zip(*rows[start : start + _SPLIT], strict=True)]
            self._connection.execute(f"INSERT INTO {quote_table_name(name)} SELECT {values}", series)


def make_changed_table_error() -> OperationalError:
    """Return the error for a table of the policy that is not what it was when the connection was opened."""
    return OperationalError(
        "a table of the policy has changed since the connection was opened; nothing was charged",
        code="unbound",
        hint="connect again",
    )


def _emit_unnested_values(kind: str) -> str:
    """Emit the values of a column from a list of them, in which moments are in UTC."""
    plain = rename_types(kind, {_ZONED: "TIMESTAMP"})
    return _emit_in_utc(f"unnest(CAST(? AS {plain}[]))", kind)


def _emit_in_utc(read: str, kind: str) -> str:
    """Emit a value as one of a type: a moment that has a zone, or a list of such."""
    of = parse_element_type(kind)
    if of is not None and _ZONED in of:
        return f"list_transform({read}, lambda x: {_emit_in_utc('x', of)})"
    return f"{read} AT TIME ZONE 'UTC'" if kind == _ZONED else read


def _is_readable_type(kind: str) -> bool:
    """Return whether a type can be read, with all parts of a list or struct."""
    of, inner = parse_element_type(kind), parse_struct_fields(kind)
    if of is not None:
        return _is_readable_type(of)
    if inner is not None:
        return all(map(_is_readable_type, inner.values()))
    return infer_column_type(kind) is not None


def _get_copy_type(kind: str) -> str:
    """Return the type of a copy's column, which holds every stored value."""
    inner = parse_element_type(kind)
    if inner is not None:
        return f"{_get_copy_type(inner)}[]"
    if kind == UNLIMITED:
        return "DOUBLE"
    return "VARCHAR" if kind.startswith("ENUM") else kind
