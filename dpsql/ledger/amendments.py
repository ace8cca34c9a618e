"""Amendments: entries by which an owner changes the budget of an account, and which budget held at each entry.

Claim: after an amendment, all answers of the account together, including the earlier ones, are (ε, δ)-DP for the amended
budget, if the owner chose it without regard to answers. If the choice followed from answers, they are so for the
largest budget that the owner would have chosen after any answers.
Why: earlier charges stay, in the measure of the same accountant, and an amendment is refused if the spent amount exceeds
the new limit. So at each moment the sum of all losses is within the current limit, and the limit of the account is one
number for all entries, as if it had been so from the start. A filter holds for a limit that is fixed in advance: a limit that
depends on answers is at most the largest of those that could follow. A smaller budget only refuses more.
Source: Rogers, Roth, Ullman, Vadhan 2016, Section 3 (filters, whose limit does not depend on answers).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dpsql.errors import Error, PolicyError
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import Account, AccountKey
from dpsql.ledger.schema import get_account_key, make_tampering_error, parse_budget, parse_charge
from dpsql.privacy.accounting.charge import Charge

_COLUMNS: Final = ("accountant", "epsilon", "delta", "selection", "limit_loss", "limit_delta", "renewal")


@dataclass(frozen=True, slots=True)
class Amendment:
    """The change that an entry makes: an account's budget, limit and digest, `before` and `after`."""

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
    """Require of an entry that amends an account, of which `spent` is spent, that dpsql would have written it.

    Raises IntegrityError (`ledger_tampered`): the budget that it states is that of its details, whose limit is no more
    than the budget's and within which all is that was spent.
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
