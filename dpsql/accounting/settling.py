"""A policy's budget held against the one that the ledger keeps."""

from __future__ import annotations

from dataclasses import replace

from dpsql.accounting.ledger import Account, AccountKey
from dpsql.accounting.rows import stored_budget, stored_spend
from dpsql.accounting.seal import Row, Seal
from dpsql.errors import IntegrityError, PolicyError


def settled(key: AccountKey, account: Account, row: Row, seal: Seal) -> Account:
    """The account with the limit that was fixed when its budget was stored.

    Raises PolicyError (`budget_changed`) where the stored budget is another.
    """
    stored = stored_budget(row, seal)
    if stored != account.budget:
        raise PolicyError(
            f"the budget of {key} is {account.budget} in the policy, but {stored} in its ledger",
            code="budget_changed",
            hint="a budget is fixed when its ledger is made: restore the policy's, or begin a new ledger",
        )
    limit = stored_spend(row["limit_loss"], row["limit_delta"])
    if not limit.within(account.limit):
        raise IntegrityError(f"the ledger allows {key} more than its budget does", code="ledger_corrupt")
    return replace(account, limit=limit)
