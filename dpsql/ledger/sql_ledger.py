"""The ledger in a database: one writer at a time, each charge durable when it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection

from dpsql.accounting.partitions.boxes import WHOLE
from dpsql.errors import ProgrammingError
from dpsql.ledger.balance import Standing
from dpsql.ledger.claims import claims_text
from dpsql.ledger.entry_kinds import (
    CHARGE,
    DRAW,
    FAILURE,
    RELEASED,
    RESERVE,
    RESET,
    RETURN,
    UNLOCK,
    Step,
    stepped,
)
from dpsql.ledger.journal import SqlBook
from dpsql.ledger.protocol import AccountKey, BudgetState, Charges, Entry, Head, Quote, SliceState
from dpsql.ledger.quote import Due, Planned, account_at, due_of, quoted
from dpsql.ledger.refusal import exhausted
from dpsql.ledger.releases import keep_releases, kept_releases
from dpsql.ledger.rows import entry_columns, head_of, spend_columns, stored_entry
from dpsql.ledger.schema import ENTRIES
from dpsql.ledger.state import slice_states, state_of
from dpsql.ledger.stored_release import KeptRelease, NewRelease
from dpsql.ledger.tables import NEWEST_FIRST, entry_rows
from dpsql.ledger.uninterrupted import uninterrupted
from dpsql.ledger.verification import walked


class SqlLedger(SqlBook):
    """A `Ledger` in one database; see `SqlBook` for who may share it. `verify` checks all entries."""

    def charge(
        self,
        charges: Charges,
        *,
        analyst: str,
        query: str,
        details: Mapping[str, Any] | None = None,
        refines: Sequence[int] = (),
        within: int | None = None,
    ) -> tuple[Entry, ...]:
        """As `Ledger.charge`; PolicyError (`no_budget`) for a table without a budget."""
        due = due_of(charges, analyst, self._accounts)
        return self._charged(due, _spending(analyst, within), query, details, sorted(set(refines)))

    def reserve(
        self, charges: Charges, *, analyst: str, details: Mapping[str, Any] | None = None
    ) -> tuple[Entry, ...]:
        """As `Ledger.reserve`."""
        due = due_of(charges, analyst, self._accounts)
        if any(part.bill.box != WHOLE for part in due) or len({part.key for part in due}) < len(due):
            raise ProgrammingError("a slice is of whole tables, each once", code="slice_part")
        return self._charged(due, Step(RESERVE, who=analyst), "", details)

    def give_back(self, number: int, *, by: str) -> tuple[Entry, ...]:
        """As `Ledger.give_back`."""
        now = self._clock().astimezone(UTC)
        common = entry_columns(now, by, "", {})

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            shared = {**common, "charge": end.entries + 1, "kind": RETURN, "slice": number}
            for key in self._accounts:
                before = self._standing(key, now)
                if number in before.slices:
                    rest = before.slices[number].left()
                    after = stepped(before, Step(RETURN, rest, slice=number, who=by))
                    found.append(self._row(shared | spend_columns("", rest), end, key, None, after))
                    end = head_of(found[-1])
            return found

        return self._appended(rows)

    def reset(self, table: str, *, by: str, reason: str, analyst: str = "") -> Entry:
        """As `Ledger.reset`."""
        return self._begun(AccountKey(table, analyst), RESET, by, reason)

    def unlock(self, table: str, *, by: str, reason: str) -> Entry:
        """As `Ledger.unlock`."""
        return self._begun(AccountKey(table), UNLOCK, by, reason)

    def _begun(self, key: AccountKey, kind: str, by: str, reason: str) -> Entry:
        """The entry by which an owner begins something anew, for a reason."""
        account_at(key, self._accounts)
        if not reason.strip():
            article = "an" if kind == UNLOCK else "a"
            raise ProgrammingError(f"{article} {kind} is for a reason", code=f"{kind}_reason", hint="say why")
        now, step = self._clock().astimezone(UTC), Step(kind)
        common = entry_columns(now, by, "", {"reason": reason}) | spend_columns("", step.spend)

        def rows() -> list[dict[str, Any]]:
            end, standing = self._chain.head, stepped(self._standing(key, now), step)
            return [self._row({**common, "charge": end.entries + 1, "kind": kind}, end, key, None, standing)]

        (entry,) = self._appended(rows)
        return entry

    def fail(
        self, tables: Sequence[str], entry: Entry, *, analyst: str, query: str, code: str
    ) -> tuple[Entry, ...]:
        """As `Ledger.fail`."""
        keys = sorted({AccountKey(table) for table in tables})
        now, step = self._clock().astimezone(UTC), Step(FAILURE)
        common = entry_columns(now, analyst, query, {"failure": code}) | spend_columns("", step.spend)
        common |= {"charge": entry.id, "kind": FAILURE}

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            for key in keys:
                account_at(key, self._accounts)
                standing = stepped(self._standing(key, now), step)
                found.append(self._row(common, end, key, None, standing))
                end = head_of(found[-1])
            return found

        return self._appended(rows)

    def dry_run(self, charges: Charges, *, analyst: str = "", within: int | None = None) -> tuple[Quote, ...]:
        """As `Ledger.dry_run`."""
        due, kind = due_of(charges, analyst, self._accounts), _spending(analyst, within)
        return self._read(
            lambda _: tuple(planned.quote for planned in self._quoted(due, kind, self._clock()))
        )

    def after(self, charges: Charges, *, analyst: str = "") -> tuple[BudgetState, ...]:
        """As `Ledger.after`."""
        due, kind = due_of(charges, analyst, self._accounts), _spending(analyst, None)

        def found(_: Connection) -> tuple[BudgetState, ...]:
            plan = self._quoted(due, kind, self._clock())
            standings = {planned.quote.key: planned.standing for planned in plan}
            return tuple(self._state(key, standing) for key, standing in standings.items())

        return self._read(found)

    def state(self, table: str) -> BudgetState:
        """As `Ledger.state`; PolicyError (`no_budget`) for a table without a budget."""
        key = AccountKey(table)
        account_at(key, self._accounts)
        return self._read(lambda _: self._state(key, self._standing(key)))

    def states(self) -> tuple[BudgetState, ...]:
        """As `Ledger.states`, all at one moment."""
        return self._read(lambda _: tuple(self._state(key, self._standing(key)) for key in self._accounts))

    def _state(self, key: AccountKey, standing: Standing) -> BudgetState:
        failures = self._chain.standing(AccountKey(key.table)).failures
        locked = self._allowed.locks(key.table, failures)
        return state_of(key, self._accounts[key], standing, failures, locked=locked)

    def slices(self) -> tuple[SliceState, ...]:
        """As `Ledger.slices`, all at one moment."""
        return self._read(lambda _: slice_states({key: self._standing(key) for key in self._accounts}))

    def entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """As `Ledger.entries`."""
        wanted = NEWEST_FIRST if table is None else NEWEST_FIRST.where(ENTRIES.c.table_name == table)
        wanted = wanted if limit is None else wanted.limit(max(limit, 0))
        rows = self._read(lambda connection: list(entry_rows(connection, wanted)))
        return tuple(stored_entry(row, self._seal) for row in reversed(rows))

    def keep(self, releases: Sequence[NewRelease], entry: Entry) -> None:
        """As `Ledger.keep`."""

        def keep() -> None:
            with self._transaction(write=True) as connection:
                keep_releases(connection, self._seal, releases, entry, self._chain.stored)
            self._anchor_newest()

        if releases:
            uninterrupted(keep)

    def kept(self, statistic: str) -> tuple[KeptRelease, ...]:
        """As `Ledger.kept`."""

        def found(connection: Connection) -> tuple[KeptRelease, ...]:
            chain = self._chain
            return tuple(kept_releases(connection, self._seal, statistic, chain.claims, chain.stored))

        return self._read(found)

    def head(self) -> Head:
        """As `Ledger.head`."""
        return self._read(self._head)

    def verify(self) -> Head:
        """As `Ledger.verify`; what is added meanwhile is checked too."""
        self._require_usable()
        walked(self._store, self._seal)
        return self.head()

    def _quoted(self, due: Sequence[Due], kind: Step, now: datetime) -> Iterator[Planned]:
        return quoted(due, kind, self._accounts, lambda key: self._standing(key, now))

    def _charged(
        self,
        due: Sequence[Due],
        kind: Step,
        query: str,
        details: Mapping[str, Any] | None,
        refines: Sequence[int] = (),
    ) -> tuple[Entry, ...]:
        """The entries of steps of that kind, each of which fits; a slice that is made has the first one's number."""
        if not due:
            return ()
        now = self._clock().astimezone(UTC)
        common = entry_columns(now, kind.who, query, details)

        def rows() -> list[dict[str, Any]]:
            end, found = self._chain.head, list[dict[str, Any]]()
            wanted = kind._replace(slice=end.entries + 1) if kind.kind == RESERVE else kind
            for table in {part.key.table for part in due}:
                self._allowed.require_open(table, self._chain.standing(AccountKey(table)).failures)
            claims = self._chain.claims.added(refines, end.entries + 1)
            shared = {**common, "charge": end.entries + 1, "kind": kind.kind, "slice": wanted.slice}
            for planned in self._quoted(due, wanted, now):
                bill, quote = planned.bill, planned.quote
                if not quote.fits:
                    raise exhausted(self._accounts[quote.key], quote, kind.kind)
                box = None if bill.box == WHOLE else str(bill.box)
                columns = {**shared, **spend_columns("", quote.spend), "box": box}
                columns["refines"] = None if found else claims_text(refines)
                event = bill.event if kind.kind in RELEASED else None
                found.append(self._row(columns, end, quote.key, event, planned.standing, claims=claims))
                end = head_of(found[-1])
            return found

        return self._appended(rows, refines)


def _spending(analyst: str, within: int | None) -> Step:
    """The kind of a charge: to a slice of the analyst's, or to the accounts themselves."""
    return Step(CHARGE if within is None else DRAW, slice=within, who=analyst)
