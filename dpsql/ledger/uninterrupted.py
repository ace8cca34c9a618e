"""Work that no interrupt reaches: a thread of its own does it while the caller waits.

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

from dpsql.errors import OperationalError

_T = TypeVar("_T")
_HERE = threading.local()


def uninterrupted(work: Callable[[], _T]) -> _T:
    """What `work` returns or raises, done by another thread; who is interrupted meanwhile does not hear of it.

    Work within work is done by the same thread, and so is what is asked for when the interpreter ends.

    >>> uninterrupted(lambda: 1 + 1)
    2
    """
    if getattr(_HERE, "working", False):
        return work()
    values, errors = list[_T](), list[BaseException]()

    def run() -> None:
        _HERE.working = True
        try:
            values.append(work())
        except BaseException as error:  # noqa: BLE001  (it is raised where the work was asked for)
            errors.append(error)

    # A daemon: what has not been committed when the process ends is undone by the database, as after a crash.
    thread = threading.Thread(target=run, name="dpsql ledger", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return work()  # no thread can be had any more
    thread.join()
    if values:
        return values.pop()
    # Taken out of the list, so that no frame that the error knows of knows the error.
    raise errors.pop() if errors else _unheard()


def _unheard() -> OperationalError:
    return OperationalError(
        "the ledger's work ended without an outcome; the charge may stand",
        code="ledger_unknown",
        hint="nothing was answered; look at the ledger's last entries before asking again",
    )
