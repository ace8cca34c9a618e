"""PostgreSQL: the private tables of a database server, by psycopg."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables, to_exact_rows
from dpsql.backends.dialect import Dialect
from dpsql.backends.postgres import catalog
from dpsql.backends.postgres.catalog import DeclaredTables
from dpsql.backends.postgres.dialect import POSTGRES, SCHEMA, emit_copied_column
from dpsql.backends.postgres.session import TIMEOUT, TransactionRunner, require_version
from dpsql.backends.public_copies import Columns, PublicCopies, make_changed_table_error
from dpsql.errors import BackendError, PolicyError
from dpsql.ledger.anchor import POSTGRES as IDENTITY
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.skeleton import TableKeys


class PostgresBackend:
    """A database of PostgreSQL, read in one repeatable-read, read-only transaction a query.

    `public` are the names of the public tables of the policy, which are copied where they are looked up or shown; `private`
    those of the private ones. A role that may do more than read these is warned about, unless `warns` is false, for a look at the
    schema before there is a policy. A statement takes at most `timeout` seconds. Raises OperationalError if the server cannot be
    reached, lets nobody in, or is not one whose behavior was reviewed.
    """

    name = "postgresql"
    dialect: Dialect = POSTGRES

    def __init__(
        self,
        url: str,
        *,
        public: Sequence[str] = (),
        private: Sequence[str] = (),
        timeout: int = TIMEOUT,
        warns: bool = True,
    ) -> None:
        self._url, declared = url, (*public, *private)
        self._lock = threading.RLock()
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._tables_unchanged = True
        self._runner, self._copies = TransactionRunner(url, timeout), PublicCopies(public)
        self._tables = DeclaredTables(self._runner, declared)
        try:
            self._runner.query_rows(
                "SET statement_timeout = 0"
            )  # a role's own would end the statements that set the others
            ((self.database_name, number, encoding, self._oid, *powers),) = self._runner.query_catalog(
                catalog.SERVER
            )
            self.version = f"{number // 10_000}.{number % 10_000}"
            require_version(number // 10_000, encoding)
            if warns:
                _check_role_privileges(self._runner, declared, powers)
        except BaseException:
            self._runner.connection.close()
            raise

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """Return the server's own number and the database's: a copy of the server has both, so its address is in the mark.

        Raises PolicyError if the role may not read the server's number, and the policy has no name.
        """
        try:
            ((system, timeline),) = self._runner.query_catalog(catalog.IDENTITY)
        except BackendError:
            system = None
        if system is None:
            raise PolicyError(
                "the server does not reveal its identity",
                code="no_identity",
                hint="name the database in the policy: `database: NAME`; or GRANT EXECUTE ON FUNCTION pg_control_system, "
                "pg_control_checkpoint",
            )
        info = self._runner.connection.info
        identity = f"{IDENTITY}{system}/{self._oid}"
        return DatabaseIdentity(identity, f"{identity} {timeline} {info.host}:{info.port}")

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Read each table's columns with their engine types from the catalog; names that differ in case only are left out.

        Raises PolicyError for a table that the policy spells in another case, which is another table here.
        """
        self._tables.forget_definitions()
        with self.open_snapshot():
            self._columns = self._tables.read_columns()
        return self._columns

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find whether a name is a table, with all that inherits from it; views and foreign tables are told by their kind."""
        return self._tables.find_origin(table)

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Read the primary and foreign keys that each table declares from the catalog."""
        return self._tables.read_table_keys()

    @property
    def is_unchanging(self) -> bool:
        """Never: others write to the database."""
        return False

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:  # noqa: ARG002
        """Return whether PostgreSQL can plan an emitted statement, and the declared tables are those of the start.

        Planning looks at the role's rights, too.
        """
        with self.open_snapshot():
            if not self._tables_unchanged:
                return False
            try:
                self._runner.query_catalog(f"EXPLAIN (COSTS OFF) {sql}")
            except BackendError:
                return False
            return True

    def read_public_number(self, sql: str) -> int:
        """Return the whole number of an emitted query over public tables."""
        ((number,),) = self.read_public_rows(sql)[0]
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Return the rows of an emitted query over public tables, and the engine types of its columns, by DuckDB."""
        with self.open_snapshot():
            if not self._tables_unchanged:
                raise make_changed_table_error()
            self._copies.copy_missing_tables(sql, self._columns, self._read_public_table)
            return self._copies.run_query(sql)

    def _read_public_table(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        items = ", ".join(emit_copied_column(*column) for column in read) or "1"
        return self._runner.query_rows(f"SELECT {items} FROM {self.dialect.queries.quote_table_name(table)}")

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser accepts `text` as one statement."""
        return self._copies.can_parse(text)

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock of `Backend.lock`."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """Open a repeatable-read, read-only transaction, or use the open one; public tables are copied within it anew."""
        if self._runner.in_transaction:
            yield
            return
        self._copies.drop_copies()
        with self._runner.open_transaction():
            self._tables_unchanged = self._tables.is_unchanged()
            yield

    def run_statement(self, sql: str) -> Exact:
        """Run an emitted statement and return its exact rows."""
        with self.open_snapshot():
            return to_exact_rows(self._runner.query_rows(sql))

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Raise BackendError for any table: a read-only transaction has no temporary tables, and no statement needs one."""
        if tables:
            raise BackendError
        yield

    def interrupt(self) -> None:
        """Stop the running statement, as `Backend.interrupt`."""
        self._runner.interrupt()

    def close(self) -> None:
        """Close the connection and the copies."""
        self._runner.connection.close()
        self._copies.close()


def _check_role_privileges(
    runner: TransactionRunner, declared: Sequence[str], powers: Sequence[bool]
) -> None:
    """Warn about a role that may do more than read the declared tables: dpsql needs nothing else."""
    superuser, powerful = powers
    if superuser or powerful:
        _warn_about_role("is a superuser, or may create roles or databases, replicate or bypass row security")
        return
    names = {(schema or SCHEMA, table) for schema, table in map(split_table_name, declared)}
    folded = {(normalize_name(schema), normalize_name(table)) for schema, table in names}
    writable = [".".join(name) for name in runner.query_catalog(catalog.WRITABLE)]
    others = [
        f"{schema}.{table}"
        for schema, table in runner.query_catalog(catalog.READABLE)
        if (normalize_name(schema), normalize_name(table)) not in folded
    ]
    if writable:
        _warn_about_role(f"may change {', '.join(writable[:5])}")
    if others:
        _warn_about_role(f"may read tables that the policy does not declare: {', '.join(others[:5])}")


def _warn_about_role(what: str) -> None:
    warnings.warn(
        f"the PostgreSQL role {what}; one with SELECT on the declared tables alone is enough", stacklevel=6
    )
