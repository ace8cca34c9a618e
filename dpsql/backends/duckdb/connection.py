"""The backend for DuckDB."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.catalog import CatalogReader, compute_fingerprints
from dpsql.backends.duckdb.connect import MEMORY_PATH, DataSources, open_connection
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.duckdb.files import ColumnTypes, suggest_types
from dpsql.backends.duckdb.settings import SettingsGuard
from dpsql.backends.duckdb.sources import UNTYPED
from dpsql.backends.duckdb.statements import StatementRunner
from dpsql.ledger.database_identity import FILE, MEMORY
from dpsql.policy.skeleton import TableKeys

_PATH = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
_LOCKS: WeakKeyDictionary[duckdb.DuckDBPyConnection, threading.RLock] = WeakKeyDictionary()


class DuckDBBackend:
    """A DuckDB file, opened read-only and locked; files and frames by name; or the owner's open connection.

    The owner's connection is used unchanged, since locking it would take it from the owner; instead its settings and the sources
    of its views are checked. `host` names the machine if several machines share a ledger, since each may have another file at the
    same path. `types` are the policy's types by folded names of tables and columns, as which texts of CSV files are read.
    """

    name = "duckdb"
    version = duckdb.__version__
    dialect: Dialect = DUCKDB

    def __init__(
        self,
        database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
        *,
        host: str = "",
        types: Mapping[str, ColumnTypes] = MappingProxyType({}),
        temp_directory: str | Path | None = None,
        temp_limit: str | None = None,
    ) -> None:
        self._host = host
        self._sources = sources = DataSources.from_database(database)
        spill = None if temp_directory is None else sources.open_spill_folder(temp_directory, temp_limit)
        connection = open_connection(sources.database, spill, types)
        # The folder is removed with the connection, even if nobody closes it.
        self._spill_finalizer = None if spill is None else weakref.finalize(self, spill.drop_user)
        self._runner = StatementRunner(connection, owned=not sources.is_owners)
        self._guard = SettingsGuard(self._runner)
        self._catalog = CatalogReader(self._runner, self._guard)
        # Several backends may share one connection of the owner; one must not fetch another's rows.
        self._lock = _LOCKS.setdefault(connection, threading.RLock())

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """The file's path and the identity of the file; a database in memory is identical only to itself.

        A file that replaced another at the same path has another inode, and so another identity. The path of an owner's
        connection is that of its current database; attached databases and files of views do not count.
        """
        if self._sources.has_only_files:
            return self._sources.identify_files(self._host)
        path: object = self._sources.path
        if self._sources.is_owners:
            ((path,),) = self._runner.query_rows(_PATH)
        if not isinstance(path, str) or path in {"", MEMORY_PATH}:
            return DatabaseIdentity(MEMORY, uuid.uuid4().hex)
        identity = FILE + os.path.realpath(path)
        try:
            inode = str(Path(path).stat().st_ino)
        except OSError:
            inode = ""
        return DatabaseIdentity(identity, f"{identity} {inode} {self._host}")

    @cached_property
    def database_name(self) -> str:
        """The name of the connection's own database."""
        ((name,),) = self._runner.query_rows("SELECT current_database()")
        return str(name)

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each table's columns with their engine types from the catalog.

        Raises OperationalError if a macro of the database hides a function of DuckDB, since a sum or a clamp would then compute
        something else, and if a setting of the owner's connection changes the meaning of SQL.
        """
        self._catalog.refuse_shadows()
        self._guard.refuse_changed_settings()
        untyped = self._sources.untyped_columns
        return {
            table: [(column, UNTYPED if (table, column) in untyped else kind) for column, kind in columns]
            for table, columns in self._catalog.read_columns().items()
        }

    def suggest_columns(self) -> dict[str, list[tuple[str, str]]]:
        """Suggest types for columns of text tables from some of their rows; for the owner only."""
        return {
            name: suggest_types(name, table)
            for name, table in self._sources.files.items()
            if not table.format.has_types
        }

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Read the primary and foreign keys of each table from the catalog."""
        return self._catalog.read_table_keys()

    def compute_fingerprints(self, tables: Mapping[str, Sequence[str]], salt: bytes) -> dict[str, str]:
        """Compute fingerprints of all rows of these columns, as `catalog.compute_fingerprints`; for the owner only."""
        with self.open_snapshot():
            return compute_fingerprints(tables, salt, self._runner.query_interruptibly)

    def read_counts(self, queries: Sequence[str]) -> list[int]:
        """Return the exact number of each emitted query; for the owner only."""
        with self.open_snapshot():
            return [int(number) for sql in queries for (number,) in self._runner.query_interruptibly(sql)]

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find the origin of a table's or view's rows, or None if DuckDB cannot bind it."""
        file = self._sources.files.get(table)
        if file is None:
            return self._catalog.find_origin(table)
        return TableOrigin(
            frozenset({f"file {table}"}),
            has_checked_texts=file.format.has_checked_texts,
            collated_columns=self._catalog.find_collated_columns(table),
        )

    @cached_property
    def is_unchanging(self) -> bool:
        """Whether this is a DuckDB file opened here, without views and generated columns, which may read the clock.

        Nobody can write to the file meanwhile, whereas frames and the tables of an owner's connection may change.
        """
        return self._sources.is_database_file and not self._catalog.has_computed_columns()

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:  # noqa: ARG002
        """Return whether DuckDB can bind an emitted statement.

        Raises OperationalError if a file or a setting of the owner's connection has changed, so that SQL means something else.
        """
        self._sources.refuse_changed_files()
        self._guard.refuse_changed_meaning()
        return self._runner.can_bind(sql)

    def read_public_number(self, sql: str) -> int:
        """Return the whole number of an emitted query over public tables."""
        with self._guard.apply_lookup_settings():
            ((number,),) = self._runner.query_interruptibly(sql)
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of an emitted query over public tables, and the engine types of its columns."""
        with self._guard.apply_lookup_settings():
            rows = self._runner.query_interruptibly(sql)
            return rows, self._runner.get_column_types()

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser accepts `text` as one statement."""
        return self._runner.can_parse(text)

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock of `Backend.lock`, shared by all backends of the connection."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Open a read-only transaction, or use the owner's open one; none if the data cannot change."""
        transaction = nullcontext() if self.is_unchanging else self._runner.open_transaction()
        with transaction, self._guard.share_lookup_settings():
            yield

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement and return its exact rows."""
        with self._guard.apply_safe_settings():
            return Exact(self._runner.query_interruptibly(sql))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Create temporary tables of the connection for the enclosed work; the database is not changed.

        A failed or interrupted transaction is rolled back with them.
        """
        with self._runner.open_transaction() if self.is_unchanging else nullcontext():
            try:
                with self._guard.apply_safe_settings():
                    for name, sql in tables:
                        self._runner.query_interruptibly(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {sql}")
                yield
            finally:
                for name, _ in reversed(tables):
                    self._runner.execute_quietly(f"DROP TABLE IF EXISTS temp.{name}")

    def interrupt(self) -> None:
        """Interrupt the running statement, as `Backend.interrupt`."""
        self._runner.connection.interrupt()

    def close(self) -> None:
        """Close the connection, unless it is the owner's."""
        if not self._sources.is_owners:
            self._runner.connection.close()
        if self._spill_finalizer is not None:
            self._spill_finalizer()
