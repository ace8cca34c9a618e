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

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.declared_keys import build_table_keys
from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.connect import (
    MEMORY_PATH,
    UNSOUND,
    open_connection,
)
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.duckdb.files import (
    ColumnTypes,
    FileTable,
    find_file_tables,
    resolve_file_table,
    suggest_types,
)
from dpsql.backends.duckdb.fingerprint import compute_fingerprints
from dpsql.backends.duckdb.frames import UNTYPED, to_typed_frame
from dpsql.backends.duckdb.interrupts import find_cancellation
from dpsql.backends.duckdb.keys import CHECKS, COLUMNS, KEYS, build_collation_probes, find_collated_columns
from dpsql.backends.duckdb.origins import ARROW, PANDAS, parse_origin
from dpsql.backends.duckdb.settings import MEANING, require_unchanged
from dpsql.backends.duckdb.shapes import compute_statement_shape
from dpsql.backends.duckdb.spill import SpillFolder, open_spill_folder
from dpsql.backends.quoting import quote_identifier, quote_literal, quote_table_name
from dpsql.errors import BackendError, OperationalError, ProgrammingError
from dpsql.ledger.identity import FILE, MEMORY
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.check_constraints import parse_constraints
from dpsql.policy.decisions import TableKeys
from dpsql.workers import run_interruptibly

