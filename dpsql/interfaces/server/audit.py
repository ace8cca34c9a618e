"""The audit log of a server: logins and failed logins, queries and their outcomes, changes by the owner.

Claim: a query is answered only if its event is durable before anything is charged, and its outcome before the answer
is sent; a login succeeds only if its event is durable. No event holds a query's text, an answer, a password or a token.
Why: `audit_request` surrounds every call of the engine, and an event that cannot be written is an error there. Queries are in the
ledger, whose entries an outcome names. The name of a failed login is recorded only if such a user exists: the text that was
typed instead may be a password.

Anybody can cause failed logins. At most `LISTED_LOGIN_RATE` of them are events of their own; the next event says
how many came between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.errors import Error, InternalError, OperationalError
from dpsql.interfaces.server.logins import Rate, TokenBucket
from dpsql.ledger.audit_log import AuditLog

if TYPE_CHECKING:
    from dpsql.results.result import Result

LISTED_LOGIN_RATE = Rate(100, 10.0)
"""Failed logins that are events of their own: 100, and one more every 10 seconds."""

_MOST_REPLAYED = 100
"""Numbers of entries in an event: those of a long history would be no line."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: the user, the charged analyst, the protocol and the client address."""

    user: str
    analyst: str
    door: str
    peer: str


@dataclass(slots=True)
class Outcome:
    """The outcome of a query; `record_answer` records its answer."""

    facts: dict[str, Any] = field(default_factory=dict)
    charged: bool | None = False

    def record_answer(self, result: Result) -> None:
        """Record the charge that paid for an answer, or the charge that it replays."""
        entries, replayed = result.receipt.entries, result.receipt.replayed
        if entries:
            last, price = entries[-1], dict[str, float]()
            for each in entries:
                account = f"{each['table']} for {each['account']}" if "account" in each else each["table"]
                price[account] = max(price.get(account, 0.0), float(Fraction(each["loss"])))
            self.facts["charge"] = entries[0]["id"]
            self.facts["ledger"] = f"{last['id']} {last['digest']}"
            self.facts["price"] = price
        elif replayed:
            self.facts["replayed"] = sorted(set(replayed))[:_MOST_REPLAYED]
        self.charged = bool(entries)


@dataclass(frozen=True, slots=True)
class _AuditedRequest:
    """A query whose outcome is to be recorded."""

    number: int
    user: str
    analyst: str


def get_audit_anchor(ledger_anchor: Path | None) -> Path | None:
    """Return the anchor of the audit log, beside that of the ledger, or None without one."""
    return None if ledger_anchor is None else ledger_anchor.with_name(f"{ledger_anchor.name}.audit")


class ServerAudit:
    """Record events of a server; without a log, do nothing."""

    def __init__(self, log: AuditLog | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._login_bucket = TokenBucket(LISTED_LOGIN_RATE, LISTED_LOGIN_RATE.burst, clock())
        self._unlisted = 0

    def note_event(self, event: str, **facts: Any) -> int:
        """Append an event, durable on return, and return its number. Raises OperationalError (`audit`) if that fails."""
        if self._log is None:
            return 0
        failed = ""
        try:
            return self._log.append(event, facts)
        except Error as error:
            failed = error.code
        raise OperationalError(
            f"the server cannot write its audit log ({failed}), so it refuses logins and queries",
            code="audit",
            hint="the owner checks it with dpsql audit verify",
        )

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def note_refused_login(self, user: str | None, door: str, peer: str) -> None:
        """Record a failed login of a user, or of None for an unknown user; frequent ones are only counted."""
        with self._lock:
            self._login_bucket.fill(self._clock())
            if self._login_bucket.tokens < 1:
                self._unlisted += 1
                return
            self._login_bucket.tokens -= 1
            unlisted, self._unlisted = self._unlisted, 0
        self.note_event(
            "login refused", user=user, door=door, peer=peer, **({"unlisted": unlisted} if unlisted else {})
        )

    @contextmanager
    def audit_request(self, caller: Caller, what: str) -> Iterator[Outcome]:
        """Record the caller of a query before it reaches the engine, and its outcome afterwards.

        If the outcome cannot be recorded, an error replaces the answer and says whether the query was charged: it can be run
        again at no charge once the log can be written.
        """
        number = self.note_event(
            "asked", what=what, user=caller.user, analyst=caller.analyst, door=caller.door, peer=caller.peer
        )
        outcome, ended = Outcome(), _AuditedRequest(number, caller.user, caller.analyst)
        unforeseen = True
        try:
            yield outcome
            unforeseen = False
        except Error as error:
            unforeseen = False
            self._note_outcome(
                "refused", ended, outcome.charged or error.charged, code=error.code, **outcome.facts
            )
            raise
        finally:
            if unforeseen:
                self._note_outcome(
                    "failed", ended, outcome.charged or None, code=InternalError.code, **outcome.facts
                )
        self._note_outcome("answered", ended, outcome.charged, **outcome.facts)

    def _note_outcome(self, event: str, request: _AuditedRequest, charged: bool | None, **facts: Any) -> None:
        failed: Error | None = None
        try:
            self.note_event(
                event, of=request.number, user=request.user, analyst=request.analyst, charged=charged, **facts
            )
        except OperationalError as error:
            failed = error
        if failed is not None:
            if charged:
                failed.message += "; this query was charged, and running it again is free"
            failed.charged = charged
            raise failed from None
