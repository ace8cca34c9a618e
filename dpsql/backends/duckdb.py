"""DuckDB: the private tables, behind a lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.base import Exact
from dpsql.backends.frames import UNTYPED, typed
from dpsql.errors import BackendError, OperationalError, ProgrammingError

LOCKED: dict[str, bool | str | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_external_access": False,
    "lock_configuration": True,
}
"""The second wall behind the whitelist: no file, extension, variable of the program or setting."""

_NUMBER = "SELECT txid_current()"
_SCHEMA = """
    SELECT table_name, column_name, data_type FROM duckdb_columns()
    WHERE NOT internal AND schema_name = 'main' AND database_name IN (current_database(), 'temp')
      AND current_schema() = 'main'
    -- A name that two databases have is left out: which of them it means could change.
    QUALIFY COUNT(DISTINCT database_name) OVER (PARTITION BY lower(table_name)) = 1
    ORDER BY table_name, column_index
"""


class DuckDBBackend:
    """A DuckDB file, opened read-only and locked; frames by name; or the owner's open connection.

    The owner's connection is used as it is: it cannot be locked without taking it from the owner.
    """

    name = "duckdb"
    version = duckdb.__version__

    def __init__(self, database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection) -> None:
        self._owned = not isinstance(database, duckdb.DuckDBPyConnection)
        self._untyped: set[tuple[str, str]] = set()
        if isinstance(database, Mapping):
            frames = {name: typed(frame) for name, frame in database.items()}
            self._untyped = {(name, column) for name, (_, columns) in frames.items() for column in columns}
            database = {name: frame for name, (frame, _) in frames.items()}
        self._connection = _connect(database)

    def schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types, from the catalogue."""
        tables: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in self._query(_SCHEMA):
            loose = (table, column) in self._untyped
            tables.setdefault(table, []).append((column, UNTYPED if loose else kind))
        return tables

    def public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ((number,),) = self._query(sql)
        return int(number)

    def parses(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement."""
        try:
            return len(self._connection.extract_statements(text)) == 1
        except duckdb.Error:
            return False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A read-only transaction, or the owner's own if one is open."""
        opened = self._begin()
        try:
            yield
        finally:
            if opened:
                self._quietly("ROLLBACK")

    def run(self, sql: str) -> Exact:
        """The exact rows of the emitted statement."""
        return Exact(self._query(sql))

    def close(self) -> None:
        """Closes the connection, unless it is the owner's."""
        if self._owned:
            self._connection.close()

    def _begin(self) -> bool:
        # Outside a transaction each statement has a number of its own. Trying to begin a second
        # transaction would abort the owner's first.
        if not self._owned and self._query(_NUMBER) == self._query(_NUMBER):
            return False
        return self._quietly("BEGIN TRANSACTION READ ONLY")

    def _quietly(self, sql: str) -> bool:
        try:
            self._connection.execute(sql)
        except duckdb.Error:
            return False
        return True

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        failed = False
        try:
            return self._connection.execute(sql).fetchall()
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = True
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        if failed:
            raise BackendError
        raise AssertionError


def _connect(
    database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
) -> duckdb.DuckDBPyConnection:
    if isinstance(database, duckdb.DuckDBPyConnection):
        return database
    if isinstance(database, Mapping):
        return _framed(database)
    if isinstance(database, (str, Path)):
        return _opened(str(database))
    raise ProgrammingError(
        f"a database is a DuckDB path, an open duckdb connection or a dict of frames, not {type(database).__name__}"
    )


def _opened(path: str) -> duckdb.DuckDBPyConnection:
    if path == ":memory:":
        return duckdb.connect(path, config=LOCKED)
    if not Path(path).is_file():
        raise OperationalError(f"there is no database file {path}", code="no_database")
    reason = ""
    try:
        return duckdb.connect(path, read_only=True, config=LOCKED)
    except duckdb.Error as error:
        reason = type(error).__name__
    raise OperationalError(
        f"DuckDB cannot open {path} ({reason})",
        code="no_database",
        hint="is it a DuckDB file, and closed in every program that writes to it?",
    )


def _framed(frames: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, frame in frames.items():
        failed = False
        try:
            connection.register(name, frame)
        except (duckdb.Error, TypeError, ValueError):
            failed = True
        if failed:
            raise ProgrammingError(
                f"the table {name} is no pandas, polars or Arrow table but {type(frame).__name__}",
                code="frame",
            )
    for setting, value in LOCKED.items():
        connection.execute(f"SET {setting} = {str(value).lower()}")
    return connection
