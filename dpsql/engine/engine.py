"""The engine of a connection: one policy, one database, one ledger, and the requests to end its running statement."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from dpsql.backends import Backend, analyst_schema
from dpsql.engine.budgets import get_table_budget
from dpsql.engine.lookups import PublicLookups
from dpsql.engine.replay.release_store import ReleaseStore
from dpsql.errors import OperationalError
from dpsql.ledger import Entry, Ledger
from dpsql.ledger.balance import FAILURE, RELEASED
from dpsql.ledger.protocol import Account
from dpsql.ledger.workers import Interruptible, run_interruptibly
from dpsql.policy import Policy
from dpsql.privacy.mechanisms import Entropy, SystemEntropy

# The requests to end a running statement: by a client before its charge, by the owner at any time.


_T = TypeVar("_T")
_RECENT = 1_000
"""Entries among which the charge of a process that has just ended is looked for."""
CANCELLED, STOPPED = "cancelled", "stopped"


@dataclass(frozen=True, slots=True)
class InterruptibleGroup:
    """Several objects that are interrupted together."""

    members: tuple[Interruptible, ...]

    def interrupt(self) -> None:
        """Stop what runs now on any of them."""
        for one in self.members:
            one.interrupt()


class StopRequests:
    """The requests to end the statement that runs on one engine connection: by a client before its charge, by the owner at any time.

    Claim: apart from time, what an analyst observes of a charged statement does not depend on a client's limit. It is the answer,
    or an error for which the ledger has a failure, and failures lock the table (`max_failures`).
    Why: `cancel` and `begin_charge` take one lock. If `cancel` is first, `begin_charge` raises, so that nothing is charged and no
    private row is read. If it is second, it does nothing, and the statement continues to its end or to the owner's limit. Whatever
    else ends a statement after its charge, the owner's limit, Ctrl-C or a program's `interrupt`, is recorded where it ends
    (`run_and_record`). A statement that was stopped and answers nevertheless has exceeded its time limit: it is recorded, too.
    Not claimed: whether a limit falls before the charge depends on how long the statement waited, was parsed and was planned. None of
    this reads private rows, but what it waits for does: this is time, which the guarantee does not cover.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset_requests()

    def reset_requests(self) -> None:
        """Forget the requests about the statement before."""
        with self._lock:
            self._is_cancelled = self._is_charged = self.is_stopped = False
            self._record: Callable[[str], None] | None = None

    def cancel(self, engine: Interruptible) -> None:
        """End the statement for its client, unless it is charged: then it goes on."""
        with self._lock:
            if self._is_charged:
                return
            self._is_cancelled = True
        engine.interrupt()

    def stop(self, engine: Interruptible) -> None:
        """End the statement for the owner, charged or not."""
        with self._lock:
            self.is_stopped = True
        engine.interrupt()

    def begin_charge(self) -> None:
        """Note that the statement is about to be charged. Raises OperationalError if it is to end instead."""
        with self._lock:
            if self._is_charged:
                return
            if self.is_stopped:
                raise make_stopped_error(charged=False)
            if self._is_cancelled:
                raise OperationalError("the statement was cancelled; nothing was charged", code="cancelled")
            self._is_charged = True

    def note_charge(self, record: Callable[[str], None]) -> None:
        """Note how to record a failure after the newest charge, with its code."""
        self._record = record

    def require_not_stopped(self) -> None:
        """Record and raise the failure of a charged statement that the owner stopped and that ended by itself."""
        if not self.is_stopped or self._record is None:
            return
        self._record(STOPPED)
        error = make_stopped_error()
        error.charged = True
        raise error


def run_and_record(
    engine: Interruptible,
    work: Callable[[], _T],
    record: Callable[[str], None] | None,
    requests: StopRequests,
) -> _T:
    """Return the result of `work`, which is all that follows a charge; if somebody ends it, `record` notes the failure.

    Without a charge there is no `record`. `Error.note_charge` of what is raised says whether there was one.

    Claim: Ctrl-C only ends the work once the ledger has the failure, however often it is pressed.
    Why: a worker does the work and records how it ended, and Python raises KeyboardInterrupt only in the main thread. The main
    thread waits for the worker, and interrupts the engine meanwhile.
    """

    def run_noting_end(note: Callable[[str], None]) -> _T:
        ended: BaseException
        try:
            return work()
        except BaseException as error:
            if not is_interruption(error):
                raise
            ended = make_stopped_error() if requests.is_stopped else error
        note(STOPPED if requests.is_stopped else CANCELLED)
        raise ended

    context = copy_context()
    try:
        return (
            work()
            if record is None
            else run_interruptibly(engine, lambda: context.run(run_noting_end, record))
        )
    except BaseException as error:
        error.__dict__["charged"] = record is not None
        raise


