"""The private tables of a policy without rows, on which queries can be planned."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from dpsql.backends.base import DatabaseIdentity
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.quoting import quote_identifier, quote_table_name
from dpsql.policy import Policy, normalize_name, split_table_name

_TYPES = {
    "integer": "BIGINT",
    "double": "DOUBLE",
    "varchar": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "boolean": "BOOLEAN",
    "time": "TIME",
    "uuid": "UUID",
    "blob": "BLOB",
}
_NO_COLUMN = "row"
"""The column of a table of which none is declared: the engine has no table without one."""
_ID = "BIGINT"
"""What an id is taken for whose type no declared column tells: that ids are equal is all that is asked of them."""


class EmptyBackend(DuckDBBackend):
    """A backend with the private tables of a policy without rows; no ledger can belong to it."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(create_empty_database(policy))

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return None, since there are no data."""
        return None

    def close(self) -> None:
        """Close the connection, which is not shared."""
        self._connection.close()


def create_empty_database(policy: Policy) -> duckdb.DuckDBPyConnection:
    """Create a database in memory with every private table of `policy`, empty."""
    connection = duckdb.connect()
    create_declared_tables(connection, policy, policy.list_private_tables())
    return connection


def create_declared_tables(
    connection: duckdb.DuckDBPyConnection, policy: Policy, names: Iterable[str]
) -> None:
    """Create empty tables as the policy declares them."""
    for name in names:
        columns = get_column_types(policy, name).values()
        listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns)
        make_table(connection, name, f"({listed})")


def make_table(connection: duckdb.DuckDBPyConnection, name: str, definition: str) -> None:
    """Create a table with a policy's name, in its schema."""
    schema, _ = split_table_name(name)
    if schema:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(schema)}")
    connection.execute(f"CREATE TABLE {quote_table_name(name)} {definition}")


def get_column_types(policy: Policy, name: str) -> dict[str, tuple[str, str]]:
    """Return the declared columns and ids of a table with their engine types, by folded name."""
    columns = {
        normalize_name(column): (column, _TYPES[spec.type] + "[]" * (spec.max_elements is not None))
        for column, spec in policy.tables[name].columns.items()
    }
    for (table, column), kind in _infer_id_types(policy).items():
        if table == normalize_name(name):
            columns.setdefault(normalize_name(column), (column, kind))
    return columns or {_NO_COLUMN: (_NO_COLUMN, "BOOLEAN")}


def _infer_id_types(policy: Policy) -> dict[tuple[str, str], str]:
    """Infer the types of columns that identify the unit; linked columns have one type."""
    links = [
        ((normalize_name(name), ours), (normalize_name(link.table), theirs))
        for name, link in policy.iterate_links()
        for ours, theirs in zip(link.names, link.keys, strict=True)
    ]
    units = [
        (normalize_name(name), column)
        for name in policy.list_private_tables()
        if (column := policy.get_unit(name).column) is not None
    ]
    kinds = {
        place: _find_declared_type(policy, place)
        for place in (*units, *(end for link in links for end in link))
    }
    for _ in links:  # a type travels along a chain of links in as many steps as there are links
        for ours, theirs in links:
            kinds[ours] = kinds[theirs] = kinds[ours] or kinds[theirs]
    return {place: kind or _ID for place, kind in kinds.items()}


def _find_declared_type(policy: Policy, place: tuple[str, str]) -> str | None:
    table, column = place
    spec = policy.tables[table].columns.get(column)
    return None if spec is None else _TYPES[spec.type]
