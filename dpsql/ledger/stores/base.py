"""The interface of a database that holds a ledger."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Connection

UNKNOWN = "ledger_unknown"
"""The code of the error of a commit that may have landed or not."""


class Store(Protocol):
    """The database of one `Journal`. Every failure is raised as a dpsql error.

    `where` names it in errors. A store survives a fork and the loss of its connection, or says in an error that
    nothing was charged, or that it cannot be known.
    """

    where: str
    patience: float

    def lock(self) -> AbstractContextManager[object]:
        """Keep this process's other threads and its forks out for a while."""
        ...

    def open_connection(self) -> AbstractContextManager[Connection]:
        """Return the connection, outside any transaction."""
        ...

    def open_transaction(self, *, write: bool) -> AbstractContextManager[Connection]:
        """Return a transaction that is committed durably on leaving, or undone by an exception.

        With `write` it holds the ledger's lock, so no other writer changes what it reads before the commit.

        Raises:
            OperationalError: `UNKNOWN`, if it cannot be known whether the commit was stored.
        """
        ...

    def configure_database(self, connection: Connection) -> None:
        """Set the options of a database that is known to be a ledger, or empty."""
        ...

    def is_empty(self, connection: Connection) -> bool:
        """Return whether the database is empty."""
        ...

    def list_columns(self, connection: Connection, table: str) -> frozenset[str]:
        """Return the names of a table's columns; none if there is no such table."""
        ...

    def require_owner(self) -> None:
        """Raise OperationalError (`ledger_forked`) where a fork may not use the ledger of its parent."""
        ...

    def close(self) -> None:
        """End all use of the database."""
        ...

    def abandon(self) -> None:
        """See `close`, but never waits: for the garbage collector, which may run inside any other code."""
        ...
