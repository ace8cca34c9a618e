"""The journal of a ledger's entries in a database: its preparation, and how every reader follows and checks it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, insert

from dpsql.errors import DatabaseError, IntegrityError, InterfaceError, OperationalError, PolicyError
from dpsql.ledger.accounts import AccountBook, require_one_sharing, require_one_spelling
from dpsql.ledger.anchor import AnchorFile, read_anchored_head, require_same_database
from dpsql.ledger.balance import AMEND
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.chain import BudgetHistory, Chain
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import START, LedgerHead
from dpsql.ledger.quote import make_rollback_error
from dpsql.ledger.releases import read_claims, read_release_head, verify_stored_releases
from dpsql.ledger.schema import ACCOUNTS, get_account_key, get_row_head, make_tampering_error, to_account_row
from dpsql.ledger.stores.base import Store
from dpsql.ledger.tables import (
    find_last_row,
    make_tables,
    read_accounts,
    read_budget_history,
    read_last_entries,
    read_ledger_meta,
    read_partitions,
    read_reservations,
    read_rows_from,
    require_derived_rows,
    require_key,
    require_ledger_head,
)
from dpsql.ledger.workers import Rows, run_uninterrupted

_MOST_FOLLOWED = 1000  # new entries; with more, the last one of each account is looked up instead

_T = TypeVar("_T")


class Journal:
    """The entries of one ledger in one database, as far as this object has followed them.

    It owns the connection to the database, the chain of entries that were seen, the budgets that hold at each entry, and the
    anchor. Any number of these may share a database, across threads and processes. Objects survive a fork, except those in
    memory, which belong to the process that made them. Opening checks the last entry of each account; after that, each
    transaction checks the entries added since, and that the last entry seen is still there.
    """

    def __init__(self, store: Store, digests: KeyedDigest, anchor: AnchorFile | None = None) -> None:
        self.store = store
        self.digests = digests
        self.chain = Chain()
        self.budgets = BudgetHistory()
        self._anchor = anchor
        self._own_digests: dict[AccountKey, str] = {}
        self._closed = False
        weakref.finalize(self, store.abandon)

    def close(self) -> None:
        """End the use of this object; a ledger in memory is gone."""
        self._closed = True
        run_uninterrupted(self.store.close)

    def require_usable(self) -> None:
        """Raise InterfaceError (`ledger_closed`) after `close`, and an error where a fork may not use the ledger."""
        if self._closed:
            raise InterfaceError("the ledger is closed", code="ledger_closed", hint="open it again")
        self.store.require_owner()

    def read(self, query: Callable[[Connection], _T]) -> _T:
        """Return the result of `query` in one reading transaction, at the present end of the chain."""

        def run_query() -> _T:
            with self.open_transaction(write=False) as connection:
                return query(connection)

        return run_uninterrupted(run_query)

    @contextmanager
    def open_transaction(self, *, write: bool) -> Iterator[Connection]:
        """Open a transaction at the present end of the chain; with `write` it holds the ledger's lock."""
        self.require_usable()
        with self.store.lock():
            # Read before the transaction begins, so that it cannot be ahead of what that sees.
            expected = read_anchored_head(self._anchor)
            with self.store.open_transaction(write=write) as connection:
                self.follow_new_entries(connection, expected)
                yield connection

    def follow_new_entries(self, connection: Connection, expected: LedgerHead) -> None:
        """Check the entries added since the last call, and that the expected head is part of the chain."""
        self.chain = chain = self._extend_chain(connection)
        if expected not in (START, chain.head):
            require_ledger_head(connection, expected, self.store.where)
        if self._anchor is not None and chain.head != START and self._anchor.read_head() is None:
            raise IntegrityError(
                f"the ledger {self.store.where} has entries, but its anchor file {self._anchor.path} does not exist",
                code="anchor_missing",
                hint="restore the anchor file; if there never was one, write the output of `dpsql ledger head` into it",
            )

    def follow_rows(self, rows: Rows) -> None:
        """Extend the chain by entries of this process, which are checked like those of others."""
        self.chain = self.chain.follow_entries(rows, self.digests, self.budgets.find_budget_digest)

    def read_head(self, connection: Connection) -> LedgerHead:
        """Return the head of the ledger, with its stored releases."""
        end = read_release_head(connection, self.digests, self.chain.stored_head)
        return self.chain.compute_full_head(end)

    def expect_budgets(self, stored: Mapping[AccountKey, Row], own: Collection[AccountKey]) -> None:
        """Take the stored accounts for the present ones, and require from now on that the `own` ones are not amended."""
        current = {key: str(row["digest"]) for key, row in stored.items()}
        self.budgets = replace(self.budgets, current=current)
        self._own_digests = {key: current[key] for key in own}

    def accept_amended_budgets(self) -> None:
        """Stop requiring that budgets are those with which the ledger was opened: this process has amended one."""
        self._own_digests = {}

    def create_anchor(self) -> None:
        """Write the start of a ledger to an anchor file that does not exist yet."""
        if self._anchor is not None and self._anchor.read_head() is None:
            self._anchor.replace_head(START)

    def write_anchor(self) -> None:
        """Write the present head to the anchor, if there is one; its errors state that the charge stays."""
        if self._anchor is None:
            return
        try:
            # Under the ledger's lock this sees the newest head, so the anchor never goes back.
            with self.open_transaction(write=True) as connection:
                self._anchor.replace_head(self.read_head(connection))
        except DatabaseError as error:
            raise type(error)(
                f"{error.message}; the charge stays",
                code=error.code,
                hint="nothing was answered; make the anchor writable before you run the query again",
            ) from None

    def _extend_chain(self, connection: Connection) -> Chain:
        chain, last = self.chain, self.chain.head
        rows = read_rows_from(connection, max(last.entries, 1), _MOST_FOLLOWED + 1)
        if last != START:
            if not rows or get_row_head(rows[0]) != last:
                raise make_rollback_error(self.store.where, last)
            if not self.digests.is_intact(rows[0]):
                raise make_tampering_error(last.entries, "was changed")
        if len(rows) > _MOST_FOLLOWED:
            return self._rebuild_chain(connection)
        new = rows if last == START else rows[1:]
        if any(row["kind"] == AMEND or get_account_key(row) not in self.budgets.current for row in new):
            self._read_budgets(connection)
        return chain.follow_entries(new, self.digests, self.budgets.find_budget_digest)

    def _rebuild_chain(self, connection: Connection) -> Chain:
        """Return the chain by the last entry of each account."""
        self._read_budgets(connection)
        return Chain.from_last_entries(
            find_last_row(connection),
            read_last_entries(connection),
            self.digests,
            self.budgets.find_budget_digest,
            lambda key: (read_partitions(connection, key), read_reservations(connection, key)),
            read_claims=lambda: read_claims(connection),
        )

    def _read_budgets(self, connection: Connection) -> None:
        """Read the budgets again, to which another process may have added one, or amended one.

        Raises PolicyError (`budget_changed`) where the budget of an account of this policy was amended: a policy from before
        the amendment does not have the present budget.
        """
        self.budgets = read_budget_history(connection, self.digests)
        for key, own in self._own_digests.items():
            if self.budgets.current.get(key) != own:
                raise PolicyError(
                    f"the budget of {key} was amended since the ledger {self.store.where} was opened",
                    code="budget_changed",
                    hint="connect again, with the policy that has the amended budget",
                )


