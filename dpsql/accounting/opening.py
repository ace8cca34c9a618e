"""Which ledger a target means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dpsql.accounting.budget import Budget
from dpsql.accounting.ledger import Clock, Head, Ledger, utc_now
from dpsql.errors import NotSupportedError


def open_ledger(
    target: str | Path,
    budgets: Mapping[str, Budget],
    *,
    clock: Clock = utc_now,
    anchor: Head | str | Path | None = None,
) -> Ledger:
    """The ledger at `target` (a file's path, made if missing, or ":memory:") with these tables' budgets.

    Every entry is checked. Raises IntegrityError where the file is not what dpsql wrote (`ledger_corrupt`,
    `ledger_tampered`), PolicyError (`budget_changed`) when a stored budget differs, OperationalError when the
    target cannot be a ledger.

    `anchor` is a `Head` that the ledger had before, or the path of a file that keeps its newest one: made
    with a new ledger, replaced after each charge. IntegrityError (`ledger_rolled_back`) if the ledger does
    not hold that head, (`anchor_missing`) if the ledger has entries and the file is not there.
    """
    if isinstance(target, str) and "://" in target:
        raise NotSupportedError(
            "a ledger is kept in a file", code="ledger_target", hint="give the path of a file"
        )
    # SQLAlchemy takes longer to import than the rest of dpsql, and only a ledger in use needs it.
    from dpsql.accounting.sqlite_ledger import SqliteLedger

    return SqliteLedger.open(target, budgets, clock=clock, anchor=anchor)
