"""Workers do what others wait for, at once, and are kept for the next work."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable

import pytest

from dpsql.workers import Work, hand_over

HANGS = 10


def done(work: Work[int]) -> int:
    """What the work returned, in time."""
    hand_over(work)
    assert work.ended.wait(HANGS)
    return work.outcome()


def test_one_worker_does_one_work_after_the_other() -> None:
    """None is started for each."""
    known = {done(Work(threading.get_ident)), *(each.ident for each in threading.enumerate())}
    assert {done(Work(threading.get_ident)) for _ in range(50)} <= known


def test_each_work_begins_at_once() -> None:
    """Also where others before it wait for it, more of them each time."""
    for many in range(1, 5):
        last = threading.Event()
        waiting = [Work(lambda last=last: last.wait(HANGS)) for _ in range(many)]  # type: ignore[misc]
        for work in waiting:
            hand_over(work)
        hand_over(Work(last.set))
        assert all(work.ended.wait(HANGS) and work.outcome() for work in waiting)


def test_an_error_is_raised_where_the_work_was_asked_for() -> None:
    """Whatever it is."""
    with pytest.raises(KeyboardInterrupt):
        done(Work(lambda: signal.default_int_handler(0, None)))  # type: ignore[arg-type, return-value]
    assert done(Work(lambda: 1)) == 1


def test_what_is_withdrawn_never_begins() -> None:
    """And what has begun cannot be withdrawn."""
    work, begun = Work(lambda: 1), Work(lambda: 2)
    assert work.withdrawn()
    work.begin()
    with pytest.raises(IndexError):
        work.outcome()
    assert done(begun) == 2
    assert not begun.withdrawn()


def ended_well(fork: Callable[[], int]) -> bool:
    """Whether a fork does its work, in time."""
    assert done(Work(lambda: 1)) == 1
    child = fork()
    if child == 0:
        signal.alarm(HANGS)
        os._exit(done(Work(lambda: 7)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_fork_has_workers_of_its_own() -> None:
    """Those of its parent do not exist there."""
    assert ended_well(os.fork)


def test_so_has_one_that_python_does_not_see() -> None:
    """As a library of C forks, or a server that it embeds."""
    assert ended_well(ctypes.PyDLL(None).fork)
