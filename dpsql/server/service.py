"""What all sessions share: the policy, one ledger, engine connections by analyst, the catalogue twin, turns and threads.

Nothing here is of one protocol, so that an analyst has one set of limits however many doors there are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.connection import Connection, connect
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.ledger.key import ledger_key as read_key
from dpsql.policy import load
from dpsql.server.catalogue import Catalogue
from dpsql.server.logins import FailedLogins, PasswordChecks
from dpsql.server.users import User, UserStore
from dpsql.shared_ledger import SharedLedger


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at a time: `running` and `waiting` are statements of one analyst, `workers` those of all.

    `logins` are connections that have not logged in; one address may have half of them, the next one half of the rest.
    """

    workers: int = 8
    running: int = 4
    waiting: int = 64
    connections: int = 200
    logins: int = 64
    login_seconds: float = 15.0
    write_seconds: float = 30.0
    drain_seconds: float = 30.0
    catalogue_seconds: float = 3.0


class Connections:
    """Engine connections, each for one statement at a time, kept open for the next statement of the same analyst."""

    def __init__(self, opened: Callable[[str], Connection], most: int) -> None:
        self._opened, self._most = opened, most
        self._idle = dict[int, tuple[str, Connection]]()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def of(self, analyst: str) -> Iterator[Connection]:
        """A connection for an analyst's statement."""
        connection = self._taken(analyst) or self._opened(analyst)
        try:
            yield connection
        finally:
            for old in self._given_back(analyst, connection):
                old.close()

    def _taken(self, analyst: str) -> Connection | None:
        with self._lock:
            for key, (whose, connection) in reversed(self._idle.items()):
                if whose == analyst:
                    del self._idle[key]
                    return connection
        return None

    def _given_back(self, analyst: str, connection: Connection) -> list[Connection]:
        """Keeps a connection; returns those that are too many, the longest unused first."""
        with self._lock:
            if self._closed:
                return [connection]
            self._idle[id(connection)] = (analyst, connection)
            surplus = list(self._idle)[: max(0, len(self._idle) - self._most)]
            return [self._idle.pop(key)[1] for key in surplus]

    def close(self) -> None:
        """Closes all that are idle; others close when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for _, connection in idle.values():
            connection.close()


class Turns:
    """Who may run a statement now: a limited number of one analyst, and of all, in the order of asking.

    An analyst has at most `Limits.running` statements among those that wait for a worker, so nobody's crowd delays
    others by more than that.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.workers)
        self._own = dict[str, asyncio.Semaphore]()
        self._asking = dict[str, int]()
        self._running = 0

    def counts(self) -> tuple[int, int]:
        """How many statements run or wait, and how many of them run."""
        return sum(self._asking.values()), self._running

    @asynccontextmanager
    async def turn(self, analyst: str) -> AsyncIterator[None]:
        """Waits for a turn. Raises OperationalError where too many of the analyst's statements wait already."""
        asking = self._asking.get(analyst, 0)
        if asking >= self._limits.running + self._limits.waiting:
            raise OperationalError(
                f"{asking} statements of {analyst} run or wait already; nothing was charged",
                code="too_many_statements",
                hint="wait for their answers",
            )
        self._asking[analyst] = asking + 1
        own = self._own.setdefault(analyst, asyncio.Semaphore(self._limits.running))
        try:
            async with own, self._all:
                self._running += 1
                try:
                    yield
                finally:
                    self._running -= 1
        finally:
            self._asking[analyst] -= 1
            if not self._asking[analyst]:
                del self._asking[analyst], self._own[analyst]


class Service:
    """One policy over one database with one ledger, and the users that may ask.

    `turns`, `failed_logins` and `password_checks` belong to one event loop. `workers` are the threads that statements run in.
    """

    def __init__(
        self,
        policy: Any,
        database: str | Path,
        *,
        users: UserStore,
        ledger: str | Path,
        ledger_key: bytes | str | Path | None = None,
        anchor: str | Path | None = None,
        epsilon: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.users, self.epsilon = users, epsilon
        self.ledger, self.ledger_key = str(ledger), read_key(ledger_key)
        self._policy, self._database = load(policy), str(database)
        names = [user.name for user in users.list() if user.role.asks]
        if not names:
            raise OperationalError(
                "no user may ask: nobody could log in and query",
                code="no_users",
                hint="dpsql users add NAME --role analyst",
            )
        self._ledger = SharedLedger(
            ledger, policy=self._policy, analysts=names, ledger_key=ledger_key, anchor=anchor
        )
        self.turns, self.failed_logins = Turns(self.limits), FailedLogins()
        self.password_checks = PasswordChecks()
        self.workers = ThreadPoolExecutor(self.limits.workers, "dpsql query")
        self.connections = Connections(self._open, self.limits.workers * 4)
        # The policy is held against the database, and the ledger against both, before anybody is let in.
        with self.connections.of(names[0]) as first:
            self.policy, self._catalog = first.engine.policy, first.engine.catalog
        self._catalogue: Catalogue | None = None
        self._making = threading.Lock()

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue twin, made once, for the door whose clients look around in it."""
        with self._making:
            if self._catalogue is None:
                self._catalogue = Catalogue(self.policy, self._catalog, self.limits.catalogue_seconds)
            return self._catalogue

    def _open(self, analyst: str) -> Connection:
        try:
            return connect(self._database, policy=self._policy, ledger=self._ledger, analyst=analyst)
        except ProgrammingError as error:
            if error.code != "shared_ledger":
                raise
        raise OperationalError(
            f"the server was started before there was a user {analyst}",
            code="restart",
            hint="the owner starts it again: the ledger is opened with the budgets of all users",
        )

    def find(self, name: str) -> tuple[User, Any] | None:
        """The user of a name with the verifier of the password, None where there is none."""
        return self.users.find(name)

    def close(self) -> None:
        """Waits for statements that still run, and closes the engine connections and the ledger."""
        self.workers.shutdown(wait=True)
        self.connections.close()
        if self._catalogue is not None:
            self._catalogue.close()
        self._ledger.close()


def summary(service: Service) -> str:
    """A line that says what is served."""
    private = ", ".join(service.policy.private_tables())
    public = ", ".join(name for name, table in service.policy.tables.items() if table.public)
    return f"private: {private}" + (f"; public: {public}" if public else "")
