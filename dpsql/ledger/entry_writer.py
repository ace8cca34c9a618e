"""The writer of a ledger's entries: appends the charges of several threads in one transaction, one writer at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

from sqlalchemy import Connection, insert, select

from dpsql.errors import DatabaseError, Error, OperationalError
from dpsql.ledger.accounts import AccountBook
from dpsql.ledger.anchor import require_same_database
from dpsql.ledger.balance import Balance, compute_partitions_digest, compute_reservations_digest
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import Row
from dpsql.ledger.journal import Journal
from dpsql.ledger.protocol import START, Entry, LedgerHead
from dpsql.ledger.releases import read_release_head, require_refinable, write_claims
from dpsql.ledger.schema import (
    ENTRIES,
    Claims,
    get_account_key,
    get_row_head,
    make_entry_row,
    make_tampering_error,
    parse_charge,
    parse_entry,
    to_charge_columns,
)
from dpsql.ledger.stores.base import UNKNOWN
from dpsql.ledger.tables import read_rows_from, write_partitions, write_reservations
from dpsql.ledger.workers import GroupCommit, PendingCharge, Rows
from dpsql.privacy.accounting.events import Event

_ENTRY = insert(ENTRIES)


class EntryWriter:
    """Makes and appends the entries of one ledger, for the accounts of its book.

    It owns the charges that wait for their commit, the head of the stored releases that new entries state, and the identity of
    the `database` whose queries are charged. A writer reads the totals and writes the entries while it holds the ledger's lock.
    """

    def __init__(self, journal: Journal, book: AccountBook, database: str | None) -> None:
        self._journal = journal
        self._book = book
        self._database = database
        self._stored_head = START
        self._group = GroupCommit()

    @property
    def next_number(self) -> int:
        """Return the number of the entry that follows the chain."""
        return self._journal.chain.head.entries + 1

    def append(self, build_rows: Callable[[], Rows], refines: Sequence[int] = ()) -> tuple[Entry, ...]:
        """Append the entries that `build_rows` makes while this has the ledger alone; they are durable when it returns."""
        pending = PendingCharge(build_rows, refines)
        return tuple(
            map(parse_entry, self._group.append_charge(pending, self._journal.store.lock, self._commit_group))
        )

    def add_row(
        self,
        rows: Rows,
        common: Row,
        key: AccountKey,
        balance: Balance,
        *,
        event: Event | None = None,
        claims: Claims | None = None,
        amended_account: Row | None = None,
    ) -> None:
        """Add the row of the entry after `rows`, with the balance of its account then, and the claimed releases.

        The first row follows the chain. `amended_account` is the stored row of the account where the entry changes that.
        """
        chain = self._journal.chain
        end = get_row_head(rows[-1]) if rows else chain.head
        known = chain.claims if claims is None else claims
        limit = self._book.accounts[key].limit
        budget = self._journal.budgets.find_budget_digest(key, end.entries + 1)
        if amended_account is not None:
            limit = parse_charge(amended_account["limit_loss"], amended_account["limit_delta"])
            budget = amended_account["digest"]
        columns: tuple[dict[str, str | int | None], ...] = (
            {**to_charge_columns("spent_", balance.spent), "parts": compute_partitions_digest(balance.parts)},
            {**to_charge_columns("limit_", limit), "budget": budget},
            {"period": balance.period, "slices": compute_reservations_digest(balance.reservations)},
            {"failures": balance.failures or None, "claims": known.digest},
            {"stored": None if self._stored_head == START else str(self._stored_head)},
            {"database": self._database or chain.database},
        )
        rows.append(
            make_entry_row(common, end, key, balance.count, event, *columns, digests=self._journal.digests)
        )

    def follow_stored_releases(self, connection: Connection) -> None:
        """Read the newest stored release, for which the next entries vouch."""
        self._stored_head = read_release_head(
            connection, self._journal.digests, self._journal.chain.stored_head
        )

    def insert_entries(self, connection: Connection, rows: Rows, last: LedgerHead) -> None:
        """Insert entries after `last`, and require that the database returns them unchanged, as the last ones of the ledger."""
        connection.execute(_ENTRY, rows)
        _require_written(connection, last, rows)

    def _commit_group(self, group: Sequence[PendingCharge]) -> None:
        """Commit a group in one transaction, after which each charge has its rows or the error that refused it."""
        journal, head = self._journal, START
        before = journal.chain
        try:
            with journal.open_transaction(write=True) as connection:
                before = journal.chain
                head = self._write_group(connection, group)
        except Error as error:
            journal.chain = before
            if error.code != UNKNOWN or head == START:
                raise
            self._settle_commit_outcome(head, error, group)
        except BaseException:
            journal.chain = before
            if head != START:
                # The commit may have happened: then the group's charges must not be repeated.
                self._settle_commit_outcome(head, self._make_unknown_outcome_error(), group)
            raise
        for each in group:
            each.done = True
        self._update_anchor(group)

    def _write_group(self, connection: Connection, group: Sequence[PendingCharge]) -> LedgerHead:
        """Insert the entries of a group, and return the head after them; START if there are none."""
        journal, rows = self._journal, Rows()
        before = journal.chain
        require_same_database(journal.store.where, before.database, self._database)
        self.follow_stored_releases(connection)
        for each in group:
            try:
                if each.refines:
                    require_refinable(
                        connection,
                        each.refines,
                        journal.chain.claims,
                        partial(self._book.is_current, connection, journal.chain),
                    )
                each.rows = each.build_rows()
            except Error as error:
                each.refuse_charge(error)
                continue
            journal.follow_rows(each.rows)
            if each.rows and each.refines:
                write_claims(connection, each.refines, each.rows[0]["id"])
            rows += each.rows
        if not rows:
            return START
        for key in {get_account_key(row) for row in rows}:
            write_partitions(connection, key, before.get_balance(key), journal.chain.get_balance(key))
            write_reservations(connection, key, before.get_balance(key), journal.chain.get_balance(key))
        self.insert_entries(connection, rows, before.head)
        return journal.chain.head

    def _settle_commit_outcome(self, head: LedgerHead, error: Error, group: Sequence[PendingCharge]) -> None:
        try:
            self._require_committed(head, error)
        except OperationalError as unknown:
            _refuse_charges(group, unknown)
        for each in group:
            each.done = True

    def _require_committed(self, head: LedgerHead, error: Error) -> None:
        """Return if a commit whose acknowledgment was lost was stored; raise an error if it was not, or if that cannot be known."""
        try:
            # Taking the ledger's lock waits until the lost connection's transaction has ended, either way.
            with self._journal.open_transaction(write=True) as connection:
                landed = connection.execute(
                    select(ENTRIES.c.digest).where(ENTRIES.c.id == head.entries)
                ).scalar()
        except OperationalError:
            raise error from None
        if landed != head.digest:
            raise OperationalError(
                f"the connection to the ledger {self._journal.store.where} was lost during a commit",
                code="ledger_unavailable",
                hint="nothing was charged; try again",
            )

    def _make_unknown_outcome_error(self) -> OperationalError:
        return OperationalError(
            f"the commit to the ledger {self._journal.store.where} was interrupted, so the charge may have been stored",
            code="ledger_unknown",
            hint="nothing was answered; check the ledger's last entries before you run the query again",
        )

    def _update_anchor(self, group: Sequence[PendingCharge]) -> None:
        try:
            self._journal.write_anchor()
        except DatabaseError as error:
            _refuse_charges(group, error)


def _refuse_charges(group: Sequence[PendingCharge], error: DatabaseError) -> None:
    """Refuse all charges of a group that have entries, each with an error object of its own."""
    for each in group:
        if each.rows:
            each.refuse_charge(type(error)(error.message, code=error.code, hint=error.hint))


def _require_written(connection: Connection, last: LedgerHead, rows: Rows) -> None:
    """Require that the database returns the written rows unchanged, as the last ones of the ledger."""
    found = read_rows_from(connection, last.entries + 1, len(rows) + 1)
    for row, own in zip_longest(found, rows):
        if row != own:
            raise make_tampering_error((own or row)["id"], "was not stored as it was written")
