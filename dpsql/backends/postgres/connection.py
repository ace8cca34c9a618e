"""PostgreSQL: the private tables of a database server, by psycopg."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from decimal import Decimal
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dpsql.backends.base import DatabaseIdentity, Exact, TableOrigin, TemporaryTables
from dpsql.backends.declared_keys import build_table_keys
from dpsql.backends.dialect import Dialect
from dpsql.backends.postgres import catalog, columns
from dpsql.backends.postgres.catalog import normalize_condition, parse_engine_type
from dpsql.backends.postgres.dialect import POSTGRES, SCHEMA
from dpsql.backends.public_copies import Columns, PublicCopies, select_readable_columns
from dpsql.backends.quoting import quote_identifier
from dpsql.errors import BackendError, OperationalError, PolicyError
from dpsql.ledger.database_identity import POSTGRES as IDENTITY
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.skeleton import TableKeys

# The settings of a connection to PostgreSQL that decide over values, errors or rows.
#
# Claim: an emitted statement means the same whatever the server, the database or the role sets.
# Why: each of these settings is set again at the start of each transaction, in which nothing else sets them. The others of
# PostgreSQL 15 to 17 were reviewed: they decide over speed, memory, logs, replication, or statements that are never sent.
# Source: PostgreSQL manual, chapter 20 (server configuration), and section 20.11 (client connection defaults).


PINNED = MappingProxyType(
    {
        "search_path": "pg_catalog, pg_temp",  # nobody's functions and operators; tables are named with their schemas
        "TimeZone": "UTC",
        "DateStyle": "ISO, YMD",
        "IntervalStyle": "postgres",
        "bytea_output": "hex",
        "extra_float_digits": "1",  # the shortest text that no other DOUBLE has
        "standard_conforming_strings": "on",
        "backslash_quote": "safe_encoding",
        "transform_null_equals": "off",
        "array_nulls": "on",
        "row_security": "off",  # an error, while the statement is planned, in place of some of the rows
        "jit": "off",
        "lock_timeout": "30s",  # a lock is waited for when a statement is bound, which is before it is charged
        "idle_in_transaction_session_timeout": "0",
        "client_min_messages": "error",
    }
)
"""What each setting has to be."""


def build_settings_statements(timeout: int) -> str:
    """The statements that set them for a transaction, with the most seconds that a statement may take; 0 for no limit."""
    settings = {**PINNED, "statement_timeout": f"{timeout}s"}
    return "; ".join(f"SET LOCAL {name} = {_quote_value(name, value)}" for name, value in settings.items())


def _quote_value(name: str, value: str) -> str:
    return value if name in ("search_path", "DateStyle") else f"'{value}'"


OLDEST = 15
"""The oldest version that was reviewed; none newer than `NEWEST` is taken."""
NEWEST = 17
TIMEOUT = 600
"""Seconds that a statement may take."""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "
_KINDS = MappingProxyType({"v": "a view", "m": "a materialized view", "f": "a foreign table"})


class PostgresBackend:
    """A database of PostgreSQL, read in one repeatable-read, read-only transaction a query.

    `public` are the names of the public tables of the policy, which are copied where they are looked up or shown; `private`
    those of the private ones. A role that may do more than read these is warned about, unless `warns` is false, for a look at the
    schema before there is a policy. A statement takes at most `timeout`
    seconds. Raises OperationalError where the server cannot be reached, lets nobody in, or is not one whose behaviour was reviewed.
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
        self._url, self._timeout = url, timeout
        self._public, self._declared = frozenset(map(normalize_name, public)), (*public, *private)
        self._lock = threading.RLock()
        self._in_transaction = self._cancelled = False
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._initial_definitions: object = None
        self._tables_unchanged = True
        self._connection, self._copies = _open_connection(url), PublicCopies()
        try:
            self._query_rows("SET statement_timeout = 0")  # a role's own would end what sets the others
            ((self.database_name, number, encoding, self._oid, *powers),) = self._query_pg_catalog(
                catalog.SERVER
            )
            self.version = f"{number // 10_000}.{number % 10_000}"
            _require_version(number // 10_000, encoding)
            if warns:
                self._check_role_privileges(powers)
        except BaseException:
            self._connection.close()
            raise

    @cached_property
    def database_identity(self) -> DatabaseIdentity | None:
        """The server's own number and the database's: a copy of the server has both, so its address is in the mark.

        Raises PolicyError where the role may not read the server's number, and the policy has no name.
        """
        try:
            ((system, timeline),) = self._query_pg_catalog(catalog.IDENTITY)
        except BackendError:
            system = None
        if system is None:
            raise PolicyError(
                "the server does not reveal its identity",
                code="no_identity",
                hint="name the database in the policy: `database: NAME`; or GRANT EXECUTE ON FUNCTION pg_control_system, "
                "pg_control_checkpoint",
            )
        info = self._connection.info
        identity = f"{IDENTITY}{system}/{self._oid}"
        return DatabaseIdentity(identity, f"{identity} {timeline} {info.host}:{info.port}")

    def read_schema(self) -> dict[str, list[tuple[str, str]]]:
        """Each table's columns with their engine types, from the catalogue; of what two names differ in case, none.

        Raises PolicyError for a table that the policy spells in another case, which is another table here.
        """
        self._initial_definitions = None
        with self.open_snapshot():
            self._columns = self._read_columns()
            self._initial_definitions = self._read_definitions(self._columns)
        spelt = {normalize_name(name): name for name in self._columns}
        for name in self._declared:
            if spelt.get(normalize_name(name), name) != name:
                raise PolicyError(
                    f"tables.{name}: the table is spelled {spelt[normalize_name(name)]} in the database, and PostgreSQL distinguishes case",
                    code="table_missing",
                    hint="use the spelling of the database",
                )
        return self._columns

    def _read_columns(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, name, kind, unread, members in self._query_rows(catalog.SCHEMA):
            known = unread or parse_engine_type(name, kind, members)
            found.setdefault(_format_table_name(schema, table), []).append((column, known))
        alike = [normalize_name(name) for name in found]
        return {
            name: [(column, kind) for column, kind in columns if _has_unique_name(column, columns)]
            for name, columns in found.items()
            if alike.count(normalize_name(name)) == 1
        }

    def _read_definitions(self, columns: Mapping[str, Sequence[tuple[str, str]]]) -> object:
        """What the declared tables are: their columns, and the relations behind their names."""
        return [
            (
                columns.get(name),
                self._read_relations(name),
                self._query_rows(catalog.DECLARED, _split_table_name(name)),
            )
            for name in self._declared
        ]

    def _read_relations(self, table: str) -> list[tuple[Any, ...]]:
        with self.open_snapshot():
            return sorted(self._query_rows(catalog.RELATION, _split_table_name(table)))

    def find_origin(self, table: str) -> TableOrigin | None:
        """Whether a name is a table, with all that inherits from it; views and foreign tables are told by their kind."""
        rows = self._read_relations(table)
        if not rows:
            return None
        foreign = [_KINDS[kind] for _, kind, *_ in rows if kind in _KINDS]
        foreign += ["a table with row security" for _, _, secured, *_ in rows if secured]
        foreign += ["storage of an extension" for _, _, _, method, _ in rows if method != "heap"]
        declared = self._query_pg_catalog(catalog.DECLARED, _split_table_name(table))
        tables = frozenset(str(oid) for oid, *_ in rows)
        checks = tuple(
            normalize_condition(str(text))
            for (text,) in self._query_pg_catalog(catalog.CHECKS, _split_table_name(table))
        )
        # One from which others inherit shows their rows, too, as a view would.
        return TableOrigin(
            tables,
            tuple(dict.fromkeys(foreign)),
            is_stored_table=len(rows) == 1,
            not_null_columns=frozenset(str(column) for column, present, _ in declared if present),
            check_constraints=checks,
            collated_columns=frozenset(str(column) for column, _, collated in declared if collated),
        )

    def read_table_keys(self) -> dict[str, TableKeys]:
        """The primary and foreign keys that each table declares, from the catalogue."""
        return build_table_keys(self._query_pg_catalog(catalog.KEYS), _format_table_name)

    @property
    def is_unchanging(self) -> bool:
        """Never: others write to the database."""
        return False

    def can_bind(self, sql: str, held: TemporaryTables = ()) -> bool:  # noqa: ARG002
        """Whether PostgreSQL can plan an emitted statement, and the declared tables are what they were at the start.

        Planning looks at the role's rights, too.
        """
        with self.open_snapshot():
            if not self._tables_unchanged:
                return False
            try:
                self._query_pg_catalog(f"EXPLAIN (COSTS OFF) {sql}")
            except BackendError:
                return False
            return True

    def read_public_number(self, sql: str) -> int:
        """The whole number that an emitted query over public tables alone gives."""
        ((number,),) = self.read_public_rows(sql)[0]
        return int(number)

    def read_public_rows(self, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The rows of an emitted query over public tables alone, and the engine types of its columns, by DuckDB."""
        known = {
            name: columns for name, columns in self._columns.items() if normalize_name(name) in self._public
        }
        with self.open_snapshot():
            if not self._tables_unchanged:
                raise OperationalError(
                    "a table of the policy has changed since the connection was opened; nothing was charged",
                    code="unbound",
                    hint="connect again",
                )
            self._copies.copy_missing_tables(
                sql,
                {name: select_readable_columns(columns) for name, columns in known.items()},
                self._read_public_table,
            )
            return self._copies.run_query(sql)

    def can_parse(self, text: str) -> bool:
        """Whether DuckDB's parser reads `text` as one statement: queries are in its SQL."""
        return self._copies.can_parse(text)

    def lock(self) -> AbstractContextManager[object]:
        """As `Backend.lock`."""
        return self._lock

    @contextmanager
    def open_snapshot(self) -> Iterator[None]:
        """A repeatable-read, read-only transaction, or the one that is open; public tables are copied within it anew."""
        if self._in_transaction:
            yield
            return
        self._copies.drop_copies()
        self._cancelled = False
        self._query_rows(_BEGIN + build_settings_statements(self._timeout))
        self._in_transaction = True
        try:
            self._tables_unchanged = self._is_unchanged()
            yield
        finally:
            self._in_transaction = False
            self._execute_quietly("ROLLBACK")

    def run_statement(self, sql: str) -> Exact:
        """The exact rows of the emitted statement, whole numbers as Python's."""
        with self.open_snapshot():
            return Exact([tuple(map(_to_exact_value, row)) for row in self._query_rows(sql)])

    def _is_unchanged(self) -> bool:
        """Whether the declared tables are what they were when the connection was opened.

        They are locked before the first look, with which the snapshot of the transaction begins: so what is looked at is
        what is read, and nobody can put something else behind a name meanwhile. A lock excludes changes of a table alone,
        and is waited for at most as long as `settings` say.
        """
        if self._initial_definitions is None:
            return True
        tables = ", ".join(self.dialect.queries.quote_table_name(name) for name in self._declared)
        try:
            if tables:
                self._query_rows(f"LOCK TABLE {tables} IN ACCESS SHARE MODE")
            return self._read_definitions(self._read_columns()) == self._initial_definitions
        except BackendError:
            self._execute_quietly("ROLLBACK")
            self._query_rows(_BEGIN + build_settings_statements(self._timeout))
            return False

    @contextmanager
    def stage_tables(self, tables: TemporaryTables) -> Iterator[None]:
        """Never used: a read-only transaction has no temporary tables."""
        if tables:
            raise BackendError
        yield

    def interrupt(self) -> None:
        """As `Backend.interrupt`."""
        self._cancelled = True
        self._connection.cancel()

    def close(self) -> None:
        """Closes the connection and lets the copies go."""
        self._connection.close()
        self._copies.close()

    def _read_public_table(self, table: str, read: Columns) -> list[tuple[Any, ...]]:
        items = ", ".join(columns.emit_copied_column(*column) for column in read) or "1"
        return self._query_rows(f"SELECT {items} FROM {self.dialect.queries.quote_table_name(table)}")

    def _query_pg_catalog(self, sql: str, parameters: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query of the catalogue; one that fails within a transaction does not end it."""
        if not self._in_transaction:
            with self.open_snapshot():
                return self._query_rows(sql, parameters)
        self._query_rows("SAVEPOINT looked")
        try:
            rows = self._query_rows(sql, parameters)
        except BackendError:
            self._execute_quietly("ROLLBACK TO SAVEPOINT looked")
            raise
        self._query_rows("RELEASE SAVEPOINT looked")
        return rows

    def _query_rows(self, sql: str, parameters: Sequence[str] | None = None) -> list[tuple[Any, ...]]:
        failed: BaseException | None = None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql.encode(), parameters)
                return cursor.fetchall() if cursor.description else []
        except KeyboardInterrupt:
            raise
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = self._make_failure()
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def _make_failure(self) -> BaseException:
        if not self._cancelled:
            return BackendError()
        return OperationalError("the query was cancelled while it ran; any charge stands", code="cancelled")

    def _execute_quietly(self, sql: str) -> None:
        with suppress(Exception):  # the next statement says that the connection is lost
            self._connection.execute(sql.encode())

    def _check_role_privileges(self, powers: Sequence[bool]) -> None:
        """Warns of a role that may do more than read the declared tables: dpsql needs nothing else."""
        superuser, powerful = powers
        if superuser or powerful:
            _warn_about_role(
                "is a superuser, or may create roles or databases, replicate or bypass row security"
            )
            return
        names = {(schema or SCHEMA, table) for schema, table in map(split_table_name, self._declared)}
        folded = {(normalize_name(schema), normalize_name(table)) for schema, table in names}
        writable = [".".join(name) for name in self._query_pg_catalog(catalog.WRITABLE)]
        others = [
            f"{schema}.{table}"
            for schema, table in self._query_pg_catalog(catalog.READABLE)
            if (normalize_name(schema), normalize_name(table)) not in folded
        ]
        if writable:
            _warn_about_role(f"may change {', '.join(writable[:5])}")
        if others:
            _warn_about_role(f"may read tables that the policy does not declare: {', '.join(others[:5])}")


def _format_table_name(schema: str, table: str) -> str:
    """The name of a table as policies have it."""
    plain = quote_identifier(table) if "." in table else table
    return plain if schema == SCHEMA else f"{schema}.{plain}"


def _split_table_name(table: str) -> tuple[str, str]:
    """The schema and the name of a declared table."""
    schema, name = split_table_name(table)
    return schema or SCHEMA, name


def _open_connection(url: str) -> Any:
    """A connection; one clear sentence where the driver is missing or the server does not answer."""
    try:
        import psycopg
    except ImportError:
        raise OperationalError(
            "PostgreSQL requires psycopg, which is not installed",
            code="driver_missing",
            hint="pip install 'dpsql[postgres]'",
        ) from None
    reason = ""
    try:
        return psycopg.connect(
            url, autocommit=True, client_encoding="UTF8", prepare_threshold=None, application_name="dpsql"
        )
    except (psycopg.Error, UnicodeError, ValueError) as error:
        reason = type(error).__name__
    raise OperationalError(
        f"cannot connect to the PostgreSQL server of this URL ({reason})",
        code="no_database",
        hint="check whether psql opens the same URL",
    )


def _require_version(major: int, encoding: str) -> None:
    if not OLDEST <= major <= NEWEST:
        raise OperationalError(
            f"PostgreSQL {major} is not supported; supported versions are {OLDEST} to {NEWEST}",
            code="engine_version",
        )
    if encoding != "UTF8":
        raise OperationalError(
            f"the database's encoding is {encoding}; dpsql requires UTF8",
            code="encoding",
            hint="copy it into a database with ENCODING 'UTF8'",
        )


def _warn_about_role(what: str) -> None:
    warnings.warn(
        f"the PostgreSQL role {what}; one with SELECT on the declared tables alone is enough", stacklevel=6
    )


def _has_unique_name(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Whether no other column has this name in another case: policies know no case."""
    return sum(normalize_name(name) == normalize_name(column) for name, _ in columns) == 1


def _to_exact_value(value: Any) -> Any:
    """A value of a statement: what is NUMERIC is a whole number, and an array a list of them."""
    if isinstance(value, Decimal):
        return int(value)
    return list(map(_to_exact_value, value)) if isinstance(value, list) else value
