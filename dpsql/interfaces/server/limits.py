"""The limits of each user: concurrent statements and their turns, password checks and failed logins, and memory."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dpsql.errors import OperationalError

# The limits of concurrent work, and the turns of statements within them.


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of concurrent work: `running_per_user` and `waiting_per_user` limit the statements of one user, `workers` those of all.

    `lookup_workers` limits the statements that read no private rows, such as catalog queries; one of each user runs at a time.
    `owner_workers` and `owner_connections` are added for owners only. `held_bytes` limits what the sessions of one user hold
    between statements. Sessions that are idle for `idle_seconds` end; 0 means never.
    `logins` limits the connections that have not logged in; one address may have half of them, the next one half of the rest.
    A statement that has run for `statement_seconds` seconds is stopped, which is a failure if it was charged; 0 means never.
    Statements are answered at whole multiples of `answer_grid` seconds after their turn began; 0 means at once.
    """

    workers: int = 8
    running_per_user: int = 4
    waiting_per_user: int = 64
    lookup_workers: int = 4
    owner_workers: int = 1
    connections: int = 200
    owner_connections: int = 8
    held_bytes: int = 64_000_000
    idle_seconds: float = 0.0
    logins: int = 64
    login_seconds: float = 15.0
    write_seconds: float = 30.0
    drain_seconds: float = 30.0
    pg_catalog_seconds: float = 3.0
    statement_seconds: float = 600.0
    answer_grid: float = 0.0


class Lane(Enum):
    """The lane of a statement: `query` may read private rows; `lookup` reads the policy, the catalog or the ledger."""

    query = "asking"
    lookup = "looking"


class _LaneQueue:
    """The statements of one lane, first come, first served: limited numbers of each user and of all run at a time."""

    def __init__(self, workers: int, owner_workers: int, running: int, waiting: int) -> None:
        self._all, self._owners = asyncio.Semaphore(workers), asyncio.Semaphore(owner_workers)
        self._running, self._limit = running, running + waiting
        self._own = dict[str, asyncio.Semaphore]()
        self.pending = Counter[str]()

    @asynccontextmanager
    async def wait_for_place(self, person: str, *, owner: bool) -> AsyncIterator[None]:
        if self.pending[person] >= self._limit:
            raise OperationalError(
                f"{person} already has {self.pending[person]} statements running or waiting; nothing was charged",
                code="too_many_statements",
                hint="wait for their answers",
            )
        self.pending[person] += 1
        own = self._own.setdefault(person, asyncio.Semaphore(self._running))
        try:
            async with own, self._owners if owner and self._all.locked() else self._all:
                yield
        finally:
            self.pending[person] -= 1
            if not self.pending[person]:
                del self.pending[person], self._own[person]