# Full verification of a ledger, entry by entry.


_BATCH = 5000  # entries of one transaction, so that the log need not grow while a long history is read


def verify_chain(store: Store, digests: KeyedDigest, expected: LedgerHead = START) -> Chain:
    """Return the chain of all entries and stored releases, from the first on; entries added meanwhile are checked too.

    Its `stored_head` is the head of the stored releases. Raises IntegrityError (`ledger_tampered`) with the number of the first
    entry that is not what dpsql wrote; (`ledger_rolled_back`) where the head `expected` is not part of the ledger.
    """
    chain, marks, ended = Chain(), dict[int, str](), False
    while not ended:
        chain, ended = run_uninterrupted(partial(_verify_batch, chain, marks, store, digests, expected))
    return chain


def _verify_batch(
    chain: Chain, vouched_digests: dict[int, str], store: Store, digests: KeyedDigest, expected: LedgerHead
) -> tuple[Chain, bool]:
    """Return the chain with the next entries, whose heads of stored releases are added to `vouched_digests`.

    At the end of the entries it checks that all other tables follow from them, and adds the head of the stored releases.
    """
    with store.open_transaction(write=False) as connection:
        budgets = read_budget_history(connection, digests)
        rows = read_rows_from(connection, chain.head.entries + 1, _BATCH)
        chain = chain.follow_entries(rows, digests, budgets.find_budget_digest)
        for stored in {row["stored"] for row in rows if row["stored"] is not None}:
            mark = LedgerHead.parse(stored)
            vouched_digests[mark.entries] = mark.digest
        if rows:
            return chain, False
        require_derived_rows(connection, chain.balances)
        require_ledger_head(connection, expected, store.where)
        return replace(
            chain, stored_head=verify_stored_releases(connection, digests, chain.claims, vouched_digests)
        ), True


# The preparation of a ledger's database before its first use: tables of a new ledger, checks of an existing one.


def prepare_ledger(journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None) -> None:
    """Create the tables in an empty database, or check the existing ones; raise what `open_ledger` documents."""
    run_uninterrupted(lambda: _prepare_with_retries(journal, book, expected, database))


def _prepare_with_retries(
    journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None
) -> None:
    deadline = time.monotonic() + journal.store.patience
    while True:
        try:
            return _prepare_once(journal, book, expected, database)
        except OperationalError as error:
            # SQLite does not wait for its lock when it changes the journal mode.
            if error.code != "ledger_busy" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _prepare_once(journal: Journal, book: AccountBook, expected: LedgerHead, database: str | None) -> None:
    store, digests = journal.store, journal.digests
    with store.open_connection() as connection:
        # Before anything is changed, since the database may belong to another program.
        if meta := read_ledger_meta(store, connection):
            require_key(meta, digests, store.where)
        store.configure_database(connection)
    with store.open_transaction(write=True) as connection:
        meta = read_ledger_meta(store, connection)
        if not meta:
            make_tables(connection, digests)
        else:
            require_key(meta, digests, store.where)
        journal.follow_new_entries(connection, expected)
        require_derived_rows(connection, journal.chain.balances)
        require_same_database(store.where, journal.chain.database, database)
        _store_missing_accounts(connection, journal, book)
        journal.create_anchor()


def _store_missing_accounts(connection: Connection, journal: Journal, book: AccountBook) -> None:
    """Store the accounts that the ledger does not have yet, and take over the limits of those that it has."""
    stored = read_accounts(connection, journal.digests)
    require_one_spelling(book.accounts, stored)
    require_one_sharing(book.accounts, stored)
    for key in tuple(book.accounts):
        if key in stored:
            book.take_stored_limit(key, stored[key], journal.digests)
        else:
            stored[key] = to_account_row(key, book.accounts[key], journal.digests)
            connection.execute(insert(ACCOUNTS), stored[key])
    journal.expect_budgets(stored, book.accounts)