def is_interruption(error: BaseException) -> bool:
    """Return whether a statement ended because somebody asked for it, by Ctrl-C, a limit or `interrupt`, and not by a failure.

    >>> is_interruption(KeyboardInterrupt()), is_interruption(ValueError())
    (True, False)
    """
    return not isinstance(error, Exception) or getattr(error, "code", "") == CANCELLED


def make_stopped_error(*, charged: bool = True) -> OperationalError:
    """Return the error of a statement that the owner stopped; after its charge it is the same whatever the statement was doing."""
    end = "its charge stays, and the failure is recorded" if charged else "nothing was charged"
    return OperationalError(
        f"the statement was stopped at the owner's limit; {end}",
        code="stopped",
        hint="query fewer columns or tables, or ask the data owner for a longer limit",
    )


def record_lost_charges(ledger: Ledger, analyst: str, sql: str, since: datetime) -> None:
    """Record as failures an analyst's charges for a query since a time, made by a process that has ended before it answered."""
    recent = ledger.list_entries(limit=_RECENT)
    failed = {entry.charge for entry in recent if entry.kind == FAILURE}
    lost = dict[int, list[Entry]]()
    for entry in recent:
        own = (entry.query, entry.analyst) == (sql, analyst) and entry.kind in RELEASED
        if own and entry.at >= since and entry.charge not in failed:
            lost.setdefault(entry.charge, []).append(entry)
    for entries in lost.values():
        tables = [entry.table for entry in entries]
        ledger.record_failure(tables, entries[0], analyst=analyst, query=sql, code="process_ended")


# The engine of a connection.


@dataclass(frozen=True)
class Engine:
    """One policy, one database and one ledger; `analyst` runs the queries, and `reservation` is charged if there is one.

    It runs nothing itself: the stages of a query, in `dpsql.engine.stages`, and their drivers take it as an argument.
    """

    policy: Policy
    backend: Backend
    ledger: Ledger
    analyst: str
    entropy: Entropy = field(default_factory=SystemEntropy)
    reservation: int | None = None
    stops: StopRequests = field(default_factory=StopRequests, compare=False)

    @cached_property
    def catalog(self) -> analyst_schema.AnalystSchema:
        """Return the schema that an analyst sees."""
        built = analyst_schema.build_analyst_schema(
            self.policy, self.backend.read_schema(), self.backend.find_origin
        )
        return replace(built, database_name=self.backend.database_name)

    @cached_property
    def policy_digest(self) -> str:
        """Return the digest of the policy."""
        return self.policy.compute_digest()

    @cached_property
    def release_store(self) -> ReleaseStore:
        """Return the stored releases of the policy and the database."""
        return ReleaseStore(self.policy, self.analyst, self.ledger, self.backend, self.get_account)

    @property
    def public_lookups(self) -> PublicLookups:
        """Return the look-ups in public tables for one statement: each is made once, or once for all statements if nothing changes."""
        return (
            self._kept_lookups.with_fresh_evaluations()
            if self.backend.is_unchanging
            else PublicLookups(self.backend)
        )

    @cached_property
    def _kept_lookups(self) -> PublicLookups:
        return PublicLookups(self.backend)

    @cached_property
    def _accounts(self) -> dict[str, Account]:
        found = {
            table: Account.from_budget(get_table_budget(self.policy, table))
            for table in self.policy.list_private_tables()
        }
        return found | {self.policy.get_account_name(table): account for table, account in found.items()}

    def get_account(self, name: str) -> Account:
        """Return the budget of a private table or of an account's name, with its accountant and limit."""
        return self._accounts[name]

    def get_accounts(self, tables: Iterable[str]) -> dict[str, Account]:
        """Return the accounts that pay for these private tables, by their names: each once, however many of its tables there are."""
        return {name: self._accounts[name] for name in map(self.policy.get_account_name, tables)}

    def cancel(self) -> None:
        """End the running statement for its client, unless it is charged; for other threads to call."""
        self.stops.cancel(self.backend)

    def stop(self) -> None:
        """End the running statement for the owner; for other threads to call."""
        self.stops.stop(self.backend)
