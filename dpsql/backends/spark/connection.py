"""Spark: the private tables of a cluster's catalog, by a session of Spark, classic or Connect."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables, to_exact_rows
from dpsql.backends.dialect import Dialect
from dpsql.backends.public_copies import Columns, PublicCopies, make_changed_table_error
from dpsql.backends.spark.catalog import DeclaredTables
from dpsql.backends.spark.dialect import emit_copied_column, make_spark_dialect
from dpsql.backends.spark.session import SessionRunner, close_session, open_session, pin_settings
from dpsql.errors import BackendError, PolicyError
from dpsql.ledger.anchor import SPARK as IDENTITY
from dpsql.policy.names import normalize_name, quote_identifier

_MOST_PLANNED = 1000
"""The largest number of statements that are known to be planned; beyond it, all are forgotten."""


def list_temporary_views(session: Any) -> list[str]:
    """Return the names of the temporary views of an owner's session."""
    return [str(table.name) for table in session.catalog.listTables() if table.isTemporary]


def refuse_temporary_views(views: Sequence[str], declared: Sequence[str]) -> None:
    """Raise PolicyError (`table_missing`) if a declared table is a temporary view, and say what to save.

    Such a view is a plan, which Spark computes anew for each statement: what it reads may have changed, and an expression of it may be
    random, read the clock, or fail for one row. dpsql's own session does not have it.
    """
    known = set(map(normalize_name, views))
    for name in declared:
        if normalize_name(name) in known:
            raise PolicyError(
                f"tables.{name}: {name} is a temporary view of the Spark session, which is computed anew for each statement",
                code="table_missing",
                hint=f'save it once: spark.table("{name}").write.saveAsTable("…"), and declare that table',
            )


