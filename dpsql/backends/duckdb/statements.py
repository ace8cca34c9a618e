"""Run statements on a connection to DuckDB, so that no message of the engine leaves it, and stop them."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from dpsql.backends.base import make_failure
from dpsql.errors import BackendError
from dpsql.ledger.workers import run_interruptibly

Rows = list[tuple[Any, ...]]
_MOST_PARSED = 1000
"""The largest number of remembered texts that the parser accepts; beyond it, all are forgotten."""
SHARED_SESSIONS = threading.RLock()
"""Taken while a session is used that connections of several threads may share, and while such a one is opened or closed."""
_TRANSACTION_NUMBER = "SELECT txid_current()"


class StatementRunner:
    """A connection, and what it is known to bind and to parse.

    Nobody else uses a connection that is `owned`: its tables and settings do not change. EXPLAIN shows bound plans on the
    connection `planning`, which may be another one to the same database.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        owned: bool,
        planning: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        self.connection, self.owned = connection, owned
        self._planning: duckdb.DuckDBPyConnection | None = planning or connection
        self._bound_shapes: set[bytes] = set()
        self._parsed_texts: set[bytes] = set()

    def query_rows(self, sql: str) -> Rows:
        """Return the rows of a short query. Raises BackendError, with constant text, for any failure."""
        return self._run_guarded(lambda: self.connection.execute(sql).fetchall())

    def query_plans(self, sql: str) -> Rows:
        """Return the plans of an EXPLAIN; the failures are those of `query_rows`."""
        with SHARED_SESSIONS:
            return self._run_guarded(lambda: (self._planning or self.connection).execute(sql).fetchall())

    def close(self) -> None:
        """Close the connection. A session that others still use for their plans stays open."""
        with SHARED_SESSIONS:
            self.connection.close()
            self._planning = None

    def query_interruptibly(self, sql: str) -> Rows:
        """Return the rows of a query that may take long; Ctrl-C stops it."""
        connection = self.connection
        return self._run_guarded(
            lambda: run_interruptibly(connection, lambda: connection.execute(sql).fetchall())
        )

    def get_column_types(self) -> list[str]:
        """Return the engine types of the last query's columns."""
        return [str(column[1]) for column in self.connection.description or ()]

    def execute_quietly(self, sql: str) -> bool:
        """Run a statement, and return whether it did not fail."""
        try:
            self.connection.execute(sql)
        except Exception:  # noqa: BLE001  (an engine's message may quote private values)
            return False
        return True

    def _run_guarded(self, ask: Callable[[], Rows]) -> Rows:
        stopped: BaseException | None = None
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            stopped = find_cancellation(error)
        # Raised outside the handler, since even `from None` keeps the engine's error as context.
        raise stopped or BackendError

    def can_bind(self, sql: str) -> bool:
        """Return whether DuckDB can bind a statement.

        A database that dpsql opened does not change, so a bound statement binds again, also with other constants (see
        `compute_statement_shape`).
        """
        if not self.owned:
            return self.execute_quietly(f"DESCRIBE {sql}")
        known = hashlib.sha256(compute_statement_shape(sql).encode()).digest()
        if known not in self._bound_shapes:
            if not self.execute_quietly(f"DESCRIBE {sql}"):
                return False
            self._bound_shapes.add(known)
        return True

    def can_parse(self, text: str) -> bool:
        """Return whether DuckDB's parser accepts `text` as one statement; with fixed settings the result does not change."""
        known = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if self.owned and known in self._parsed_texts:
            return True
        try:
            parsed = len(self.connection.extract_statements(text)) == 1
        except duckdb.Error:
            return False
        if parsed:
            if len(self._parsed_texts) >= _MOST_PARSED:
                self._parsed_texts.clear()
            self._parsed_texts.add(known)
        return parsed

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Open a read-only transaction, which is rolled back at the end; none within another."""
        opened = self._begin_transaction()
        try:
            yield
        finally:
            if opened:
                self.execute_quietly("ROLLBACK")

    def _begin_transaction(self) -> bool:
        # Outside a transaction each statement has a number of its own. Trying to begin a second
        # transaction would abort the owner's first.
        if not self.owned and self.query_rows(_TRANSACTION_NUMBER) == self.query_rows(_TRANSACTION_NUMBER):
            return False
        return self.execute_quietly("BEGIN TRANSACTION READ ONLY")


def find_cancellation(error: Exception) -> BaseException | None:
    """Return the error to raise if an engine's error says that it was told to stop; None for other errors.

    Ctrl-C, which the engine turns into a RuntimeError of this text, is KeyboardInterrupt again. A program's call of
    the connection's `interrupt` is OperationalError (`cancelled`).
    """
    if type(error) is RuntimeError and str(error) == "Query interrupted":
        return KeyboardInterrupt()
    if isinstance(error, duckdb.InterruptException):
        return make_failure(cancelled=True)
    return None


# The shape of an emitted statement: its text without its constants, by which the engine binds it alike.


_CONSTANT = re.compile(
    r"""
    (?P<name>"(?:[^"]|"")*") | (?P<text>'(?:[^']|'')*')
    | (?<!\w)(?: (?P<double>\d+(?:\.\d+)?e[+-]?\d+) | (?P<decimal>\d+\.\d+) | (?P<whole>\d+) )
    """,
    re.VERBOSE,
)
_WIDTHS = (31, 63, 127)
"""Binary digits of the magnitudes of DuckDB's INTEGER, BIGINT and HUGEINT."""


def compute_statement_shape(sql: str) -> str:
    """Return the text of an emitted statement with a mark for the type of each text and number in it.

    Claim: of statements of one shape, the engine binds all or none.
    Why: binding resolves names and types. The type of a text or a floating-point number does not depend on its value, that
    of a whole number on its width alone, and whatever else binding reads of a constant, as a regular expression, was tried
    before. Names, and decimals, whose type has their digits, stay as they are.

    >>> print(compute_statement_shape("SELECT 'a''b', 3, 2147483648, 1.5, 2.5e0 FROM t1 WHERE x1 > -7"))
    SELECT '', #31, #63, 1.5, #e FROM t1 WHERE x1 > -#31
    """
    return _CONSTANT.sub(_mask_constant, sql)


def _mask_constant(found: re.Match[str]) -> str:
    if found["text"] is not None:
        return "''"
    if found["double"] is not None:
        return "#e"
    if found["whole"] is not None:
        digits = int(found["whole"]).bit_length() if len(found["whole"]) <= 40 else 128
        return next((f"#{width}" for width in _WIDTHS if digits <= width), found["whole"])
    return found[0]
