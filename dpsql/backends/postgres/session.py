"""A connection to PostgreSQL: the settings of its transactions, and the statements in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

from dpsql.backends.base import make_failure
from dpsql.errors import BackendError, OperationalError
from dpsql.version import write_pip_command

# The settings of a connection to PostgreSQL that decide over values, errors or rows.


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
"""The settings, with their values."""


def build_settings_statements(timeout: int) -> str:
    """Return the statements that set them for a transaction, with the most seconds that a statement may take; 0 for no limit.

    Claim: an emitted statement means the same whatever the server, the database or the role sets.
    Why: each of these settings is set again at the start of each transaction, in which nothing else sets them. The others of
    PostgreSQL 15 to 17 were reviewed: they decide over speed, memory, logs, replication, or statements that are never sent.
    Source: PostgreSQL manual, chapter 20 (server configuration), and section 20.11 (client connection defaults).
    """
    settings = {**PINNED, "statement_timeout": f"{timeout}s"}
    return "; ".join(f"SET LOCAL {name} = {_quote_value(name, value)}" for name, value in settings.items())


def _quote_value(name: str, value: str) -> str:
    return value if name in ("search_path", "DateStyle") else f"'{value}'"


# Connections, and the transactions on them.


OLDEST = 15
"""The oldest version that was reviewed; none newer than `NEWEST` is taken."""
NEWEST = 17
TIMEOUT = 600
"""Seconds that a statement may take."""
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; "

Rows = list[tuple[Any, ...]]


class TransactionRunner:
    """A connection, and the repeatable-read, read-only transaction that is open on it.

    A statement takes at most `timeout` seconds; one that another thread stops raises OperationalError (`cancelled`).
    """

    def __init__(self, url: str, timeout: int) -> None:
        self.connection, self._timeout = open_connection(url), timeout
        self.in_transaction = self._cancelled = False

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Open a transaction, which is rolled back at the end; none within another."""
        if self.in_transaction:
            yield
            return
        self._cancelled = False
        self._begin()
        self.in_transaction = True
        try:
            yield
        finally:
            self.in_transaction = False
            self.execute_quietly("ROLLBACK")

    def restart_transaction(self) -> None:
        """Begin anew after a statement has failed, which ends a transaction."""
        self.execute_quietly("ROLLBACK")
        self._begin()

    def _begin(self) -> None:
        self.query_rows(_BEGIN + build_settings_statements(self._timeout))

    def query_rows(self, sql: str, parameters: Sequence[str] | None = None) -> Rows:
        """Return the rows of a statement. Raises BackendError, with constant text, for any failure."""
        failed: BaseException | None = None
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql.encode(), parameters)
                return cursor.fetchall() if cursor.description else []
        except KeyboardInterrupt:
            raise
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = make_failure(cancelled=self._cancelled)
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def query_catalog(self, sql: str, parameters: Sequence[str] | None = None) -> Rows:
        """Return the rows of a query of the catalog; one that fails within a transaction does not end it."""
        if not self.in_transaction:
            with self.open_transaction():
                return self.query_rows(sql, parameters)
        self.query_rows("SAVEPOINT looked")
        try:
            rows = self.query_rows(sql, parameters)
        except BackendError:
            self.execute_quietly("ROLLBACK TO SAVEPOINT looked")
            raise
        self.query_rows("RELEASE SAVEPOINT looked")
        return rows

    def execute_quietly(self, sql: str) -> None:
        """Run a statement whose failure does not matter."""
        with suppress(Exception):  # the next statement says that the connection is lost
            self.connection.execute(sql.encode())

    def interrupt(self) -> None:
        """Stop the running statement from another thread."""
        self._cancelled = True
        self.connection.cancel()


def open_connection(url: str) -> Any:
    """Open a connection; one clear sentence if the driver is missing or the server does not answer."""
    try:
        import psycopg
    except ImportError:
        raise OperationalError(
            "PostgreSQL requires psycopg, which is not installed",
            code="driver_missing",
            hint=write_pip_command("postgres"),
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


def require_version(major: int, encoding: str) -> None:
    """Refuse a version that was not reviewed, and a database whose encoding is not UTF-8."""
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
