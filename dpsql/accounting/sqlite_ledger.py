"""The ledger in an SQLite file: write-ahead log, synchronous FULL, one writer at a time."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select

from dpsql.accounting.anchor import Anchor
from dpsql.accounting.budget import Budget
from dpsql.accounting.chain import START, Chain, Total
from dpsql.accounting.events import Event, to_json
from dpsql.accounting.ledger import Account, BudgetState, Clock, Entry, Head, Quote, utc_now
from dpsql.accounting.refusal import exhausted
from dpsql.accounting.rows import (
    budget_row,
    canonical,
    is_intact,
    row_digest,
    stored_budget,
    stored_entry,
    stored_spend,
    tampered,
    text_digest,
)
from dpsql.accounting.schema import BUDGETS, ENTRIES
from dpsql.accounting.spend import Spend
from dpsql.accounting.sqlite_file import BUSY_SECONDS, MEMORY, Store, in_use, make_private
from dpsql.accounting.sqlite_tables import entry_rows, is_ledger, make_tables, stored_budgets
from dpsql.errors import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    PolicyError,
    ProgrammingError,
)

_OLDEST_FIRST = select(ENTRIES).order_by(ENTRIES.c.id)
_FROM_THE_LAST = _OLDEST_FIRST.where(ENTRIES.c.id >= bindparam("last"))
_NEWEST_FIRST = select(ENTRIES).order_by(ENTRIES.c.id.desc())


class SqliteLedger:
    """A `Ledger` in one SQLite file, or in memory.

    Any number of these may share a file, across threads and processes: a charge reads the totals and
    writes its entries under SQLite's write lock. Objects survive a fork, except those in memory, which
    belong to the process that made them. All entries are checked on opening; after that, each use checks
    what was added since, and that the last entry seen is still there.
    """

    def __init__(
        self, store: Store, accounts: Mapping[str, Account], clock: Clock, anchor: Anchor | None = None
    ) -> None:
        self._store = store
        self._accounts = dict(sorted(accounts.items()))
        self._clock = clock
        self._anchor = anchor
        self._chain = Chain()
        self._budgets: dict[str, str] = {}
        self._owner = os.getpid() if store.where == MEMORY else None
        self._closed = False
        weakref.finalize(self, store.abandon)

    @classmethod
    def open(
        cls,
        target: str | Path,
        budgets: Mapping[str, Budget],
        *,
        clock: Clock = utc_now,
        anchor: Head | str | Path | None = None,
    ) -> SqliteLedger:
        """The ledger at `target`, made with mode 0600 if missing; errors as `open_ledger` says."""
        accounts = {table: Account.of(budget) for table, budget in budgets.items()}
        if str(target) == MEMORY:
            if anchor is not None:
                raise NotSupportedError("a ledger in memory has no past to anchor", code="ledger_target")
            ledger, expected = cls(Store(None), accounts, clock), START
        else:
            # Absolute, so that a later chdir cannot lead to another, fresh, ledger.
            path = _real_path(target)
            kept = None if anchor is None or isinstance(anchor, Head) else Anchor(anchor)
            if kept is not None and kept.path == path:
                raise ProgrammingError("a ledger cannot be its own anchor", code="anchor_unavailable")
            expected = anchor if isinstance(anchor, Head) else _kept_head(kept)
            if expected != START and not path.exists():
                raise _rolled_back(str(path), expected)
            make_private(path)
            ledger = cls(Store(path), accounts, clock, kept)
        try:
            ledger._prepare(expected)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def charge(
        self,
        charges: Mapping[str, Event],
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
    ) -> tuple[Entry, ...]:
        """As `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        costs = self._costs(charges)
        if not costs:
            return ()
        text_digest(analyst)
        common: dict[str, Any] = {
            "at": self._clock().astimezone(UTC).isoformat(timespec="microseconds"),
            "analyst": analyst,
            "query": query,
            "query_digest": text_digest(query),
            "details": canonical(dict(details or {})),
        }
        with in_use():
            with self._transaction("IMMEDIATE") as connection:
                quotes = self._quotes(costs)
                for quote in quotes:
                    if not quote.fits:
                        raise exhausted(self._accounts[quote.table], quote)
                rows = self._rows(charges, quotes, common)
                connection.execute(insert(ENTRIES), rows)
                charged = self._caught_up(connection)
                if charged.head != _head_of(rows):
                    raise tampered(rows[0]["id"], "is not kept as it was written")
            self._chain = charged
            self._keep_anchor()
        return tuple(stored_entry(row) for row in rows)

    def dry_run(self, charges: Mapping[str, Event]) -> tuple[Quote, ...]:
        """As `Ledger.dry_run`."""
        costs = self._costs(charges)
        with self._transaction("DEFERRED"):
            return self._quotes(costs)

    def state(self, table: str) -> BudgetState:
        """As `Ledger.state`; PolicyError (`no_budget`) for a table without a budget."""
        account = self._account(table)
        with self._transaction("DEFERRED"):
            total = self._chain.total(table)
        return _state(table, account, total)

    def states(self) -> tuple[BudgetState, ...]:
        """As `Ledger.states`, all at one moment."""
        with self._transaction("DEFERRED"):
            chain = self._chain
        return tuple(_state(table, account, chain.total(table)) for table, account in self._accounts.items())

    def entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Ledger.entries`."""
        wanted = _NEWEST_FIRST
        if table is not None:
            wanted = wanted.where(ENTRIES.c.table_name == table)
        if limit is not None:
            wanted = wanted.limit(max(limit, 0))
        with self._transaction("DEFERRED") as connection:
            rows = list(entry_rows(connection, wanted))
        return tuple(stored_entry(row) for row in reversed(rows))

    def head(self) -> Head:
        """As `Ledger.head`."""
        with self._transaction("DEFERRED"):
            return self._chain.head

    def close(self) -> None:
        """Ends the use of this object; a ledger in memory is gone."""
        self._closed = True
        self._store.close()

    def _account(self, table: str) -> Account:
        if table not in self._accounts:
            raise PolicyError(f"the ledger has no budget for table {table}", code="no_budget")
        return self._accounts[table]

    def _costs(self, charges: Mapping[str, Event]) -> dict[str, Spend]:
        return {table: self._account(table).accountant.cost(charges[table]) for table in sorted(charges)}

    def _quotes(self, costs: Mapping[str, Spend]) -> tuple[Quote, ...]:
        return tuple(
            Quote(table, cost, _left(self._accounts[table].limit, self._chain.total(table)[0]))
            for table, cost in costs.items()
        )

    def _rows(
        self, charges: Mapping[str, Event], quotes: tuple[Quote, ...], common: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        last, previous = self._chain.head.entries, self._chain.head.digest
        rows: list[dict[str, Any]] = []
        for position, quote in enumerate(quotes, start=1):
            table, limit = quote.table, self._accounts[quote.table].limit
            spent, queries = self._chain.total(table)
            row = dict(common)
            row |= {"id": last + position, "charge": last + 1, "table_name": table}
            row |= {"number": queries + 1, "event": to_json(charges[table]), "previous": previous}
            row |= _columns("", quote.spend) | _columns("spent_", spent + quote.spend)
            row |= _columns("limit_", limit) | {"budget": self._budgets[table]}
            previous = row["digest"] = row_digest(row)
            rows.append(row)
        return rows

    @contextmanager
    def _transaction(self, mode: str) -> Iterator[Connection]:
        if self._closed:
            raise InterfaceError("the ledger is closed", code="ledger_closed")
        if self._owner not in (None, os.getpid()):
            # The child's copy would spend the parent's budget a second time.
            raise OperationalError(
                "a ledger in memory belongs to the process that made it",
                code="ledger_forked",
                hint="keep the ledger in a file",
            )
        with in_use():
            # Read before the transaction begins, so that it cannot be ahead of what that sees.
            expected = _kept_head(self._anchor)
            with self._store.transaction(mode) as connection:
                self._catch_up(connection, expected)
                yield connection

    def _catch_up(self, connection: Connection, expected: Head) -> None:
        """Checks what was added since the last time, and that the expected head is part of the chain."""
        self._chain = chain = self._caught_up(connection)
        if expected not in (START, chain.head):
            wanted = select(ENTRIES.c.digest).where(ENTRIES.c.id == expected.entries)
            if connection.execute(wanted).scalar() != expected.digest:
                raise _rolled_back(self._store.where, expected)
        if self._anchor is not None and chain.head != START and self._anchor.head() is None:
            raise IntegrityError(
                f"the ledger {self._store.where} has entries, but there is no anchor {self._anchor.path}",
                code="anchor_missing",
                hint="restore the anchor; if there never was one, keep the ledger's head() there",
            )

    def _caught_up(self, connection: Connection) -> Chain:
        chain, last = self._chain, self._chain.head
        if last == START:
            return chain.followed(
                entry_rows(connection, _OLDEST_FIRST), lambda t: self._budget_of(connection, t)
            )
        rows = entry_rows(connection, _FROM_THE_LAST, {"last": last.entries})
        row = next(rows, None)
        if row is None or Head(row["id"], row["digest"]) != last:
            raise _rolled_back(self._store.where, last)
        if not is_intact(row):
            raise tampered(last.entries, "was changed")
        return chain.followed(rows, lambda table: self._budget_of(connection, table))

    def _budget_of(self, connection: Connection, table: str) -> str | None:
        if table not in self._budgets:  # another process may have added the table
            self._budgets = {name: str(row["digest"]) for name, row in stored_budgets(connection).items()}
        return self._budgets.get(table)

    def _keep_anchor(self) -> None:
        if self._anchor is None:
            return
        try:
            # Whoever holds the write lock sees the newest head, so the anchor never goes back.
            with self._transaction("IMMEDIATE"):
                self._anchor.keep(self._chain.head)
        except DatabaseError as error:
            raise type(error)(
                f"{error.message}; the charge stays", code=error.code, hint="nothing was answered"
            ) from None

    def _prepare(self, expected: Head) -> None:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return self._prepare_once(expected)
            except OperationalError as error:
                # SQLite does not wait for its lock when it changes the journal mode.
                if error.code != "ledger_busy" or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare_once(self, expected: Head) -> None:
        where = self._store.where
        with self._store.connected() as connection:
            # Before anything is changed, for the file may be somebody else's database.
            begun = is_ledger(connection, where)
            mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
            if mode not in ("wal", "memory"):
                raise OperationalError(
                    f"the ledger {where} lies on a file system without shared memory",
                    code="ledger_unavailable",
                    hint="keep the ledger on a local disk",
                )
        if begun:
            # A long history is checked while others charge; what they add is checked under the lock.
            with self._store.transaction("DEFERRED") as connection:
                self._catch_up(connection, expected)
        with self._store.transaction("IMMEDIATE") as connection:
            if not is_ledger(connection, where):
                make_tables(connection)
            self._catch_up(connection, expected)
            self._settle_budgets(connection)
            if self._anchor is not None and self._anchor.head() is None:
                self._anchor.keep(START)

    def _settle_budgets(self, connection: Connection) -> None:
        stored = stored_budgets(connection)
        for table, account in self._accounts.items():
            if table in stored:
                self._accounts[table] = _settled(table, account, stored[table])
            else:
                stored[table] = budget_row(table, account)
                connection.execute(insert(BUDGETS), stored[table])
        self._budgets = {table: str(row["digest"]) for table, row in stored.items()}


def _real_path(target: str | Path) -> Path:
    try:
        return Path(os.path.realpath(target))
    except (OSError, ValueError):
        raise OperationalError("the ledger's path is no path", code="ledger_unavailable") from None


def _settled(table: str, account: Account, row: Mapping[str, Any]) -> Account:
    """The account with the limit that was fixed when the budget was stored."""
    stored = stored_budget(row)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of table {table} is {account.budget} in the policy, but {stored} in its ledger",
            code="budget_changed",
            hint="a budget is fixed when its ledger is made: restore the policy's, or begin a new ledger",
        )
    limit = stored_spend(row["limit_loss"], row["limit_delta"])
    if not limit.within(account.limit):
        raise IntegrityError(
            f"the ledger allows table {table} more than its budget does", code="ledger_corrupt"
        )
    return replace(account, limit=limit)


def _kept_head(anchor: Anchor | None) -> Head:
    return (None if anchor is None else anchor.head()) or START


def _rolled_back(where: str, head: Head) -> IntegrityError:
    return IntegrityError(
        f"the ledger {where} no longer holds entry {head.entries} as it was: an older or another one took its place",
        code="ledger_rolled_back",
        hint="put the newest copy back: this one has forgotten what was spent since",
    )


def _head_of(rows: list[dict[str, Any]]) -> Head:
    return Head(rows[-1]["id"], rows[-1]["digest"])


def _left(limit: Spend, spent: Spend) -> Spend:
    return Spend(max(limit.loss - spent.loss, 0), max(limit.delta - spent.delta, 0))


def _columns(prefix: str, spend: Spend) -> dict[str, str]:
    return {f"{prefix}loss": str(spend.loss), f"{prefix}delta": str(spend.delta)}


def _state(table: str, account: Account, total: Total) -> BudgetState:
    spent, queries = total
    budget, accountant = account.budget, account.accountant
    return BudgetState(
        table=table,
        accountant=budget.accountant,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent=spent,
        limit=account.limit,
        queries=queries,
        remaining_epsilon=accountant.remaining_epsilon(spent, account.limit),
        spent_epsilon=accountant.epsilon_spent(spent, budget.delta, budget.selection),
    )
