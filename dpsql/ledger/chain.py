"""The hash chain of a ledger's entries: each holds the digest of the one before, so that a change is detected.

Whoever can write the ledger can rebuild the chain from a changed entry on, digests included. Only a `Head` that is
stored elsewhere, or a key, detects that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dpsql.accounting.partitions.boxes import WHOLE, Box, PartitionSpend, charged_exactly
from dpsql.accounting.spend import Spend
from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.amendments import require_amendment
from dpsql.ledger.balance import Balance, partitions_digest
from dpsql.ledger.claims import Claims, claimed_by
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.entry_kinds import AMEND, RESERVE, RESET, EntryKind, NotAnEntryError, applied
from dpsql.ledger.identity import may_follow
from dpsql.ledger.protocol import AccountKey, Head
from dpsql.ledger.reservations import Reservations, reservations_digest
from dpsql.ledger.rows import FIRST_PREVIOUS, START, account_of, head_of, stored_spend, tampered, version_of

BudgetOf: TypeAlias = Callable[[AccountKey, int], str | None]
"""The digest of an account's budget at the entry of a number; None if there is no such account."""
StoredOf: TypeAlias = Callable[[AccountKey], tuple[PartitionSpend, Reservations]]
"""The stored spend of each partition of an account, and its open reservations."""


class Last(NamedTuple):
    """The last entry of an account, with the digest of the entry before it and the link of the one after."""

    row: Row
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """The state that follows from the entries: the head, and the balance of each account.

    With what the last entry states of the whole ledger: the `claims` to refine stored releases, the head of the
    `stored` releases when it was written, and the identity of the `database`. `versions` are those of dpsql that
    charged the entries; None where not all entries were read.
    """

    head: Head = START
    balances: Mapping[AccountKey, Balance] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    stored: Head = START
    database: str | None = None
    versions: frozenset[str] | None = field(default=frozenset(), compare=False)

    def balance(self, key: AccountKey) -> Balance:
        """The balance of an account."""
        return self.balances.get(key, Balance())

    def head_with(self, stored: Head) -> Head:
        """Where the ledger ends, whose stored releases end with that number and digest."""
        return Head(
            self.head.entries, self.head.digest, stored.entries, stored.digest if stored.entries else ""
        )

    @classmethod
    def ending(
        cls,
        end: Row | None,
        lasts: Iterable[Last],
        digests: KeyedDigest,
        budget_of: BudgetOf,
        stored_of: StoredOf,
        *,
        noted_claims: Callable[[], Claims],
    ) -> Chain:
        """The chain whose last entry is `end`, taken from the last entry of each account.

        Claim: where the digests have a key, the totals are those that the ledger had when `end` was written.
        Why: without the key, all that passes are entries that dpsql wrote, each at its place. An account's last
        entry up to `end` has its largest number, and these add up to the number of `end`, as each entry is of one
        account; an earlier entry of any account instead would make the sum fall short.
        Without a key this finds what was removed, and what was edited without mending the digests around it. What
        was mended about each account's last entry is found by `followed` from the start.

        Raises IntegrityError (`ledger_tampered`).
        """
        balances: dict[AccountKey, Balance] = {}
        found = START
        for row, before, after in lasts:
            _require_intact(row, digests)
            if row["previous"] != (FIRST_PREVIOUS if row["id"] == 1 else before):
                raise tampered(row["id"], "does not follow the one before")
            if after is not None and after != row["digest"]:
                raise tampered(row["id"] + 1, "does not follow the one before")
            key = account_of(row)
            _require_budget(row, budget_of(key, row["id"]))
            balances[key] = _balance_at(row, stored_of)
            found = max(found, head_of(row), key=lambda head: head.entries)
        if end is not None:
            _require_intact(end, digests)
            if head_of(end) != found:
                _require_budget(end, None)
        if sum(balance.count for balance in balances.values()) != found.entries:
            raise IntegrityError(
                f"the entries of the ledger do not add up to the {found.entries} that its last one counts",
                code="ledger_tampered",
                hint="dpsql ledger verify finds the place; restore the newest backup",
            )
        if end is None:
            return cls(found, balances, versions=None)
        claims = noted_claims() if end["claims"] is not None else Claims()
        if claims.digest != end["claims"]:
            raise IntegrityError(
                "what the ledger notes of refined releases was changed",
                code="ledger_tampered",
                hint="dpsql ledger verify finds the place; restore the newest backup",
            )
        return cls(found, balances, claims, _stored_end(end), end["database"], None)

    def followed(self, rows: Iterable[Row], digests: KeyedDigest, budget_of: BudgetOf) -> Chain:
        """The chain with these entries after its last.

        Raises IntegrityError (`ledger_tampered`) with the number of the first entry that does not follow: an id, a
        digest, a link, a running total, an account's count or a budget is not what dpsql wrote.
        """
        end, balances = self.head, dict(self.balances)
        claims, stored, database, versions = self.claims, self.stored, self.database, self.versions
        for row in rows:
            number = end.entries + 1
            if row["id"] > number:
                raise tampered(number, "is missing")
            if row["id"] < number:
                raise tampered(row["id"], "was put in")
            _require_intact(row, digests)
            if row["previous"] != end.digest:
                raise tampered(number, "does not follow the one before")
            key = account_of(row)
            _require_budget(row, budget_of(key, number))
            balances[key] = _next(balances.get(key, Balance()), row)
            if row["kind"] == AMEND:
                require_amendment(row, balances[key].spent, digests)
            claims, stored = _claims_after(claims, row), _stored_after(stored, row)
            if not may_follow(database, row["database"]):
                raise tampered(number, "is of another database than those before")
            end, database = head_of(row), row["database"]
            if versions is not None and (version := version_of(row)) and version not in versions:
                versions |= {version}
        return Chain(end, balances, claims, stored, database, versions)


