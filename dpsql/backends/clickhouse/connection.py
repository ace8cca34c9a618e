"""ClickHouse, embedded by chdb: the private tables of a folder, or of a database in memory."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables, to_exact_rows
from dpsql.backends.clickhouse.catalog import DeclaredTables
from dpsql.backends.clickhouse.dialect import emit_copied_column, make_clickhouse_dialect
from dpsql.backends.clickhouse.session import SessionRunner, open_session
from dpsql.backends.dialect import Dialect
from dpsql.backends.public_copies import Columns, PublicCopies, make_changed_table_error
from dpsql.errors import BackendError
from dpsql.ledger.anchor import CLICKHOUSE as IDENTITY
from dpsql.policy.names import quote_identifier
from dpsql.policy.skeleton import TableKeys

_MOST_BOUND = 1000
"""The largest number of statements that are known to be bound; beyond it, all are forgotten."""


_PLANNED = '"#planned"'
"""The temporary table for which a statement is planned."""


class ClickHouseBackend:
    """Tables of a database of chdb.

    `database` is a URL or a connection; statements run in a session of their own, beside it. `public` are the names of the
    public tables of the policy, which are copied where they are looked up or shown; `private` those of the private ones.

    Claim: a release reads all contributions from the same rows, and each table that a statement reads more than once as it was at one
    moment, whatever is written meanwhile.
    Why: a statement reads a table as it is when its reading begins, in parts that never change. A table that a statement names more
    than once, and contributions that it needs more than once, are read once, into a temporary table in memory that no other session
    has; what reads them again reads these rows. So the bounds of a unit hold on the rows that are added up.
    Source: ClickHouse 26 documentation, "MergeTree" (data parts), "CREATE TABLE" (temporary tables).
    """

    name = "clickhouse"

    def __init__(self, database: Any, *, public: Sequence[str] = (), private: Sequence[str] = ()) -> None:
        session, open_another, self.database_name = open_session(database)
        self._runner, self._copies = SessionRunner(session, open_another), PublicCopies(public)
        self._lock = threading.RLock()
        self._in_snapshot = False
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._bound_statements: set[bytes] = set()
        self._held_tables: dict[str, str] = {}
        try:
            ((version, path),) = self._runner.query_rows(
                "SELECT version(), path FROM system.disks WHERE name = 'default'"
            )
            self.version, self._path = str(version), str(path)
            self._runner.pin_settings()
            self.dialect: Dialect = make_clickhouse_dialect(self.database_name)
            self._random = secrets.token_hex(16)
            self._tables = DeclaredTables(
                self._runner, (*public, *private), self.dialect.queries, self.database_name
            )
        except BaseException:
            self.close()
            raise

    @property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return the folder and the database: not surely one for ever, so that only a name in the policy says so."""
        identity = f"{IDENTITY}{self._path}#{self.database_name}"
        return DatabaseIdentity(identity, f"{identity} {self._random}")

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each declared table's columns with their engine types; without a declared table, those of the current database."""
        self._tables.forget_tables()
        self._bound_statements.clear()
        with self.open_snapshot():
            self._columns = self._tables.read_columns(self._tables.names or self._tables.list_tables())
        return self._columns

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Return no keys: those that a table is sorted by need not be unique."""
        return {}

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find whether a name is a table of stored rows; all others are told by their engine."""
        return self._tables.find_origin(table)

    @property
    def is_unchanging(self) -> bool:
        """Never: other connections of this process write to the tables."""
        return False

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:
        """Return whether ClickHouse can plan an emitted statement, and the tables that it reads are those of the start.

        What it has planned of these tables it can plan again: the session and its settings are dpsql's own.
        """
        texts = [sql, *(query for _, query in held)]
        known = hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).digest()
        with self.open_snapshot():
            if not self._tables.are_unchanged(*texts):
                return False
            if known in self._bound_statements:
                return True
            if not self._can_plan(sql, held):
                return False
            if len(self._bound_statements) >= _MOST_BOUND:
                self._bound_statements.clear()
            self._bound_statements.add(known)
            return True

    def _can_plan(self, sql: str, held: TemporaryTables) -> bool:
        """Return whether ClickHouse can analyze a statement over temporary tables, which are made without running their queries."""
        made: list[str] = []
        try:
            for name, query in held:
                self._runner.create_empty_table(name, query)
                made.append(name)
            self._runner.query_rows(
                f"EXPLAIN QUERY TREE {sql}"
            )  # EXPLAIN PLAN would run the subqueries of IN
            made.append(_PLANNED)
            self._runner.create_empty_table(_PLANNED, f"SELECT COUNT(*) AS n FROM (\n{sql}\n)")
        except BackendError:
            return False
        finally:
            for name in made:
                self._runner.drop_table(name)
        return True

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
        """Look at each table anew once, copy each public one once, and hold each table that a statement reads more than once."""
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
            for held in self._held_tables.values():
                self._runner.drop_table(held)
            self._held_tables.clear()

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement and return its exact rows."""
        with self.open_snapshot():
            return to_exact_rows(self._runner.query_rows(self._hold_tables(sql)))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Compute the rows of queries into temporary tables of the session for the enclosed work."""
        made: list[str] = []
        with self.open_snapshot():
            try:
                for name, query in tables:
                    self._runner.create_table(name, self._hold_tables(query))
                    made.append(name)
                yield
            finally:
                for name in reversed(made):
                    self._runner.drop_table(name)

    def _hold_tables(self, sql: str) -> str:
        """Return a statement that reads held rows of the tables that it names more than once, or that are held already.

        Within quotation marks an emitted statement has names alone. After FROM or JOIN, the quoted name of a table stands for the
        table; elsewhere it is a column of its name, of a source that is called as the database.
        """
        for name in self._tables.list_read_tables(sql):
            quoted = self._tables.quote_name(name)
            read_table = re.compile(rf"(?<=FROM |JOIN ){re.escape(quoted)}")
            if name not in self._held_tables and len(read_table.findall(sql)) > 1:
                held = f'"#held{len(self._held_tables)}"'
                read = [
                    quote_identifier(column)
                    for column, _ in self._columns.get(name, ())
                    if quote_identifier(column) in sql
                ]
                self._runner.create_table(held, f"SELECT {', '.join(read) or '1'} FROM {quoted}")
                self._held_tables[name] = held
            if name in self._held_tables:
                sql = read_table.sub(self._held_tables[name], sql)
        return sql

    def interrupt(self) -> None:
        """Stop the running statement, as `Backend.interrupt`."""
        self._runner.interrupt()

    def close(self) -> None:
        """Close the copies and dpsql's own session; an owner's connection stays open."""
        self._copies.close()
        self._runner.close()
