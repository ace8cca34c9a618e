"""The throw-away engine above the release boundary: it holds released values and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.backends.base import DatabaseIdentity
from dpsql.backends.duckdb import LOCKED, DuckDBBackend, connect_with, lock_down
from dpsql.backends.duckdb.statements import find_cancellation
from dpsql.errors import BackendError, OperationalError
from dpsql.ledger.workers import run_interruptibly
from dpsql.plan.types import Value
from dpsql.policy import Policy, normalize_name, split_table_name
from dpsql.policy.names import quote_identifier, quote_table_name

_CONFIG = {**LOCKED, "memory_limit": "1GB", "threads": 1}


@cache
def _open_engine(_process: int) -> duckdb.DuckDBPyConnection:
    """Open the empty, locked, in-memory database of this process: opening one takes longer than a query here."""
    return connect_with(_CONFIG)


class ScratchDatabase:
    """A connection of its own to that database, with temporary tables that no other can see."""

    def __init__(self) -> None:
        self._connection = _open_engine(os.getpid()).cursor()
        lock_down(self._connection)
        self._types: dict[str, Sequence[str]] = {}

    def create_table(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        """Create an empty table; `columns` are names with engine types."""
        declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns)
        self._connection.execute(f"CREATE TEMP TABLE {quote_identifier(table)} ({declared})")
        self._types[table] = [kind for _, kind in columns]

    def fill_table(self, table: str, columns: Sequence[Sequence[Value]]) -> None:
        """Insert the values, column by column."""
        unnested = ", ".join(f"unnest(CAST(? AS {kind}[]))" for kind in self._types[table])
        self._connection.execute(f"INSERT INTO {quote_identifier(table)} SELECT {unnested}", list(columns))

    def create_table_as(self, table: str, sql: str) -> None:
        """Create a table of the rows of a query."""
        self._run_statement(f"CREATE TEMP TABLE {quote_identifier(table)} AS {sql}")

    def delete_rows(self, table: str) -> None:
        """Delete the rows of a table."""
        self._connection.execute(f"DELETE FROM {quote_identifier(table)}")

    def register_arrays(self, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
        """Show arrays as a table, without copying them; they replace those shown before."""
        self._connection.register(table, dict(columns))

    def run_query(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows and the engine types of a query over the tables.

        Raises OperationalError where post-processing of released values fails, such as by overflow.
        """
        cursor = self._run_statement(sql)
        types = [str(column[1]) for column in cursor.description or ()]
        return cursor.fetchall(), types

    def query_arrays(self, sql: str) -> list[NDArray[np.float64]]:
        """Return the columns of a query for DOUBLE values, NULL as NaN; raises as `run_query` does."""
        found = self._run_statement(sql).fetchnumpy()
        return [np.ma.filled(np.ma.asarray(values, np.float64), np.nan) for values in found.values()]

    def interrupt(self) -> None:
        """Stop the running query, from another thread."""
        self._connection.interrupt()

    def _run_statement(self, sql: str) -> duckdb.DuckDBPyConnection:
        stopped: BaseException | None = None
        try:
            return run_interruptibly(self._connection, lambda: self._connection.execute(sql))
        except (duckdb.Error, RuntimeError) as error:
            stopped = find_cancellation(error)
        if stopped is not None:
            raise stopped
        raise OperationalError(
            "post-processing of the released values failed",
            code="post_processing",
            hint="check whether arithmetic on aggregates is out of range",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the tables."""
        self._connection.close()


# The private tables of a policy without rows, on which queries can be planned.


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
        self._runner.connection.close()


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


# Databases in memory with one table of given rows.


def create_database(
    table: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Value]]
) -> duckdb.DuckDBPyConnection:
    """Create a database in memory with a table of these columns (names with engine types) and rows."""
    connection = duckdb.connect()
    add_table(connection, table, columns, rows)
    return connection


def create_memory_database() -> duckdb.DuckDBPyConnection:
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


# An engine without data, on which constants are tried: whether a regular expression is one, say.


_CHECK_CONFIG = {**LOCKED, "memory_limit": "100MB", "threads": 1}


@lru_cache(maxsize=1024)
def find_evaluation_error(expression: str) -> str | None:
    """Return why the engine cannot compute an expression of constants, in its words; None if it can.

    >>> find_evaluation_error("REGEXP_MATCHES('a', 'b')") is None, find_evaluation_error("REGEXP_MATCHES('a', '(')")
    (True, 'missing ): (')
    """
    try:
        _open_check_engine(os.getpid()).cursor().execute(f"SELECT {expression}").fetchall()
    except duckdb.Error as error:
        return str(error).partition("\n")[0].partition(": ")[2]
    except UnicodeDecodeError:
        return "the engine cannot read it"  # and cuts a character in two where it says so
    return None


def evaluate_constant(expression: str) -> Any:
    """Return the engine's value of an expression of constants that cannot fail.

    >>> evaluate_constant("COALESCE(NULL, 2) < 3")
    True
    """
    ((found,),) = _open_check_engine(os.getpid()).cursor().execute(f"SELECT {expression}").fetchall()
    return found


def query_constant_rows(query: str) -> list[tuple[Any, ...]]:
    """Return the rows of an emitted query over constants. Raises BackendError if they need more than this engine has."""
    try:
        return _open_check_engine(os.getpid()).cursor().execute(query).fetchall()
    except duckdb.Error:
        raise BackendError from None


@cache
def _open_check_engine(_process: int) -> duckdb.DuckDBPyConnection:
    """Open an empty, locked, in-memory database of this process."""
    engine = connect_with(_CHECK_CONFIG)
    lock_down(engine)
    return engine
