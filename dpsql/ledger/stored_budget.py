"""The comparison of a policy's budgets and account names with those that the ledger stores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dpsql.errors import IntegrityError, PolicyError
from dpsql.ledger.digest import KeyedDigest, Row
from dpsql.ledger.protocol import Account, AccountKey
from dpsql.ledger.rows import parse_budget, parse_charge
from dpsql.policy.names import normalize_account_name


def require_one_spelling(wanted: Iterable[AccountKey], stored: Iterable[AccountKey]) -> None:
    """Raises PolicyError (`normalize_account_name`) where an account is there, or asked for, under a name spelled otherwise.

    Else `VISITS` would have a budget besides that of `visits`, and "bob " one besides that of "bob".
    """
    asked = tuple(wanted)
    spelled: dict[AccountKey, AccountKey] = {}
    for key in (*stored, *asked):
        spelled.setdefault(_normalize_key(key), key)
    for key in asked:
        if (other := spelled[_normalize_key(key)]) != key:
            raise PolicyError(
                f"{_describe_account(key)} has the account of {_describe_account(other)}: the names differ only by case, spaces or Unicode form",
                code="account_name",
                hint=f"write it as the ledger has it: {_describe_account(other)}",
            )


def _normalize_key(key: AccountKey) -> AccountKey:
    return AccountKey(normalize_account_name(key.table), normalize_account_name(key.analyst))


def _describe_account(key: AccountKey) -> str:
    return f"analyst {key.analyst!r} at table {key.table!r}" if key.analyst else f"table {key.table!r}"


def with_stored_limit(key: AccountKey, account: Account, row: Row, digests: KeyedDigest) -> Account:
    """The account with the limit that was fixed when its budget was stored.

    Raises PolicyError (`budget_changed`) where the stored budget is another.
    """
    stored = parse_budget(row, digests)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of {key} is {account.budget} in the policy, but {stored} in its ledger",
            code="budget_changed",
            hint="a budget is fixed when its ledger is made: restore the policy's, or amend the ledger's, for a reason:"
            ' dpsql ledger amend LEDGER --policy FILE --reason "…"',
        )
    limit = parse_charge(row["limit_loss"], row["limit_delta"])
    if not limit.is_within(account.limit):
        raise IntegrityError(f"the ledger allows {key} more than its budget does", code="ledger_corrupt")
    return replace(account, limit=limit)