class Turns:
    """Turns of statements: limited numbers per user and in all, first come, first served.

    Claim: whatever others run, an owner waits only for statements of owners.
    Why: if all workers are taken, `owner_workers` more are for owners only. A user has at most `Limits.running_per_user`
    statements among those that wait for a worker, so that a user with many statements delays others by no more than that.
    """

    def __init__(self, limits: Limits) -> None:
        self._queues = {
            Lane.query: _LaneQueue(
                limits.workers, limits.owner_workers, limits.running_per_user, limits.waiting_per_user
            ),
            Lane.lookup: _LaneQueue(limits.lookup_workers, limits.owner_workers, 1, limits.waiting_per_user),
        }
        self._running_count = 0
        self._pause_lock = asyncio.Lock()
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    def count_statements(self) -> tuple[int, int]:
        """Return the number of running and waiting statements, and that of running ones."""
        return sum(queue.pending.total() for queue in self._queues.values()), self._running_count

    @asynccontextmanager
    async def wait_for_turn(
        self, person: str, *, owner: bool = False, lane: Lane = Lane.query
    ) -> AsyncIterator[None]:
        """Wait for a turn. Raises OperationalError if too many statements of the person already wait."""
        async with self._queues[lane].wait_for_place(person, owner=owner):
            while not self._open.is_set():  # also if it is paused again meanwhile
                await self._open.wait()
            self._running_count += 1
            self._idle.clear()
            try:
                yield
            finally:
                self._running_count -= 1
                if not self._running_count:
                    self._idle.set()

    @asynccontextmanager
    async def pause_turns(
        self, seconds: float, end: Callable[[], None] = lambda: None
    ) -> AsyncIterator[None]:
        """Yield while no statement runs; new statements wait. After `seconds`, running statements are stopped with `end`.

        Raises OperationalError (`reload_service`) if a statement has not ended after as many seconds more; then all go on.
        """
        async with self._pause_lock:
            self._open.clear()
            try:
                if not await self._wait_until_idle(seconds):
                    end()
                    if not await self._wait_until_idle(seconds):
                        raise OperationalError(
                            f"a statement is still running {seconds:g} seconds after it was cancelled; nothing was reloaded",
                            code="reload",
                            hint="try again later",
                        )
                yield
            finally:
                self._open.set()

    async def _wait_until_idle(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True


# Limits on guessing: each failed login is answered later than the last, and the number of password checks is limited.


_SLOWEST = 8.0
"""The largest number of seconds before a failed login is answered."""
_MOST_NAMES = 10_000


class FailedLogins:
    """The numbers of recent failed logins, by the given name; only the names that failed last are kept."""

    def __init__(self) -> None:
        self._counts = OrderedDict[str, int]()

    def note_failure(self, name: str) -> float:
        """Record a failure, and return the seconds before it is answered: they double each time, whether or not the user exists.

        >>> failed = FailedLogins()
        >>> [failed.note_failure("ana") for _ in range(6)], failed.note_failure("bob")
        ([0.5, 1.0, 2.0, 4.0, 8.0, 8.0], 0.5)
        >>> failed.reset_failures("ana")
        >>> failed.note_failure("ana")
        0.5
        """
        count = self._counts.pop(name, 0) + 1
        self._counts[name] = count
        while len(self._counts) > _MOST_NAMES:
            self._counts.popitem(last=False)
        return float(min(_SLOWEST, 0.25 * 2 ** min(count, 10)))

    def reset_failures(self, name: str) -> None:
        """Forget the failures of a name after a login that succeeded."""
        self._counts.pop(name, None)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of checks: `burst` at once, and one more every `seconds`."""

    burst: int
    seconds: float


@dataclass(slots=True)
class TokenBucket:
    """A token bucket: the number of checks that a rate allows now."""

    rate: Rate
    tokens: float
    filled_at: float

    def fill(self, now: float) -> None:
        """Add the tokens of the time since the bucket was last filled."""
        self.tokens = min(self.rate.burst, self.tokens + (now - self.filled_at) / self.rate.seconds)
        self.filled_at = now


NETWORK_RATE = Rate(20, 15.0)
"""The rate of password checks from one network."""
TOTAL_RATE = Rate(60, 1.0)
"""The rate of all password checks."""
_MOST_NETWORKS = 10_000


class PasswordCheckLimiter:
    """A limit on password checks: each takes the processor for some hundredths of a second, whether or not the user exists.

    Claim: in any t seconds there are at most `TOTAL_RATE.burst + t / TOTAL_RATE.seconds` failing checks, and at most
    `NETWORK_RATE.burst + t / NETWORK_RATE.seconds` of one network, as long as fewer than 10,000 networks try.
    Why: each network has a token bucket, and there is one for all; a check takes a token from both, and is refused without work if
    either is empty. A correct password returns its tokens, so that its user is not limited.
    Source: Partridge 1994, "Gigabit Networking" (token buckets); NIST SP 800-63B, section 5.2.2 (limits on guessing).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = TokenBucket(TOTAL_RATE, TOTAL_RATE.burst, clock())
        self._networks = OrderedDict[str, TokenBucket]()

    def allow_check(self, network: str) -> bool:
        """Count one more check of a password from a network, and return whether it is allowed now.

        >>> checks = PasswordCheckLimiter(clock=lambda: 0.0)
        >>> [checks.allow_check("192.0.2.1") for _ in range(21)].count(True), checks.allow_check("192.0.2.2")
        (20, True)
        >>> checks.return_check("192.0.2.1")
        >>> checks.allow_check("192.0.2.1"), checks.allow_check("192.0.2.1")
        (True, False)
        """
        now = self._clock()
        own = self._networks.pop(network, None) or TokenBucket(NETWORK_RATE, NETWORK_RATE.burst, now)
        self._networks[network] = own
        while len(self._networks) > _MOST_NETWORKS:
            self._networks.popitem(last=False)
        own.fill(now)
        self._all.fill(now)
        if own.tokens < 1 or self._all.tokens < 1:
            return False
        own.tokens -= 1
        self._all.tokens -= 1
        return True

    def return_check(self, network: str) -> None:
        """Return the tokens of a check whose password was correct."""
        for each in (self._all, self._networks.get(network)):
            if each is not None:
                each.tokens = min(each.rate.burst, each.tokens + 1)


# The memory that each user's sessions hold between statements: texts, parameters, answers that are not fetched yet.


_VALUE = 64
"""The number of bytes of a value without its characters."""


class UserMemory:
    """The bytes that sessions hold, by user; `limit` is the limit of each user.

    Claim: the sessions of one user hold at most `limit` bytes together, however many connections there are.
    Why: everything that a session keeps is entered here first, under the user's name, and refused if it would be too much.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = Counter[str]()
        self._lock = threading.Lock()

    def open_session(self, person: str) -> SessionMemory:
        """Return the memory of one more session of a user."""
        return SessionMemory(self, person)

    def get_held_bytes(self, person: str) -> int:
        """Return the bytes that a user's sessions hold."""
        return self._held[person]

    def change_held_bytes(self, person: str, size: int) -> bool:
        """Enter `size` bytes more and return True, or enter nothing and return False if there is no room."""
        with self._lock:
            total = self._held[person] + size
            if size > 0 and total > self._limit:
                return False
            self._held[person] = total
            if not total:
                del self._held[person]
            return True


class SessionMemory:
    """The bytes that one session holds, by item."""

    def __init__(self, memory: UserMemory, person: str) -> None:
        self._memory, self.person = memory, person
        self._sizes = dict[Hashable, int]()
        self._closed = False

    def try_hold_bytes(self, what: Hashable, size: int) -> bool:
        """Enter the size of an item, in place of its former size, and return whether there was room."""
        if not self._memory.change_held_bytes(self.person, size - self._sizes.get(what, 0)):
            return False
        self._sizes[what] = size
        if self._closed:  # the answer arrived after its client left
            self.close()
        return True

    def drop_items(self, *what: Hashable) -> None:
        """Enter that these items are no longer held."""
        for each in what:
            self._memory.change_held_bytes(self.person, -self._sizes.pop(each, 0))

    def close(self) -> None:
        """Enter that the session holds nothing."""
        self._closed = True
        self.drop_items(*self._sizes)


def compute_size(rows: Iterable[tuple[Any, ...]]) -> int:
    """Return the approximate number of bytes of rows.

    >>> compute_size([(1, "abc"), (None, "")])
    259
    """
    return sum(
        _VALUE + (len(value) if isinstance(value, str | bytes) else 0) for row in rows for value in row
    )
