"""Open DuckDB on a file, on files and frames by name, or on an owner's connection, and lock it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.backends.duckdb.files import (
    ColumnTypes,
    FileTable,
    list_lazy_paths,
    make_file_table,
)
from dpsql.backends.duckdb.locked import Config, build_locked_config
from dpsql.backends.duckdb.spill import SpillFolder
from dpsql.backends.quoting import quote_literal
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.policy import normalize_name

UNSOUND = "common_subplan"
"""The optimizer of DuckDB 2.0 that gives wrong rows: it takes subqueries for equal that are not, as some of its
issues say and the differential search finds. No bound of a contribution may rest on it, so no statement runs with it.
"""
MEMORY_PATH = ":memory:"
_CLOSING = ("enable_external_access", "lock_configuration")
_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true")
_IS_CLOSED = "SELECT current_setting('lock_configuration') AND NOT current_setting('enable_external_access')"
_SEAL = (
    "SET disabled_filesystems = 'LocalFileSystem'",
    f"SET disabled_optimizers = '{UNSOUND}'",
    "SET enable_progress_bar = false",
)


def lock_down(
    connection: duckdb.DuckDBPyConnection,
    reads: Sequence[str] = (),
    *,
    spills: bool = False,
    closed: bool = True,
) -> None:
    """Takes files away for good from an engine that has opened all it needs, and its word on standard output.

    One that `reads` files keeps these alone of the file system; one that `spills`, the folder for temporary files, besides
    its database. One that is `closed` was opened with the configuration of `LOCKED` whole.

    Without external access DuckDB still reads the database's own file by its name, and reads and writes
    the log beside it; its configuration cannot say so before the file is open. Of a long query it prints
    how much of it is done, among the answers, and exact.
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
        # The engine takes settings in an order of its own, and none for files once these are closed: see `lock_down`.
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
        f"a database is a DuckDB path, an open duckdb connection or a dict of frames, not {type(database).__name__}"
    )


def _open_database_file(path: str, config: Config) -> duckdb.DuckDBPyConnection:
    if path == MEMORY_PATH:
        return duckdb.connect(path, config=config)
    if not Path(path).is_file():
        raise OperationalError(f"there is no database file {path}", code="no_database")
    reason = ""
    try:
        return duckdb.connect(path, read_only=True, config=config)
    except duckdb.Error as error:
        reason = type(error).__name__
    raise OperationalError(
        f"DuckDB cannot open {path} ({reason})",
        code="no_database",
        hint="is it a DuckDB file, and closed in every program that writes to it?",
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
                f"the table {name} is not a pandas, polars or Arrow table or a path, but a {type(frame).__name__}",
                code="frame",
            )
    return connection
