"""Asking one query for a person who waits: its price before, what goes on meanwhile, and what Ctrl-C leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TextIO

from dpsql.errors import Error
from dpsql.request.loss import rounded
from dpsql.request.target import Target
from dpsql.shell.failures import INTERRUPTED

if TYPE_CHECKING:
    from dpsql.connection import Connection
    from dpsql.ledger import Head
    from dpsql.result import Receipt, Result

_QUIET: Final = 1.0
"""Seconds in which nothing is said of a query that runs."""
_EVERY: Final = 0.5


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a query was asked; `text` says whether it was charged."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, slots=True)
class Price:
    """What a query would be charged: an ε (the most, if it is answered in steps) to the accounts of these names."""

    epsilon: Fraction
    accounts: tuple[str, ...]
    steps: bool = False

    def __str__(self) -> str:
        most = "at most " if self.steps else ""
        return f"{most}ε {rounded(self.epsilon, 6, up=True)}, charged to {' and '.join(self.accounts)}"


def price(connection: Connection, sql: str, terms: Mapping[str, Any]) -> Price | None:
    """The price of a query, None for one that is free. Nothing is charged, and nothing private is read.

    Raises what `Connection.explain` raises.
    """
    engine = connection.engine
    prepared = connection.explain(sql, **terms).prepared
    quotes = engine.quote(prepared) if prepared.bills else ()
    if prepared.explain or not quotes:
        return None
    accounts, target = tuple(dict.fromkeys(quote.key.name for quote in quotes)), prepared.terms.target
    if isinstance(target, Target) and target.share is not None:
        most, _ = engine.search(prepared, target).most()
        return Price(most, accounts, steps=True)
    return Price(prepared.terms.epsilon, accounts)


def ask(
    connection: Connection, sql: str, terms: Mapping[str, Any], *, progress: TextIO | None = None
) -> Result:
    """The answer to a query. Ctrl-C raises `Interrupted`, which says whether the query was charged.

    `progress` is the terminal that shows how long the query has been running.
    """
    before = connection.engine.ledger.head()
    try:
        with waiting(progress):
            return connection.query(sql, **terms)
    except KeyboardInterrupt:
        raise Interrupted(_left_behind(connection, before, sql)) from None


def answered_at(connection: Connection, receipt: Receipt) -> datetime | None:
    """When the newest stored release was charged that an answer rests on; None where it rests on none."""
    entries = map(connection.engine.ledger.entry, receipt.replayed)
    return max((entry.at for entry in entries if entry is not None), default=None)


@contextmanager
def waiting(terminal: TextIO | None) -> Iterator[None]:
    """Says on a terminal how long the work within has taken, once that is more than a second.

    Only the time is shown, which whoever waits knows anyway. How far the engine has come is not: the steps of its
    progress follow from the number of rows, which is private.
    """
    if terminal is None:
        yield
        return
    ended, began = threading.Event(), time.monotonic()

    def tell() -> None:
        pause = _QUIET
        while not ended.wait(pause):
            pause = _EVERY
            terminal.write(f"\r\x1b[2Krunning for {time.monotonic() - began:.0f} s; Ctrl-C stops the query")
            terminal.flush()

    teller = threading.Thread(target=tell, name="dpsql progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if time.monotonic() - began >= _QUIET:
            terminal.write("\r\x1b[2K")
            terminal.flush()


def _left_behind(connection: Connection, before: Head, sql: str) -> str:
    """What an interrupted query has left in the ledger, which may have entries of others' after `before`, too."""
    try:
        ledger, who = connection.engine.ledger, connection.engine.analyst
        since = ledger.head().entries - before.entries
        own = [
            entry.id
            for entry in (ledger.entries(limit=since) if since else ())
            if entry.id > before.entries and entry.query == sql and entry.analyst == who
        ]
    except (Error, KeyboardInterrupt):
        return INTERRUPTED
    if not own:
        return "interrupted; nothing was charged"
    several = "entries" if len(own) > 1 else "entry"
    return f"interrupted after the charge, which stays: ledger {several} {', '.join(map(str, own))}"
