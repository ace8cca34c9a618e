"""Track the connected clients and running statements of both protocols: owners may see and stop all, others their own.

The state belongs to the event loop and shows the present only; the audit log has the past.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from dpsql.interfaces.server.users import User

_LONGEST_TEXT = 1_024
"""Letters that are shown of a statement, as PostgreSQL shows them."""


class RunningStatement(Protocol):
    """The statements of a client, one after the other; see `StatementRunner`."""

    @property
    def text(self) -> str:
        """Return the running statement, or the last one."""
        ...

    @property
    def state(self) -> str:
        """Return the state: a statement runs (active) or waits for its turn (waiting), or neither (idle)."""
        ...

    @property
    def since(self) -> datetime:
        """Return when the state began."""
        ...

    def cancel(self) -> None:
        """Cancel the running or waiting statement for its client."""
        ...

    def stop(self) -> None:
        """Stop the running or waiting statement for the owner."""
        ...


@dataclass(frozen=True, slots=True)
class ActiveClient:
    """A session or a request with its `number`; `disconnect` ends it after its running statement.

    `verifier` is the password verifier that a session was authenticated with; a request is authenticated each time.
    """

    number: int
    user: User
    door: str
    peer: str
    statement: RunningStatement
    disconnect: Callable[[], None]
    application: Callable[[], str]
    verifier: object = None
    connected_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_row(self) -> dict[str, Any]:
        """Return the client as a row of pg_stat_activity."""
        state, since = self.statement.state, self.statement.since
        return {
            "pid": self.number,
            "usename": self.user.name,
            "application_name": self.application(),
            "client_addr": self.peer,
            "backend_start": self.connected_at,
            "query_start": since,
            "state_change": since,
            "wait_event": "turn" if state == "waiting" else None,
            "state": "idle" if state == "idle" else "active",
            "query": self.statement.text[:_LONGEST_TEXT],
            "backend_type": self.door,
        }


class Activity:
    """The connected clients."""

    def __init__(self) -> None:
        self._clients = dict[int, ActiveClient]()
        self._loop: asyncio.AbstractEventLoop | None = None

    def register_client(
        self,
        user: User,
        statement: RunningStatement,
        *,
        door: str,
        peer: str,
        disconnect: Callable[[], None],
        application: Callable[[], str] = lambda: "",
        verifier: object = None,
    ) -> int:
        """Register a client and return its number."""
        self._loop = asyncio.get_running_loop()
        number = secrets.randbelow(2**31 - 1) + 1
        while number in self._clients:
            number = secrets.randbelow(2**31 - 1) + 1
        self._clients[number] = ActiveClient(
            number, user, door, peer, statement, disconnect, application, verifier
        )
        return number

    def remove_client(self, number: int) -> None:
        """Remove a client that has ended."""
        self._clients.pop(number, None)

    def list_visible_rows(self, user: User) -> list[dict[str, Any]]:
        """Return the rows that a user may see: all for owners and auditors, their own for others."""
        return [each.to_row() for each in self._iterate_visible_clients(user)]

    def _iterate_visible_clients(self, user: User) -> Iterator[ActiveClient]:
        members = tuple(self._clients.values())  # in one step, for a worker looks while the loop goes on
        return (each for each in members if user.role.can_view_all or each.user.name == user.name)

    def find_client(self, user: User, number: int) -> ActiveClient | None:
        """Return the client of a number that a user may end: any for owners, their own for others."""
        found = self._clients.get(number)
        if found is None or not (user.role.is_owner or found.user.name == user.name):
            return None
        return found

    def list_clients(self) -> tuple[ActiveClient, ...]:
        """Return all clients."""
        return tuple(self._clients.values())

    def call_in_loop(self, action: Callable[[], None]) -> None:
        """Call a function with a client in the event loop, from a worker thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(action)

    def stop_running_statements(self) -> None:
        """Stop running statements for the owner; waiting ones continue."""
        for each in tuple(self._clients.values()):
            if each.statement.state == "active":
                each.statement.stop()

    def disconnect_clients(self, clients: Collection[ActiveClient]) -> None:
        """Disconnect these clients for the owner, if they are still connected."""
        for each in clients:
            if self._clients.get(each.number) is each:
                each.statement.stop()
                each.disconnect()
