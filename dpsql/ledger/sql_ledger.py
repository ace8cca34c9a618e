"""The ledger in an SQL database: one writer at a time, each charge durable when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from dpsql.errors import ProgrammingError
from dpsql.ledger.accounts import AccountBook
from dpsql.ledger.balance import (
    AMEND,
    CHARGE,
    DRAW,
    FAILURE,
    RELEASED,
    RESERVE,
    RESET,
    RETURN,
    UNLOCK,
    EntryEffect,
    apply_effect,
    compute_remaining_budget,
    list_reservation_states,
)
from dpsql.ledger.budget import Budget
from dpsql.ledger.budget_state import AccountKey, BudgetState, Quote, RemainingBudget
from dpsql.ledger.chain import make_amendment_details, require_amendable
from dpsql.ledger.entry_writer import EntryWriter
from dpsql.ledger.journal import Journal, verify_chain
from dpsql.ledger.protocol import (
    Account,
    Entry,
    LedgerHead,
    NewRelease,
    ReleaseRecord,
    RequestedCharges,
    ReservationState,
)
from dpsql.ledger.quote import AccountCharge, get_account, list_account_charges, make_exhaustion_error
from dpsql.ledger.releases import iterate_stored_releases, store_releases
from dpsql.ledger.schema import (
    ENTRIES,
    get_account_key,
    make_common_columns,
    parse_checked_entry,
    parse_entry,
    to_account_row,
    to_charge_columns,
    to_claims_text,
)
from dpsql.ledger.tables import (
    NEWEST_FIRST,
    iterate_entry_rows,
    read_accounts,
    read_budget_history,
    write_amended_account,
)
from dpsql.ledger.workers import Rows, run_uninterrupted
from dpsql.privacy.accounting.events import NOTHING
from dpsql.privacy.accounting.partitions.boxes import WHOLE


class SqlLedger:
    """A `Ledger` in one database; see `Journal` for who may share it. `verify` checks all entries.

    The journal follows the entries, the book has the accounts and their balances, and the writer appends entries. This class turns
    each request into the entries to append or the balances to return.
    """

    def __init__(self, journal: Journal, book: AccountBook, database: str | None) -> None:
        self._journal = journal
        self._book = book
        self._writer = EntryWriter(journal, book, database)

    def charge(
        self,
        charges: RequestedCharges,
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
        refines: Sequence[int] = (),
        reservation: int | None = None,
    ) -> tuple[Entry, ...]:
        """See `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        charges_due = list_account_charges(charges, analyst, self._book.accounts)
        return self._append_charges(
            charges_due, _make_charge_effect(analyst, reservation), query, details, sorted(set(refines))
        )

    def reserve(
        self, charges: RequestedCharges, *, analyst: str, details: Mapping[str, Any] | None = None
    ) -> tuple[Entry, ...]:
        """See `Ledger.reserve`."""
        charges_due = list_account_charges(charges, analyst, self._book.accounts)
        if any(part.table_charge.box != WHOLE for part in charges_due) or len(
            {part.key for part in charges_due}
        ) < len(charges_due):
            raise ProgrammingError(
                "a reservation must cover whole tables, each of them once",
                code="slice_part",
                hint="leave partitions and repeated tables out",
            )
        return self._append_charges(charges_due, EntryEffect(RESERVE, actor=analyst), "", details)

    def close_reservation(self, number: int, *, by: str) -> tuple[Entry, ...]:
        """See `Ledger.close_reservation`."""
        now = self._book.clock().astimezone(UTC)
        common = make_common_columns(now, by, "", {})

        def build_rows() -> Rows:
            rows, shared = (
                Rows(),
                {**common, "charge": self._writer.next_number, "kind": RETURN, "slice": number},
            )
            for key, before in self._book.compute_balances(self._journal.chain, now).items():
                if number in before.reservations:
                    rest = before.reservations[number].compute_remaining()
                    after = apply_effect(before, EntryEffect(RETURN, rest, reservation=number, actor=by))
                    self._writer.add_row(rows, shared | to_charge_columns("", rest), key, after)
            return rows

        return self._writer.append(build_rows)

    def reset(self, table: str, *, by: str, reason: str, analyst: str = "") -> Entry:
        """See `Ledger.reset`."""
        return self._append_owner_entry(AccountKey(table, analyst), RESET, by, reason)

    def unlock(self, table: str, *, by: str, reason: str) -> Entry:
        """See `Ledger.unlock`."""
        return self._append_owner_entry(AccountKey(table), UNLOCK, by, reason)

    def amend(
        self, budgets: Mapping[AccountKey, Budget], *, by: str, reason: str
    ) -> tuple[tuple[Entry, Budget, Budget], ...]:
        """See `Ledger.amend`."""
        if not reason.strip():
            raise ProgrammingError(
                "an amendment needs a reason", code="amend_reason", hint="pass a reason that is not empty"
            )
        for key in budgets:
            get_account(key, self._book.accounts)
        now = self._book.clock().astimezone(UTC)
        changed = {
            key: Account.from_budget(budget)
            for key, budget in sorted(budgets.items())
            if budget != self._book.accounts[key].budget
        }
        if not changed:
            raise ProgrammingError(
                "the ledger already has the budgets of the policy",
                code="amend_nothing",
                hint="write the new budget into the policy first, then amend the ledger",
            )

        def commit() -> Rows:
            with self._journal.open_transaction(write=True) as connection:
                return self._write_amendments(connection, changed, now, by, reason)

        try:
            rows = run_uninterrupted(commit)
            self._journal.accept_amended_budgets()  # the anchor is that of the amended ledger
            run_uninterrupted(self._journal.write_anchor)
        finally:
            self.close()
        return tuple(
            (
                parse_entry(row),
                self._book.accounts[get_account_key(row)].budget,
                changed[get_account_key(row)].budget,
            )
            for row in rows
        )

    def _write_amendments(
        self,
        connection: Connection,
        changed: Mapping[AccountKey, Account],
        now: datetime,
        by: str,
        reason: str,
    ) -> Rows:
        """Write one entry and the row of each account, and check them as a later reader will."""
        journal, writer, rows = self._journal, self._writer, Rows()
        writer.follow_stored_releases(connection)
        stored = read_accounts(connection, journal.digests)
        for key, account in changed.items():
            balance = apply_effect(self._book.compute_balance(journal.chain, key, now), EntryEffect(AMEND))
            require_amendable(key, self._book.accounts[key], account, balance.spent)
            after = to_account_row(key, account, journal.digests)
            details = make_amendment_details(stored[key], after, reason)
            common = make_common_columns(now, by, "", details) | to_charge_columns("", NOTHING)
            common |= {"charge": writer.next_number, "kind": AMEND}
            writer.add_row(rows, common, key, balance, amended_account=after)
            write_amended_account(connection, after)
        writer.insert_entries(connection, rows, journal.chain.head)
        # Budgets are read back, too: a trigger in the database might have undone the change.
        journal.chain.follow_entries(
            rows, journal.digests, read_budget_history(connection, journal.digests).find_budget_digest
        )
        return rows

    def _append_owner_entry(self, key: AccountKey, kind: str, by: str, reason: str) -> Entry:
        """Append and return the entry by which an owner resets or unlocks an account, with the reason."""
        get_account(key, self._book.accounts)
        if not reason.strip():
            article = "an" if kind == UNLOCK else "a"
            raise ProgrammingError(
                f"{article} {kind} needs a reason",
                code=f"{kind}_reason",
                hint="pass a reason that is not empty",
            )
        now, step = self._book.clock().astimezone(UTC), EntryEffect(kind)
        common = make_common_columns(now, by, "", {"reason": reason}) | to_charge_columns("", step.charge)

        def build_rows() -> Rows:
            rows, present = Rows(), self._book.find_present_period(key, now)
            before = self._journal.chain.get_balance(key).move_to_period(present, anew=kind == RESET)
            shared = {**common, "charge": self._writer.next_number, "kind": kind}
            self._writer.add_row(rows, shared, key, apply_effect(before, step))
            return rows

        (entry,) = self._writer.append(build_rows)
        return entry

    def record_failure(
        self, tables: Sequence[str], entry: Entry, *, analyst: str, query: str, code: str
    ) -> tuple[Entry, ...]:
        """See `Ledger.record_failure`."""
        keys = sorted({AccountKey(table) for table in tables})
        now, step = self._book.clock().astimezone(UTC), EntryEffect(FAILURE)
        common = make_common_columns(now, analyst, query, {"failure": code}) | to_charge_columns(
            "", step.charge
        )
        common |= {"charge": entry.id, "kind": FAILURE}

        def build_rows() -> Rows:
            rows = Rows()
            for key in keys:
                get_account(key, self._book.accounts)
                balance = self._book.compute_balance(self._journal.chain, key, now)
                self._writer.add_row(rows, common, key, apply_effect(balance, step))
            return rows

        return self._writer.append(build_rows)

    def dry_run(
        self, charges: RequestedCharges, *, analyst: str = "", reservation: int | None = None
    ) -> tuple[Quote, ...]:
        """See `Ledger.dry_run`."""
        charges_due = list_account_charges(charges, analyst, self._book.accounts)
        kind = _make_charge_effect(analyst, reservation)
        return self._journal.read(
            lambda _: tuple(
                planned.quote
                for planned in self._book.iterate_quotes(
                    self._journal.chain, charges_due, kind, self._book.clock()
                )
            )
        )

    def compute_states_after(
        self, charges: RequestedCharges, *, analyst: str = ""
    ) -> tuple[BudgetState, ...]:
        """See `Ledger.compute_states_after`."""
        charges_due = list_account_charges(charges, analyst, self._book.accounts)
        kind = _make_charge_effect(analyst, None)

        def read_states(_: Connection) -> tuple[BudgetState, ...]:
            chain = self._journal.chain
            plan = self._book.iterate_quotes(chain, charges_due, kind, self._book.clock())
            balances = {planned.quote.key: planned.balance for planned in plan}
            return tuple(self._book.compute_state(chain, *item) for item in balances.items())

        return self._journal.read(read_states)

    def get_state(self, table: str) -> BudgetState:
        """See `Ledger.get_state`; PolicyError (`no_budget`) for a table without a budget."""
        key = AccountKey(table)
        get_account(key, self._book.accounts)
        return self._journal.read(
            lambda _: self._book.compute_state(
                self._journal.chain, key, self._book.compute_balance(self._journal.chain, key)
            )
        )

    def list_states(self) -> tuple[BudgetState, ...]:
        """See `Ledger.list_states`, all at one moment."""

        def read_states(_: Connection) -> tuple[BudgetState, ...]:
            chain = self._journal.chain
            balances = self._book.compute_balances(chain)
            return tuple(self._book.compute_state(chain, *item) for item in balances.items())

        return self._journal.read(read_states)

    def list_remaining_budgets(self, keys: Iterable[AccountKey]) -> tuple[RemainingBudget, ...]:
        """See `Ledger.list_remaining_budgets`."""
        wanted = [key for key in keys if key in self._book.accounts]
        found = self._journal.read(
            lambda _: [(key, self._book.compute_balance(self._journal.chain, key)) for key in wanted]
        )
        return tuple(
            compute_remaining_budget(key, self._book.accounts[key], balance) for key, balance in found
        )

    def list_reservations(self) -> tuple[ReservationState, ...]:
        """See `Ledger.list_reservations`, all at one moment."""
        return self._journal.read(
            lambda _: list_reservation_states(self._book.compute_balances(self._journal.chain))
        )

    def list_entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """See `Ledger.list_entries`."""
        wanted = NEWEST_FIRST if table is None else NEWEST_FIRST.where(ENTRIES.c.table_name == table)
        wanted = wanted if limit is None else wanted.limit(max(limit, 0))
        rows = self._journal.read(lambda connection: list(iterate_entry_rows(connection, wanted)))
        return tuple(parse_checked_entry(row, self._journal.digests) for row in reversed(rows))

    def find_entry(self, number: int) -> Entry | None:
        """See `Ledger.find_entry`."""
        wanted = NEWEST_FIRST.where(ENTRIES.c.id == number)
        rows = self._journal.read(lambda connection: list(iterate_entry_rows(connection, wanted)))
        return parse_checked_entry(rows[0], self._journal.digests) if rows else None

    def is_current(self, entry: Entry) -> bool:
        """See `Ledger.is_current`."""
        return self._journal.read(
            lambda connection: self._book.is_current(connection, self._journal.chain, entry.charge)
        )

    def store_releases(self, releases: Sequence[NewRelease], entry: Entry) -> None:
        """See `Ledger.store_releases`."""
        journal = self._journal

        def commit() -> None:
            with journal.open_transaction(write=True) as connection:
                store_releases(connection, journal.digests, releases, entry, journal.chain.stored_head)
            journal.write_anchor()

        if releases:
            run_uninterrupted(commit)

    def list_stored_releases(
        self, statistic: str, measurement: str | None = None
    ) -> tuple[ReleaseRecord, ...]:
        """See `Ledger.list_stored_releases`."""

        def read_releases(connection: Connection) -> tuple[ReleaseRecord, ...]:
            chain, wanted = self._journal.chain, (statistic, measurement)
            return tuple(
                iterate_stored_releases(
                    connection, self._journal.digests, wanted, chain.claims, chain.stored_head
                )
            )

        return self._journal.read(read_releases)

    def read_head(self) -> LedgerHead:
        """See `Ledger.read_head`."""
        return self._journal.read(self._journal.read_head)

    def verify(self) -> LedgerHead:
        """See `Ledger.verify`; what is added meanwhile is checked too."""
        self._journal.require_usable()
        verify_chain(self._journal.store, self._journal.digests)
        return self.read_head()

    def close(self) -> None:
        """End the use of this object; a ledger in memory is gone."""
        self._journal.close()

    def _append_charges(
        self,
        charges_due: Sequence[AccountCharge],
        kind: EntryEffect,
        query: str,
        details: Mapping[str, Any] | None,
        refines: Sequence[int] = (),
    ) -> tuple[Entry, ...]:
        """Return the entries of steps of that kind, each of which fits; a reservation that is made has the first one's number."""
        if not charges_due:
            return ()
        now = self._book.clock().astimezone(UTC)
        common = make_common_columns(now, kind.actor, query, details)

        def build_rows() -> Rows:
            chain, number, rows = self._journal.chain, self._writer.next_number, Rows()
            wanted = kind._replace(reservation=number) if kind.kind == RESERVE else kind
            for table in {part.key.table for part in charges_due}:
                self._book.require_unlocked(chain, table)
            claims = chain.claims.with_claims(refines, number)
            shared = {**common, "charge": number, "kind": kind.kind, "slice": wanted.reservation}
            for planned in self._book.iterate_quotes(chain, charges_due, wanted, now):
                bill, quote = planned.table_charge, planned.quote
                if not quote.fits:
                    found_in, present = planned.balance.period, self._book.find_present_period(quote.key, now)
                    ahead = found_in if found_in > present else ""
                    raise make_exhaustion_error(self._book.accounts[quote.key], quote, kind.kind, ahead)
                columns = {**shared, **to_charge_columns("", quote.charge)}
                columns["box"] = None if bill.box == WHOLE else str(bill.box)
                columns["refines"] = None if rows else to_claims_text(refines)
                event = bill.event if kind.kind in RELEASED else None
                self._writer.add_row(rows, columns, quote.key, planned.balance, event=event, claims=claims)
            return rows

        return self._writer.append(build_rows, refines)


def _make_charge_effect(analyst: str, reservation: int | None) -> EntryEffect:
    """Return the kind of a charge: to a reservation of the analyst's, or to the accounts themselves."""
    return EntryEffect(CHARGE if reservation is None else DRAW, reservation=reservation, actor=analyst)
