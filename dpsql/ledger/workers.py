"""A pool of worker threads, each of which does work that another thread waits for. Starting one takes half as long as reading a ledger.

An executor of the standard library takes locks in the thread that submits, where an interrupt may leave them held; and the end
of the interpreter waits for its threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

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
    """The workers of a process: each adds itself to `idle` before it takes the next work that is `waiting_items`."""

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
