"""The ledger in an SQL database: one writer at a time, each charge durable when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from dpsql.accounting.partitions.boxes import WHOLE
from dpsql.accounting.spend import NOTHING
from dpsql.errors import ProgrammingError
from dpsql.ledger.amendments import amendment_details, require_amendable
from dpsql.ledger.balance import Balance, left_of, reservation_states, state_of
from dpsql.ledger.budget import Budget, period
from dpsql.ledger.claims import claims_text
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
    EntryKind,
    applied,
)
from dpsql.ledger.journal import SqlJournal
from dpsql.ledger.protocol import (
    Account,
    AccountKey,
    BudgetLeft,
    BudgetState,
    Charges,
    Entry,
    Head,
    Quote,
    ReservationState,
)
from dpsql.ledger.quote import AccountCharge, QuotedCharge, account_at, account_charges, quoted_charges
from dpsql.ledger.refusal import exhausted
from dpsql.ledger.releases import release_chain_end, store_releases, stored_releases
from dpsql.ledger.rows import (
    account_of,
    account_row,
    entry_columns,
    entry_of,
    head_of,
    spend_columns,
    stored_entry,
)
from dpsql.ledger.schema import ENTRIES
from dpsql.ledger.stored_release import NewRelease, ReleaseRecord
from dpsql.ledger.tables import NEWEST_FIRST, budget_history, entry_rows, store_amended, stored_accounts
from dpsql.ledger.uninterrupted import uninterrupted
from dpsql.ledger.verification import verified_chain


class SqlLedger(SqlJournal):
    """A `Ledger` in one database; see `SqlJournal` for who may share it. `verify` checks all entries."""

    def charge(
        self,
        charges: Charges,
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
        refines: Sequence[int] = (),
        reservation: int | None = None,
    ) -> tuple[Entry, ...]:
        """As `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        charges_due = account_charges(charges, analyst, self._accounts)
        return self._charged(
            charges_due, _spending(analyst, reservation), query, details, sorted(set(refines))
        )

    def reserve(
        self, charges: Charges, *, analyst: str, details: Mapping[str, Any] | None = None
    ) -> tuple[Entry, ...]:
        """As `Ledger.reserve`."""
        charges_due = account_charges(charges, analyst, self._accounts)
        if any(part.bill.box != WHOLE for part in charges_due) or len(
            {part.key for part in charges_due}
        ) < len(charges_due):
            raise ProgrammingError("a reservation covers whole tables, each once", code="slice_part")
        return self._charged(charges_due, EntryKind(RESERVE, who=analyst), "", details)

    def give_back(self, number: int, *, by: str) -> tuple[Entry, ...]:
        """As `Ledger.give_back`."""
        now = self._clock().astimezone(UTC)
        common = entry_columns(now, by, "", {})

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            shared = {**common, "charge": end.entries + 1, "kind": RETURN, "slice": number}
            for key in self._accounts:
                before = self._balance(key, now)
                if number in before.reservations:
                    rest = before.reservations[number].left()
                    after = applied(before, EntryKind(RETURN, rest, reservation=number, who=by))
                    found.append(self._row(shared | spend_columns("", rest), end, key, None, after))
                    end = head_of(found[-1])
            return found

        return self._appended(rows)

    def reset(self, table: str, *, by: str, reason: str, analyst: str = "") -> Entry:
        """As `Ledger.reset`."""
        return self._owner_entry(AccountKey(table, analyst), RESET, by, reason)

    def unlock(self, table: str, *, by: str, reason: str) -> Entry:
        """As `Ledger.unlock`."""
        return self._owner_entry(AccountKey(table), UNLOCK, by, reason)

    def amend(
        self, budgets: Mapping[AccountKey, Budget], *, by: str, reason: str
    ) -> tuple[tuple[Entry, Budget, Budget], ...]:
        """As `Ledger.amend`."""
        if not reason.strip():
            raise ProgrammingError("an amendment needs a reason", code="amend_reason", hint="say why")
        for key in budgets:
            account_at(key, self._accounts)
        now = self._clock().astimezone(UTC)
        changed = {
            key: Account.of(budget)
            for key, budget in sorted(budgets.items())
            if budget != self._accounts[key].budget
        }
        if not changed:
            raise ProgrammingError(
                "the ledger has the budgets of the policy already",
                code="amend_nothing",
                hint="write the new budget into the policy first",
            )

        def commit() -> list[dict[str, Any]]:
            with self._transaction(write=True) as connection:
                return self._amended(connection, changed, now, by, reason)

        try:
            rows = uninterrupted(commit)
            self._own = {}  # the anchor is that of the amended ledger
            uninterrupted(self._anchor_newest)
        finally:
            self.close()
        return tuple(
            (entry_of(row), self._accounts[account_of(row)].budget, changed[account_of(row)].budget)
            for row in rows
        )

    def _amended(
        self,
        connection: Connection,
        changed: Mapping[AccountKey, Account],
        now: datetime,
        by: str,
        reason: str,
    ) -> list[dict[str, Any]]:
        """Writes one entry for each account, and the account's row, and checks all as whoever reads them will."""
        self._stored = release_chain_end(connection, self._digests, self._chain.stored)
        stored, end, rows = (
            stored_accounts(connection, self._digests),
            self._chain.head,
            list[dict[str, Any]](),
        )
        for key, account in changed.items():
            balance = applied(self._balance(key, now), EntryKind(AMEND))
            require_amendable(key, self._accounts[key], account, balance.spent)
            after = account_row(key, account, self._digests)
            details = amendment_details(stored[key], after, reason)
            common = entry_columns(now, by, "", details) | spend_columns("", NOTHING)
            common |= {"charge": self._chain.head.entries + 1, "kind": AMEND}
            rows.append(self._row(common, end, key, None, balance, amended=after))
            end = head_of(rows[-1])
            store_amended(connection, after)
        self._insert(connection, rows)
        # Budgets are read back, too: what a trap in the database undoes is not amended.
        self._chain.followed(rows, self._digests, budget_history(connection, self._digests).at)
        return rows

    def _owner_entry(self, key: AccountKey, kind: str, by: str, reason: str) -> Entry:
        """The entry by which an owner begins something anew, for a reason."""
        account_at(key, self._accounts)
        if not reason.strip():
            article = "an" if kind == UNLOCK else "a"
            raise ProgrammingError(f"{article} {kind} needs a reason", code=f"{kind}_reason", hint="say why")
        now, step = self._clock().astimezone(UTC), EntryKind(kind)
        common = entry_columns(now, by, "", {"reason": reason}) | spend_columns("", step.spend)

        def rows() -> list[dict[str, Any]]:
            present = period(self._accounts[key].budget.renewal, now)
            before = self._chain.balance(key).in_period(present, anew=kind == RESET)
            end, balance = self._chain.head, applied(before, step)
            return [self._row({**common, "charge": end.entries + 1, "kind": kind}, end, key, None, balance)]

        (entry,) = self._appended(rows)
        return entry

    def fail(
        self, tables: Sequence[str], entry: Entry, *, analyst: str, query: str, code: str
    ) -> tuple[Entry, ...]:
        """As `Ledger.fail`."""
        keys = sorted({AccountKey(table) for table in tables})
        now, step = self._clock().astimezone(UTC), EntryKind(FAILURE)
        common = entry_columns(now, analyst, query, {"failure": code}) | spend_columns("", step.spend)
        common |= {"charge": entry.id, "kind": FAILURE}

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            for key in keys:
                account_at(key, self._accounts)
                balance = applied(self._balance(key, now), step)
                found.append(self._row(common, end, key, None, balance))
                end = head_of(found[-1])
            return found

        return self._appended(rows)

    def dry_run(
        self, charges: Charges, *, analyst: str = "", reservation: int | None = None
    ) -> tuple[Quote, ...]:
        """As `Ledger.dry_run`."""
        charges_due, kind = account_charges(charges, analyst, self._accounts), _spending(analyst, reservation)
        return self._read(
            lambda _: tuple(planned.quote for planned in self._quoted(charges_due, kind, self._clock()))
        )

    def after(self, charges: Charges, *, analyst: str = "") -> tuple[BudgetState, ...]:
        """As `Ledger.after`."""
        charges_due, kind = account_charges(charges, analyst, self._accounts), _spending(analyst, None)

        def found(_: Connection) -> tuple[BudgetState, ...]:
            plan = self._quoted(charges_due, kind, self._clock())
            balances = {planned.quote.key: planned.balance for planned in plan}
            return tuple(self._state(key, balance) for key, balance in balances.items())

        return self._read(found)

    def state(self, table: str) -> BudgetState:
        """As `Ledger.state`; PolicyError (`no_budget`) for a table without a budget."""
        key = AccountKey(table)
        account_at(key, self._accounts)
        return self._read(lambda _: self._state(key, self._balance(key)))

    def states(self) -> tuple[BudgetState, ...]:
        """As `Ledger.states`, all at one moment."""
        return self._read(lambda _: tuple(self._state(key, self._balance(key)) for key in self._accounts))

    def left(self, keys: Iterable[AccountKey]) -> tuple[BudgetLeft, ...]:
        """As `Ledger.left`."""
        wanted = [key for key in keys if key in self._accounts]
        found = self._read(lambda _: [(key, self._balance(key)) for key in wanted])
        return tuple(left_of(key, self._accounts[key], balance) for key, balance in found)

    def _state(self, key: AccountKey, balance: Balance) -> BudgetState:
        failures = self._chain.balance(AccountKey(key.table)).failures
        locked = self._failure_limit.locks(key.table, failures)
        return state_of(key, self._accounts[key], balance, failures, locked=locked)

    def reservations(self) -> tuple[ReservationState, ...]:
        """As `Ledger.reservations`, all at one moment."""
        return self._read(lambda _: reservation_states({key: self._balance(key) for key in self._accounts}))

    def entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Ledger.entries`."""
        wanted = NEWEST_FIRST if table is None else NEWEST_FIRST.where(ENTRIES.c.table_name == table)
        wanted = wanted if limit is None else wanted.limit(max(limit, 0))
        rows = self._read(lambda connection: list(entry_rows(connection, wanted)))
        return tuple(stored_entry(row, self._digests) for row in reversed(rows))

    def entry(self, number: int) -> Entry | None:
        """As `Ledger.entry`."""
        wanted = NEWEST_FIRST.where(ENTRIES.c.id == number)
        rows = self._read(lambda connection: list(entry_rows(connection, wanted)))
        return stored_entry(rows[0], self._digests) if rows else None

    def is_current(self, entry: Entry) -> bool:
        """As `Ledger.is_current`."""
        return self._read(lambda connection: self._is_current(connection, entry.charge))

    def store_releases(self, releases: Sequence[NewRelease], entry: Entry) -> None:
        """As `Ledger.store_releases`."""

        def commit() -> None:
            with self._transaction(write=True) as connection:
                store_releases(connection, self._digests, releases, entry, self._chain.stored)
            self._anchor_newest()

        if releases:
            uninterrupted(commit)

    def stored_releases(self, statistic: str, measurement: str | None = None) -> tuple[ReleaseRecord, ...]:
        """As `Ledger.stored_releases`."""

        def found(connection: Connection) -> tuple[ReleaseRecord, ...]:
            chain, wanted = self._chain, (statistic, measurement)
            return tuple(stored_releases(connection, self._digests, wanted, chain.claims, chain.stored))

        return self._read(found)

    def versions(self) -> frozenset[str]:
        """As `Ledger.versions`."""
        known = self._chain.versions
        return self._read(self._versions_by) if known is None else known

    def head(self) -> Head:
        """As `Ledger.head`."""
        return self._read(self._head)

    def verify(self) -> Head:
        """As `Ledger.verify`; what is added meanwhile is checked too."""
        self._require_usable()
        verified_chain(self._store, self._digests)
        return self.head()

    def _quoted(
        self, charges_due: Sequence[AccountCharge], kind: EntryKind, now: datetime
    ) -> Iterator[QuotedCharge]:
        return quoted_charges(charges_due, kind, self._accounts, lambda key: self._balance(key, now))

    def _charged(
        self,
        charges_due: Sequence[AccountCharge],
        kind: EntryKind,
        query: str,
        details: Mapping[str, Any] | None,
        refines: Sequence[int] = (),
    ) -> tuple[Entry, ...]:
        """The entries of steps of that kind, each of which fits; a reservation that is made has the first one's number."""
        if not charges_due:
            return ()
        now = self._clock().astimezone(UTC)
        common = entry_columns(now, kind.who, query, details)

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            wanted = kind._replace(reservation=end.entries + 1) if kind.kind == RESERVE else kind
            for table in {part.key.table for part in charges_due}:
                self._failure_limit.require_open(table, self._chain.balance(AccountKey(table)).failures)
            claims = self._chain.claims.added(refines, end.entries + 1)
            shared = {**common, "charge": end.entries + 1, "kind": kind.kind, "slice": wanted.reservation}
            for planned in self._quoted(charges_due, wanted, now):
                bill, quote = planned.bill, planned.quote
                if not quote.fits:
                    account, found_in = self._accounts[quote.key], planned.balance.period
                    ahead = found_in if found_in > period(account.budget.renewal, now) else ""
                    raise exhausted(account, quote, kind.kind, ahead)
                box = None if bill.box == WHOLE else str(bill.box)
                columns = {**shared, **spend_columns("", quote.spend), "box": box}
                columns["refines"] = None if found else claims_text(refines)
                event = bill.event if kind.kind in RELEASED else None
                found.append(self._row(columns, end, quote.key, event, planned.balance, claims=claims))
                end = head_of(found[-1])
            return found

        return self._appended(rows, refines)


def _spending(analyst: str, reservation: int | None) -> EntryKind:
    """The kind of a charge: to a reservation of the analyst's, or to the accounts themselves."""
    return EntryKind(CHARGE if reservation is None else DRAW, reservation=reservation, who=analyst)
