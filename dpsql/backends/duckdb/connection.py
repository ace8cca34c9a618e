"""DuckDB: the private tables, behind a lock."""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from dpsql.backends.base import Exact, Origin, Place, Tables
from dpsql.backends.declared_keys import table_keys
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.duckdb.files import FileTable, Types, make, paths, suggested_types, table_of, tables_of
from dpsql.backends.duckdb.fingerprint import fingerprints
from dpsql.backends.duckdb.frames import UNTYPED, typed
from dpsql.backends.duckdb.interrupts import cancellation
from dpsql.backends.duckdb.keys import CHECKS, COLUMNS, KEYS, collated, comparisons
from dpsql.backends.duckdb.locked import Config, locked
from dpsql.backends.duckdb.origins import ARROW, PANDAS, origin
from dpsql.backends.duckdb.settings import MEANING, require_unchanged
from dpsql.backends.duckdb.shapes import shape
from dpsql.backends.duckdb.spill import SpillFolder, spill_folder
from dpsql.backends.quoting import identifier, literal, table_name
from dpsql.errors import BackendError, OperationalError, ProgrammingError
from dpsql.ledger.identity import FILE, MEMORY
from dpsql.policy import fold, table_parts
from dpsql.policy.check_constraints import checked
from dpsql.policy.decisions import TableKeys
from dpsql.workers import interruptible

UNSOUND = "common_subplan"
"""The optimizer of DuckDB 2.0 that gives wrong rows: it takes subqueries for equal that are not, as some of its
issues say and the differential search finds. No bound of a contribution may rest on it, so no statement runs with it.
"""
MEMORY_PATH = ":memory:"
_CLOSING = ("enable_external_access", "lock_configuration")
_CLOSE = ("SET enable_external_access = false", "SET lock_configuration = true")
_IS_CLOSED = "SELECT current_setting('lock_configuration') AND NOT current_setting('enable_external_access')"
_PROGRESS = "SELECT current_setting('enable_progress_bar')"
_OPTIMIZERS = "SELECT current_setting('disabled_optimizers')"
_SEAL = (
    "SET disabled_filesystems = 'LocalFileSystem'",
    f"SET disabled_optimizers = '{UNSOUND}'",
    "SET enable_progress_bar = false",
)

_PARSED = 1000
"""How many texts are known at most to be read by the parser; beyond, all are forgotten."""

_NUMBER = "SELECT txid_current()"
_SETTINGS = "SELECT name, value FROM duckdb_settings()"
_MEANING = "SELECT " + ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in MEANING)
_EXPLAINED = "SELECT value, scope FROM duckdb_settings() WHERE name = 'explain_output'"
_VIEW = """
    SELECT sql FROM duckdb_views()
    WHERE NOT internal AND {} AND view_name = {}
"""
_COMPUTED = """
    SELECT (SELECT COUNT(*) FROM duckdb_views() WHERE NOT internal)
        + (SELECT COUNT(*) FROM duckdb_tables() WHERE sql IS NULL OR contains(upper(sql), 'GENERATED'))
"""
_PATH = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
_FUNCTIONS = "SELECT function_name FROM duckdb_functions() WHERE internal = {}"
_SCHEMA = """
    SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
    WHERE NOT internal AND current_schema() = 'main' AND NOT starts_with(table_name, '#')
      AND (database_name = current_database() OR (database_name = 'temp' AND schema_name = 'main'))
    -- A name that two databases have is left out: which of them it means could change.
    QUALIFY COUNT(DISTINCT database_name) OVER (PARTITION BY lower(schema_name), lower(table_name)) = 1
    ORDER BY schema_name <> 'main', schema_name, table_name, column_index
"""

_LOCKS: WeakKeyDictionary[duckdb.DuckDBPyConnection, threading.RLock] = WeakKeyDictionary()


