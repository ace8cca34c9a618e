"""Run statements of both protocols: in their turn, in a worker thread, on an engine connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpsql.interfaces.server.connections import QueryRunner
from dpsql.interfaces.server.limits import Lane
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.users import User

if TYPE_CHECKING:
    from dpsql.api.connection import Connection

_T = TypeVar("_T")
_INTERRUPT_SECONDS = 0.1
"""Seconds between interrupts of an engine that has not stopped: it ignores an interrupt before the query begins."""


class CancelledBeforeTurn(Exception):  # noqa: N818  (an event, not a failure)
    """A statement was cancelled while it waited for its turn; nothing was charged."""


def compute_grid_delay(taken: float, grid: float) -> float:
    """Return the seconds until the next whole multiple of the grid, at which an answer is due.

    Claim: the time of an answer, from the beginning of its turn, depends on private rows only through the number of grid points
    that have passed; if `Limits.statement_seconds` and the writing of an answer fit into one step, it does not depend on them unless the
    ledger has a failure.
    Why: the time is a multiple of the grid, which the owner sets and which is public. A charged statement that has not ended at
    `statement_seconds` is a failure, whether the engine stops or not (`dpsql.engine.engine`), and one that has ended is
    written within the same step. A turn lasts to the same point, so that waiting statements reveal no more.
    Source: Askarov, Zhang, Myers 2010, "Predictive Black-Box Mitigation of Timing Channels" (a fixed schedule).

    >>> compute_grid_delay(0.25, 1.0), compute_grid_delay(1.0, 1.0), compute_grid_delay(2.5, 1.0), compute_grid_delay(2.5, 0)
    (0.75, 0.0, 0.5, 0.0)
    """
    return -taken % grid if grid else 0.0


class Stoppable(Protocol):
    """The runner of a statement: an engine in this or in another process."""

    def cancel(self) -> None:
        """Cancel the statement for its client; see `Engine.cancel`."""
        ...

    def stop(self) -> None:
        """Stop the statement for the owner; see `Engine.stop`."""
        ...


class StatementRunner:
    """The statements of one user, one after the other."""

    def __init__(self, service: Service, user: User, door: str) -> None:
        self._service, self.user, self._door = service, user, door
        self._lock = threading.Lock()
        self._engine: Stoppable | None = None
        self._waiting_task: asyncio.Task[Any] | None = None
        self._is_working = False
        self.is_cancelled = self.is_stopped = False
        """Whether the client cancelled, and the owner stopped, the running or last statement."""
        self.text = ""
        """The running or last statement, as it is shown to owners."""
        self.since = datetime.now(UTC)
        """When the statement began or ended."""

    @property
    def state(self) -> str:
        """Return the state: a statement runs (active), waits for its turn (waiting), or neither (idle)."""
        return "idle" if not self._is_working else "active" if self._waiting_task is None else "waiting"

    async def run_work(
        self, work: Callable[[], _T], seconds: float | None = None, lane: Lane = Lane.query
    ) -> _T:
        """Run `work` in a worker thread of a lane; after `seconds` it is cancelled and awaited.

        Raises CancelledBeforeTurn if it was cancelled before its turn, OperationalError if too many statements of the user wait.
        """
        self.is_cancelled, self.is_stopped, self._is_working, self.since = (
            False,
            False,
            True,
            datetime.now(UTC),
        )
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.cancel)
        counted = self._service.metrics.time_statement(self._door) if lane is Lane.query else nullcontext()
        try:
            with counted:
                return await self._run_in_turn(work, lane)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.is_cancelled or task is None:
                raise
            task.uncancel()
            raise CancelledBeforeTurn from None
        finally:
            self._is_working, self._waiting_task, self.since = False, None, datetime.now(UTC)
            if timer is not None:
                timer.cancel()

    async def _run_in_turn(self, work: Callable[[], _T], lane: Lane) -> _T:
        """Run `work` in its turn and return its result at a point of the grid, at which the next turn begins."""
        self._waiting_task = asyncio.current_task()
        limits = self._service.limits
        async with self._service.turns.wait_for_turn(
            self.user.name, owner=self.user.role.is_owner, lane=lane
        ):
            self._waiting_task = None
            begun = time.monotonic()
            try:
                future = asyncio.get_running_loop().run_in_executor(self._service.threads[lane], work)
                while not future.done():
                    # The turn ends with the thread: a cancelled statement is awaited.
                    await asyncio.wait({future}, timeout=_INTERRUPT_SECONDS)
                    if limits.statement_seconds and time.monotonic() - begun >= limits.statement_seconds:
                        self.is_stopped = True
                    self._interrupt_engine()
                return future.result()
            finally:
                # The time of a lookup does not depend on private rows.
                grid = limits.answer_grid if lane is Lane.query else 0.0
                await asyncio.sleep(compute_grid_delay(time.monotonic() - begun, grid))

    def cancel(self) -> None:
        """Cancel the running or waiting statement for its client, if any; see `dpsql.engine.engine`."""
        if self._is_working:
            self.is_cancelled = True
            if self._waiting_task is not None:
                self._waiting_task.cancel()

    def stop(self) -> None:
        """Stop the running or waiting statement for the owner, if any; after its charge this is a failure."""
        if self._is_working:
            self.is_stopped = True
            self.cancel()

    def cancel_waiting(self) -> None:
        """Cancel a waiting statement of a disconnected client, and let a running one finish.

        A running statement may be charged already. Then its answer is stored, and the same query is answered again at no charge.
        """
        if self._waiting_task is not None:
            self.cancel()

    def _interrupt_engine(self) -> None:
        with self._lock:
            if self._engine is None:
                return
            if self.is_stopped:
                self._engine.stop()
            elif self.is_cancelled:
                self._engine.cancel()

    def run_with_connection(self, work: Callable[[Connection], _T]) -> _T:
        """Run `work` with an engine connection of the user, in the thread of `run_work`."""
        with self._service.connections.acquire_connection(
            self._service.policy.resolve_analyst_name(self.user.name)
        ) as connection:
            connection.engine.stops.reset_requests()
            return self._run_stoppable(connection.engine, lambda: work(connection))

    def run_with_query_runner(self, work: Callable[[QueryRunner], _T]) -> _T:
        """Run `work` with a query runner of the user, in an engine process if there are any."""
        processes = self._service.processes
        if processes is None:
            return self.run_with_connection(work)
        asker = processes.create_query_runner(self._service.policy.resolve_analyst_name(self.user.name))
        return self._run_stoppable(asker, lambda: work(asker))

    def _run_stoppable(self, engine: Stoppable, work: Callable[[], _T]) -> _T:
        with self._lock:
            self._engine = engine
        try:
            return work()
        finally:
            with self._lock:  # a later interrupt would hit another user's statement
                self._engine = None
