"""The backend for DuckDB: what it is opened on, how it is locked down, and the protocol of engines over it."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import duckdb

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.catalog import CatalogReader, compute_fingerprints
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.duckdb.files import (
    FileTable,
    find_file_tables,
    list_lazy_paths,
    make_file_table,
    resolve_file_table,
)
from dpsql.backends.duckdb.settings import (
    UNSOUND,
    Config,
    SettingsGuard,
    SpillFolder,
    build_locked_config,
    open_spill_folder,
)
from dpsql.backends.duckdb.sources import UNTYPED, to_typed_frame
from dpsql.backends.duckdb.statements import SHARED_SESSIONS, StatementRunner
from dpsql.backends.duckdb.versions import supports
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.ledger.anchor import FILE, MEMORY
from dpsql.policy import normalize_name
from dpsql.policy.names import quote_literal
from dpsql.policy.readings import TableReading
from dpsql.policy.skeleton import TableKeys

# Open DuckDB on a file, on files and frames by name, or on an owner's connection, and lock it down.


MEMORY_PATH = ":memory:"
_CLOSING = ("enable_external_access", "lock_configuration")
_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true")
_IS_CLOSED = "SELECT current_setting('lock_configuration') AND NOT current_setting('enable_external_access')"
_SEAL = ("SET disabled_filesystems = 'LocalFileSystem'", f"SET disabled_optimizers = '{UNSOUND}'")
_OPENING = ("allowed_configs", "explain_output", "lock_configuration", "memory_limit")
"""Settings that DuckDB 1.x does not take while it opens a database, or not as they are written for 2.0."""
_BOUND_PLANS = "SET explain_output = 'all'"
_MEMORY = "SELECT current_setting('memory_limit')"
_SESSIONS: WeakValueDictionary[str, duckdb.DuckDBPyConnection] = WeakValueDictionary()
"""On DuckDB 1.x, a session that shows bound plans for each file that is open here, by the file's path."""


@dataclass(frozen=True, slots=True, eq=False)
class DataSources:
    """The sources of a connection: a DuckDB file, files and frames by name, or the owner's open connection.

    `path` is that of a file or folder. The texts of `untyped_columns`, by table and column, are read as the policy says.
    """

    database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection
    path: str | None = None
    files: Mapping[str, FileTable] = field(default_factory=dict)
    untyped_columns: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def from_database(cls, database: Any) -> DataSources:
        """Look at the argument of a connection, and find the tables that are files."""
        if isinstance(database, (str, Path)):
            files = find_file_tables(database)
            return cls(files or database, str(database), files)
        if not isinstance(database, Mapping):
            return cls(database)
        tables = {name: _resolve_source(table) for name, table in database.items()}
        files = {name: table for name, table in tables.items() if isinstance(table, FileTable)}
        refuse_spark_frames(tables)
        frames = {name: to_typed_frame(table) for name, table in tables.items() if name not in files}
        untyped = frozenset((name, column) for name, (_, columns) in frames.items() for column in columns)
        return cls({**files, **{name: frame for name, (frame, _) in frames.items()}}, None, files, untyped)

    @property
    def is_owners(self) -> bool:
        """Return whether this is an owner's open connection."""
        return isinstance(self.database, duckdb.DuckDBPyConnection)

    @property
    def is_database_file(self) -> bool:
        """Return whether this is a DuckDB file, which nobody can write to while it is open here."""
        return self.path is not None and self.path != MEMORY_PATH and not self.files

    @property
    def has_only_files(self) -> bool:
        """Return whether all tables are files."""
        return isinstance(self.database, Mapping) and 0 < len(self.files) == len(self.database)

    def refuse_changed_files(self) -> None:
        """Raise OperationalError if a file changed since it was opened."""
        changed = [table.source for table in self.files.values() if table.has_changed]
        if changed:
            raise OperationalError(
                f"{', '.join(changed)} has changed since it was opened",
                code="source_changed",
                hint="connect again",
            )

    def identify_files(self, host: str) -> DatabaseIdentity:
        """Return the paths of the files, and their identity when they were opened."""
        sources = sorted({table.source for table in self.files.values()})
        identity = FILE + os.pathsep.join([os.path.realpath(self.path)] if self.path else sources)
        marks = hashlib.sha256(repr(sorted(table.marks for table in self.files.values())).encode())
        return DatabaseIdentity(identity, f"{identity} {marks.hexdigest()} {host}")

    def open_spill_folder(self, parent: str | Path, limit: str | None) -> SpillFolder:
        """Return a folder for temporary files. Raises ProgrammingError for an owner's connection."""
        if self.is_owners:
            raise ProgrammingError(
                "temp_directory is not valid with an open connection, whose owner sets it",
                code="temp_directory",
                hint="run SET temp_directory = '…' on the connection, and omit the argument",
            )
        return open_spill_folder(parent, limit, None if self.path == MEMORY_PATH else self.path)


