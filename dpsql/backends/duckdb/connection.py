"""The backend for DuckDB."""

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

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.declared_keys import build_table_keys
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.catalog import (
    ARROW,
    CHECKS,
    COLUMNS,
    KEYS,
    PANDAS,
    build_collation_probes,
    compute_fingerprints,
    find_collated_columns,
    parse_origin,
)
from dpsql.backends.duckdb.connect import (
    MEMORY_PATH,
    UNSOUND,
    open_connection,
)
from dpsql.backends.duckdb.dialect import DUCKDB, compute_statement_shape
from dpsql.backends.duckdb.files import (
    ColumnTypes,
    FileTable,
    find_file_tables,
    resolve_file_table,
    suggest_types,
)
from dpsql.backends.duckdb.settings import (
    MEANING,
    SpillFolder,
    find_cancellation,
    open_spill_folder,
    require_unchanged,
)
from dpsql.backends.duckdb.sources import UNTYPED, to_typed_frame
from dpsql.backends.quoting import quote_identifier, quote_literal, quote_table_name
from dpsql.errors import BackendError, OperationalError, ProgrammingError
from dpsql.ledger.database_identity import FILE, MEMORY
from dpsql.ledger.workers import run_interruptibly
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.check_constraints import parse_constraints
from dpsql.policy.skeleton import TableKeys

_PROGRESS = "SELECT current_setting('enable_progress_bar')"
_OPTIMIZERS = "SELECT current_setting('disabled_optimizers')"

