"""A ledger's entries in a database: followed as they are added, and appended by one writer at a time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import zip_longest
from typing import Any, TypeVar

from sqlalchemy import Connection, insert, select

from dpsql.accounting.events import Event
from dpsql.errors import DatabaseError, Error, IntegrityError, InterfaceError, OperationalError
from dpsql.ledger.anchor import Anchor, kept_head
from dpsql.ledger.balance import Standing, parts_digest
from dpsql.ledger.chain import Chain
from dpsql.ledger.claims import Claims
from dpsql.ledger.digest import Row, Seal
from dpsql.ledger.failures import Allowed
from dpsql.ledger.group_commit import Group, Rows, Waiting
from dpsql.ledger.identity import require_same
from dpsql.ledger.migration import migrate
from dpsql.ledger.protocol import Account, AccountKey, Clock, Entry, Head
from dpsql.ledger.refusal import rolled_back
from dpsql.ledger.releases import note_claims, release_chain_end, require_refinable, stored_claims
from dpsql.ledger.renewal import period
from dpsql.ledger.reservations import slices_digest
from dpsql.ledger.rows import (
    START,
    account_of,
    account_row,
    entry_of,
    entry_row,
    head_of,
    spend_columns,
    tampered,
)
from dpsql.ledger.schema import ACCOUNTS, ENTRIES, SCHEMA
from dpsql.ledger.stored_budget import require_one_spelling, settled
from dpsql.ledger.stores.base import UNKNOWN, Store
from dpsql.ledger.tables import (
    OLDEST_FIRST,
    end_row,
    entry_rows,
    keep_parts,
    keep_slices,
    last_rows,
    make_tables,
    recognised,
    require_holds,
    require_key,
    rows_from,
    stored_accounts,
    stored_parts,
    stored_slices,
)
from dpsql.ledger.uninterrupted import uninterrupted

_MOST_FOLLOWED = 1000  # new entries; beyond, the last one of each account is looked up instead

_ENTRY = insert(ENTRIES)
_T = TypeVar("_T")


class SqlBook:
    """The entries of one ledger in one database.

    Any number of these may share a database, across threads and processes: whoever appends reads the totals and
    writes the entries while it has the ledger alone. Objects survive a fork, except those in memory, which
    belong to the process that made them. On opening the last entry of each account is checked; after that, each
    use checks what was added since, and that the last entry seen is still there.
    """

    def __init__(
        self,
        store: Store,
        accounts: Mapping[AccountKey, Account],
        clock: Clock,
        anchor: Anchor | None = None,
        seal: Seal | None = None,
        *,
        database: str | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        self._store = store
        self._accounts = dict(sorted(accounts.items()))
        self._clock = clock
        self._anchor = anchor
        self._seal = seal or Seal()
        self._database = database
        self._allowed = allowed or Allowed()
        self._chain = Chain()
        self._stored = START
        self._budgets: dict[AccountKey, str] = {}
        self._closed = False
        self._group = Group()
        weakref.finalize(self, store.abandon)

    def prepare(self, expected: Head) -> None:
        """Makes the tables in an empty database, or checks what is there; errors as `open_ledger` says."""
        uninterrupted(lambda: self._prepare(expected))

    def _prepare(self, expected: Head) -> None:
        deadline = time.monotonic() + self._store.patience
        while True:
            try:
                return self._prepare_once(expected)
            except OperationalError as error:
                # SQLite does not wait for its lock when it changes the journal mode.
                if error.code != "ledger_busy" or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Ends the use of this object; a ledger in memory is gone."""
        self._closed = True
        uninterrupted(self._store.close)

    def _appended(self, rows_now: Callable[[], Rows], refines: Sequence[int] = ()) -> tuple[Entry, ...]:
        """Writes the entries that follow from where the ledger ends while this has it alone; they are durable then."""
        return tuple(
            map(entry_of, self._group.appended(Waiting(rows_now, refines), self._store.held, self._commit))
        )

    def _commit(self, group: Sequence[Waiting]) -> None:
        """One transaction for all of a group: each has its rows then, or why it has none."""
        before, head = self._chain, START
        try:
            with self._transaction(write=True) as connection:
                before = self._chain
                head = self._written(connection, group)
        except Error as error:
            self._chain = before
            if error.code != UNKNOWN or head == START:
                raise
            self._find_out(head, error, group)
        except BaseException:
            self._chain = before
            if head != START:
                # The commit may be done: those of the group are not to be charged again then.
                self._find_out(head, self._unknown(), group)
            raise
        for each in group:
            each.done = True
        self._keep_anchor(group)

    def _find_out(self, head: Head, error: Error, group: Sequence[Waiting]) -> None:
        try:
            self._require_committed(head, error)
        except OperationalError as unknown:
            _refuse(group, unknown)
        for each in group:
            each.done = True

    def _unknown(self) -> OperationalError:
        return OperationalError(
            f"the ledger {self._store.where} was left as it committed; the charge may stand",
            code=UNKNOWN,
            hint="nothing was answered; look at the ledger's last entries before asking again",
        )

    def _require_usable(self) -> None:
        if self._closed:
            raise InterfaceError("the ledger is closed", code="ledger_closed")
        self._store.require_owner()

    def _standing(self, key: AccountKey, now: datetime | None = None) -> Standing:
        """Where an account stands now: at the end of the chain, or at the beginning of a period after it."""
        renewal = self._accounts[key].budget.renewal
        return self._chain.standing(key).begun(period(renewal, self._clock() if now is None else now))

    def _row(
        self,
        common: Row,
        end: Head,
        key: AccountKey,
        event: Event | None,
        standing: Standing,
        *,
        claims: Claims | None = None,
    ) -> dict[str, Any]:
        """The row of the entry after `end`, with where its account stands then, and which releases are claimed."""
        known = self._chain.claims if claims is None else claims
        columns: tuple[dict[str, str | int | None], ...] = (
            {**spend_columns("spent_", standing.spent), "parts": parts_digest(standing.parts)},
            {**spend_columns("limit_", self._accounts[key].limit), "budget": self._budgets[key]},
            {"period": standing.period, "slices": slices_digest(standing.slices)},
            {"failures": standing.failures or None, "claims": known.digest},
            {"stored": None if self._stored == START else str(self._stored)},
            {"database": self._database or self._chain.database},
        )
        return entry_row(common, end, key, standing.count, event, *columns, seal=self._seal)

    def _written(self, connection: Connection, group: Sequence[Waiting]) -> Head:
        """Where the chain ends with the entries of a group, which the database has taken; START if there are none."""
        before, rows = self._chain, Rows()
        require_same(self._store.where, before.database, self._database)
        self._stored = release_chain_end(connection, self._seal, before.stored)
        for each in group:
            try:
                if each.refines:
                    require_refinable(connection, each.refines, self._chain.claims)
                each.rows = each.rows_now()
            except Error as error:
                each.refused(error)
                continue
            self._chain = self._chain.followed(each.rows, self._seal, self._budgets.get)
            if each.rows and each.refines:
                note_claims(connection, each.refines, each.rows[0]["id"])
            rows += each.rows
        if not rows:
            return START
        for key in {account_of(row) for row in rows}:
            keep_parts(connection, key, before.standing(key), self._chain.standing(key))
            keep_slices(connection, key, before.standing(key), self._chain.standing(key))
        connection.execute(_ENTRY, rows)
        self._require_kept(connection, before.head, rows)
        return self._chain.head

    def _require_kept(self, connection: Connection, last: Head, rows: Rows) -> None:
        """Reads back what was written, which must be the same, digests and all, and the end of the ledger."""
        kept = rows_from(connection, last.entries + 1, len(rows) + 1)
        for row, own in zip_longest(kept, rows):
            if row != own:
                raise tampered((own or row)["id"], "is not kept as it was written")

    def _read(self, found: Callable[[Connection], _T]) -> _T:
        """What is found in one reading transaction, at the end of the chain as it is then."""

        def read() -> _T:
            with self._transaction(write=False) as connection:
                return found(connection)

        return uninterrupted(read)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        self._require_usable()
        with self._store.held():
            # Read before the transaction begins, so that it cannot be ahead of what that sees.
            expected = kept_head(self._anchor)
            with self._store.transaction(write=write) as connection:
                self._catch_up(connection, expected)
                yield connection

    def _catch_up(self, connection: Connection, expected: Head) -> None:
        """Checks what was added since the last time, and that the expected head is part of the chain."""
        self._chain = chain = self._caught_up(connection)
        if expected not in (START, chain.head):
            require_holds(connection, expected, self._store.where)
        if self._anchor is not None and chain.head != START and self._anchor.head() is None:
            raise IntegrityError(
                f"the ledger {self._store.where} has entries, but there is no anchor {self._anchor.path}",
                code="anchor_missing",
                hint="restore the anchor; if there never was one, keep the ledger's head() there",
            )

    def _caught_up(self, connection: Connection) -> Chain:
        chain, last = self._chain, self._chain.head
        rows = rows_from(connection, max(last.entries, 1), _MOST_FOLLOWED + 1)
        if last != START:
            if not rows or head_of(rows[0]) != last:
                raise rolled_back(self._store.where, last)
            if not self._seal.holds(rows[0]):
                raise tampered(last.entries, "was changed")
        if len(rows) > _MOST_FOLLOWED:
            return self._looked_up(connection)
        new = rows if last == START else rows[1:]
        return chain.followed(new, self._seal, lambda key: self._budget_of(connection, key))

    def _looked_up(self, connection: Connection) -> Chain:
        """The chain as the last entries tell it."""
        return Chain.ending(
            end_row(connection),
            last_rows(connection),
            self._seal,
            lambda key: self._budget_of(connection, key),
            lambda key: (stored_parts(connection, key), stored_slices(connection, key)),
            noted_claims=lambda: stored_claims(connection),
        )

    def _head(self, connection: Connection) -> Head:
        """Where the ledger ends, with its stored releases."""
        end = release_chain_end(connection, self._seal, self._chain.stored)
        return self._chain.head_with(end)

    def _budget_of(self, connection: Connection, key: AccountKey) -> str | None:
        if key not in self._budgets:  # another process may have added the account
            self._budgets = _digests(stored_accounts(connection, self._seal))
        return self._budgets.get(key)

    def _require_committed(self, head: Head, error: Error) -> None:
        """Finds out whether a commit landed whose answer was lost, or raises the error that says nobody knows."""
        try:
            # Whoever has the ledger alone waits for the lost connection's transaction to end, one way or the other.
            with self._transaction(write=True) as connection:
                landed = connection.execute(
                    select(ENTRIES.c.digest).where(ENTRIES.c.id == head.entries)
                ).scalar()
        except OperationalError:
            raise error from None
        if landed != head.digest:
            raise OperationalError(
                f"the connection to the ledger {self._store.where} was lost as it committed",
                code="ledger_unavailable",
                hint="nothing was charged; try again",
            )

    def _keep_anchor(self, group: Sequence[Waiting]) -> None:
        try:
            self._anchor_newest()
        except DatabaseError as error:
            _refuse(group, error)

    def _anchor_newest(self) -> None:
        """Keeps where the ledger ends now in its anchor, if it has one; the error says that the charge stays."""
        if self._anchor is None:
            return
        try:
            # Whoever has the ledger alone sees the newest head, so the anchor never goes back.
            with self._transaction(write=True) as connection:
                self._anchor.keep(self._head(connection))
        except DatabaseError as error:
            raise type(error)(
                f"{error.message}; the charge stays", code=error.code, hint="nothing was answered"
            ) from None

    def _prepare_once(self, expected: Head) -> None:
        with self._store.connected() as connection:
            # Before anything is changed, for the database may be somebody else's.
            if meta := recognised(self._store, connection):
                require_key(meta, self._seal, self._store.where)
            self._store.settle(connection)
        with self._store.transaction(write=True) as connection:
            meta = recognised(self._store, connection)
            if not meta:
                make_tables(connection, self._seal)
            else:
                require_key(meta, self._seal, self._store.where)
            if (schema := meta.get("schema", SCHEMA)) != SCHEMA:
                migrate(connection, schema)
            if schema == "2":
                rows = entry_rows(connection, OLDEST_FIRST)
                Chain().followed(rows, self._seal, lambda key: self._budget_of(connection, key))
            self._catch_up(connection, expected)
            require_same(self._store.where, self._chain.database, self._database)
            self._settle_accounts(connection)
            if self._anchor is not None and self._anchor.head() is None:
                self._anchor.keep(START)

    def _settle_accounts(self, connection: Connection) -> None:
        stored = stored_accounts(connection, self._seal)
        require_one_spelling(self._accounts, stored)
        for key, account in self._accounts.items():
            if key in stored:
                self._accounts[key] = settled(key, account, stored[key], self._seal)
            else:
                stored[key] = account_row(key, account, self._seal)
                connection.execute(insert(ACCOUNTS), stored[key])
        self._budgets = _digests(stored)


def _refuse(group: Sequence[Waiting], error: DatabaseError) -> None:
    """Tells all of a group that have written something of an error, each in an error of its own."""
    for each in group:
        if each.rows:
            each.refused(type(error)(error.message, code=error.code, hint=error.hint))


def _digests(stored: Mapping[AccountKey, Row]) -> dict[AccountKey, str]:
    return {key: str(row["digest"]) for key, row in stored.items()}
