"""Work that no interrupt reaches: worker threads, and the group commit of charges that wait for the ledger."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from dpsql.errors import Error

# A pool of worker threads, each of which does work that another thread waits for.


NAME = "dpsql worker"
_T = TypeVar("_T")
_HERE = threading.local()
_AGAIN = 0.1
"""Seconds between interrupts of an engine that has not stopped: it forgets one that comes before the query begins."""


class InterruptSafeEvent:
    """A `threading.Event` that is set once, and that a thread interrupted while it waits leaves usable.

    Claim: `set` never waits.
    Why: the lock is held from the start until `set` releases it, in one step of the interpreter. The lock of a `threading.Event`
    is also taken by waiting threads, and an interrupt at the wrong moment leaves it held: a worker would wait for it forever.
    """

    def __init__(self) -> None:
        self._is_set, self._lock = False, threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake all threads that wait, now and later."""
        self._is_set = True
        self._lock.release()

    def wait(self, timeout: float = -1) -> bool:
        """Wait at most this many seconds, by default without limit; return whether the event is set."""
        if not self._is_set and self._lock.acquire(timeout=timeout):
            self._lock.release()
        return self._is_set


class WorkItem(Generic[_T]):
    """Work for a worker. It is begun at most once, and `done_event` is set when its outcome is known."""

    def __init__(self, do: Callable[[], _T]) -> None:
        self.done_event = InterruptSafeEvent()
        self._do = [do]  # the thread that takes it out begins it, or has withdrawn it
        self._values, self._errors = list[_T](), list[BaseException]()

    def try_withdraw(self) -> bool:
        """Withdraw the work unless it has begun; return whether it was withdrawn."""
        return bool(self._take_function())

    def take_outcome(self) -> _T:
        """Return or raise the outcome of the work, once, when it has ended."""
        if self._values:
            return self._values.pop()
        # Taken out of the list, so that no frame in the error's traceback refers to the error.
        raise self._errors.pop()

    def begin(self) -> None:
        """Do the work, unless it was withdrawn."""
        for do in self._take_function():
            try:
                self._values.append(do())
            except BaseException as error:  # noqa: BLE001  (it is raised where the work was asked for)
                self._errors.append(error)

    def _take_function(self) -> list[Callable[[], _T]]:
        try:
            return [self._do.pop()]
        except IndexError:
            return []


class _WorkerPool:
    """The workers of a process: each adds itself to `idle` before it takes the next work that is `waiting_items`.

    Starting a thread takes half as long as reading a ledger.

    An executor of the standard library takes locks in the thread that submits, where an interrupt may leave them held; and the end
    of the interpreter waits for its threads.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.idle = deque[None]()
        self.waiting_items = SimpleQueue[WorkItem[Any]]()

    def serve_work(self, work: WorkItem[Any]) -> None:
        """Do work until the process ends, starting with `work`; keep nothing of what was done."""
        _HERE.is_working = True
        while True:
            work.begin()
            self.idle.append(None)
            work.done_event.set()
            del work
            work = self.waiting_items.get()


_POOL = _WorkerPool()


def is_worker() -> bool:
    """Return whether this thread is a worker.

    >>> is_worker()
    False
    """
    return getattr(_HERE, "is_working", False)


def mark_as_worker() -> None:
    """Let this thread do work itself that other threads submit to a worker: for threads that are never interrupted.

    Python raises exceptions of signal handlers in the main thread only, so a server's own threads qualify, unless other code
    raises exceptions in them. Submitting work takes two switches between threads, and an interpreter runs one at a time.
    """
    _HERE.is_working = True


def submit(work: WorkItem[Any]) -> None:
    """Give the work to a worker, which begins at once; if no thread can be started, do it in this thread.

    Claim: whatever interrupts this, the work is begun once or never, and no other work waits for one that has ended.
    Why: a worker is in `idle` once for each work that it will take. Where an interrupt comes between the two steps here, one
    worker too few is known to be idle, and another is started in its place. Workers are daemons: the interpreter's end does
    not wait for them.

    >>> work = WorkItem(lambda: 1 + 1)
    >>> submit(work)
    >>> work.done_event.wait(), work.take_outcome(), work.try_withdraw()
    (True, 2, False)
    """
    if sys.is_finalizing():
        _run_here(work)
        return
    if _POOL.process != os.getpid():
        _reset_after_fork()  # forked outside of Python
    try:
        _POOL.idle.pop()
    except IndexError:
        _start_worker(work)
    else:
        _POOL.waiting_items.put(work)


class Interruptible(Protocol):
    """An object that runs statements, which another thread can interrupt."""

    def interrupt(self) -> None:
        """Stop the running statement."""
        ...


def run_interruptibly(engine: Interruptible, work: Callable[[], _T]) -> _T:
    """Run `work` on an engine, and return or raise its outcome; Ctrl-C interrupts the engine, and is raised when it has stopped.

    Python delivers signals to the main thread alone. DuckDB 2.0 checks for them while a query runs there, but not while
    it waits for its own threads, and Ctrl-C is lost. So the main thread waits here, where Python delivers it. A second
    Ctrl-C does not leave the query running: the connection would be in use for every later one.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    given = WorkItem(work)
    try:
        submit(given)
        given.done_event.wait()
    except BaseException:
        if not given.try_withdraw():
            _interrupt_until_done(engine, given.done_event)
        raise
    return given.take_outcome()


