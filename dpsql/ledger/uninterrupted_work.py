"""Work that no interrupt reaches: another thread does it while the caller waits.

Claim: an interrupt ends the waiting alone. What was begun is finished, so that no lock stays held, no transaction
stays open, and a charge is there once or not at all.
Why: Python runs signal handlers in the main thread alone, and so raises KeyboardInterrupt there, or whatever else a
handler raises. No `try` or `with` is as safe: an interrupt also comes between the statements that release, and within
the libraries below.
Source: the manual of Python, "signal", sections "Execution of Python signal handlers" and "Signals and threads", and
its note on signal handlers and exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dpsql.ledger.workers import WorkItem, is_worker, submit

_T = TypeVar("_T")


def run_uninterrupted(work: Callable[[], _T]) -> _T:
    """Run `work` in another thread, and return or raise its outcome; an interrupt meanwhile does not reach it.

    The same thread does work that is requested within work, or while the interpreter ends. The database undoes what has
    not been committed when the process ends, as after a crash.

    >>> run_uninterrupted(lambda: 1 + 1)
    2
    """
    if is_worker():
        return work()
    given = WorkItem(work)
    submit(given)
    given.done_event.wait()
    return given.take_outcome()
