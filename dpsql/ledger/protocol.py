"""The interface of a ledger, and the records that it takes and returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from dpsql.errors import IntegrityError
from dpsql.ledger.budget import Budget
from dpsql.ledger.budget_state import AccountKey, BudgetState, Quote, RemainingBudget
from dpsql.privacy.accounting.accountants import Accountant, get_accountant
from dpsql.privacy.accounting.events import Charge, Event
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box

# Stored releases: public results that a later query replays, combines or refines.


@dataclass(frozen=True, slots=True)
class NewRelease:
    """A release to store: its two fingerprints, its text, and the number of the release that it refines, if any.

    `statistic` identifies the statistic, `measurement` the statistic and its noise. One that is stored `once` is left out
    where one of the same fingerprints is stored already.
    """

    statistic: str
    measurement: str
    body: str
    refines: int | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The stored release `number`; `entry` is the first ledger entry of the charge that paid for it.

    `is_refined` says that it may not be refined any more: a refinement of it was charged, whether or not that was
    released, or an owner has reset a budget since.
    """

    number: int
    entry: int
    release: NewRelease
    is_refined: bool


# The interface of a ledger: accounts, entries, quotes, and the operations on them.


Clock = Callable[[], datetime]
_LINK = "(0|[1-9][0-9]{0,17}) ([0-9a-f]{64})"
_HEAD = re.compile(f"{_LINK}(?: {_LINK})?")


def utc_now() -> datetime:
    """Return the present time, in UTC."""
    return datetime.now(UTC)


class TableCharge(NamedTuple):
    """A charge to one table: an event, and the partitions that its release reads."""

    table: str
    event: Event
    box: Box = WHOLE