class DuckDBBackend:
    """A DuckDB file, opened read-only and locked; files and frames by name; or the owner's open connection.

    The owner's connection is used as it is: it cannot be locked without taking it from the owner. What its
    settings may be is looked at instead, and so is what its views read. `host` names the machine where a ledger
    is shared by several, each of which may have another file at the same path. `types` are the policy's, by folded names of
    tables and columns: as these the texts of CSV files are read.
    """

    name = "duckdb"
    version = duckdb.__version__
    dialect: Dialect = DUCKDB

    def __init__(
        self,
        database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
        *,
        host: str = "",
        types: Mapping[str, Types] = MappingProxyType({}),
        temp_directory: str | Path | None = None,
        temp_limit: str | None = None,
    ) -> None:
        self._host = host
        self._path = str(database) if isinstance(database, (str, Path)) else None
        self._owned = not isinstance(database, duckdb.DuckDBPyConnection)
        self._untyped: set[tuple[str, str]] = set()
        self._files: dict[str, FileTable] = {}
        if isinstance(database, (str, Path)):
            self._files = tables_of(database)
            database = self._files or database
        if isinstance(database, Mapping):
            tables = {name: _table(table) for name, table in database.items()}
            self._files = {name: table for name, table in tables.items() if isinstance(table, FileTable)}
            frames = {name: typed(table) for name, table in tables.items() if name not in self._files}
            self._untyped = {(name, column) for name, (_, columns) in frames.items() for column in columns}
            database = {**self._files, **{name: frame for name, (frame, _) in frames.items()}}
        self._in_files = isinstance(database, Mapping) and 0 < len(self._files) == len(database)
        spill = None if temp_directory is None else self._spill_folder(temp_directory, temp_limit)
        self._connection = _connect(database, spill, types)
        # The folder goes with the connection, whoever closes it, or nobody.
        self._left = None if spill is None else weakref.finalize(self, spill.leave)
        self._bound: set[bytes] = set()
        self._parsed: set[bytes] = set()
        self._looked: ExitStack | None = None
        self._looks = False
        # Several of these may have one connection of the owner's: what one asks, another must not fetch.
        self._alone = _LOCKS.setdefault(self._connection, threading.RLock())

    @cached_property
    def place(self) -> Place | None:
        """The file's path, and which file that is now; what is in memory is the same within this object alone.

        A file that took another's place at the same path has another inode, and so another mark. The path of an owner's
        connection is that of its current database; what else is attached, or read by views, does not count.
        """
        if self._in_files:
            return self._place_of_files()
        path: object = self._path
        if not self._owned:
            ((path,),) = self._query(_PATH)
        if not isinstance(path, str) or path in {"", MEMORY_PATH}:
            return Place(MEMORY, uuid.uuid4().hex)
        identity = FILE + os.path.realpath(path)
        try:
            inode = str(Path(path).stat().st_ino)
        except OSError:
            inode = ""
        return Place(identity, f"{identity} {inode} {self._host}")

    @cached_property
    def database(self) -> str:
        """The name of the connection's own database."""
        ((name,),) = self._query("SELECT current_database()")
        return str(name)

    def schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types, from the catalogue.

        Raises OperationalError where a macro of the database's has the name of a function that DuckDB
        brings along: it would take that one's place, and a sum or a clamp would not be what it says. So where
        a setting of the owner's connection gives SQL another meaning.
        """
        self._refuse_shadows()
        self._refuse_settings()
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, kind in self._query(_SCHEMA):
            loose = (table, column) in self._untyped
            tables.setdefault(_called(schema, table), []).append((column, UNTYPED if loose else kind))
        return tables

    def suggested(self) -> dict[str, list[tuple[str, str]]]:
        """The columns of tables of texts, with types that some of their rows suggest: for an owner alone."""
        return {
            name: suggested_types(name, table)
            for name, table in self._files.items()
            if not table.format.typed
        }

    def keys(self) -> dict[str, TableKeys]:
        """The primary and foreign keys that each table declares, from the catalogue."""
        return table_keys(self._query(KEYS), _called)

    def fingerprints(self, tables: Mapping[str, Sequence[str]], salt: bytes) -> dict[str, str]:
        """As `fingerprint.fingerprints`, of all rows of these columns: for an owner alone."""
        with self.snapshot():
            return fingerprints(tables, salt, self._long)

    def counts(self, queries: Sequence[str]) -> list[int]:
        """The number that each of some emitted queries gives of all rows: for an owner alone."""
        with self.snapshot():
            return [int(number) for sql in queries for (number,) in self._long(sql)]

    def origin(self, table: str) -> Origin | None:
        """Where the rows of a table or view come from, None where DuckDB cannot bind it."""
        if table in self._files:
            return Origin(
                frozenset({f"file {table}"}),
                checked=self._files[table].format.checked,
                collated=self._collated(table),
            )
        definitions = [str(sql) for (sql,) in self._query(_VIEW.format(*_where(table)))]
        with self._explaining():
            try:
                explained = self._query(f"EXPLAIN (FORMAT JSON) SELECT * FROM {table_name(table)}")
            except BackendError:
                return None
        plan = dict(explained).get("logical_plan")
        if plan is None:
            return None
        frames = frozenset({ARROW, PANDAS} if self._owned else {ARROW})
        found = origin(table, plan, next(iter(definitions), None), frames=frames)
        columns = self._query(COLUMNS.format(*_where(table)))
        checks = tuple(str(text) for (text,) in self._query(CHECKS.format(*_where(table))))
        said = checked(checks)
        required = (n for n, null, _ in columns if not null or (fold(n) in said and said[fold(n)].present))
        return replace(found, required=frozenset(required), checks=checks, collated=self._collated(table))

    def _collated(self, table: str) -> frozenset[str]:
        """Return the columns whose collation does not compare bytes."""
        columns = [(str(name), str(kind)) for name, _, kind in self._query(COLUMNS.format(*_where(table)))]
        with self._explaining():
            plans = [str(dict(self._query(sql)).get("logical_plan")) for sql in comparisons(table, columns)]
        return collated(columns, plans)

    @cached_property
    def unchanging(self) -> bool:
        """Whether it is a DuckDB file that this opened, without views and generated columns: these may read the clock.

        Nobody can write to the file meanwhile. Frames, and the tables of an owner's connection, are their owner's to change.
        """
        if not self._owned or self._path is None or self._path == MEMORY_PATH or self._files:
            return False
        ((computed,),) = self._query(_COMPUTED)
        return not computed

    def binds(self, sql: str, held: Tables = ()) -> bool:  # noqa: ARG002
        """Whether DuckDB can bind an emitted statement; what is dpsql's own to open stays as it is, and binds again.

        So does a statement with other constants: see `shape`. Raises OperationalError where a setting of the owner's
        connection now gives SQL another meaning.
        """
        self._refuse_changed_files()
        if not self._owned:
            self._refuse_settings_now()
            return self._quietly(f"DESCRIBE {sql}")
        known = hashlib.sha256(shape(sql).encode()).digest()
        if known not in self._bound:
            if not self._quietly(f"DESCRIBE {sql}"):
                return False
            self._bound.add(known)
        return True

    def public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        with self._looking():
            ((number,),) = self._long(sql)
        return int(number)

    def public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns."""
        with self._looking():
            rows = self._long(sql)
            return rows, [str(column[1]) for column in self._connection.description or ()]

    def parses(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement; with dpsql's own settings it always will."""
        known = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if self._owned and known in self._parsed:
            return True
        try:
            parsed = len(self._connection.extract_statements(text)) == 1
        except duckdb.Error:
            return False
        if parsed:
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            self._parsed.add(known)
        return parsed

    def alone(self) -> AbstractContextManager[object]:
        """As `Backend.alone`, of all that are on the same connection."""
        return self._alone

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A read-only transaction, or the owner's own if one is open; none where nothing changes."""
        before = (self._looked, self._looks)
        try:
            with nullcontext() if self.unchanging else self._transaction(), ExitStack() as self._looked:
                self._looks = False
                yield
        finally:
            self._looked, self._looks = before

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A read-only transaction, which is undone at the end; none within another."""
        opened = self._begin()
        try:
            yield
        finally:
            if opened:
                self._quietly("ROLLBACK")

    def run(self, sql: str) -> Exact:
        """The exact rows of the emitted statement."""
        with self._running():
            return Exact(self._long(sql))

    @contextmanager
    def staged(self, tables: Tables) -> Iterator[None]:
        """Temporary tables of the connection; its database is not written to.

        A transaction that fails, or that is interrupted, is rolled back with them.
        """
        with self._transaction() if self.unchanging else nullcontext():
            try:
                with self._running():
                    for name, sql in tables:
                        self._long(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {sql}")
                yield
            finally:
                for name, _ in reversed(tables):
                    self._quietly(f"DROP TABLE IF EXISTS temp.{name}")

    def interrupt(self) -> None:
        """As `Backend.interrupt`."""
        self._connection.interrupt()

    def close(self) -> None:
        """Closes the connection, unless it is the owner's."""
        if self._owned:
            self._connection.close()
        if self._left is not None:
            self._left()

    def _spill_folder(self, parent: str | Path, limit: str | None) -> SpillFolder:
        if not self._owned:
            raise ProgrammingError(
                "the temporary files of an open connection are its owner's to place",
                code="temp_directory",
                hint="SET temp_directory = '…' on the connection, and leave the argument out",
            )
        return spill_folder(parent, limit, None if self._path == MEMORY_PATH else self._path)

    def _place_of_files(self) -> Place:
        """Where the files lie, and as which they were opened."""
        sources = sorted({table.source for table in self._files.values()})
        identity = FILE + os.pathsep.join([os.path.realpath(self._path)] if self._path else sources)
        marks = hashlib.sha256(repr(sorted(table.marks for table in self._files.values())).encode())
        return Place(identity, f"{identity} {marks.hexdigest()} {self._host}")

    def _refuse_changed_files(self) -> None:
        """Raises OperationalError where a file that is still read is another than when it was opened."""
        changed = [table.source for table in self._files.values() if table.changed]
        if changed:
            raise OperationalError(
                f"{', '.join(changed)} has changed since it was opened",
                code="source_changed",
                hint="connect again",
            )

    def _refuse_shadows(self) -> None:
        macros = {name.lower() for (name,) in self._query(_FUNCTIONS.format("false"))}
        own = self._query(_FUNCTIONS.format("true")) if macros else []
        shadows = sorted(macros.intersection(name.lower() for (name,) in own))
        if shadows:
            raise OperationalError(
                f"macros of the database hide functions of DuckDB: {', '.join(shadows)}",
                code="shadowed",
                hint="drop them, or give them names of their own",
            )

    def _refuse_settings(self) -> None:
        if not self._owned:
            ((*values,),) = self._query(_MEANING)
            require_unchanged(dict(self._query(_SETTINGS)) | dict(zip(MEANING, values, strict=True)))
            self._require_sound()

    def _refuse_settings_now(self) -> None:
        """As `_refuse_settings`, of the few that are known to decide: this is asked before each charge."""
        try:
            ((*values,),) = self._query(_MEANING)
        except BackendError:
            return  # then the statement cannot be bound either
        require_unchanged(dict(zip(MEANING, values, strict=True)))
        self._require_sound()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """EXPLAIN shows the plan as it is bound, also on an owner's connection, which stays as it was."""
        before = [] if self._owned else self._query(_EXPLAINED)
        explains = bool(before) and self._quietly("SET explain_output = 'all'")
        try:
            yield
        finally:
            for value, scope in before if explains else ():
                self._quietly(
                    f"SET explain_output = '{value}'" if scope == "LOCAL" else "RESET SESSION explain_output"
                )

    def _begin(self) -> bool:
        # Outside a transaction each statement has a number of its own. Trying to begin a second
        # transaction would abort the owner's first.
        if not self._owned and self._query(_NUMBER) == self._query(_NUMBER):
            return False
        return self._quietly("BEGIN TRANSACTION READ ONLY")

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Runs statements soundly, and prints nothing of how far they are; an owner's connection prints again after."""
        if self._owned:
            yield
            return
        self._require_sound()
        ((progress,),) = self._query(_PROGRESS)
        if progress:
            self._quietly("SET enable_progress_bar = false")
        try:
            yield
        finally:
            if progress:
                self._quietly("SET enable_progress_bar = true")

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """As `_running`, of look-ups in public tables: once for all of a snapshot, as a query has many."""
        if self._looked is None:
            with self._running():
                yield
            return
        if not self._looks:
            self._looked.enter_context(self._running())
            self._looks = True
        yield

    def _require_sound(self) -> None:
        """Disables the unsound optimizer in an owner's database, for good.

        The setting is of the whole database. Were it enabled again after a statement, a statement of another connection
        could run with it. Raises OperationalError if it is enabled and the configuration is locked.
        """
        ((disabled,),) = self._query(_OPTIMIZERS)
        names = [name.strip() for name in str(disabled).split(",") if name.strip()]
        wanted = ",".join(dict.fromkeys((*names, UNSOUND)))
        if not self._quietly(f"SET GLOBAL disabled_optimizers = {literal(wanted)}") and UNSOUND not in names:
            raise OperationalError(
                f"the optimizer {UNSOUND} of DuckDB gives wrong rows, and the configuration is locked",
                code="setting",
                hint=f"before it is locked: SET disabled_optimizers = '{UNSOUND}'",
            )

    def _quietly(self, sql: str) -> bool:
        try:
            self._connection.execute(sql)
        except Exception:  # noqa: BLE001  (an engine's words are nobody's)
            return False
        return True

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self._answered(lambda: self._connection.execute(sql).fetchall())

    def _long(self, sql: str) -> list[tuple[Any, ...]]:
        """As `_query`, of what reads rows and so may take long: Ctrl-C stops it."""
        connection = self._connection
        return self._answered(lambda: interruptible(connection, lambda: connection.execute(sql).fetchall()))

    def _answered(self, ask: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        stopped: BaseException | None = None
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            stopped = cancellation(error)
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise stopped or BackendError


def _called(schema: str, table: str) -> str:
    """What a policy calls a table; a dot within its own name, which no policy names, is in quotes."""
    plain = identifier(table) if "." in table else table
    return plain if schema == "main" else f"{schema}.{plain}"


def _where(table: str) -> tuple[str, str]:
    """The condition on the place of a table that a policy names, and its name there as a text."""
    schema, name = table_parts(table)
    databases = "(current_database(), 'temp')" if not schema else "(current_database())"
    return f"schema_name = {literal(schema or 'main')} AND database_name IN {databases}", literal(name)


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
        connection.execute(f"SET allowed_paths = [{', '.join(map(literal, reads))}]")
    for setting in _SEAL[spills or bool(reads) :]:
        connection.execute(setting)
    if not closed and connection.execute(_IS_CLOSED).fetchall() != [(True,)]:
        for setting in _CLOSE:
            connection.execute(setting)


def _table(table: Any) -> Any:
    """A frame as it is, and the table of a path."""
    return table_of(table) if isinstance(table, (str, Path)) else table


def _connect(
    database: str | Path | Mapping[str, Any] | duckdb.DuckDBPyConnection,
    spill: SpillFolder | None,
    types: Mapping[str, Types],
) -> duckdb.DuckDBPyConnection:
    if isinstance(database, duckdb.DuckDBPyConnection):
        return database
    files = _files(database)
    config, closed = locked(), spill is None and not files
    if not closed:
        # The engine takes settings in an order of its own, and none for files once these are closed: see `lock_down`.
        config = {name: value for name, value in config.items() if name not in _CLOSING}
        config |= {} if spill is None else spill.config
    try:
        connection = _own(database, config)
        for name, table in files.items():
            make(connection, name, table, types.get(fold(name), {}))
        lock_down(connection, paths(files), spills=spill is not None, closed=closed)
    except BaseException:
        if spill is not None:
            spill.leave()
        raise
    return connection


def _own(database: str | Path | Mapping[str, Any], config: Config) -> duckdb.DuckDBPyConnection:
    if isinstance(database, Mapping):
        return _framed(database, config)
    if isinstance(database, (str, Path)):
        return _opened(str(database), config)
    raise ProgrammingError(
        f"a database is a DuckDB path, an open duckdb connection or a dict of frames, not {type(database).__name__}"
    )


def _opened(path: str, config: Config) -> duckdb.DuckDBPyConnection:
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


def _files(database: str | Path | Mapping[str, Any]) -> dict[str, FileTable]:
    tables = database if isinstance(database, Mapping) else {}
    return {name: table for name, table in tables.items() if isinstance(table, FileTable)}


def _framed(tables: Mapping[str, Any], config: Config) -> duckdb.DuckDBPyConnection:
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
