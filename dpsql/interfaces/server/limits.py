"""The limits of concurrent work, and the turns of statements within them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from dpsql.errors import OperationalError


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
