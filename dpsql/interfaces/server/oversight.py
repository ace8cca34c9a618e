"""What owners and auditors oversee: connected clients and running statements at present, and the audit log of the past."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dpsql.errors import Error, InternalError, OperationalError
from dpsql.interfaces.server.limits import Rate, TokenBucket
from dpsql.interfaces.server.users import User
from dpsql.ledger.audit_log import AuditLog

if TYPE_CHECKING:
    from dpsql.results.result import Result


# Track the connected clients and running statements of both protocols: owners may see and stop all, others their own.


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
    """The connected clients.

    The state belongs to the event loop and shows the present only; the audit log has the past.
    """

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


# The audit log of a server: logins and failed logins, queries and their outcomes, changes by the owner.


LISTED_LOGIN_RATE = Rate(100, 10.0)
"""Failed logins that are events of their own: 100, and one more every 10 seconds."""

_MOST_REPLAYED = 100
"""Numbers of entries in an event: those of a long history would be no line."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the user, the charged analyst, the protocol and the client address."""

    user: str
    analyst: str
    door: str
    peer: str


@dataclass(slots=True)
class Outcome:
    """The outcome of a query; `record_answer` records its answer."""

    facts: dict[str, Any] = field(default_factory=dict)
    charged: bool | None = False

    def record_answer(self, result: Result) -> None:
        """Record the charge that paid for an answer, or the charge that it replays."""
        entries, replayed = result.receipt.entries, result.receipt.replayed
        if entries:
            last, price = entries[-1], dict[str, float]()
            for each in entries:
                account = f"{each['table']} for {each['account']}" if "account" in each else each["table"]
                price[account] = max(price.get(account, 0.0), float(Fraction(each["loss"])))
            self.facts["charge"] = entries[0]["id"]
            self.facts["ledger"] = f"{last['id']} {last['digest']}"
            self.facts["price"] = price
        elif replayed:
            self.facts["replayed"] = sorted(set(replayed))[:_MOST_REPLAYED]
        self.charged = bool(entries)


@dataclass(frozen=True, slots=True)
class _AuditedRequest:
    """A query whose outcome is to be recorded."""

    number: int
    user: str
    analyst: str


def get_audit_anchor(ledger_anchor: Path | None) -> Path | None:
    """Return the anchor of the audit log, beside that of the ledger, or None without one."""
    return None if ledger_anchor is None else ledger_anchor.with_name(f"{ledger_anchor.name}.audit")


class ServerAudit:
    """Record events of a server; without a log, do nothing.

    Claim: a query is answered only if its event is durable before anything is charged, and its outcome before the answer is sent; a
    login succeeds only if its event is durable. No event holds a query's text, an answer, a password or a token.
    Why: `audit_request` surrounds every call of the engine, and an event that cannot be written is an error there. Queries are in
    the ledger, whose entries an outcome names. The name of a failed login is recorded only if such a user exists: the text that was
    typed instead may be a password.

    Anybody can cause failed logins. At most `LISTED_LOGIN_RATE` of them are events of their own; the next event says how many came
    between.
    """

    def __init__(self, log: AuditLog | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._login_bucket = TokenBucket(LISTED_LOGIN_RATE, LISTED_LOGIN_RATE.burst, clock())
        self._unlisted = 0

    def note_event(self, event: str, **facts: Any) -> int:
        """Append an event, durable on return, and return its number. Raises OperationalError (`audit`) if that fails."""
        if self._log is None:
            return 0
        failed = ""
        try:
            return self._log.append(event, facts)
        except Error as error:
            failed = error.code
        raise OperationalError(
            f"the server cannot write its audit log ({failed}), so it refuses logins and queries",
            code="audit",
            hint="the owner checks it with dpsql audit verify",
        )

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def note_refused_login(self, user: str | None, door: str, peer: str) -> None:
        """Record a failed login of a user, or of None for an unknown user; frequent ones are only counted."""
        with self._lock:
            self._login_bucket.fill(self._clock())
            if self._login_bucket.tokens < 1:
                self._unlisted += 1
                return
            self._login_bucket.tokens -= 1
            unlisted, self._unlisted = self._unlisted, 0
        self.note_event(
            "login refused", user=user, door=door, peer=peer, **({"unlisted": unlisted} if unlisted else {})
        )

    @contextmanager
    def audit_request(self, caller: Caller, what: str) -> Iterator[Outcome]:
        """Record the caller of a query before it reaches the engine, and its outcome afterwards.

        If the outcome cannot be recorded, an error replaces the answer and says whether the query was charged: it can be run
        again at no charge once the log can be written.
        """
        number = self.note_event(
            "asked", what=what, user=caller.user, analyst=caller.analyst, door=caller.door, peer=caller.peer
        )
        outcome, ended = Outcome(), _AuditedRequest(number, caller.user, caller.analyst)
        unforeseen = True
        try:
            yield outcome
            unforeseen = False
        except Error as error:
            unforeseen = False
            self._note_outcome(
                "refused", ended, outcome.charged or error.charged, code=error.code, **outcome.facts
            )
            raise
        finally:
            if unforeseen:
                self._note_outcome(
                    "failed", ended, outcome.charged or None, code=InternalError.code, **outcome.facts
                )
        self._note_outcome("answered", ended, outcome.charged, **outcome.facts)

    def _note_outcome(self, event: str, request: _AuditedRequest, charged: bool | None, **facts: Any) -> None:
        failed: Error | None = None
        try:
            self.note_event(
                event, of=request.number, user=request.user, analyst=request.analyst, charged=charged, **facts
            )
        except OperationalError as error:
            failed = error
        if failed is not None:
            if charged:
                failed.message += "; this query was charged, and running it again is free"
            failed.charged = charged
            raise failed from None
