"""The chain of a ledger's entries: each names the one before by its digest, so that a change shows.

What somebody who can write the ledger rebuilds from the first changed entry on, digests and all, is a chain
too. Only a `Head` that is kept elsewhere, or a key, tells it from the one that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dpsql.accounting.partitions.boxes import WHOLE, Box, Parts
from dpsql.accounting.partitions.exact_boxes import charged_exactly
from dpsql.accounting.spend import Spend
from dpsql.errors import IntegrityError, LossError
from dpsql.ledger.balance import Standing, parts_digest
from dpsql.ledger.claims import Claims, claimed_by
from dpsql.ledger.digest import Row, Seal
from dpsql.ledger.entry_kinds import RESERVE, NotAStepError, Step, stepped
from dpsql.ledger.identity import may_follow
from dpsql.ledger.protocol import AccountKey, Head
from dpsql.ledger.reservations import Slices, slices_digest
from dpsql.ledger.rows import FIRST_PREVIOUS, START, account_of, head_of, stored_spend, tampered

BudgetOf: TypeAlias = Callable[[AccountKey], str | None]
"""The digest of an account's budget; None if there is no such account."""
KeptOf: TypeAlias = Callable[[AccountKey], tuple[Parts, Slices]]
"""What is kept of what an account has spent on each part, and of its open slices."""


class Last(NamedTuple):
    """The last entry of an account, with the digest of the entry before it and the link of the one after."""

    row: Row
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """What is known of the entries: where they end, and where each account stands.

    And what the last of them says of the whole ledger: which `claims` to refine stored releases there are, where
    the `stored` releases ended when it was written, and which `database` the ledger is of.
    """

    head: Head = START
    standings: Mapping[AccountKey, Standing] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    stored: Head = START
    database: str | None = None

    def standing(self, key: AccountKey) -> Standing:
        """Where an account stands."""
        return self.standings.get(key, Standing())

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
        seal: Seal,
        budget_of: BudgetOf,
        kept_of: KeptOf,
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
        standings: dict[AccountKey, Standing] = {}
        found = START
        for row, before, after in lasts:
            _require_intact(row, seal)
            if row["previous"] != (FIRST_PREVIOUS if row["id"] == 1 else before):
                raise tampered(row["id"], "does not follow the one before")
            if after is not None and after != row["digest"]:
                raise tampered(row["id"] + 1, "does not follow the one before")
            key = account_of(row)
            _require_budget(row, budget_of(key))
            standings[key] = _stood(row, kept_of)
            found = max(found, head_of(row), key=lambda head: head.entries)
        if end is not None:
            _require_intact(end, seal)
            if head_of(end) != found:
                _require_budget(end, None)
        if sum(standing.count for standing in standings.values()) != found.entries:
            raise IntegrityError(
                f"the entries of the ledger do not add up to the {found.entries} that its last one counts",
                code="ledger_tampered",
                hint="dpsql ledger verify finds the place; restore the newest backup",
            )
        if end is None:
            return cls(found, standings)
        claims = noted_claims() if end["claims"] is not None else Claims()
        if claims.digest != end["claims"]:
            raise IntegrityError(
                "what the ledger notes of refined releases was changed",
                code="ledger_tampered",
                hint="dpsql ledger verify finds the place; restore the newest backup",
            )
        return cls(found, standings, claims, _stored_end(end), end["database"])

    def followed(self, rows: Iterable[Row], seal: Seal, budget_of: BudgetOf) -> Chain:
        """The chain with these entries after its last.

        Raises IntegrityError (`ledger_tampered`) with the number of the first entry that does not follow: an id, a
        digest, a link, a running total, an account's count or a budget is not what dpsql wrote.
        """
        end, standings, budgets = self.head, dict(self.standings), dict[AccountKey, str | None]()
        claims, stored, database = self.claims, self.stored, self.database
        for row in rows:
            number = end.entries + 1
            if row["id"] > number:
                raise tampered(number, "is missing")
            if row["id"] < number:
                raise tampered(row["id"], "was put in")
            _require_intact(row, seal)
            if row["previous"] != end.digest:
                raise tampered(number, "does not follow the one before")
            key = account_of(row)
            if key not in budgets:
                budgets[key] = budget_of(key)
            _require_budget(row, budgets[key])
            standings[key] = _next(standings.get(key, Standing()), row)
            claims, stored = _claims_after(claims, row), _stored_after(stored, row)
            if not may_follow(database, row["database"]):
                raise tampered(number, "is of another database than those before")
            end, database = head_of(row), row["database"]
        return Chain(end, standings, claims, stored, database)


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


def _next(before: Standing, row: Row) -> Standing:
    """Where an account stands after an entry, which must say so."""
    box = WHOLE if row["box"] is None else Box.parse(row["box"])
    spend = stored_spend(row["loss"], row["delta"])
    step = Step(row["kind"], spend, box, row["slice"], row["analyst"])
    said = (
        stored_spend(row["spent_loss"], row["spent_delta"]),
        *(row[name] for name in ("number", "period", "parts", "slices")),
    )
    try:
        standing = stepped(before.begun(row["period"]), step)
        if said != _told(standing):
            standing = stepped(before.begun(row["period"]), step._replace(rule=charged_exactly))
            _require_told(said, standing, row)
    except (NotAStepError, LossError):
        raise _off(row) from None
    if row["failures"] != (standing.failures or None):
        raise _off(row)
    if any(not each.keeps for each in standing.slices.values()):
        raise _off(row)
    if step.kind == RESERVE and row["slice"] != row["charge"]:
        raise _off(row)
    return standing


def _require_told(said: tuple[object, ...], standing: Standing, row: Row) -> None:
    if said != _told(standing):
        raise _off(row)


def _told(standing: Standing) -> tuple[Spend, int, str, str | None, str | None]:
    """What an entry says of where its account stands after it."""
    digests = parts_digest(standing.parts), slices_digest(standing.slices)
    return standing.spent, standing.count, standing.period, *digests


def _stood(row: Row, kept_of: KeptOf) -> Standing:
    """Where an account stands by its last entry, and by what is kept of its parts and slices, for which that vouches."""
    spent = stored_spend(row["spent_loss"], row["spent_delta"])
    kept = kept_of(account_of(row)) if (row["parts"], row["slices"]) != (None, None) else (Parts(), {})
    parts = Parts(spent) if row["parts"] is None else kept[0]
    slices = {} if row["slices"] is None else kept[1]
    vouched = (parts_digest(parts), slices_digest(slices)) == (row["parts"], row["slices"])
    if not vouched or parts.most() != spent:
        raise IntegrityError(
            f"what the ledger keeps of the parts or slices of {account_of(row)} was changed",
            code="ledger_tampered",
            hint="dpsql ledger verify finds the place; restore the newest backup",
        )
    return Standing(parts, row["number"], row["period"], slices, row["failures"] or 0)


def _off(row: Row) -> IntegrityError:
    return tampered(row["id"], "does not add up with those before")


def _require_intact(row: Row, seal: Seal) -> None:
    if not seal.holds(row):
        raise tampered(row["id"], "was changed")


def _require_budget(row: Row, budget: str | None) -> None:
    if row["budget"] != budget:
        raise tampered(row["id"], f"was charged to another budget than {account_of(row)} has now")