def _claims_after(before: Claims, row: Row) -> Claims:
    """The claims after an entry, which must say so; a release is claimed once."""
    try:
        claims = before.added(claimed_by(row), row["id"])
    except (ValueError, TypeError, RecursionError):
        raise _off(row) from None
    if claims.digest != row["claims"]:
        raise _off(row)
    return claims


def _stored_after(before: Head, row: Row) -> Head:
    """Where the stored releases ended when an entry was written: never before they did."""
    stored = _stored_end(row)
    if stored.entries < before.entries or (stored.entries == before.entries and stored != before):
        raise _off(row)
    return stored


def _stored_end(row: Row) -> Head:
    if row["stored"] is None:
        return START
    try:
        return Head.parse(row["stored"])
    except (IntegrityError, TypeError):
        raise _off(row) from None


def _next(before: Balance, row: Row) -> Balance:
    """The balance of an account after an entry; IntegrityError unless the entry states the same."""
    box = WHOLE if row["box"] is None else Box.parse(row["box"])
    spend = stored_spend(row["loss"], row["delta"])
    step = EntryKind(row["kind"], spend, box, row["slice"], row["analyst"])
    stated = (
        stored_spend(row["spent_loss"], row["spent_delta"]),
        *(row[name] for name in ("number", "period", "parts", "slices")),
    )
    start = before.in_period(row["period"], anew=row["kind"] == RESET)
    try:
        balance = applied(start, step)
        if stated != _stated(balance):
            balance = applied(start, step._replace(rule=charged_exactly))
            _require_stated(stated, balance, row)
    except (NotAnEntryError, LossError):
        raise _off(row) from None
    if row["failures"] != (balance.failures or None):
        raise _off(row)
    if any(not each.is_within_limit for each in balance.reservations.values()):
        raise _off(row)
    if step.kind == RESERVE and row["slice"] != row["charge"]:
        raise _off(row)
    return balance


def _require_stated(stated: tuple[object, ...], balance: Balance, row: Row) -> None:
    if stated != _stated(balance):
        raise _off(row)


def _stated(balance: Balance) -> tuple[Spend, int, str, str | None, str | None]:
    """The columns in which an entry states the balance after it."""
    digests = partitions_digest(balance.parts), reservations_digest(balance.reservations)
    return balance.spent, balance.count, balance.period, *digests


def _balance_at(row: Row, stored_of: StoredOf) -> Balance:
    """The balance by an account's last entry, and by its stored partitions and reservations, whose digests that holds."""
    spent = stored_spend(row["spent_loss"], row["spent_delta"])
    stored = (
        stored_of(account_of(row))
        if (row["parts"], row["slices"]) != (None, None)
        else (PartitionSpend(), {})
    )
    parts = PartitionSpend(spent) if row["parts"] is None else stored[0]
    reservations = {} if row["slices"] is None else stored[1]
    vouched = (partitions_digest(parts), reservations_digest(reservations)) == (row["parts"], row["slices"])
    if not vouched or parts.most() != spent:
        raise IntegrityError(
            f"what the ledger keeps of the partitions or reservations of {account_of(row)} was changed",
            code="ledger_tampered",
            hint="dpsql ledger verify finds the place; restore the newest backup",
        )
    return Balance(parts, row["number"], row["period"], reservations, row["failures"] or 0)


def _off(row: Row) -> IntegrityError:
    return tampered(row["id"], "does not add up with those before")


def _require_intact(row: Row, digests: KeyedDigest) -> None:
    if not digests.holds(row):
        raise tampered(row["id"], "was changed")


def _require_budget(row: Row, budget: str | None) -> None:
    if row["budget"] != budget:
        raise tampered(row["id"], f"was charged to another budget than {account_of(row)} had then")
