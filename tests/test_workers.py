"""Workers do what others wait for, at once, and are kept for the next work."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading

import pytest

from dpsql.ledger.workers import WorkItem, submit
from tests.forks import quiet_fork

HANGS = 10


def done(work: WorkItem[int]) -> int:
    """What the work returned, in time."""
    submit(work)
    assert work.done_event.wait(HANGS)
    return work.take_outcome()


def test_one_worker_runs_tasks_in_turn() -> None:
    """No worker is started for each task."""
    known = {done(WorkItem(threading.get_ident)), *(each.ident for each in threading.enumerate())}
    assert {done(WorkItem(threading.get_ident)) for _ in range(50)} <= known


def test_each_task_begins_at_once() -> None:
    """Waiting tasks get workers of their own."""
    for many in range(1, 5):
        last = threading.Event()
        waiting = [WorkItem(lambda last=last: last.wait(HANGS)) for _ in range(many)]  # type: ignore[misc]
        for work in waiting:
            submit(work)
        submit(WorkItem(last.set))
        assert all(work.done_event.wait(HANGS) and work.take_outcome() for work in waiting)


def test_error_is_raised_at_the_submission() -> None:
    """Errors of any class are."""
    with pytest.raises(KeyboardInterrupt):
        done(WorkItem(lambda: signal.default_int_handler(0, None)))  # type: ignore[arg-type, return-value]
    assert done(WorkItem(lambda: 1)) == 1


def test_withdrawn_task_never_begins() -> None:
    """A task that has begun cannot be withdrawn."""
    work, begun = WorkItem(lambda: 1), WorkItem(lambda: 2)
    assert work.try_withdraw()
    work.begin()
    with pytest.raises(IndexError):
        work.take_outcome()
    assert done(begun) == 2
    assert not begun.try_withdraw()


def test_fork_has_its_own_workers() -> None:
    """Those of its parent do not exist there."""
    assert done(WorkItem(lambda: 1)) == 1
    fork = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(done(WorkItem(lambda: 7))))
    fork.start()
    fork.join(HANGS)
    fork.kill()
    fork.join()
    assert fork.exitcode == 7


def test_fork_unseen_by_python_has_its_own_workers() -> None:
    """A C library or an embedding server forks so."""
    quiet_fork(
        """
        from dpsql.ledger.workers import WorkItem, submit

        def done(number):
            work = WorkItem(lambda: number)
            submit(work)
            return work.done_event.wait(10) and work.take_outcome()

        assert done(1) == 1
        """,
        "assert done(7) == 7",
        "assert done(2) == 2",
    )
