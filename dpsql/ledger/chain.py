"""The hash chain of a ledger's entries: each holds the digest of the one before, so that a change is detected.

A program that can write the ledger can rebuild the chain from a changed entry on, digests included. Only a `LedgerHead` that is
stored elsewhere, or a key, detects that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.amendments import require_amendment
from dpsql.ledger.balance import Balance, compute_partitions_digest
from dpsql.ledger.database_identity import can_follow
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.entry_kinds import AMEND, RESERVE, RESET, EntryEffect, InvalidEntryError, apply_effect
from dpsql.ledger.protocol import FIRST_PREVIOUS, START, AccountKey, LedgerHead
from dpsql.ledger.release_claims import Claims, parse_claims
from dpsql.ledger.reservations import Reservations, compute_reservations_digest
from dpsql.ledger.schema import get_account_key, get_row_head, make_tampering_error, parse_charge
from dpsql.privacy.accounting.charge import Charge
from dpsql.privacy.accounting.partitions.boxes import WHOLE, Box, PartitionCharges

_BROKEN_LINK = "does not continue the entry before it"
_VERIFY = "run `dpsql ledger verify` to find the changed entry, and restore the newest backup"

BudgetDigestLookup: TypeAlias = Callable[[AccountKey, int], str | None]
"""The digest of an account's budget at the entry of a number; None if there is no such account."""
StoredStateLookup: TypeAlias = Callable[[AccountKey], tuple[PartitionCharges, Reservations]]
"""The stored spend of each partition of an account, and its open reservations."""


class LastEntry(NamedTuple):
    """The last entry of an account, with the digest of the entry before it and the link of the one after."""

    row: Row
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """The state that follows from the entries: the head, and the balance of each account.

    With what the last entry states of the whole ledger: the `claims` to refine stored releases, the head of the
    `stored_head` releases when it was written, and the identity of the `database`.
    """

    head: LedgerHead = START
    balances: Mapping[AccountKey, Balance] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    stored_head: LedgerHead = START
    database: str | None = None

    def get_balance(self, key: AccountKey) -> Balance:
        """Return the balance of an account."""
        return self.balances.get(key, Balance())

    def compute_full_head(self, stored: LedgerHead) -> LedgerHead:
        """Return the head of the ledger, given the head of its stored releases."""
        return LedgerHead(
            self.head.entries, self.head.digest, stored.entries, stored.digest if stored.entries else ""
        )

    @classmethod
    def from_last_entries(
        cls,
        end: Row | None,
        lasts: Iterable[LastEntry],
        digests: KeyedDigest,
        find_budget_digest: BudgetDigestLookup,
        read_stored_state: StoredStateLookup,
        *,
        read_claims: Callable[[], Claims],
    ) -> Chain:
        """Return the chain whose last entry is `end`, taken from the last entry of each account.

        Claim: where the digests have a key, the totals are those that the ledger had when `end` was written.
        Why: without the key, all that passes are entries that dpsql wrote, each at its place. An account's last
        entry up to `end` has its largest number, and these add up to the number of `end`, as each entry is of one
        account; an earlier entry of any account instead would make the sum fall short.
        Without a key this finds removed entries, and edits that leave the digests around them as they were. Only
        `follow_entries` from the start finds edits whose digests were recomputed around each account's last entry.

        Raises IntegrityError (`ledger_tampered`).
        """
        balances: dict[AccountKey, Balance] = {}
        found = START
        for row, before, after in lasts:
            _require_intact(row, digests)
            if row["previous"] != (FIRST_PREVIOUS if row["id"] == 1 else before):
                raise make_tampering_error(row["id"], _BROKEN_LINK)
            if after is not None and after != row["digest"]:
                raise make_tampering_error(row["id"] + 1, _BROKEN_LINK)
            key = get_account_key(row)
            _require_budget(row, find_budget_digest(key, row["id"]))
            balances[key] = _restore_balance(row, read_stored_state)
            found = max(found, get_row_head(row), key=lambda head: head.entries)
        if end is not None:
            _require_intact(end, digests)
            if get_row_head(end) != found:
                _require_budget(end, None)
        if sum(balance.count for balance in balances.values()) != found.entries:
            raise IntegrityError(
                f"the ledger does not hold the {found.entries} entries that its last one counts",
                code="ledger_tampered",
                hint=_VERIFY,
            )
        if end is None:
            return cls(found, balances)
        claims = read_claims() if end["claims"] is not None else Claims()
        if claims.digest != end["claims"]:
            raise IntegrityError(
                "the ledger's record of refined releases was changed",
                code="ledger_tampered",
                hint=_VERIFY,
            )
        return cls(found, balances, claims, _parse_stored_head(end), end["database"])

    def follow_entries(
        self, rows: Iterable[Row], digests: KeyedDigest, find_budget_digest: BudgetDigestLookup
    ) -> Chain:
        """Return the chain with these entries after its last.

        Raises IntegrityError (`ledger_tampered`) with the number of the first entry that does not follow: an id, a
        digest, a link, a running total, an account's count or a budget is not what dpsql wrote.
        """
        end, balances = self.head, dict(self.balances)
        claims, stored, database = self.claims, self.stored_head, self.database
        for row in rows:
            number = end.entries + 1
            if row["id"] > number:
                raise make_tampering_error(number, "is missing")
            if row["id"] < number:
                raise make_tampering_error(row["id"], "was inserted later")
            _require_intact(row, digests)
            if row["previous"] != end.digest:
                raise make_tampering_error(number, _BROKEN_LINK)
            key = get_account_key(row)
            _require_budget(row, find_budget_digest(key, number))
            balances[key] = _compute_next_balance(balances.get(key, Balance()), row)
            if row["kind"] == AMEND:
                require_amendment(row, balances[key].spent, digests)
            claims, stored = _compute_claims_after(claims, row), _compute_stored_head_after(stored, row)
            if not can_follow(database, row["database"]):
                raise make_tampering_error(number, "names another database than the entries before it")
            end, database = get_row_head(row), row["database"]
        return Chain(end, balances, claims, stored, database)


