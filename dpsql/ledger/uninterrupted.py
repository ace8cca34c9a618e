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

import threading
from collections.abc import Callable
from typing import TypeVar

from dpsql.workers import Work, at_work, hand_over

_T = TypeVar("_T")


def uninterrupted(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises; where the main thread asks, another does it, and an interrupt meanwhile does not reach it.

    Other threads do it themselves, as no interrupt comes to them, and so does whoever asks when the interpreter ends. What has not been
    committed when the process ends is undone by the database, as after a crash.

    >>> uninterrupted(lambda: 1 + 1)
    2
    """
    if at_work() or threading.current_thread() is not threading.main_thread():
        return work()
    given = Work(work)
    hand_over(given)
    given.ended.wait()
    return given.outcome()