def require_text_files(readings: Mapping[str, TableReading], texts: Collection[str]) -> None:
    """Raise ProgrammingError (`reading`) if the policy says how texts are read of a table that no file of texts has.

    Elsewhere the keys would have no effect, and the values would be read as something else than the owner wrote.
    """
    known = set(map(normalize_name, texts))
    for table, reading in readings.items():
        if table not in known and reading.options:
            raise ProgrammingError(
                f"{table}: {reading.options[0]} is only valid for files of texts: CSV, Excel, JSON and SQLite",
                code="reading",
                hint="delete the key; convert such texts in a view, or save the table as CSV",
            )


def refuse_spark_frames(tables: Mapping[str, Any]) -> None:
    """Raise ProgrammingError (`frame`) for a data frame of Spark, and say what to save.

    Such a frame is a plan, which Spark computes anew for each statement: what it reads may have changed, and an expression of it may be
    random, read the clock, or fail for one row.
    """
    for name, table in tables.items():
        if type(table).__module__.startswith("pyspark."):
            raise ProgrammingError(
                f"the table {name} is a data frame of Spark, which is computed anew for each statement",
                code="frame",
                hint=f'save it once: frame.write.saveAsTable("{name}"), and connect(spark, …); or frame.write.parquet("{name}.parquet"), '
                f'and connect({{"{name}": "{name}.parquet"}}, …)',
            )


def _resolve_source(table: Any) -> Any:
    """Return a frame unchanged, or the table of a path."""
    return resolve_file_table(table) if isinstance(table, (str, Path)) else table


def _disable_progress(connection: duckdb.DuckDBPyConnection) -> None:
    """Turn progress output off where it is on: in a notebook without ipywidgets it is off, and DuckDB fails at any change."""
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]:
        connection.execute("PRAGMA disable_progress_bar")


def lock_down(
    connection: duckdb.DuckDBPyConnection,
    reads: Sequence[str] = (),
    *,
    spills: bool = False,
    closed: bool = True,
) -> None:
    """Disable file access and progress output for good, after the engine has opened its files.

    An engine that `reads` files keeps access to these only; one that `spills`, to its database and the folder for temporary
    files. A `closed` engine was opened with the whole configuration of `LOCKED`.

    Without external access DuckDB still reads the database's own file by its name, and reads and writes the log beside it; its
    configuration cannot prevent this before the file is open. During a long query it prints the exact progress to standard
    output.
    """
    if not supports("allowed_configs"):
        if is_closed(connection):
            _disable_progress(connection)
            return
        closed = False
        connection.execute(_BOUND_PLANS)
    if reads:
        connection.execute(f"SET allowed_paths = [{', '.join(map(quote_literal, reads))}]")
    for setting in _SEAL[spills or bool(reads) :]:
        connection.execute(setting)
    _disable_progress(connection)
    if not closed and not is_closed(connection):
        for setting in _CLOSE:
            connection.execute(setting)


