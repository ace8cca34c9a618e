"""The ledger in an SQL database: one writer at a time, each charge durable when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from dpsql.errors import ProgrammingError
from dpsql.ledger.amendments import make_amendment_details, require_amendable
from dpsql.ledger.balance import (
    Balance,
    compute_budget_state,
    compute_remaining_budget,
    list_reservation_states,
)
from dpsql.ledger.budget import Budget, compute_period
from dpsql.ledger.entry_kinds import (
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
)
from dpsql.ledger.group_commit import run_uninterrupted
from dpsql.ledger.journal import SqlJournal, verify_chain
from dpsql.ledger.protocol import (
    Account,
    AccountKey,
    BudgetState,
    Entry,
    LedgerHead,
    Quote,
    RemainingBudget,
    RequestedCharges,
    ReservationState,
)
from dpsql.ledger.quote import (
    AccountCharge,
    QuotedCharge,
    get_account,
    iterate_quoted_charges,
    list_account_charges,
)
from dpsql.ledger.refusal import make_exhaustion_error
from dpsql.ledger.release_claims import to_claims_text
from dpsql.ledger.releases import iterate_stored_releases, read_release_head, store_releases
from dpsql.ledger.schema import (
    ENTRIES,
    get_account_key,
    get_row_head,
    make_common_columns,
    parse_checked_entry,
    parse_entry,
    to_account_row,
    to_charge_columns,
)
from dpsql.ledger.stored_release import NewRelease, ReleaseRecord
from dpsql.ledger.tables import (
    NEWEST_FIRST,
    iterate_entry_rows,
    read_accounts,
    read_budget_history,
    write_amended_account,
)
from dpsql.privacy.accounting.charge import NOTHING
from dpsql.privacy.accounting.partitions.boxes import WHOLE


class SqlLedger(SqlJournal):
    """A `Ledger` in one database; see `SqlJournal` for who may share it. `verify` checks all entries."""

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
        """As `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        charges_due = list_account_charges(charges, analyst, self._accounts)
        return self._append_charges(
            charges_due, _make_charge_effect(analyst, reservation), query, details, sorted(set(refines))
        )

    def reserve(
        self, charges: RequestedCharges, *, analyst: str, details: Mapping[str, Any] | None = None
    ) -> tuple[Entry, ...]:
        """As `Ledger.reserve`."""
        charges_due = list_account_charges(charges, analyst, self._accounts)
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
        """As `Ledger.close_reservation`."""
        now = self._clock().astimezone(UTC)
        common = make_common_columns(now, by, "", {})

        def build_rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            shared = {**common, "charge": end.entries + 1, "kind": RETURN, "slice": number}
            for key in self._accounts:
                before = self._compute_balance(key, now)
                if number in before.reservations:
                    rest = before.reservations[number].compute_remaining()
                    after = apply_effect(before, EntryEffect(RETURN, rest, reservation=number, actor=by))
                    found.append(
                        self._make_entry_row(shared | to_charge_columns("", rest), end, key, None, after)
                    )
                    end = get_row_head(found[-1])
            return found

        return self._append_entries(build_rows)

    def reset(self, table: str, *, by: str, reason: str, analyst: str = "") -> Entry:
        """As `Ledger.reset`."""
        return self._append_owner_entry(AccountKey(table, analyst), RESET, by, reason)

    def unlock(self, table: str, *, by: str, reason: str) -> Entry:
        """As `Ledger.unlock`."""
        return self._append_owner_entry(AccountKey(table), UNLOCK, by, reason)

    def amend(
        self, budgets: Mapping[AccountKey, Budget], *, by: str, reason: str
    ) -> tuple[tuple[Entry, Budget, Budget], ...]:
        """As `Ledger.amend`."""
        if not reason.strip():
            raise ProgrammingError(
                "an amendment needs a reason", code="amend_reason", hint="pass a reason that is not empty"
            )
        for key in budgets:
            get_account(key, self._accounts)
        now = self._clock().astimezone(UTC)
        changed = {
            key: Account.from_budget(budget)
            for key, budget in sorted(budgets.items())
            if budget != self._accounts[key].budget
        }
        if not changed:
            raise ProgrammingError(
                "the ledger already has the budgets of the policy",
                code="amend_nothing",
                hint="write the new budget into the policy first, then amend the ledger",
            )

        def commit() -> list[dict[str, Any]]:
            with self._open_transaction(write=True) as connection:
                return self._write_amendments(connection, changed, now, by, reason)

        try:
            rows = run_uninterrupted(commit)
            self._own_digests = {}  # the anchor is that of the amended ledger
            run_uninterrupted(self._write_anchor)
        finally:
            self.close()
        return tuple(
            (
                parse_entry(row),
                self._accounts[get_account_key(row)].budget,
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
    ) -> list[dict[str, Any]]:
        """Write one entry and the row of each account, and check them as a later reader will."""
        self._stored_head = read_release_head(connection, self._digests, self._chain.stored_head)
        stored, end, rows = (
            read_accounts(connection, self._digests),
            self._chain.head,
            list[dict[str, Any]](),
        )
        for key, account in changed.items():
            balance = apply_effect(self._compute_balance(key, now), EntryEffect(AMEND))
            require_amendable(key, self._accounts[key], account, balance.spent)
            after = to_account_row(key, account, self._digests)
            details = make_amendment_details(stored[key], after, reason)
            common = make_common_columns(now, by, "", details) | to_charge_columns("", NOTHING)
            common |= {"charge": self._chain.head.entries + 1, "kind": AMEND}
            rows.append(self._make_entry_row(common, end, key, None, balance, amended_account=after))
            end = get_row_head(rows[-1])
            write_amended_account(connection, after)
        self._insert_entries(connection, rows)
        # Budgets are read back, too: a trigger in the database might have undone the change.
        self._chain.follow_entries(
            rows, self._digests, read_budget_history(connection, self._digests).find_budget_digest
        )
        return rows

    def _append_owner_entry(self, key: AccountKey, kind: str, by: str, reason: str) -> Entry:
        """Append and return the entry by which an owner resets or unlocks an account, with the reason."""
        get_account(key, self._accounts)
        if not reason.strip():
            article = "an" if kind == UNLOCK else "a"
            raise ProgrammingError(
                f"{article} {kind} needs a reason",
                code=f"{kind}_reason",
                hint="pass a reason that is not empty",
            )
        now, step = self._clock().astimezone(UTC), EntryEffect(kind)
        common = make_common_columns(now, by, "", {"reason": reason}) | to_charge_columns("", step.charge)

        def build_rows() -> list[dict[str, Any]]:
            present = compute_period(self._accounts[key].budget.renewal, now)
            before = self._chain.get_balance(key).move_to_period(present, anew=kind == RESET)
            end, balance = self._chain.head, apply_effect(before, step)
            return [
                self._make_entry_row(
                    {**common, "charge": end.entries + 1, "kind": kind}, end, key, None, balance
                )
            ]

        (entry,) = self._append_entries(build_rows)
        return entry

    def record_failure(
        self, tables: Sequence[str], entry: Entry, *, analyst: str, query: str, code: str
    ) -> tuple[Entry, ...]:
        """As `Ledger.record_failure`."""
        keys = sorted({AccountKey(table) for table in tables})
        now, step = self._clock().astimezone(UTC), EntryEffect(FAILURE)
        common = make_common_columns(now, analyst, query, {"failure": code}) | to_charge_columns(
            "", step.charge
        )
        common |= {"charge": entry.id, "kind": FAILURE}

        def build_rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            for key in keys:
                get_account(key, self._accounts)
                balance = apply_effect(self._compute_balance(key, now), step)
                found.append(self._make_entry_row(common, end, key, None, balance))
                end = get_row_head(found[-1])
            return found

        return self._append_entries(build_rows)

    def dry_run(
        self, charges: RequestedCharges, *, analyst: str = "", reservation: int | None = None
    ) -> tuple[Quote, ...]:
        """As `Ledger.dry_run`."""
        charges_due, kind = (
            list_account_charges(charges, analyst, self._accounts),
            _make_charge_effect(analyst, reservation),
        )
        return self._read_in_transaction(
            lambda _: tuple(
                planned.quote for planned in self._iterate_quoted_charges(charges_due, kind, self._clock())
            )
        )

    def compute_states_after(
        self, charges: RequestedCharges, *, analyst: str = ""
    ) -> tuple[BudgetState, ...]:
        """As `Ledger.compute_states_after`."""
        charges_due, kind = (
            list_account_charges(charges, analyst, self._accounts),
            _make_charge_effect(analyst, None),
        )

        def read_states(_: Connection) -> tuple[BudgetState, ...]:
            plan = self._iterate_quoted_charges(charges_due, kind, self._clock())
            balances = {planned.quote.key: planned.balance for planned in plan}
            return tuple(self._compute_state(key, balance) for key, balance in balances.items())

        return self._read_in_transaction(read_states)

    def get_state(self, table: str) -> BudgetState:
        """As `Ledger.get_state`; PolicyError (`no_budget`) for a table without a budget."""
        key = AccountKey(table)
        get_account(key, self._accounts)
        return self._read_in_transaction(lambda _: self._compute_state(key, self._compute_balance(key)))

    def list_states(self) -> tuple[BudgetState, ...]:
        """As `Ledger.list_states`, all at one moment."""
        return self._read_in_transaction(
            lambda _: tuple(self._compute_state(key, self._compute_balance(key)) for key in self._accounts)
        )

    def list_remaining_budgets(self, keys: Iterable[AccountKey]) -> tuple[RemainingBudget, ...]:
        """As `Ledger.left`."""
        wanted = [key for key in keys if key in self._accounts]
        found = self._read_in_transaction(lambda _: [(key, self._compute_balance(key)) for key in wanted])
        return tuple(compute_remaining_budget(key, self._accounts[key], balance) for key, balance in found)

    def _compute_state(self, key: AccountKey, balance: Balance) -> BudgetState:
        failures = self._chain.get_balance(AccountKey(key.table)).failures
        locked = self._failure_limit.is_locked(key.table, failures)
        return compute_budget_state(key, self._accounts[key], balance, failures, locked=locked)

    def list_reservations(self) -> tuple[ReservationState, ...]:
        """As `Ledger.list_reservations`, all at one moment."""
        return self._read_in_transaction(
            lambda _: list_reservation_states({key: self._compute_balance(key) for key in self._accounts})
        )

    def list_entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Ledger.list_entries`."""
        wanted = NEWEST_FIRST if table is None else NEWEST_FIRST.where(ENTRIES.c.table_name == table)
        wanted = wanted if limit is None else wanted.limit(max(limit, 0))
        rows = self._read_in_transaction(lambda connection: list(iterate_entry_rows(connection, wanted)))
        return tuple(parse_checked_entry(row, self._digests) for row in reversed(rows))

    def find_entry(self, number: int) -> Entry | None:
        """As `Ledger.find_entry`."""
        wanted = NEWEST_FIRST.where(ENTRIES.c.id == number)
        rows = self._read_in_transaction(lambda connection: list(iterate_entry_rows(connection, wanted)))
        return parse_checked_entry(rows[0], self._digests) if rows else None

    def is_current(self, entry: Entry) -> bool:
        """As `Ledger.is_current`."""
        return self._read_in_transaction(lambda connection: self._is_current(connection, entry.charge))

    def store_releases(self, releases: Sequence[NewRelease], entry: Entry) -> None:
        """As `Ledger.store_releases`."""

        def commit() -> None:
            with self._open_transaction(write=True) as connection:
                store_releases(connection, self._digests, releases, entry, self._chain.stored_head)
            self._write_anchor()

        if releases:
            run_uninterrupted(commit)

    def list_stored_releases(
        self, statistic: str, measurement: str | None = None
    ) -> tuple[ReleaseRecord, ...]:
        """As `Ledger.stored_releases`."""

        def read_releases(connection: Connection) -> tuple[ReleaseRecord, ...]:
            chain, wanted = self._chain, (statistic, measurement)
            return tuple(
                iterate_stored_releases(connection, self._digests, wanted, chain.claims, chain.stored_head)
            )

        return self._read_in_transaction(read_releases)

    def read_head(self) -> LedgerHead:
        """As `Ledger.read_head`."""
        return self._read_in_transaction(self._read_head)

    def verify(self) -> LedgerHead:
        """As `Ledger.verify`; what is added meanwhile is checked too."""
        self._require_usable()
        verify_chain(self._store, self._digests)
        return self.read_head()

    def _iterate_quoted_charges(
        self, charges_due: Sequence[AccountCharge], kind: EntryEffect, now: datetime
    ) -> Iterator[QuotedCharge]:
        return iterate_quoted_charges(
            charges_due, kind, self._accounts, lambda key: self._compute_balance(key, now)
        )

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
        now = self._clock().astimezone(UTC)
        common = make_common_columns(now, kind.actor, query, details)

        def build_rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            wanted = kind._replace(reservation=end.entries + 1) if kind.kind == RESERVE else kind
            for table in {part.key.table for part in charges_due}:
                self._failure_limit.require_unlocked(
                    table, self._chain.get_balance(AccountKey(table)).failures
                )
            claims = self._chain.claims.with_claims(refines, end.entries + 1)
            shared = {**common, "charge": end.entries + 1, "kind": kind.kind, "slice": wanted.reservation}
            for planned in self._iterate_quoted_charges(charges_due, wanted, now):
                bill, quote = planned.table_charge, planned.quote
                if not quote.fits:
                    account, found_in = self._accounts[quote.key], planned.balance.period
                    ahead = found_in if found_in > compute_period(account.budget.renewal, now) else ""
                    raise make_exhaustion_error(account, quote, kind.kind, ahead)
                box = None if bill.box == WHOLE else str(bill.box)
                columns = {**shared, **to_charge_columns("", quote.charge), "box": box}
                columns["refines"] = None if found else to_claims_text(refines)
                event = bill.event if kind.kind in RELEASED else None
                found.append(
                    self._make_entry_row(columns, end, quote.key, event, planned.balance, claims=claims)
                )
                end = get_row_head(found[-1])
            return found

        return self._append_entries(build_rows, refines)


def _make_charge_effect(analyst: str, reservation: int | None) -> EntryEffect:
    """Return the kind of a charge: to a reservation of the analyst's, or to the accounts themselves."""
    return EntryEffect(CHARGE if reservation is None else DRAW, reservation=reservation, actor=analyst)