def _compute_claims_after(before: Claims, row: Row) -> Claims:
    """Return the claims after an entry, which must say so; a release is claimed once."""
    try:
        claims = before.with_claims(parse_claims(row), row["id"])
    except (ValueError, TypeError, RecursionError):
        raise _make_inconsistency_error(row) from None
    if claims.digest != row["claims"]:
        raise _make_inconsistency_error(row)
    return claims


def _compute_stored_head_after(before: LedgerHead, row: Row) -> LedgerHead:
    """Return the head of the stored releases when an entry was written, which never goes back."""
    stored = _parse_stored_head(row)
    if stored.entries < before.entries or (stored.entries == before.entries and stored != before):
        raise _make_inconsistency_error(row)
    return stored


def _parse_stored_head(row: Row) -> LedgerHead:
    if row["stored"] is None:
        return START
    try:
        return LedgerHead.parse(row["stored"])
    except (IntegrityError, TypeError):
        raise _make_inconsistency_error(row) from None


def _compute_next_balance(before: Balance, row: Row) -> Balance:
    """Return the balance of an account after an entry; IntegrityError unless the entry states the same."""
    box = WHOLE if row["box"] is None else Box.parse(row["box"])
    spend = parse_charge(row["loss"], row["delta"])
    step = EntryEffect(row["kind"], spend, box, row["slice"], row["analyst"])
    stated = (
        parse_charge(row["spent_loss"], row["spent_delta"]),
        *(row[name] for name in ("number", "period", "parts", "slices")),
    )
    start = before.move_to_period(row["period"], anew=row["kind"] == RESET)
    try:
        balance = apply_effect(start, step)
    except (InvalidEntryError, LossError):
        raise _make_inconsistency_error(row) from None
    if stated != _to_stated_columns(balance) or row["failures"] != (balance.failures or None):
        raise _make_inconsistency_error(row)
    if any(not each.is_within_limit for each in balance.reservations.values()):
        raise _make_inconsistency_error(row)
    if step.kind == RESERVE and row["slice"] != row["charge"]:
        raise _make_inconsistency_error(row)
    return balance


def _to_stated_columns(balance: Balance) -> tuple[Charge, int, str, str | None, str | None]:
    """Return the columns in which an entry states the balance after it."""
    digests = compute_partitions_digest(balance.parts), compute_reservations_digest(balance.reservations)
    return balance.spent, balance.count, balance.period, *digests


def _restore_balance(row: Row, read_stored_state: StoredStateLookup) -> Balance:
    """Return the balance by an account's last entry, and by its stored partitions and reservations, whose digests that holds."""
    spent = parse_charge(row["spent_loss"], row["spent_delta"])
    stored = (
        read_stored_state(get_account_key(row))
        if (row["parts"], row["slices"]) != (None, None)
        else (PartitionCharges(), {})
    )
    parts = PartitionCharges(spent) if row["parts"] is None else stored[0]
    reservations = {} if row["slices"] is None else stored[1]
    vouched = (compute_partitions_digest(parts), compute_reservations_digest(reservations)) == (
        row["parts"],
        row["slices"],
    )
    if not vouched or parts.compute_largest_charge() != spent:
        raise IntegrityError(
            f"the stored partitions or reservations of {get_account_key(row)} in the ledger were changed",
            code="ledger_tampered",
            hint=_VERIFY,
        )
    return Balance(parts, row["number"], row["period"], reservations, row["failures"] or 0)


def _make_inconsistency_error(row: Row) -> IntegrityError:
    return make_tampering_error(row["id"], "does not agree with the entries before it")


def _require_intact(row: Row, digests: KeyedDigest) -> None:
    if not digests.is_intact(row):
        raise make_tampering_error(row["id"], "was changed")


def _require_budget(row: Row, budget: str | None) -> None:
    if row["budget"] != budget:
        raise make_tampering_error(
            row["id"], f"does not name the budget that {get_account_key(row)} had at that time"
        )
