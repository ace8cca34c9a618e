"""The throw-away engine above the release boundary: it holds released values and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.backends.duckdb import LOCKED, lock_down
from dpsql.backends.duckdb.interrupts import find_cancellation
from dpsql.backends.quoting import quote_identifier
from dpsql.errors import OperationalError
from dpsql.ledger.workers import run_interruptibly
from dpsql.plan.types import Value

_CONFIG = {**LOCKED, "memory_limit": "1GB", "threads": 1}


@cache
def _open_engine(_process: int) -> duckdb.DuckDBPyConnection:
    """The empty, locked, in-memory database of this process: opening one takes longer than a query here."""
    return duckdb.connect(config=_CONFIG)


class ScratchDatabase:
    """A connection of its own to that database, with temporary tables that no other can see."""

    def __init__(self) -> None:
        self._connection = _open_engine(os.getpid()).cursor()
        lock_down(self._connection)
        self._types: dict[str, Sequence[str]] = {}

    def create_table(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        """Makes an empty table; `columns` are names with engine types."""
        declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in columns)
        self._connection.execute(f"CREATE TEMP TABLE {quote_identifier(table)} ({declared})")
        self._types[table] = [kind for _, kind in columns]

    def fill_table(self, table: str, columns: Sequence[Sequence[Value]]) -> None:
        """Inserts the values, column by column."""
        unnested = ", ".join(f"unnest(CAST(? AS {kind}[]))" for kind in self._types[table])
        self._connection.execute(f"INSERT INTO {quote_identifier(table)} SELECT {unnested}", list(columns))

    def create_table_as(self, table: str, sql: str) -> None:
        """Makes a table of the rows of a query."""
        self._run_statement(f"CREATE TEMP TABLE {quote_identifier(table)} AS {sql}")

    def delete_rows(self, table: str) -> None:
        """Deletes the rows of a table."""
        self._connection.execute(f"DELETE FROM {quote_identifier(table)}")

    def register_arrays(self, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
        """Shows arrays as a table, without copying them; they take the place of those shown before."""
        self._connection.register(table, dict(columns))

    def run_query(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows and the engine types of a query over the tables.

        Raises OperationalError where post-processing of released values fails, such as by overflow.
        """
        cursor = self._run_statement(sql)
        types = [str(column[1]) for column in cursor.description or ()]
        return cursor.fetchall(), types

    def query_arrays(self, sql: str) -> list[NDArray[np.float64]]:
        """The columns of a query for DOUBLE values, NULL as NaN; raises as `run_query` does."""
        found = self._run_statement(sql).fetchnumpy()
        return [np.ma.filled(np.ma.asarray(values, np.float64), np.nan) for values in found.values()]

    def interrupt(self) -> None:
        """Stops the query that runs now; for other threads to call."""
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
        """Throws the tables away."""
        self._connection.close()
