"""The journal of a ledger's entries in a database: followed by every reader, appended by one writer at a time."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from sqlalchemy import Connection, insert, select

from dpsql.errors import DatabaseError, Error, IntegrityError, InterfaceError, OperationalError, PolicyError
from dpsql.ledger.amendments import BudgetHistory
from dpsql.ledger.anchor import AnchorFile, read_anchored_head
from dpsql.ledger.balance import Balance, compute_partitions_digest
from dpsql.ledger.budget import compute_period
from dpsql.ledger.chain import Chain
from dpsql.ledger.database_identity import require_same_database
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.entry_kinds import AMEND
from dpsql.ledger.failures import FailureLimit
from dpsql.ledger.group_commit import GroupCommit, PendingCharge, Rows, run_uninterrupted
from dpsql.ledger.protocol import Account, AccountKey, Clock, Entry, LedgerHead
from dpsql.ledger.refusal import make_rollback_error
from dpsql.ledger.release_claims import Claims
from dpsql.ledger.releases import (
    read_claims,
    read_release_head,
    require_refinable,
    verify_stored_releases,
    write_claims,
)
from dpsql.ledger.reservations import compute_reservations_digest
from dpsql.ledger.schema import (
    ACCOUNTS,
    ENTRIES,
    SCHEMA,
    START,
    get_account_key,
    get_row_head,
    make_entry_row,
    make_tampering_error,
    migrate,
    parse_charge,
    parse_entry,
    to_account_row,
    to_charge_columns,
)
from dpsql.ledger.stored_budget import require_one_spelling, with_stored_limit
from dpsql.ledger.stores.base import UNKNOWN, Store
from dpsql.ledger.tables import (
    OLDEST_FIRST,
    find_last_row,
    iterate_charge_rows,
    iterate_entry_rows,
    make_missing_index,
    make_tables,
    read_accounts,
    read_budget_history,
    read_last_entries,
    read_last_reset,
    read_ledger_meta,
    read_partitions,
    read_reservations,
    read_rows_from,
    require_derived_rows,
    require_key,
    require_ledger_head,
    write_partitions,
    write_reservations,
)
from dpsql.privacy.accounting.events import Event

_MOST_FOLLOWED = 1000  # new entries; with more, the last one of each account is looked up instead

_ENTRY = insert(ENTRIES)
_T = TypeVar("_T")


class SqlJournal:
    """The entries of one ledger in one database.

    Any number of these may share a database, across threads and processes: a writer reads the totals and
    writes the entries while it holds the ledger's lock. Objects survive a fork, except those in memory, which
    belong to the process that made them. Opening checks the last entry of each account; after that, each
    use checks the entries added since, and that the last entry seen is still there.
    """

    def __init__(
        self,
        store: Store,
        accounts: Mapping[AccountKey, Account],
        clock: Clock,
        anchor: AnchorFile | None = None,
        digests: KeyedDigest | None = None,
        *,
        database: str | None = None,
        failure_limit: FailureLimit | None = None,
    ) -> None:
        self._store = store
        self._accounts = dict(sorted(accounts.items()))
        self._clock = clock
        self._anchor = anchor
        self._digests = digests or KeyedDigest()
        self._database = database
        self._failure_limit = failure_limit or FailureLimit()
        self._chain = Chain()
        self._stored_head = START
        self._budgets = BudgetHistory()
        self._own_digests: dict[AccountKey, str] = {}
        self._closed = False
        self._group = GroupCommit()
        weakref.finalize(self, store.abandon)

    def prepare_database(self, expected: LedgerHead) -> None:
        """Create the tables in an empty database, or check the existing ones; raise what `open_ledger` documents."""
        run_uninterrupted(lambda: self._prepare_with_retries(expected))

    def _prepare_with_retries(self, expected: LedgerHead) -> None:
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
        """End the use of this object; a ledger in memory is gone."""
        self._closed = True
        run_uninterrupted(self._store.close)

    def _append_entries(
        self, build_rows: Callable[[], Rows], refines: Sequence[int] = ()
    ) -> tuple[Entry, ...]:
        """Append the entries that `build_rows` makes while this has the ledger alone; they are durable when it returns."""
        return tuple(
            map(
                parse_entry,
                self._group.append_charge(
                    PendingCharge(build_rows, refines), self._store.lock, self._commit_group
                ),
            )
        )

    def _commit_group(self, group: Sequence[PendingCharge]) -> None:
        """Commit a group in one transaction, after which each charge has its rows or the error that refused it."""
        before, head = self._chain, START
        try:
            with self._open_transaction(write=True) as connection:
                before = self._chain
                head = self._write_group(connection, group)
        except Error as error:
            self._chain = before
            if error.code != UNKNOWN or head == START:
                raise
            self._settle_commit_outcome(head, error, group)
        except BaseException:
            self._chain = before
            if head != START:
                # The commit may have happened: then the group's charges must not be repeated.
                self._settle_commit_outcome(head, self._make_unknown_outcome_error(), group)
            raise
        for each in group:
            each.done = True
        self._update_anchor(group)

    def _settle_commit_outcome(self, head: LedgerHead, error: Error, group: Sequence[PendingCharge]) -> None:
        try:
            self._require_committed(head, error)
        except OperationalError as unknown:
            _refuse_charges(group, unknown)
        for each in group:
            each.done = True

    def _make_unknown_outcome_error(self) -> OperationalError:
        return OperationalError(
            f"the commit to the ledger {self._store.where} was interrupted, so the charge may have been stored",
            code="ledger_unknown",
            hint="nothing was answered; check the ledger's last entries before you run the query again",
        )

    def _require_usable(self) -> None:
        if self._closed:
            raise InterfaceError("the ledger is closed", code="ledger_closed", hint="open it again")
        self._store.require_owner()

    def _compute_balance(self, key: AccountKey, now: datetime | None = None) -> Balance:
        """Return the balance of an account now: at the end of the chain, or at the beginning of a later period."""
        renewal = self._accounts[key].budget.renewal
        return self._chain.get_balance(key).move_to_period(
            compute_period(renewal, self._clock() if now is None else now)
        )

    def _is_current(self, connection: Connection, number: int) -> bool:
        """Return whether the releases that this charge paid for may still be used: no account of it was renewed or reset since.

        Claim: what is drawn from private rows in one period of an account, or between two of its resets, was charged to it there.
        Why: a charge is followed at once by its releases, which are of the period in which they were charged. Three more draw from
        what was paid for earlier. A reservation is part of an account's balance, and ends with it (`Balance.move_to_period`, the entry of
        a reset). A refinement asks here within the transaction of its charge, a stream before each answer. Whatever else is to be held
        and released later asks here, too.
        """
        now = self._clock()
        for row in iterate_charge_rows(connection, number):
            key = get_account_key(row)
            balance = (
                self._compute_balance(key, now) if key in self._accounts else self._chain.get_balance(key)
            )
            if row["period"] != balance.period or row["id"] < read_last_reset(connection, key):
                return False
        return True

    def _make_entry_row(
        self,
        common: Row,
        end: LedgerHead,
        key: AccountKey,
        event: Event | None,
        balance: Balance,
        *,
        claims: Claims | None = None,
        amended_account: Row | None = None,
    ) -> dict[str, Any]:
        """Return the row of the entry after `end`, with the balance of its account then, and the claimed releases.

        `amended_account` is the stored row of the account where the entry changes that.
        """
        known = self._chain.claims if claims is None else claims
        limit, budget = self._accounts[key].limit, self._budgets.find_budget_digest(key, end.entries + 1)
        if amended_account is not None:
            limit = parse_charge(amended_account["limit_loss"], amended_account["limit_delta"])
            budget = amended_account["digest"]
        columns: tuple[dict[str, str | int | None], ...] = (
            {**to_charge_columns("spent_", balance.spent), "parts": compute_partitions_digest(balance.parts)},
            {**to_charge_columns("limit_", limit), "budget": budget},
            {"period": balance.period, "slices": compute_reservations_digest(balance.reservations)},
            {"failures": balance.failures or None, "claims": known.digest},
            {"stored": None if self._stored_head == START else str(self._stored_head)},
            {"database": self._database or self._chain.database},
        )
        return make_entry_row(common, end, key, balance.count, event, *columns, digests=self._digests)

    def _write_group(self, connection: Connection, group: Sequence[PendingCharge]) -> LedgerHead:
        """Insert the entries of a group, and return the head after them; START if there are none."""
        before, rows = self._chain, Rows()
        require_same_database(self._store.where, before.database, self._database)
        self._stored_head = read_release_head(connection, self._digests, before.stored_head)
        for each in group:
            try:
                if each.refines:
                    require_refinable(
                        connection, each.refines, self._chain.claims, partial(self._is_current, connection)
                    )
                each.rows = each.build_rows()
            except Error as error:
                each.refuse_charge(error)
                continue
            self._chain = self._chain.follow_entries(
                each.rows, self._digests, self._budgets.find_budget_digest
            )
            if each.rows and each.refines:
                write_claims(connection, each.refines, each.rows[0]["id"])
            rows += each.rows
        if not rows:
            return START
        for key in {get_account_key(row) for row in rows}:
            write_partitions(connection, key, before.get_balance(key), self._chain.get_balance(key))
            write_reservations(connection, key, before.get_balance(key), self._chain.get_balance(key))
        self._insert_entries(connection, rows, before.head)
        return self._chain.head

    def _insert_entries(self, connection: Connection, rows: Rows, last: LedgerHead | None = None) -> None:
        """Insert entries after the present last one, or after `last`, and read them back."""
        connection.execute(_ENTRY, rows)
        self._require_written(connection, self._chain.head if last is None else last, rows)

    def _require_written(self, connection: Connection, last: LedgerHead, rows: Rows) -> None:
        """Require that the database returns the written rows unchanged, as the last ones of the ledger."""
        found = read_rows_from(connection, last.entries + 1, len(rows) + 1)
        for row, own in zip_longest(found, rows):
            if row != own:
                raise make_tampering_error((own or row)["id"], "was not stored as it was written")

    def _read_in_transaction(self, query: Callable[[Connection], _T]) -> _T:
        """Return the result of `query` in one reading transaction, at the present end of the chain."""

        def run_query() -> _T:
            with self._open_transaction(write=False) as connection:
                return query(connection)

        return run_uninterrupted(run_query)

    @contextmanager
    def _open_transaction(self, *, write: bool) -> Iterator[Connection]:
        self._require_usable()
        with self._store.lock():
            # Read before the transaction begins, so that it cannot be ahead of what that sees.
            expected = read_anchored_head(self._anchor)
            with self._store.open_transaction(write=write) as connection:
                self._follow_new_entries(connection, expected)
                yield connection

    def _follow_new_entries(self, connection: Connection, expected: LedgerHead) -> None:
        """Check the entries added since the last call, and that the expected head is part of the chain."""
        self._chain = chain = self._extend_chain(connection)
        if expected not in (START, chain.head):
            require_ledger_head(connection, expected, self._store.where)
        if self._anchor is not None and chain.head != START and self._anchor.read_head() is None:
            raise IntegrityError(
                f"the ledger {self._store.where} has entries, but its anchor file {self._anchor.path} does not exist",
                code="anchor_missing",
                hint="restore the anchor file; if there never was one, write the output of `dpsql ledger head` into it",
            )

    def _extend_chain(self, connection: Connection) -> Chain:
        chain, last = self._chain, self._chain.head
        rows = read_rows_from(connection, max(last.entries, 1), _MOST_FOLLOWED + 1)
        if last != START:
            if not rows or get_row_head(rows[0]) != last:
                raise make_rollback_error(self._store.where, last)
            if not self._digests.is_intact(rows[0]):
                raise make_tampering_error(last.entries, "was changed")
        if len(rows) > _MOST_FOLLOWED:
            return self._rebuild_chain(connection)
        new = rows if last == START else rows[1:]
        if any(row["kind"] == AMEND or get_account_key(row) not in self._budgets.current for row in new):
            self._read_budgets(connection)
        return chain.follow_entries(new, self._digests, self._budgets.find_budget_digest)

    def _rebuild_chain(self, connection: Connection) -> Chain:
        """Return the chain by the last entry of each account."""
        self._read_budgets(connection)
        return Chain.from_last_entries(
            find_last_row(connection),
            read_last_entries(connection),
            self._digests,
            self._budgets.find_budget_digest,
            lambda key: (read_partitions(connection, key), read_reservations(connection, key)),
            read_claims=lambda: read_claims(connection),
        )

    def _read_head(self, connection: Connection) -> LedgerHead:
        """Return the head of the ledger, with its stored releases."""
        end = read_release_head(connection, self._digests, self._chain.stored_head)
        return self._chain.compute_full_head(end)

    def _read_budgets(self, connection: Connection) -> None:
        """Read the budgets again, to which another process may have added one, or amended one.

        Raises PolicyError (`budget_changed`) where the budget of an account of this policy was amended: what it is now,
        a policy of before does not say.
        """
        self._budgets = read_budget_history(connection, self._digests)
        for key, own in self._own_digests.items():
            if self._budgets.current.get(key) != own:
                raise PolicyError(
                    f"the budget of {key} was amended since the ledger {self._store.where} was opened",
                    code="budget_changed",
                    hint="connect again, with the policy that has the amended budget",
                )

    def _require_committed(self, head: LedgerHead, error: Error) -> None:
        """Return if a commit whose acknowledgment was lost was stored; raise an error if it was not, or if that cannot be known."""
        try:
            # Taking the ledger's lock waits until the lost connection's transaction has ended, either way.
            with self._open_transaction(write=True) as connection:
                landed = connection.execute(
                    select(ENTRIES.c.digest).where(ENTRIES.c.id == head.entries)
                ).scalar()
        except OperationalError:
            raise error from None
        if landed != head.digest:
            raise OperationalError(
                f"the connection to the ledger {self._store.where} was lost during a commit",
                code="ledger_unavailable",
                hint="nothing was charged; try again",
            )

    def _update_anchor(self, group: Sequence[PendingCharge]) -> None:
        try:
            self._write_anchor()
        except DatabaseError as error:
            _refuse_charges(group, error)

    def _write_anchor(self) -> None:
        """Write the present head to the anchor, if there is one; its errors state that the charge stays."""
        if self._anchor is None:
            return
        try:
            # Under the ledger's lock this sees the newest head, so the anchor never goes back.
            with self._open_transaction(write=True) as connection:
                self._anchor.replace_head(self._read_head(connection))
        except DatabaseError as error:
            raise type(error)(
                f"{error.message}; the charge stays",
                code=error.code,
                hint="nothing was answered; make the anchor writable before you run the query again",
            ) from None

    def _prepare_once(self, expected: LedgerHead) -> None:
        with self._store.open_connection() as connection:
            # Before anything is changed, since the database may belong to another program.
            if meta := read_ledger_meta(self._store, connection):
                require_key(meta, self._digests, self._store.where)
            self._store.configure_database(connection)
        with self._store.open_transaction(write=True) as connection:
            meta = read_ledger_meta(self._store, connection)
            if not meta:
                make_tables(connection, self._digests)
            else:
                require_key(meta, self._digests, self._store.where)
            if (schema := meta.get("schema", SCHEMA)) != SCHEMA:
                migrate(connection, schema)
            make_missing_index(connection)
            if schema == "2":
                rows = iterate_entry_rows(connection, OLDEST_FIRST)
                Chain().follow_entries(
                    rows, self._digests, read_budget_history(connection, self._digests).find_budget_digest
                )
            self._follow_new_entries(connection, expected)
            require_derived_rows(connection, self._chain.balances)
            require_same_database(self._store.where, self._chain.database, self._database)
            self._store_missing_accounts(connection)
            if self._anchor is not None and self._anchor.read_head() is None:
                self._anchor.replace_head(START)

    def _store_missing_accounts(self, connection: Connection) -> None:
        stored = read_accounts(connection, self._digests)
        require_one_spelling(self._accounts, stored)
        for key, account in self._accounts.items():
            if key in stored:
                self._accounts[key] = with_stored_limit(key, account, stored[key], self._digests)
            else:
                stored[key] = to_account_row(key, account, self._digests)
                connection.execute(insert(ACCOUNTS), stored[key])
        self._budgets = replace(self._budgets, current=_get_digests(stored))
        self._own_digests = {key: self._budgets.current[key] for key in self._accounts}


def _refuse_charges(group: Sequence[PendingCharge], error: DatabaseError) -> None:
    """Refuse all charges of a group that have entries, each with an error object of its own."""
    for each in group:
        if each.rows:
            each.refuse_charge(type(error)(error.message, code=error.code, hint=error.hint))


def _get_digests(stored: Mapping[AccountKey, Row]) -> dict[AccountKey, str]:
    return {key: str(row["digest"]) for key, row in stored.items()}


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