_PARSED = 1000
"""The largest number of remembered texts that the parser accepts; beyond it, all are forgotten."""

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
        self._path = str(database) if isinstance(database, (str, Path)) else None
        self._owned = not isinstance(database, duckdb.DuckDBPyConnection)
        self._untyped_columns: set[tuple[str, str]] = set()
        self._files: dict[str, FileTable] = {}
        if isinstance(database, (str, Path)):
            self._files = find_file_tables(database)
            database = self._files or database
        if isinstance(database, Mapping):
            tables = {name: _resolve_source(table) for name, table in database.items()}
            self._files = {name: table for name, table in tables.items() if isinstance(table, FileTable)}
            frames = {
                name: to_typed_frame(table) for name, table in tables.items() if name not in self._files
            }
            self._untyped_columns = {
                (name, column) for name, (_, columns) in frames.items() for column in columns
            }
            database = {**self._files, **{name: frame for name, (frame, _) in frames.items()}}
        self._in_files = isinstance(database, Mapping) and 0 < len(self._files) == len(database)
        spill = None if temp_directory is None else self._open_spill_folder(temp_directory, temp_limit)
        self._connection = open_connection(database, spill, types)
        # The folder is removed with the connection, even if nobody closes it.
        self._spill_finalizer = None if spill is None else weakref.finalize(self, spill.drop_user)
        self._bound_shapes: set[bytes] = set()
        self._parsed_texts: set[bytes] = set()
        self._lookup_stack: ExitStack | None = None
        self._has_begun_lookups = False
        # Several backends may share one connection of the owner; one must not fetch another's rows.
        self._lock = _LOCKS.setdefault(self._connection, threading.RLock())

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """The file's path and the identity of the file; a database in memory is identical only to itself.

        A file that replaced another at the same path has another inode, and so another identity. The path of an owner's
        connection is that of its current database; attached databases and files of views do not count.
        """
        if self._in_files:
            return self._identify_files()
        path: object = self._path
        if not self._owned:
            ((path,),) = self._query_rows(_PATH)
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
        ((name,),) = self._query_rows("SELECT current_database()")
        return str(name)

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each table's columns with their engine types from the catalog.

        Raises OperationalError if a macro of the database hides a function of DuckDB, since a sum or a clamp would then compute
        something else, and if a setting of the owner's connection changes the meaning of SQL.
        """
        self._refuse_shadows()
        self._refuse_settings()
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, kind in self._query_rows(_SCHEMA):
            loose = (table, column) in self._untyped_columns
            tables.setdefault(_format_table_name(schema, table), []).append(
                (column, UNTYPED if loose else kind)
            )
        return tables

    def suggest_columns(self) -> dict[str, list[tuple[str, str]]]:
        """Suggest types for columns of text tables from some of their rows; for the owner only."""
        return {
            name: suggest_types(name, table)
            for name, table in self._files.items()
            if not table.format.has_types
        }

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Read the primary and foreign keys of each table from the catalog."""
        return build_table_keys(self._query_rows(KEYS), _format_table_name)

    def compute_fingerprints(self, tables: Mapping[str, Sequence[str]], salt: bytes) -> dict[str, str]:
        """Compute fingerprints of all rows of these columns, as `fingerprint.compute_fingerprints`; for the owner only."""
        with self.open_snapshot():
            return compute_fingerprints(tables, salt, self._query_interruptibly)

    def read_counts(self, queries: Sequence[str]) -> list[int]:
        """Return the exact number of each emitted query; for the owner only."""
        with self.open_snapshot():
            return [int(number) for sql in queries for (number,) in self._query_interruptibly(sql)]

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find the origin of a table's or view's rows, or None if DuckDB cannot bind it."""
        if table in self._files:
            return TableOrigin(
                frozenset({f"file {table}"}),
                has_checked_texts=self._files[table].format.has_checked_texts,
                collated_columns=self._find_collated_columns(table),
            )
        definitions = [str(sql) for (sql,) in self._query_rows(_VIEW.format(*_build_table_condition(table)))]
        with self._show_bound_plans():
            try:
                explained = self._query_rows(f"EXPLAIN (FORMAT JSON) SELECT * FROM {quote_table_name(table)}")
            except BackendError:
                return None
        plan = dict(explained).get("logical_plan")
        if plan is None:
            return None
        frames = frozenset({ARROW, PANDAS} if self._owned else {ARROW})
        found = parse_origin(table, plan, next(iter(definitions), None), frames=frames)
        columns = self._query_rows(COLUMNS.format(*_build_table_condition(table)))
        checks = tuple(
            str(text) for (text,) in self._query_rows(CHECKS.format(*_build_table_condition(table)))
        )
        said = parse_constraints(checks)
        required = (
            n
            for n, null, _ in columns
            if not null or (normalize_name(n) in said and said[normalize_name(n)].not_null)
        )
        return replace(
            found,
            not_null_columns=frozenset(required),
            check_constraints=checks,
            collated_columns=self._find_collated_columns(table),
        )

    def _find_collated_columns(self, table: str) -> frozenset[str]:
        """Return the columns whose collation does not compare bytes."""
        columns = [
            (str(name), str(kind))
            for name, _, kind in self._query_rows(COLUMNS.format(*_build_table_condition(table)))
        ]
        with self._show_bound_plans():
            plans = [
                str(dict(self._query_rows(sql)).get("logical_plan"))
                for sql in build_collation_probes(table, columns)
            ]
        return find_collated_columns(columns, plans)

    @cached_property
    def is_unchanging(self) -> bool:
        """Whether this is a DuckDB file opened here, without views and generated columns, which may read the clock.

        Nobody can write to the file meanwhile, whereas frames and the tables of an owner's connection may change.
        """
        if not self._owned or self._path is None or self._path == MEMORY_PATH or self._files:
            return False
        ((computed,),) = self._query_rows(_COMPUTED)
        return not computed

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:  # noqa: ARG002
        """Return whether DuckDB can bind an emitted statement.

        A database that dpsql opened does not change, so a bound statement binds again, also with other constants (see
        `compute_statement_shape`). Raises OperationalError if a setting of the owner's connection now changes the meaning of SQL.
        """
        self._refuse_changed_files()
        if not self._owned:
            self._refuse_settings_now()
            return self._execute_quietly(f"DESCRIBE {sql}")
        known = hashlib.sha256(compute_statement_shape(sql).encode()).digest()
        if known not in self._bound_shapes:
            if not self._execute_quietly(f"DESCRIBE {sql}"):
                return False
            self._bound_shapes.add(known)
        return True

    def read_public_number(self, sql: str) -> int:
        """Return the whole number of an emitted query over public tables."""
        with self._apply_safe_settings_once():
            ((number,),) = self._query_interruptibly(sql)
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of an emitted query over public tables, and the engine types of its columns."""
        with self._apply_safe_settings_once():
            rows = self._query_interruptibly(sql)
            return rows, [str(column[1]) for column in self._connection.description or ()]

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser accepts `text` as one statement; with fixed settings the result does not change."""
        known = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if self._owned and known in self._parsed_texts:
            return True
        try:
            parsed = len(self._connection.extract_statements(text)) == 1
        except duckdb.Error:
            return False
        if parsed:
            if len(self._parsed_texts) >= _PARSED:
                self._parsed_texts.clear()
            self._parsed_texts.add(known)
        return parsed

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock of `Backend.lock`, shared by all backends of the connection."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Open a read-only transaction, or use the owner's open one; none if the data cannot change."""
        before = (self._lookup_stack, self._has_begun_lookups)
        try:
            with (
                nullcontext() if self.is_unchanging else self._open_transaction(),
                ExitStack() as self._lookup_stack,
            ):
                self._has_begun_lookups = False
                yield
        finally:
            self._lookup_stack, self._has_begun_lookups = before

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Open a read-only transaction, which is rolled back at the end; none within another."""
        opened = self._begin_transaction()
        try:
            yield
        finally:
            if opened:
                self._execute_quietly("ROLLBACK")

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement and return its exact rows."""
        with self._apply_safe_settings():
            return Exact(self._query_interruptibly(sql))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Create temporary tables of the connection for the enclosed work; the database is not changed.

        A failed or interrupted transaction is rolled back with them.
        """
        with self._open_transaction() if self.is_unchanging else nullcontext():
            try:
                with self._apply_safe_settings():
                    for name, sql in tables:
                        self._query_interruptibly(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {sql}")
                yield
            finally:
                for name, _ in reversed(tables):
                    self._execute_quietly(f"DROP TABLE IF EXISTS temp.{name}")

    def interrupt(self) -> None:
        """Interrupt the running statement, as `Backend.interrupt`."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection, unless it is the owner's."""
        if self._owned:
            self._connection.close()
        if self._spill_finalizer is not None:
            self._spill_finalizer()

    def _open_spill_folder(self, parent: str | Path, limit: str | None) -> SpillFolder:
        if not self._owned:
            raise ProgrammingError(
                "temp_directory is not valid with an open connection, whose owner sets it",
                code="temp_directory",
                hint="run SET temp_directory = '…' on the connection, and omit the argument",
            )
        return open_spill_folder(parent, limit, None if self._path == MEMORY_PATH else self._path)

    def _identify_files(self) -> DatabaseIdentity:
        """Return the paths of the files, and their identity when they were opened."""
        sources = sorted({table.source for table in self._files.values()})
        identity = FILE + os.pathsep.join([os.path.realpath(self._path)] if self._path else sources)
        marks = hashlib.sha256(repr(sorted(table.marks for table in self._files.values())).encode())
        return DatabaseIdentity(identity, f"{identity} {marks.hexdigest()} {self._host}")

    def _refuse_changed_files(self) -> None:
        """Raise OperationalError if a file changed since it was opened."""
        changed = [table.source for table in self._files.values() if table.has_changed]
        if changed:
            raise OperationalError(
                f"{', '.join(changed)} has changed since it was opened",
                code="source_changed",
                hint="connect again",
            )

    def _refuse_shadows(self) -> None:
        macros = {name.lower() for (name,) in self._query_rows(_FUNCTIONS.format("false"))}
        own = self._query_rows(_FUNCTIONS.format("true")) if macros else []
        shadows = sorted(macros.intersection(name.lower() for (name,) in own))
        if shadows:
            raise OperationalError(
                f"macros of the database hide functions of DuckDB: {', '.join(shadows)}",
                code="shadowed",
                hint="drop or rename the macros",
            )

    def _refuse_settings(self) -> None:
        if not self._owned:
            ((*values,),) = self._query_rows(_MEANING)
            require_unchanged(dict(self._query_rows(_SETTINGS)) | dict(zip(MEANING, values, strict=True)))
            self._disable_unsound_optimizer()

    def _refuse_settings_now(self) -> None:
        """Check the few settings that change the meaning of SQL, before each charge."""
        try:
            ((*values,),) = self._query_rows(_MEANING)
        except BackendError:
            return  # the statement cannot be bound either
        require_unchanged(dict(zip(MEANING, values, strict=True)))
        self._disable_unsound_optimizer()

    @contextmanager
    def _show_bound_plans(self) -> Iterator[None]:
        """Make EXPLAIN show the bound plan, and restore the setting of an owner's connection."""
        before = [] if self._owned else self._query_rows(_EXPLAINED)
        explains = bool(before) and self._execute_quietly("SET explain_output = 'all'")
        try:
            yield
        finally:
            for value, scope in before if explains else ():
                self._execute_quietly(
                    f"SET explain_output = '{value}'" if scope == "LOCAL" else "RESET SESSION explain_output"
                )

    def _begin_transaction(self) -> bool:
        # Outside a transaction each statement has a number of its own. Trying to begin a second
        # transaction would abort the owner's first.
        if not self._owned and self._query_rows(_NUMBER) == self._query_rows(_NUMBER):
            return False
        return self._execute_quietly("BEGIN TRANSACTION READ ONLY")

    @contextmanager
    def _apply_safe_settings(self) -> Iterator[None]:
        """Disable the unsound optimizer and progress output, and restore progress output of an owner's connection."""
        if self._owned:
            yield
            return
        self._disable_unsound_optimizer()
        ((progress,),) = self._query_rows(_PROGRESS)
        if progress:
            self._execute_quietly("SET enable_progress_bar = false")
        try:
            yield
        finally:
            if progress:
                self._execute_quietly("SET enable_progress_bar = true")

    @contextmanager
    def _apply_safe_settings_once(self) -> Iterator[None]:
        """Apply `_apply_safe_settings` once for all public lookups of a snapshot, since a query has many."""
        if self._lookup_stack is None:
            with self._apply_safe_settings():
                yield
            return
        if not self._has_begun_lookups:
            self._lookup_stack.enter_context(self._apply_safe_settings())
            self._has_begun_lookups = True
        yield

    def _disable_unsound_optimizer(self) -> None:
        """Disable the unsound optimizer in an owner's database, for good.

        The setting applies to the whole database. If it were enabled again after a statement, a statement of another connection
        could run with it. Raises OperationalError if it is enabled and the configuration is locked.
        """
        ((disabled,),) = self._query_rows(_OPTIMIZERS)
        names = [name.strip() for name in str(disabled).split(",") if name.strip()]
        wanted = ",".join(dict.fromkeys((*names, UNSOUND)))
        if (
            not self._execute_quietly(f"SET GLOBAL disabled_optimizers = {quote_literal(wanted)}")
            and UNSOUND not in names
        ):
            raise OperationalError(
                f"DuckDB's optimizer {UNSOUND} returns wrong rows, and the locked configuration does not allow disabling it",
                code="setting",
                hint=f"before locking the configuration, run SET disabled_optimizers = '{UNSOUND}'",
            )

    def _execute_quietly(self, sql: str) -> bool:
        try:
            self._connection.execute(sql)
        except Exception:  # noqa: BLE001  (an engine's message may quote private values)
            return False
        return True

    def _query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._run_guarded(lambda: self._connection.execute(sql).fetchall())

    def _query_interruptibly(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query that may take long; Ctrl-C stops it."""
        connection = self._connection
        return self._run_guarded(
            lambda: run_interruptibly(connection, lambda: connection.execute(sql).fetchall())
        )

    def _run_guarded(self, ask: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        stopped: BaseException | None = None
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            stopped = find_cancellation(error)
        # Raised outside the handler, since even `from None` keeps the engine's error as context.
        raise stopped or BackendError


def _format_table_name(schema: str, table: str) -> str:
    """Return a table's name in a policy; a table with a dot in its own name, which no policy can name, is quoted."""
    plain = quote_identifier(table) if "." in table else table
    return plain if schema == "main" else f"{schema}.{plain}"


def _build_table_condition(table: str) -> tuple[str, str]:
    """Return the catalog condition for a table's schema and database, and its name as a literal."""
    schema, name = split_table_name(table)
    databases = "(current_database(), 'temp')" if not schema else "(current_database())"
    return f"schema_name = {quote_literal(schema or 'main')} AND database_name IN {databases}", quote_literal(
        name
    )


def _resolve_source(table: Any) -> Any:
    """Return a frame unchanged, or the table of a path."""
    return resolve_file_table(table) if isinstance(table, (str, Path)) else table
