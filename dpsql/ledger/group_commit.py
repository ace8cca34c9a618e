"""Group commit: charges of several threads that wait for the ledger are committed in one transaction.

Claim: each is admitted only if it follows from all that were admitted before it, and its caller goes on only when the
transaction that holds it is durable: as if each had had a transaction of its own, one after the other. An interrupted
caller makes no other caller wait, and is charged once or not at all.
Why: the thread that gets the ledger's lock takes all pending charges, in their order, and checks each against the balance after
the one before it. They are written and committed in one transaction, so that all stay or none; a caller learns the outcome
only after the commit. If the transaction fails, the other charges of the group return to the queue. All of this is done by
threads that no interrupt reaches, one for each caller: it commits until its caller's charge is done, or finds that another
thread has committed it.
Source: Gray, Reuter 1992, "Transaction Processing", Section 9.4.7 (group commit).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from dpsql.errors import Error
from dpsql.ledger.workers import WorkItem, is_worker, submit

# Work that no interrupt reaches: another thread does it while the caller waits.
#
# Claim: an interrupt ends only the waiting. Work that has begun is finished, so that no lock stays held, no transaction
# stays open, and a charge is stored once or not at all.
# Why: Python runs signal handlers in the main thread alone, and so raises KeyboardInterrupt there, or whatever else a
# handler raises. No `try` or `with` is as safe: an interrupt also comes between the statements that release, and within
# the libraries below.
# Source: the manual of Python, "signal", sections "Execution of Python signal handlers" and "Signals and threads", and
# its note on signal handlers and exceptions.


_R = TypeVar("_R")


def run_uninterrupted(work: Callable[[], _R]) -> _R:
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
    """The pending charges of one ledger."""

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
