"""Which ledger a target means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpsql.accounting.budget import Budget
from dpsql.accounting.ledger import Clock, Ledger, utc_now
from dpsql.errors import NotSupportedError


def open_ledger(target: str | Path, budgets: Mapping[str, Budget], *, clock: Clock = utc_now) -> Ledger:
    """The ledger at `target` (a file's path, made if missing, or ":memory:") with these tables' budgets.

    Raises PolicyError (`budget_changed`) when a stored budget differs, OperationalError or
    IntegrityError when the target cannot be a ledger.
    """
    if isinstance(target, str) and "://" in target:
        raise NotSupportedError(
            "a ledger is kept in a file", code="ledger_target", hint="give the path of a file"
        )
    # SQLAlchemy takes longer to import than the rest of dpsql, and only a ledger in use needs it.
    from dpsql.accounting.sqlite_ledger import SqliteLedger

    return SqliteLedger.open(target, budgets, clock=clock)