def _interrupt_until_done(engine: Interruptible, ended: InterruptSafeEvent) -> None:
    """Interrupt an engine until its work has ended, even if Ctrl-C is pressed again meanwhile."""
    while not ended.wait(0):
        try:
            engine.interrupt()
            ended.wait(_AGAIN)
        except KeyboardInterrupt:
            continue


def _start_worker(work: WorkItem[Any]) -> None:
    try:
        threading.Thread(target=_POOL.serve_work, args=(work,), name=NAME, daemon=True).start()
    except RuntimeError:
        _run_here(work)


def _run_here(work: WorkItem[Any]) -> None:
    work.begin()
    work.done_event.set()


def _reset_after_fork() -> None:
    """Start with no workers in a fork, where those of the parent do not exist."""
    global _POOL  # noqa: PLW0603  (the fork has workers of its own)
    _POOL = _WorkerPool()
    _HERE.is_working = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


# Work that no interrupt reaches: another thread does it while the caller waits.


_R = TypeVar("_R")


def run_uninterrupted(work: Callable[[], _R]) -> _R:
    """Run `work` in another thread, and return or raise its outcome; an interrupt meanwhile does not reach it.

    The same thread does work that is requested within work, or while the interpreter ends. The database undoes what has
    not been committed when the process ends, as after a crash.

    Claim: an interrupt ends only the waiting. Work that has begun is finished, so that no lock stays held, no transaction stays
    open, and a charge is stored once or not at all.
    Why: Python runs signal handlers in the main thread alone, and so raises KeyboardInterrupt there, or whatever else a handler
    raises. No `try` or `with` is as safe: an interrupt also comes between the statements that release, and within the libraries
    below.
    Source: the manual of Python, "signal", sections "Execution of Python signal handlers" and "Signals and threads", and its note
    on signal handlers and exceptions.

    >>> run_uninterrupted(lambda: 1 + 1)
    2
    """
    if is_worker():
        return work()
    given = WorkItem(work)
    submit(given)
    given.done_event.wait()
    return given.take_outcome()


# Group commit: charges of several threads that wait for the ledger are committed in one transaction.


Rows: TypeAlias = list[dict[str, Any]]


@dataclass(eq=False, slots=True)
class PendingCharge:
    """One caller's charge: `build_rows` makes its entries, which follow the ledger's head of that moment.

    `rows` are those that were written, `error` is why none were; both are final once it is `done`. A caller who has
    `abandoned` is charged nothing, unless the commit had begun.
    """

    build_rows: Callable[[], Rows]
    refines: Sequence[int] = ()
    rows: Rows = field(default_factory=list)
    error: Error | None = None
    done: bool = False
    abandoned: bool = False

    def refuse_charge(self, error: Error) -> None:
        """Refuse the charge for this reason, so that nothing of it is written."""
        self.rows, self.error = [], error


LedgerLock: TypeAlias = Callable[[], AbstractContextManager[object]]
CommitFunction: TypeAlias = Callable[[list[PendingCharge]], None]


class GroupCommit:
    """The pending charges of one ledger.

    Claim: each is admitted only if it follows from all that were admitted before it, and its caller goes on only when the
    transaction that holds it is durable: as if each had had a transaction of its own, one after the other. An interrupted caller
    makes no other caller wait, and is charged once or not at all.
    Why: the thread that gets the ledger's lock takes all pending charges, in their order, and checks each against the balance after
    the one before it. They are written and committed in one transaction, so that all stay or none; a caller learns the outcome only
    after the commit. If the transaction fails, the other charges of the group return to the queue. All of this is done by threads
    that no interrupt reaches, one for each caller: it commits until its caller's charge is done, or finds that another thread has
    committed it.
    Source: Gray, Reuter 1992, "Transaction Processing", Section 9.4.7 (group commit).
    """

    def __init__(self) -> None:
        self.reset_queue()
        _GROUPS.add(self)

    def reset_queue(self) -> None:
        """Empty the queue, at the start and in a fork, where the waiting threads do not exist."""
        self._leading = threading.Lock()
        self._waiting = deque[PendingCharge]()

    def append_charge(self, mine: PendingCharge, lock_ledger: LedgerLock, commit: CommitFunction) -> Rows:
        """Return the rows that were written for `mine`, durable; raises the error that refused it or made the commit fail.

        `lock_ledger` locks the ledger, `commit` writes the charges of a group in one transaction.
        """
        self._waiting.append(mine)
        try:
            run_uninterrupted(lambda: self._serve_charge(mine, lock_ledger, commit))
        except BaseException:
            # A caller that was interrupted while it waited gets no answer, so it must not be charged.
            mine.abandoned = True
            raise
        if mine.error is not None:
            raise mine.error
        return mine.rows

    def _serve_charge(self, mine: PendingCharge, lock_ledger: LedgerLock, commit: CommitFunction) -> None:
        """Commit the pending charges, unless another thread has committed this one meanwhile."""
        with self._leading:
            if mine.done:
                return
            group = list[PendingCharge]()
            try:
                with lock_ledger():
                    group = self._take_pending()
                    commit(group)
            except BaseException:
                for other in reversed(group):
                    if other is not mine and not other.done:
                        other.rows, other.error = [], None
                        self._waiting.appendleft(other)
                raise
            for each in group:
                each.done = True

    def _take_pending(self) -> list[PendingCharge]:
        """Return all pending charges, in the order of their arrival."""
        found = list[PendingCharge]()
        while self._waiting:
            found.append(self._waiting.popleft())
        return [each for each in found if not each.abandoned]


_GROUPS: WeakSet[GroupCommit] = WeakSet()


def _reset_queues() -> None:
    for group in tuple(_GROUPS):
        group.reset_queue()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_queues)
