"""A pool of the engine connections of a process, by analyst."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dpsql.api.connect import connect
from dpsql.api.connection import Connection
from dpsql.api.shared_ledger import SharedLedger
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.policy import Policy
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions

if TYPE_CHECKING:
    from dpsql.ledger import RemainingBudget
    from dpsql.results.result import Receipt, Result


class ConnectionPool:
    """A pool of engine connections, each for one statement at a time and kept open for the analyst's next statement."""

    def __init__(self, opener: Callable[[str], Connection], limit: int) -> None:
        self._opener, self._limit = opener, limit
        self._idle = dict[int, tuple[str, Connection]]()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def acquire_connection(self, analyst: str) -> Iterator[Connection]:
        """Yield a connection for an analyst's statement. Raises OperationalError (`reload`) if the pool is closed."""
        if self._closed:
            raise OperationalError(
                "the server could not reopen its data", code="reload", hint="the owner's log has the reason"
            )
        connection = self._take_idle(analyst) or self._opener(analyst)
        try:
            yield connection
        finally:
            for old in self._return_connection(analyst, connection):
                old.close()

    def _take_idle(self, analyst: str) -> Connection | None:
        with self._lock:
            for key, (whose, connection) in reversed(self._idle.items()):
                if whose == analyst:
                    del self._idle[key]
                    return connection
        return None

    def _return_connection(self, analyst: str, connection: Connection) -> list[Connection]:
        """Keep a connection, and return the excess ones, longest unused first."""
        with self._lock:
            if self._closed:
                return [connection]
            self._idle[id(connection)] = (analyst, connection)
            surplus = list(self._idle)[: max(0, len(self._idle) - self._limit)]
            return [self._idle.pop(key)[1] for key in surplus]

    def close(self) -> None:
        """Close all idle connections; others are closed when they are returned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for _, connection in idle.values():
            connection.close()


def open_connection(
    database: str | dict[str, str] | None, policy: Policy, ledger: SharedLedger, analyst: str
) -> Connection:
    """Open an engine connection of an analyst. Raises OperationalError (`restart`) if the ledger was opened without the analyst's budget."""
    try:
        made = connect(database, policy=policy, ledger=ledger, analyst=analyst)
    except ProgrammingError as error:
        if error.code != "shared_ledger":
            raise
    else:
        made.disable_session_tables()  # it answers one user's session after another's
        return made
    raise OperationalError(
        f"the user {analyst} was added after the server was started",
        code="restart",
        hint="the owner sends SIGHUP to the server, which then opens the ledger with the budgets of all users",
    )


# The protocol of query runners: a connection in this process or in another one.


class PlannedQuery(Protocol):
    """A query that is planned and not charged yet."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the answer's columns, with their engine types."""
        ...


class QueryRunner(Protocol):
    """The runner of one analyst's queries, one at a time."""

    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> PlannedQuery:
        """Plan a query; see `Connection.plan`."""
        ...

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Answer a query; see `Connection.query`."""
        ...

    def answer(self, planned: Any) -> Result:
        """Answer a planned query, also one that another runner of the same analyst planned; see `Connection.answer`."""
        ...

    def remaining_budget(self, receipt: Receipt) -> Sequence[RemainingBudget]:
        """Return the budgets that the last answer left; see `Connection.remaining_budget`."""
        ...