_PROGRESS = "SELECT current_setting('enable_progress_bar')"
_OPTIMIZERS = "SELECT current_setting('disabled_optimizers')"

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
        # The folder goes with the connection, whoever closes it, or nobody.
        self._spill_finalizer = None if spill is None else weakref.finalize(self, spill.drop_user)
        self._bound_shapes: set[bytes] = set()
        self._parsed_texts: set[bytes] = set()
        self._lookup_stack: ExitStack | None = None
        self._has_begun_lookups = False
        # Several of these may have one connection of the owner's: what one asks, another must not fetch.
        self._lock = _LOCKS.setdefault(self._connection, threading.RLock())

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """The file's path, and which file that is now; what is in memory is the same within this object alone.

        A file that took another's place at the same path has another inode, and so another mark. The path of an owner's
        connection is that of its current database; what else is attached, or read by views, does not count.
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
        """Each table's columns with their engine types, from the catalogue.

        Raises OperationalError where a macro of the database's has the name of a function that DuckDB
        brings along: it would take that one's place, and a sum or a clamp would not be what it says. So where
        a setting of the owner's connection gives SQL another meaning.
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
        """The columns of tables of texts, with types that some of their rows suggest: for an owner alone."""
        return {
            name: suggest_types(name, table)
            for name, table in self._files.items()
            if not table.format.has_types
        }

    def read_table_keys(self) -> dict[str, TableKeys]:
        """The primary and foreign keys that each table declares, from the catalogue."""
        return build_table_keys(self._query_rows(KEYS), _format_table_name)

    def compute_fingerprints(self, tables: Mapping[str, Sequence[str]], salt: bytes) -> dict[str, str]:
        """As `fingerprint.compute_fingerprints`, of all rows of these columns: for an owner alone."""
        with self.open_snapshot():
            return compute_fingerprints(tables, salt, self._query_interruptibly)

    def read_counts(self, queries: Sequence[str]) -> list[int]:
        """The number that each of some emitted queries gives of all rows: for an owner alone."""
        with self.open_snapshot():
            return [int(number) for sql in queries for (number,) in self._query_interruptibly(sql)]

    def find_origin(self, table: str) -> TableOrigin | None:
        """Where the rows of a table or view come from, None where DuckDB cannot bind it."""
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
        """Whether it is a DuckDB file that this opened, without views and generated columns: these may read the clock.

        Nobody can write to the file meanwhile. Frames, and the tables of an owner's connection, are their owner's to change.
        """
        if not self._owned or self._path is None or self._path == MEMORY_PATH or self._files:
            return False
        ((computed,),) = self._query_rows(_COMPUTED)
        return not computed

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:  # noqa: ARG002
        """Whether DuckDB can bind an emitted statement; what is dpsql's own to open stays as it is, and binds again.

        So does a statement with other constants: see `compute_statement_shape`. Raises OperationalError where a setting of the owner's
        connection now gives SQL another meaning.
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
        """The whole number that an emitted query over public tables alone gives."""
        with self._apply_safe_settings_once():
            ((number,),) = self._query_interruptibly(sql)
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns."""
        with self._apply_safe_settings_once():
            rows = self._query_interruptibly(sql)
            return rows, [str(column[1]) for column in self._connection.description or ()]

    def can_parse(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement; with dpsql's own settings it always will."""
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
        """As `Backend.lock`, of all that are on the same connection."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """A read-only transaction, or the owner's own if one is open; none where nothing changes."""
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
        """A read-only transaction, which is undone at the end; none within another."""
        opened = self._begin_transaction()
        try:
            yield
        finally:
            if opened:
                self._execute_quietly("ROLLBACK")

    def run_statement(self, sql: str) -> Exact:
        """The exact rows of the emitted statement."""
        with self._apply_safe_settings():
            return Exact(self._query_interruptibly(sql))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Temporary tables of the connection; its database is not written to.

        A transaction that fails, or that is interrupted, is rolled back with them.
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
        """As `Backend.interrupt`."""
        self._connection.interrupt()

    def close(self) -> None:
        """Closes the connection, unless it is the owner's."""
        if self._owned:
            self._connection.close()
        if self._spill_finalizer is not None:
            self._spill_finalizer()

    def _open_spill_folder(self, parent: str | Path, limit: str | None) -> SpillFolder:
        if not self._owned:
            raise ProgrammingError(
                "the temporary files of an open connection are its owner's to place",
                code="temp_directory",
                hint="SET temp_directory = '…' on the connection, and leave the argument out",
            )
        return open_spill_folder(parent, limit, None if self._path == MEMORY_PATH else self._path)

    def _identify_files(self) -> DatabaseIdentity:
        """Where the files lie, and as which they were opened."""
        sources = sorted({table.source for table in self._files.values()})
        identity = FILE + os.pathsep.join([os.path.realpath(self._path)] if self._path else sources)
        marks = hashlib.sha256(repr(sorted(table.marks for table in self._files.values())).encode())
        return DatabaseIdentity(identity, f"{identity} {marks.hexdigest()} {self._host}")

    def _refuse_changed_files(self) -> None:
        """Raises OperationalError where a file that is still read is another than when it was opened."""
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
                hint="drop them, or give them names of their own",
            )

    def _refuse_settings(self) -> None:
        if not self._owned:
            ((*values,),) = self._query_rows(_MEANING)
            require_unchanged(dict(self._query_rows(_SETTINGS)) | dict(zip(MEANING, values, strict=True)))
            self._disable_unsound_optimizer()

    def _refuse_settings_now(self) -> None:
        """As `_refuse_settings`, of the few that are known to decide: this is asked before each charge."""
        try:
            ((*values,),) = self._query_rows(_MEANING)
        except BackendError:
            return  # then the statement cannot be bound either
        require_unchanged(dict(zip(MEANING, values, strict=True)))
        self._disable_unsound_optimizer()

    @contextmanager
    def _show_bound_plans(self) -> Iterator[None]:
        """EXPLAIN shows the plan as it is bound, also on an owner's connection, which stays as it was."""
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
        """Runs statements soundly, and prints nothing of how far they are; an owner's connection prints again after."""
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
        """As `_apply_safe_settings`, of look-ups in public tables: once for all of a snapshot, as a query has many."""
        if self._lookup_stack is None:
            with self._apply_safe_settings():
                yield
            return
        if not self._has_begun_lookups:
            self._lookup_stack.enter_context(self._apply_safe_settings())
            self._has_begun_lookups = True
        yield

    def _disable_unsound_optimizer(self) -> None:
        """Disables the unsound optimizer in an owner's database, for good.

        The setting is of the whole database. Were it enabled again after a statement, a statement of another connection
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
                f"the optimizer {UNSOUND} of DuckDB gives wrong rows, and the configuration is locked",
                code="setting",
                hint=f"before it is locked: SET disabled_optimizers = '{UNSOUND}'",
            )

    def _execute_quietly(self, sql: str) -> bool:
        try:
            self._connection.execute(sql)
        except Exception:  # noqa: BLE001  (an engine's words are nobody's)
            return False
        return True

    def _query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._run_guarded(lambda: self._connection.execute(sql).fetchall())

    def _query_interruptibly(self, sql: str) -> list[tuple[Any, ...]]:
        """As `_query_rows`, of what reads rows and so may take long: Ctrl-C stops it."""
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
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise stopped or BackendError


def _format_table_name(schema: str, table: str) -> str:
    """What a policy calls a table; a dot within its own name, which no policy names, is in quotes."""
    plain = quote_identifier(table) if "." in table else table
    return plain if schema == "main" else f"{schema}.{plain}"


def _build_table_condition(table: str) -> tuple[str, str]:
    """The condition on the place of a table that a policy names, and its name there as a text."""
    schema, name = split_table_name(table)
    databases = "(current_database(), 'temp')" if not schema else "(current_database())"
    return f"schema_name = {quote_literal(schema or 'main')} AND database_name IN {databases}", quote_literal(
        name
    )


def _resolve_source(table: Any) -> Any:
    """A frame as it is, and the table of a path."""
    return resolve_file_table(table) if isinstance(table, (str, Path)) else table
