"""Charges of several threads that wait for the ledger at the same time are committed together.

Claim: each is admitted only if it follows from all that were admitted before it, and its caller goes on only when the
transaction that holds it is durable: as if each had had a transaction of its own, one after the other. Who is
interrupted keeps nobody waiting, and is charged once or not at all.
Why: whoever comes to have the ledger alone takes those that wait, in their order, and each is held against where the
one before it ends. They are written and committed at once, so that all stay or none; a caller learns of the outcome
after the commit alone. Where the transaction fails, those that came with it are as if they had not been taken. All of
that is done by threads which no interrupt reaches, one for each caller: it leads until its caller is served, or finds
that another has served it.
Source: Gray, Reuter 1992, "Transaction Processing", Section 9.4.7 (group commit).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from weakref import WeakSet

from dpsql.errors import Error
from dpsql.ledger.uninterrupted import uninterrupted

Rows: TypeAlias = list[dict[str, Any]]


@dataclass(eq=False, slots=True)
class Waiting:
    """What one caller waits for: `rows_now` gives its entries as they follow from where the ledger ends then.

    `rows` are those that were written, `error` is why none were; both are the caller's once it is `done`. Who `left`
    is charged nothing, unless that was under way.
    """

    rows_now: Callable[[], Rows]
    refines: Sequence[int] = ()
    rows: Rows = field(default_factory=list)
    error: Error | None = None
    done: bool = False
    left: bool = False

    def refused(self, error: Error) -> None:
        """Nothing of it is written, for this reason."""
        self.rows, self.error = [], error


Alone: TypeAlias = Callable[[], AbstractContextManager[object]]
Commit: TypeAlias = Callable[[list[Waiting]], None]


class Group:
    """Those that wait for one ledger."""

    def __init__(self) -> None:
        self.begin()
        _GROUPS.add(self)

    def begin(self) -> None:
        """Nobody waits: so it is at first, and in a fork, where the threads that waited are not."""
        self._leading = threading.Lock()
        self._waiting = deque[Waiting]()

    def appended(self, mine: Waiting, alone: Alone, commit: Commit) -> Rows:
        """The rows that were written for it, durable; raises what refused it, or made the commit fail.

        `alone` has the ledger alone, `commit` writes what all of a group ask for in one transaction.
        """
        self._waiting.append(mine)
        try:
            uninterrupted(lambda: self._serve(mine, alone, commit))
        except BaseException:
            # Whoever was interrupted as it waited hears no answer: nobody needs to charge it any more.
            mine.left = True
            raise
        if mine.error is not None:
            raise mine.error
        return mine.rows

    def _serve(self, mine: Waiting, alone: Alone, commit: Commit) -> None:
        """Commits those that wait, unless another has committed this one meanwhile."""
        with self._leading:
            if mine.done:
                return
            group = list[Waiting]()
            try:
                with alone():
                    group = self._taken()
                    commit(group)
            except BaseException:
                for other in reversed(group):
                    if other is not mine and not other.done:
                        other.rows, other.error = [], None
                        self._waiting.appendleft(other)
                raise
            for each in group:
                each.done = True

    def _taken(self) -> list[Waiting]:
        """All that wait, in the order in which they came."""
        found = list[Waiting]()
        while self._waiting:
            found.append(self._waiting.popleft())
        return [each for each in found if not each.left]


_GROUPS: WeakSet[Group] = WeakSet()


def _begin_anew() -> None:
    for group in tuple(_GROUPS):
        group.begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
