"""The comparison of a policy's budgets and account names with those that the ledger stores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.errors import IntegrityError, PolicyError
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import Account, AccountKey
from dpsql.ledger.schema import RESTORE, parse_budget, parse_charge
from dpsql.policy.names import normalize_account_name


def require_one_spelling(wanted: Iterable[AccountKey], stored: Iterable[AccountKey]) -> None:
    """Require that each account has one spelling, among the wanted and the stored ones.

    Otherwise `VISITS` would have a budget in addition to that of `visits`, and "bob " one in addition to that of "bob".

    Raises:
        PolicyError: `account_name`, for a wanted account that is stored or wanted under another spelling.
    """
    asked = tuple(wanted)
    spelled: dict[AccountKey, AccountKey] = {}
    for key in (*stored, *asked):
        spelled.setdefault(_normalize_key(key), key)
    for key in asked:
        if (other := spelled[_normalize_key(key)]) != key:
            raise PolicyError(
                f"{_describe_account(key)} shares the account of {_describe_account(other)}: the names differ only by"
                " case, spaces or Unicode form",
                code="account_name",
                hint=f"use the spelling of the ledger: {_describe_account(other)}",
            )


def _normalize_key(key: AccountKey) -> AccountKey:
    return AccountKey(normalize_account_name(key.table), normalize_account_name(key.analyst))


def _describe_account(key: AccountKey) -> str:
    return f"analyst {key.analyst!r} at table {key.table!r}" if key.analyst else f"table {key.table!r}"


def with_stored_limit(key: AccountKey, account: Account, row: Row, digests: KeyedDigest) -> Account:
    """Return the account with the limit that was fixed when its budget was stored.

    Raises PolicyError (`budget_changed`) where the stored budget is another.
    """
    stored = parse_budget(row, digests)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of {key} is {account.budget} in the policy, but {stored} in the ledger",
            code="budget_changed",
            hint="write the ledger's budget into the policy, or change the ledger's:"
            ' dpsql ledger amend LEDGER --policy FILE --reason "…"',
        )
    limit = parse_charge(row["limit_loss"], row["limit_delta"])
    if not limit.is_within(account.limit):
        raise IntegrityError(
            f"the stored limit of {key} in the ledger is above its budget",
            code="ledger_corrupt",
            hint=RESTORE,
        )
    return replace(account, limit=limit)
