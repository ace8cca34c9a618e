"""How a statement runs, whichever door it came through: in its turn, in a worker thread, on an engine connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.server.asking import Asker
from dpsql.server.service import Lane, Service
from dpsql.server.users import User

if TYPE_CHECKING:
    from dpsql.connection import Connection

_T = TypeVar("_T")
_AGAIN = 0.1
"""Seconds between interrupts of an engine that has not stopped: it forgets one that comes before the query begins."""


class NotBegun(Exception):  # noqa: N818  (what has happened, for who asked)
    """The statement was cancelled while it waited for its turn: nothing was charged."""


def until_grid(taken: float, grid: float) -> float:
    """The seconds until an answer that has taken some seconds is due, at the next whole multiple of a grid.

    Claim: the time of an answer depends on private rows through the number of the grid's points that passed alone.
    Why: it is a multiple of the grid, which is the owner's and public. That number still depends on them.
    Source: Askarov, Zhang, Myers 2010, "Predictive Black-Box Mitigation of Timing Channels" (a fixed schedule).

    >>> until_grid(0.25, 1.0), until_grid(1.0, 1.0), until_grid(2.5, 1.0), until_grid(2.5, 0)
    (0.75, 0.0, 0.5, 0.0)
    """
    return -taken % grid if grid else 0.0


class Running:
    """What one user runs, one statement after the other."""

    def __init__(self, service: Service, user: User) -> None:
        self._service, self.user = service, user
        self._lock = threading.Lock()
        self._interrupted: Callable[[], None] | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._working = False
        self.cancelled = False
        """Whether the statement that runs, or ran last, was cancelled."""
        self.text = ""
        """The statement that runs, or ran last, as owners are shown it."""
        self.since = datetime.now(UTC)
        """When it began, or ended."""

    @property
    def state(self) -> str:
        """Whether a statement runs (active), waits for its turn (waiting), or none does (idle)."""
        return "idle" if not self._working else "active" if self._waiting is None else "waiting"

    async def run(self, work: Callable[[], _T], seconds: float | None = None, lane: Lane = Lane.asking) -> _T:
        """What `work` gives in a worker thread of a lane; after `seconds` it is cancelled, and waited for.

        Raises NotBegun where it was cancelled before its turn, OperationalError where too many of the user's wait.
        """
        self.cancelled, self._working, self.since = False, True, datetime.now(UTC)
        begun = time.monotonic()
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.cancel)
        try:
            try:
                return await self._in_turn(work, lane)
            finally:
                # What looks at no private rows takes as long whatever they are.
                if lane is Lane.asking and not self._is_cancelled_in_waiting():
                    await asyncio.sleep(
                        until_grid(time.monotonic() - begun, self._service.limits.answer_grid)
                    )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.cancelled or task is None:
                raise
            task.uncancel()
            raise NotBegun from None
        finally:
            self._working, self._waiting, self.since = False, None, datetime.now(UTC)
            if timer is not None:
                timer.cancel()

    def _is_cancelled_in_waiting(self) -> bool:
        """Whether the statement never had a turn: what it waited for is no secret of its own, and nobody waits for it."""
        return self.cancelled and self._waiting is not None

    async def _in_turn(self, work: Callable[[], _T], lane: Lane) -> _T:
        self._waiting = asyncio.current_task()
        async with self._service.turns.turn(self.user.name, owner=self.user.role.owns, lane=lane):
            self._waiting = None
            future = asyncio.get_running_loop().run_in_executor(self._service.threads[lane], work)
            while not future.done():
                # The turn ends when the thread does: what is cancelled is waited for.
                await asyncio.wait({future}, timeout=_AGAIN)
                if self.cancelled:
                    self._interrupt()
            return future.result()

    def cancel(self) -> None:
        """Cancels the statement that runs or waits now, if there is one."""
        if self._working:
            self.cancelled = True
            if self._waiting is not None:
                self._waiting.cancel()

    def stop(self) -> None:
        """Ends the statement that runs or waits now for the owner, if there is one."""
        self.cancel()

    def leave(self) -> None:
        """The client is gone: cancels a statement that waits, and lets one that runs end.

        It may be charged already. Its answer is stored then, and given to who asks again, free.
        """
        if self._waiting is not None:
            self.cancel()

    def _interrupt(self) -> None:
        with self._lock:
            if self._interrupted is not None:
                self._interrupted()

    def with_connection(self, work: Callable[[Connection], _T]) -> _T:
        """What `work` gives with an engine connection of the user's, in the thread of `run`."""
        with self._service.connections.of(self._service.policy.analyst(self.user.name)) as connection:
            return self._interruptible(connection.engine.backend.interrupt, lambda: work(connection))

    def asking(self, work: Callable[[Asker], _T]) -> _T:
        """As `with_connection`, of what asks questions: in a process for that, where there are any."""
        processes = self._service.processes
        if processes is None:
            return self.with_connection(work)
        asker = processes.asker(self._service.policy.analyst(self.user.name))
        return self._interruptible(asker.interrupt, lambda: work(asker))

    def _interruptible(self, interrupt: Callable[[], None], work: Callable[[], _T]) -> _T:
        with self._lock:
            self._interrupted = interrupt
        try:
            return work()
        finally:
            with self._lock:  # from here on an interrupt would be of another's statement
                self._interrupted = None