@dataclass(frozen=True, slots=True)
class Account:
    """An account's budget, its accountant, and the limit in the accountant's measure."""

    budget: Budget
    accountant: Accountant
    limit: Charge

    @classmethod
    def from_budget(cls, budget: Budget) -> Account:
        """Return the account of a budget; PolicyError if no accountant supports it."""
        accountant = get_accountant(budget.accountant)
        return cls(
            budget, accountant, accountant.compute_limit(budget.epsilon, budget.delta, budget.selection)
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the ledger, for one account. Entries are never changed or removed.

    The account belongs to `table` and `account_analyst` (empty: the table's own); `analyst` ran the query. `charge`
    is the id of the first entry of the same charge, `number` counts the account's entries from 1, `kind` is explained
    below, `period` is that of a budget which renews, `box` has the partitions that the query read
    (None: the whole table), `reservation` is the number of the reservation that the entry makes, spends from or ends.
    `spent` is the account's total after this entry, `budget` is the digest of the account's budget at that time, and `digest`
    covers every other field and the `previous` entry's digest.

    A "charge" adds its spend to the total, and so does a "reserve", for a reservation; a "draw" is charged
    to a reservation, so the total stays; a "return" subtracts from the total what its reservation has not spent; a "reset" sets
    the account to zero. A "failure" records that the query of entry `charge` failed while it ran, an "unlock" that an owner
    unlocked the table after failures: `failures` counts those since then. An "amend" changes the account's budget,
    and has both budgets in its details. The details of an amend, a reset and an unlock have the reason, and only a charge
    and a draw have an event.

    `refines` are the numbers of the stored releases that the entry claims to refine, `database` is the identity of the
    database.
    """

    id: int
    charge: int
    at: datetime
    table: str
    account_analyst: str
    number: int
    kind: str
    period: str
    box: str | None
    reservation: int | None
    analyst: str
    query: str
    query_digest: str
    event: Event | None
    spend: Charge
    spent: Charge
    limit: Charge
    budget: str
    details: Mapping[str, Any]
    previous: str
    digest: str
    failures: int = 0
    refines: tuple[int, ...] = ()
    database: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerHead:
    """The head of a ledger: how many entries it has, and the digest of the last, which covers all before it.

    It holds the same of the stored releases, of which the newest may have no entry after it yet. A copy that nobody
    who can write the ledger can change proves later whether the ledger still holds all that it held. `str` and
    `parse` are inverse; IntegrityError for any other text.

    >>> LedgerHead.parse("2 " + "c0" * 32).entries
    2
    """

    entries: int
    digest: str
    releases: int = 0
    release_digest: str = ""

    def __str__(self) -> str:
        stored = f" {self.releases} {self.release_digest}" if self.releases else ""
        return f"{self.entries} {self.digest}{stored}"

    @classmethod
    def parse(cls, text: str) -> LedgerHead:
        """Return the head that was written as `text`."""
        match = _HEAD.fullmatch(text)
        found = None if match is None else cls(int(match[1]), match[2], int(match[3] or 0), match[4] or "")
        if found is None or str(found) != text:
            raise IntegrityError(
                "the text is not the head of a ledger",
                code="anchor_text",
                hint="pass the text of `head`, as dpsql wrote it",
            )
        return found


FIRST_PREVIOUS: Final = "0" * 64
"""The digest that the first entry names in place of one before it."""
START: Final = LedgerHead(0, FIRST_PREVIOUS)
"""The head of a ledger without entries."""


@dataclass(frozen=True, slots=True)
class ReservationState:
    """An open reservation of an account: its holder, its limit, and how much of it is left."""

    number: int
    key: AccountKey
    holder: str
    limit: Charge
    remaining: Charge


RequestedCharges: TypeAlias = Mapping[str, Event] | Sequence[TableCharge]
"""Events by the tables to which they are charged as a whole, or table charges with partitions."""


def list_table_charges(charges: RequestedCharges) -> list[TableCharge]:
    """Return the table charges, in the order in which they are charged."""
    listed = (
        [TableCharge(*item) for item in charges.items()] if isinstance(charges, Mapping) else list(charges)
    )
    return sorted(listed, key=lambda charge: (charge.table, str(charge.box)))


class Ledger(Protocol):
    """A durable record of all charges, which refuses those that exceed a budget.

    A charge is committed durably before the data is read. An entry holds the query and public metadata only, so neighboring
    databases leave the same bytes.
    """

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
        """Commit one entry for each account and table charge, in the order of their keys, all or none, and return them.

        The accounts are those of the tables, and those of the `analyst` at them if the policy has any. When this
        returns, the entries survive a crash. When it raises one of the errors below, nothing was written.

        Args:
            charges: The events, by tables or with their partitions.
            analyst: The name of the analyst who runs the query.
            query: The text of the query.
            details: Public metadata for the entries, which JSON can hold.
            refines: The numbers of the stored releases whose refinement this charge pays for.
            reservation: The number of a reservation of the analyst, to which everything is charged instead.

        Raises:
            BudgetExhausted: If a budget, or the reservation, would be exceeded on any partition.
            OperationalError: `release_refined`, if one of `refines` was refined already; `table_locked`, for a locked
                table; `slice_closed`, if the reservation is not open for an account.
            PolicyError: `another_database`, if the ledger belongs to another database.
        """
        ...

    def reserve(
        self, charges: RequestedCharges, *, analyst: str, details: Mapping[str, Any] | None = None
    ) -> tuple[Entry, ...]:
        """Charge the same accounts as `charge` would, for a reservation that the analyst may spend from later.

        All accounts are charged or none; the number of the reservation is the first entry's id. It ends with
        `close_reservation`, and in an account that is set to zero, by its period or a `reset`.

        Raises:
            BudgetExhausted: If a budget would be exceeded; nothing was written.
            ProgrammingError: `slice_part`, for partitions of a table.
        """
        ...

    def close_reservation(self, number: int, *, by: str) -> tuple[Entry, ...]:
        """End a reservation, and subtract what it has not spent from the spent amounts of its accounts.

        Returns one entry for each account in which it is open, none if it has ended already.
        """
        ...

    def list_reservations(self) -> tuple[ReservationState, ...]:
        """Return the reservations that are open in the accounts of the policy, in the order of their numbers and accounts."""
        ...

    def reset(self, table: str, *, by: str, reason: str, analyst: str = "") -> Entry:
        """Set the account of a table, or of an analyst at it, to zero, and record who did it and why.

        For owners only: the loss from then on adds to the loss of the answers before.

        Raises:
            PolicyError: `no_budget`, if there is no such account.
            ProgrammingError: `reset_reason`, without a reason.
        """
        ...

    def record_failure(
        self, tables: Sequence[str], entry: Entry, *, analyst: str, query: str, code: str
    ) -> tuple[Entry, ...]:
        """Record that a query failed while it read these tables, one entry for each; the charge of `entry` stays.

        After as many failures as the policy allows a table is locked: `charge` and `reserve` refuse it.
        """
        ...

    def unlock(self, table: str, *, by: str, reason: str) -> Entry:
        """Unlock a table that failures have locked, and record who did it and why.

        Raises:
            PolicyError: `no_budget`, if there is no such table.
            ProgrammingError: `unlock_reason`, without a reason.
        """
        ...

    def amend(
        self, budgets: Mapping[AccountKey, Budget], *, by: str, reason: str
    ) -> tuple[tuple[Entry, Budget, Budget], ...]:
        """Change the budgets of these accounts, all or none, and record who did it and why; the entries hold both budgets.

        For owners only; `dpsql.ledger.chain` explains the effect on the guarantee. What was spent stays spent.
        Afterwards this object is closed, and every other object with this ledger open raises `budget_changed`: open the
        ledger again, with the new budgets. Returns each entry with the budget before and after it.

        Raises:
            PolicyError: `amend_kind`, for another accountant or renewal; `amend_spent`, if more is spent than the new
                budget allows; `no_budget`, for an account that is not open.
            ProgrammingError: `amend_reason`, without a reason; `amend_nothing`, if no budget differs.
        """
        ...

    def dry_run(
        self, charges: RequestedCharges, *, analyst: str = "", reservation: int | None = None
    ) -> tuple[Quote, ...]:
        """Return what `charge` would do now, one quote for each entry; write nothing."""
        ...

    def compute_states_after(
        self, charges: RequestedCharges, *, analyst: str = ""
    ) -> tuple[BudgetState, ...]:
        """Return the states of the accounts after these charges, whether they fit or not; write nothing."""
        ...

    def get_state(self, table: str) -> BudgetState:
        """Return the state of the budget of `table`."""
        ...

    def list_remaining_budgets(self, keys: Iterable[AccountKey]) -> tuple[RemainingBudget, ...]:
        """Return the remaining budgets of these accounts; a part of their states, which takes less time."""
        ...

    def list_states(self) -> tuple[BudgetState, ...]:
        """Return the states of all budgets of the policy, in the order of the tables."""
        ...

    def list_entries(self, table: str | None = None, limit: int | None = None) -> tuple[Entry, ...]:
        """Return the entries (of one table; the last `limit`), oldest first."""
        ...

    def find_entry(self, number: int) -> Entry | None:
        """Return the entry of this number, None if there is none."""
        ...

    def is_current(self, entry: Entry) -> bool:
        """Return whether the releases that the charge of an entry paid for may still be used: no account of it was renewed or reset since.

        A holder of a paid release, such as a stream, checks this before each answer.
        """
        ...

    def store_releases(self, releases: Sequence[NewRelease], entry: Entry) -> None:
        """Store releases durably, all or none; `entry` is the first of those that paid for them."""
        ...

    def list_stored_releases(
        self, statistic: str, measurement: str | None = None
    ) -> tuple[ReleaseRecord, ...]:
        """Return the stored releases of a statistic, or of a measurement of it alone, oldest first.

        Raises IntegrityError for one of them that was changed.
        """
        ...

    def read_head(self) -> LedgerHead:
        """Return the head of the ledger now."""
        ...

    def verify(self) -> LedgerHead:
        """Check every entry from the first to the last, and return the head.

        Raises IntegrityError (`ledger_tampered`) with the number of the first entry that is not what dpsql wrote.
        Takes time in proportion to the entries.
        """
        ...

    def close(self) -> None:
        """End the use of this object; the ledger stays."""
        ...