def is_closed(connection: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the configuration is locked and files are out of reach."""
    return connection.execute(_IS_CLOSED).fetchall() == [(True,)]


def connect_with(
    config: Config, path: str = MEMORY_PATH, *, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a database with a configuration; what DuckDB 1.x does not take yet is applied by `lock_down`."""
    if supports("allowed_configs"):
        return duckdb.connect(path, read_only=read_only, config=config)
    given = {name: value for name, value in config.items() if name not in _OPENING}
    given["memory_limit"] = _resolve_memory(str(config["memory_limit"]))
    return duckdb.connect(path, read_only=read_only, config=given)


@cache
def _resolve_memory(limit: str) -> str:
    """Return a limit without a percentage: a share of the memory of which DuckDB takes 80% by default."""
    if not limit.endswith("%"):
        return limit
    with duckdb.connect() as plain:
        ((default,),) = plain.execute(_MEMORY).fetchall()
    number, unit = str(default).split()
    return f"{float(number) * float(limit[:-1]) / 80:.1f} {unit}"


def find_planning_session(
    connection: duckdb.DuckDBPyConnection, path: str, config: Config
) -> duckdb.DuckDBPyConnection:
    """Return the session of a file that shows bound plans, before the connection is locked down.

    It is not a cursor of the connection: a connection closes its cursors when it is closed.

    Raises OperationalError if the file is open here with a configuration that somebody else has locked.
    """
    if supports("allowed_configs"):
        return connection
    key = os.path.realpath(path)
    found = _SESSIONS.get(key)
    if is_closed(connection):
        if found is None:
            raise OperationalError(
                f"{path} is open in this process already, with a configuration that is locked",
                code="no_database",
                hint="close the other connection first; DuckDB 2.0 has no such limit",
            )
        return found
    found = connect_with(config, path, read_only=True)
    found.execute(_BOUND_PLANS)
    _SESSIONS[key] = found
    return found


def open_connection(
    database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
    spill: SpillFolder | None,
    readings: Mapping[str, TableReading],
) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    """Return a locked connection to a database, or the owner's own connection unchanged; and the one that shows bound plans."""
    if isinstance(database, duckdb.DuckDBPyConnection):
        return database, database
    files = _select_file_tables(database)
    config, closed = build_locked_config(), spill is None and not files
    if not closed:
        # The engine applies settings in its own order, and accepts none about files after these are closed: see `lock_down`.
        config = {name: value for name, value in config.items() if name not in _CLOSING}
        config |= {} if spill is None else spill.config
    try:
        if supports("allowed_configs"):
            return _open_locked(database, config, files, readings, spills=spill is not None, closed=closed)
        with SHARED_SESSIONS:  # two threads that open one file would each find it half locked
            return _open_locked(database, config, files, readings, spills=spill is not None, closed=closed)
    except BaseException:
        if spill is not None:
            spill.drop_user()
        raise


def _open_locked(
    database: str | Path | Mapping[str, Any],
    config: Config,
    files: Mapping[str, FileTable],
    readings: Mapping[str, TableReading],
    *,
    spills: bool,
    closed: bool,
) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    connection = planning = _open_own_database(database, config)
    if isinstance(database, (str, Path)) and str(database) != MEMORY_PATH:
        planning = find_planning_session(connection, str(database), config)
    for name, table in files.items():
        make_file_table(connection, name, table, readings.get(normalize_name(name), TableReading()))
    lock_down(connection, list_lazy_paths(files), spills=spills, closed=closed)
    return connection, planning


def _open_own_database(database: str | Path | Mapping[str, Any], config: Config) -> duckdb.DuckDBPyConnection:
    if isinstance(database, Mapping):
        return _open_frames(database, config)
    if isinstance(database, (str, Path)):
        return _open_database_file(str(database), config)
    raise ProgrammingError(
        f"the database must be a path, an open DuckDB connection or a dict of frames, not {type(database).__name__}"
    )


def _open_database_file(path: str, config: Config) -> duckdb.DuckDBPyConnection:
    if path == MEMORY_PATH:
        return connect_with(config)
    if not Path(path).is_file():
        raise OperationalError(f"the database file {path} does not exist", code="no_database")
    reason = ""
    try:
        return connect_with(config, path, read_only=True)
    except duckdb.Error as error:
        reason = type(error).__name__
    raise OperationalError(
        f"DuckDB cannot open {path} ({reason})",
        code="no_database",
        hint="check that it is a DuckDB file, and that no other program has it open for writing",
    )


def _select_file_tables(database: str | Path | Mapping[str, Any]) -> dict[str, FileTable]:
    tables = database if isinstance(database, Mapping) else {}
    return {name: table for name, table in tables.items() if isinstance(table, FileTable)}


def _open_frames(tables: Mapping[str, Any], config: Config) -> duckdb.DuckDBPyConnection:
    connection = connect_with(config)
    frames = {name: table for name, table in tables.items() if not isinstance(table, FileTable)}
    for name, frame in frames.items():
        failed = False
        try:
            connection.register(name, frame)
        except (duckdb.Error, TypeError, ValueError):
            failed = True
        if failed:
            raise ProgrammingError(
                f"the table {name} must be a path or a pandas, polars or Arrow table, not {type(frame).__name__}",
                code="frame",
            )
    return connection


# The backend for DuckDB.


_PATH = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
_LOCKS: WeakKeyDictionary[duckdb.DuckDBPyConnection, threading.RLock] = WeakKeyDictionary()


class DuckDBBackend:
    """A DuckDB file, opened read-only and locked; files and frames by name; or the owner's open connection.

    The owner's connection is used unchanged, since locking it would take it from the owner; instead its settings and the sources
    of its views are checked. `host` names the machine if several machines share a ledger, since each may have another file at the
    same path. `readings` say, by folded names of tables, how the policy
    reads the texts of files.
    """

    name = "duckdb"
    version = duckdb.__version__
    dialect: Dialect = DUCKDB

    def __init__(
        self,
        database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
        *,
        host: str = "",
        readings: Mapping[str, TableReading] = MappingProxyType({}),
        temp_directory: str | Path | None = None,
        temp_limit: str | None = None,
    ) -> None:
        self._host = host
        self._sources = sources = DataSources.from_database(database)
        require_text_files(
            readings, [name for name, table in sources.files.items() if not table.format.has_types]
        )
        spill = None if temp_directory is None else sources.open_spill_folder(temp_directory, temp_limit)
        connection, planning = open_connection(sources.database, spill, readings)
        # The folder is removed with the connection, even if nobody closes it.
        self._spill_finalizer = None if spill is None else weakref.finalize(self, spill.drop_user)
        self._runner = StatementRunner(connection, owned=not sources.is_owners, planning=planning)
        self._guard = SettingsGuard(self._runner)
        self._catalog = CatalogReader(self._runner, self._guard)
        # Several backends may share one connection of the owner; one must not fetch another's rows.
        self._lock = _LOCKS.setdefault(connection, threading.RLock())

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return the file's path and the identity of the file; a database in memory is identical only to itself.

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
        """Return the name of the connection's own database."""
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
        """Return whether this is a DuckDB file opened here, without views and generated columns, which may read the clock.

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
            self._runner.close()
        if self._spill_finalizer is not None:
            self._spill_finalizer()
