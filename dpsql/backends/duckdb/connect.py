"""Open DuckDB on a file, on files and frames by name, or on an owner's connection, and lock it down."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.base import DatabaseIdentity
from dpsql.backends.duckdb.files import (
    ColumnTypes,
    FileTable,
    find_file_tables,
    list_lazy_paths,
    make_file_table,
    resolve_file_table,
)
from dpsql.backends.duckdb.settings import (
    UNSOUND,
    Config,
    SpillFolder,
    build_locked_config,
    open_spill_folder,
)
from dpsql.backends.duckdb.sources import to_typed_frame
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.ledger.database_identity import FILE
from dpsql.policy import normalize_name
from dpsql.policy.names import quote_literal

MEMORY_PATH = ":memory:"
_CLOSING = ("enable_external_access", "lock_configuration")
_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true")
_IS_CLOSED = "SELECT current_setting('lock_configuration') AND NOT current_setting('enable_external_access')"
_SEAL = (
    "SET disabled_filesystems = 'LocalFileSystem'",
    f"SET disabled_optimizers = '{UNSOUND}'",
    "SET enable_progress_bar = false",
)


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
        frames = {name: to_typed_frame(table) for name, table in tables.items() if name not in files}
        untyped = frozenset((name, column) for name, (_, columns) in frames.items() for column in columns)
        return cls({**files, **{name: frame for name, (frame, _) in frames.items()}}, None, files, untyped)

    @property
    def is_owners(self) -> bool:
        """Whether this is an owner's open connection."""
        return isinstance(self.database, duckdb.DuckDBPyConnection)

    @property
    def is_database_file(self) -> bool:
        """Whether this is a DuckDB file, which nobody can write to while it is open here."""
        return self.path is not None and self.path != MEMORY_PATH and not self.files

    @property
    def has_only_files(self) -> bool:
        """Whether all tables are files."""
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


def _resolve_source(table: Any) -> Any:
    """Return a frame unchanged, or the table of a path."""
    return resolve_file_table(table) if isinstance(table, (str, Path)) else table


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
    if reads:
        connection.execute(f"SET allowed_paths = [{', '.join(map(quote_literal, reads))}]")
    for setting in _SEAL[spills or bool(reads) :]:
        connection.execute(setting)
    if not closed and connection.execute(_IS_CLOSED).fetchall() != [(True,)]:
        for setting in _CLOSE:
            connection.execute(setting)


def open_connection(
    database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
    spill: SpillFolder | None,
    types: Mapping[str, ColumnTypes],
) -> duckdb.DuckDBPyConnection:
    """Return a locked connection to a database, or the owner's own connection unchanged."""
    if isinstance(database, duckdb.DuckDBPyConnection):
        return database
    files = _select_file_tables(database)
    config, closed = build_locked_config(), spill is None and not files
    if not closed:
        # The engine applies settings in its own order, and accepts none about files after these are closed: see `lock_down`.
        config = {name: value for name, value in config.items() if name not in _CLOSING}
        config |= {} if spill is None else spill.config
    try:
        connection = _open_own_database(database, config)
        for name, table in files.items():
            make_file_table(connection, name, table, types.get(normalize_name(name), {}))
        lock_down(connection, list_lazy_paths(files), spills=spill is not None, closed=closed)
    except BaseException:
        if spill is not None:
            spill.drop_user()
        raise
    return connection


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
        return duckdb.connect(path, config=config)
    if not Path(path).is_file():
        raise OperationalError(f"the database file {path} does not exist", code="no_database")
    reason = ""
    try:
        return duckdb.connect(path, read_only=True, config=config)
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
    connection = duckdb.connect(config=config)
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