class SparkBackend:
    """Tables of the catalog of a Spark session.

    `database` is a URL or a session; statements run in a session of their own, beside it. `public` are the names of the
    public tables of the policy, which are copied where they are looked up or shown; `private` those of the private ones.

    Claim: a release reads all contributions from the same rows, whatever happens meanwhile.
    Why: contributions that a statement reads more than once are computed once, and their rows are kept by the executors,
    without their lineage: a task that is tried again reads the same rows, and fails if these are lost.
    They are computed from files that are not changed in place, by deterministic queries.
    Source: Zaharia et al. 2012, "Resilient distributed datasets", section 2.1 (lineage) and 5.4 (checkpoints).
    """

    name = "spark"

    def __init__(self, database: Any, *, public: Sequence[str] = (), private: Sequence[str] = ()) -> None:
        session, self._owned = open_session(database)
        self._runner, self._copies = SessionRunner(session), PublicCopies(public)
        self._lock = threading.RLock()
        self._in_snapshot = False
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._planned_statements: set[bytes] = set()
        try:
            self.version = str(session.version)
            self._runner.run_guarded(lambda: pin_settings(session))
            # Tables without a schema are those of where the owner's session is.
            at = session if isinstance(database, str) else database
            self.database_name, self._schema = self._runner.run_guarded(
                lambda: (str(at.catalog.currentCatalog()), str(at.catalog.currentDatabase()))
            )
            found = self._runner.run_guarded(
                lambda: [] if isinstance(database, str) else list_temporary_views(at)
            )
            refuse_temporary_views(found, (*public, *private))
            self.dialect: Dialect = make_spark_dialect(self.database_name, self._schema)
            self._random = secrets.token_hex(16)
            self._tables = DeclaredTables(self._runner, (*public, *private), self.dialect.queries)
        except BaseException:
            self.close()
            raise

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return the catalog and where the schema lies: not surely one database, so that only a name in the policy says so."""
        rows = self._runner.run_command(f"DESCRIBE SCHEMA EXTENDED {self._quote_schema()}")
        lies = next((str(value) for name, value in rows if name == "Location"), "")
        identity = f"{IDENTITY}{self.database_name}.{self._schema} {lies}"
        return DatabaseIdentity(identity, f"{identity} {self._random}")

    def _quote_schema(self) -> str:
        return f"{quote_identifier(self.database_name)}.{quote_identifier(self._schema)}"

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each declared table's columns with their engine types; without a declared table, those of the current schema.

        Columns are left out if Spark takes their names for one.
        """
        self._tables.forget_tables()
        self._planned_statements.clear()
        with self.open_snapshot():
            self._columns = self._tables.read_columns(self._tables.names or self._list_tables())
        return self._columns

    def _list_tables(self) -> list[str]:
        rows = self._runner.run_command(f"SHOW TABLES IN {self._quote_schema()}")
        return [str(row[1]) for row in rows if not row[2]]

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find whether a name is a table whose files have types; views and other tables are told by their kind."""
        return self._tables.find_origin(table, self.database_name)

    @property
    def is_unchanging(self) -> bool:
        """Never: others write to the tables."""
        return False

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Return whether Spark can plan an emitted statement, and the tables that it reads are those of the start.

        What it has planned of these tables it can plan again: the session and its settings are dpsql's own.
        """
        texts = [sql, *(query for _, query in held)]
        known = hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).digest()
        with self.open_snapshot():
            if not self._tables.are_unchanged(*texts):
                return False
            if known in self._planned_statements:
                return True
            if not self._can_plan(sql, held):
                return False
            if len(self._planned_statements) >= _MOST_PLANNED:
                self._planned_statements.clear()
            self._planned_statements.add(known)
            return True

    def _can_plan(self, sql: str, held: TemporaryTables) -> bool:
        """Return whether Spark can plan a statement over the queries of temporary tables, which are not computed."""
        made: list[str] = []
        try:
            for name, query in held:
                self._runner.create_query_view(name, query)
                made.append(name)
            ((plan, *_), *_) = self._runner.run_command(f"EXPLAIN {sql}")
        except BackendError:
            return False
        finally:
            for name in made:
                self._runner.drop_view(name)
        return not str(plan).startswith("Error occurred")

    def read_public_number(self, sql: str) -> int:
        """Return the whole number of an emitted query over public tables."""
        ((number,),) = self.read_public_rows(sql)[0]
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of an emitted query over public tables, and the engine types of its columns, by DuckDB."""
        with self.open_snapshot():
            self._copies.copy_missing_tables(sql, self._columns, self._read_public_table)
            return self._copies.run_query(sql)

    def _read_public_table(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        columns = (f"{emit_copied_column(*column)} AS c{place}" for place, column in enumerate(read))
        sql = f"SELECT {', '.join(columns) or '1'} FROM {self._tables.quote_name(table)}"
        if not self._tables.are_unchanged(sql):
            raise make_changed_table_error()
        return self._runner.query_rows(sql)

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser accepts `text` as one statement."""
        return self._copies.can_parse(text)

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock of `Backend.lock`."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Look at each table anew once, and copy each public one once; Spark has no transactions of several tables."""
        if self._in_snapshot:
            yield
            return
        self._copies.drop_copies()
        self._runner.is_cancelled = False
        self._in_snapshot = True
        self._tables.begin_snapshot()
        try:
            yield
        finally:
            self._in_snapshot = False

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement and return its exact rows."""
        with self.open_snapshot():
            self._tables.are_unchanged(sql)  # looks for files, where nothing was bound before
            return to_exact_rows(self._runner.query_rows(sql))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Keep the rows of queries in the executors for the enclosed work, under names that no other session has.

        They do not know what they were computed from: if one is lost, what reads it fails.
        """
        frames: list[tuple[str, Any]] = []
        with self.open_snapshot():
            self._tables.are_unchanged(*(query for _, query in tables))
            try:
                for name, query in tables:
                    frame = self._runner.checkpoint_query(query)
                    frames.append((name, frame))
                    self._runner.create_frame_view(name, frame)
                yield
            finally:
                for name, frame in reversed(frames):
                    self._runner.drop_view(name)
                    self._runner.unpersist_frame(frame)
                frames.clear()

    def interrupt(self) -> None:
        """Stop the running statement, as `Backend.interrupt`."""
        self._runner.interrupt()

    def close(self) -> None:
        """Close the copies, and end the application or the session if it is dpsql's own."""
        self._copies.close()
        close_session(self._runner.session, self._owned)
