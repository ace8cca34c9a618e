"""Who is connected and what runs, through whichever door: for owners to look at and to end, for everybody their own.

It belongs to the event loop. What is shown is of now alone; the audit log has what was.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from dpsql.server.protocol.scram import Verifier
from dpsql.server.users import User

_LONGEST_TEXT = 1_024
"""Letters that are shown of a statement, as PostgreSQL shows them."""


class RunningStatement(Protocol):
    """What a member runs, one statement after the other; see `Running`."""

    @property
    def text(self) -> str:
        """The statement that runs, or ran last."""
        ...

    @property
    def state(self) -> str:
        """Whether a statement runs (active), waits for its turn (waiting), or none does (idle)."""
        ...

    @property
    def since(self) -> datetime:
        """When the state began."""
        ...

    def cancel(self) -> None:
        """Cancels the statement that runs or waits for its client."""
        ...

    def stop(self) -> None:
        """Ends the statement that runs or waits for the owner."""
        ...


@dataclass(frozen=True, slots=True)
class ActiveClient:
    """A session or a request: `number` names it, `disconnect` ends it after what it runs.

    `verifier` is what a session's password was proved by; a request's login is looked up for each.
    """

    number: int
    user: User
    door: str
    peer: str
    statement: RunningStatement
    disconnect: Callable[[], None]
    application: Callable[[], str]
    verifier: Verifier | None = None
    connected_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_row(self) -> dict[str, Any]:
        """What is shown of it, by the names of pg_stat_activity's columns."""
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
    """The members that there are now."""

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
        verifier: Verifier | None = None,
    ) -> int:
        """Enters a member, and returns its number."""
        self._loop = asyncio.get_running_loop()
        number = secrets.randbelow(2**31 - 1) + 1
        while number in self._clients:
            number = secrets.randbelow(2**31 - 1) + 1
        self._clients[number] = ActiveClient(
            number, user, door, peer, statement, disconnect, application, verifier
        )
        return number

    def remove_client(self, number: int) -> None:
        """Forgets a member that has ended."""
        self._clients.pop(number, None)

    def list_visible_rows(self, user: User) -> list[dict[str, Any]]:
        """Return what a user sees: owners and auditors everybody, others themselves."""
        return [each.to_row() for each in self._iterate_visible_clients(user)]

    def _iterate_visible_clients(self, user: User) -> Iterator[ActiveClient]:
        members = tuple(self._clients.values())  # in one step, for a worker looks while the loop goes on
        return (each for each in members if user.role.can_view_all or each.user.name == user.name)

    def find_client(self, user: User, number: int) -> ActiveClient | None:
        """The member of a number that a user may end: owners everybody's, others their own."""
        found = self._clients.get(number)
        if found is None or not (user.role.is_owner or found.user.name == user.name):
            return None
        return found

    def list_clients(self) -> tuple[ActiveClient, ...]:
        """All that are there now."""
        return tuple(self._clients.values())

    def call_in_loop(self, action: Callable[[], None]) -> None:
        """Does something with a member in the event loop, from a worker."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(action)

    def stop_running_statements(self) -> None:
        """Ends what runs for the owner, and leaves what waits."""
        for each in tuple(self._clients.values()):
            if each.statement.state == "active":
                each.statement.stop()

    def disconnect_clients(self, clients: Collection[ActiveClient]) -> None:
        """Ends these for the owner, of those that are still there."""
        for each in clients:
            if self._clients.get(each.number) is each:
                each.statement.stop()
                each.disconnect()
