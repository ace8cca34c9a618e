"""The hash chain of a ledger's entries: each holds the digest of the one before, so that a change is detected.

A program that can write the ledger can rebuild the chain from a changed entry on, digests included. Only a `LedgerHead` that is
stored elsewhere, or a key, detects that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from dpsql.errors import Error, IntegrityError, LossError, PolicyError
from dpsql.ledger.anchor import can_follow
from dpsql.ledger.balance import (
    AMEND,
    RESERVE,
    RESET,
    Balance,
    EntryEffect,
    InvalidEntryError,
    Reservations,
    apply_effect,
    compute_partitions_digest,
    compute_reservations_digest,
)
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import FIRST_PREVIOUS, START, Account, LedgerHead
from dpsql.ledger.schema import (
    Claims,
    get_account_key,
    get_row_head,
    make_tampering_error,
    parse_budget,
    parse_charge,
    parse_claims,
)
from dpsql.privacy.accounting.events import Charge
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


# Amendments: entries by which an owner changes the budget of an account, and which budget held at each entry.


_COLUMNS: Final = ("accountant", "epsilon", "delta", "selection", "limit_loss", "limit_delta", "renewal")


@dataclass(frozen=True, slots=True)
class Amendment:
    """The change that an entry makes: an account's budget, limit and digest, `before` and `after`.

    Claim: after an amendment, all answers of the account together, including the earlier ones, are (ε, δ)-DP for the amended
    budget, if the owner chose it without regard to answers. If the choice followed from answers, they are so for the largest budget
    that the owner would have chosen after any answers.
    Why: earlier charges stay, in the measure of the same accountant, and an amendment is refused if the spent amount exceeds the
    new limit. So at each moment the sum of all losses is within the current limit, and the limit of the account is one number for
    all entries, as if it had been so from the start. A filter holds for a limit that is fixed in advance: a limit that depends on
    answers is at most the largest of those that could follow. A smaller budget only refuses more.
    Source: Rogers, Roth, Ullman, Vadhan 2016, Section 3 (filters, whose limit does not depend on answers).
    """

    before: Account
    after: Account
    digests: tuple[str, str]

    @classmethod
    def from_row(cls, row: Row, digests: KeyedDigest) -> Amendment:
        """Return the amendment of an entry; IntegrityError (`ledger_tampered`) for one that dpsql did not write."""
        try:
            details = json.loads(row["details"])
            rows = [_restore_account_row(row, details[name], digests) for name in ("before", "after")]
            before, after = (_parse_account(each, digests) for each in rows)
        except (ValueError, TypeError, LookupError, RecursionError, Error):
            raise make_tampering_error(row["id"], "is no amendment that dpsql wrote") from None
        return cls(before, after, (rows[0]["digest"], rows[1]["digest"]))


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """The digest of each account's budget now, and, following its amendments, at each entry.

    `amendments` has, for each account, the numbers of its amendments with the digest of the budget before each, oldest first.
    """

    current: Mapping[AccountKey, str] = field(default_factory=dict)
    amendments: Mapping[AccountKey, tuple[tuple[int, str], ...]] = field(default_factory=dict)

    @classmethod
    def from_rows(
        cls, accounts: Mapping[AccountKey, Row], amendments: Iterable[Row], digests: KeyedDigest
    ) -> BudgetHistory:
        """Return the history by the stored accounts and all entries that amend one, oldest first."""
        amended: dict[AccountKey, tuple[tuple[int, str], ...]] = {}
        for row in amendments:
            key, before = get_account_key(row), Amendment.from_row(row, digests).digests[0]
            amended[key] = (*amended.get(key, ()), (row["id"], before))
        return cls({key: str(row["digest"]) for key, row in accounts.items()}, amended)

    def find_budget_digest(self, key: AccountKey, number: int) -> str | None:
        """Return the digest of the budget that holds at an entry: before the first amendment after it. None without an account.

        >>> visits = AccountKey("visits")
        >>> history = BudgetHistory({visits: "c"}, {visits: ((3, "a"), (7, "b"))})
        >>> [history.find_budget_digest(visits, number) for number in (2, 3, 6, 7)]
        ['a', 'b', 'b', 'c']
        """
        for amendment, before in self.amendments.get(key, ()):
            if number < amendment:
                return before
        return self.current.get(key)


def require_amendable(key: AccountKey, before: Account, after: Account, spent: Charge) -> None:
    """Raise PolicyError where an amendment would not be one number for all entries.

    `amend_kind`: another accountant counts in another measure, another renewal in other periods. `amend_spent`: more is
    spent than the new budget allows.
    """
    if (before.budget.accountant, before.budget.renewal) != (after.budget.accountant, after.budget.renewal):
        raise PolicyError(
            f"an amendment cannot change the accountant or renewal of {key}: its budget is {before.budget} in the"
            f" ledger, and {after.budget} in the policy",
            code="amend_kind",
            hint="amend epsilon, delta or the selection share only; another accountant or renewal needs a new ledger,"
            " whose budget counts in addition to this one",
        )
    if not spent.is_within(after.limit):
        raise PolicyError(
            f"the new budget of {key}, {after.budget}, is below what was already spent",
            code="amend_spent",
            hint="choose a budget of at least what was spent: released answers cannot be taken back",
        )


def make_amendment_details(before: Row, after: Row, reason: str) -> dict[str, Any]:
    """Return the details of an entry that amends: why, and both rows of the account."""
    return {
        "reason": reason,
        **{name: _get_account_columns(row) for name, row in (("before", before), ("after", after))},
    }


def require_amendment(row: Row, spent: Charge, digests: KeyedDigest) -> None:
    """Require that dpsql would have written this entry, which amends an account of which `spent` is spent.

    Raises IntegrityError (`ledger_tampered`): unless its budget is that of its details, its limit is
    at most that of the budget, and all that was spent is within the limit.
    """
    found = Amendment.from_row(row, digests)
    stated = row["budget"], parse_charge(row["limit_loss"], row["limit_delta"])
    try:
        require_amendable(get_account_key(row), found.before, found.after, spent)
    except PolicyError:
        fits = False
    else:
        fits = stated == (found.digests[1], found.after.limit) and found.digests[0] != found.digests[1]
    if not fits:
        raise make_tampering_error(row["id"], "does not agree with the entries before it")


def _get_account_columns(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in _COLUMNS}


def _restore_account_row(row: Row, columns: Mapping[str, Any], digests: KeyedDigest) -> dict[str, Any]:
    key = get_account_key(row)
    if set(columns) != set(_COLUMNS):
        raise LookupError
    found = {"table_name": key.table, "account_analyst": key.analyst, **columns}
    return found | {"digest": digests.compute_digest(found)}


def _parse_account(row: Row, digests: KeyedDigest) -> Account:
    account = Account.from_budget(parse_budget(row, digests))
    limit = parse_charge(row["limit_loss"], row["limit_delta"])
    if not limit.is_within(account.limit):
        raise ValueError
    return replace(account, limit=limit)
