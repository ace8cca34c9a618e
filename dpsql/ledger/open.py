"""Opening the ledger that a target names: a file, memory, or a PostgreSQL database."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import NotSupportedError, OperationalError, ProgrammingError
from dpsql.ledger.anchor import AnchorFile, read_anchored_head
from dpsql.ledger.budget import Budget, FailureLimit
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import KeyedDigest, read_ledger_key
from dpsql.ledger.protocol import START, Account, Clock, Ledger, LedgerHead, utc_now
from dpsql.ledger.quote import make_rollback_error

if TYPE_CHECKING:
    from dpsql.ledger.stores.base import Store

MEMORY = ":memory:"


def open_ledger(
    target: str | Path,
    budgets: Mapping[str, Budget] | Mapping[str | AccountKey, Budget],
    *,
    clock: Clock = utc_now,
    anchor: LedgerHead | str | Path | None = None,
    key: bytes | str | Path | None = None,
    database: str | None = None,
    max_failures: Mapping[str, int] | None = None,
) -> Ledger:
    """Open the ledger at `target`, or create it.

    The last entry of each account is checked; `Ledger.verify` checks all.

    Args:
        target: The path of a file (created with mode 0600 if missing), ":memory:", or the URL of a PostgreSQL database.
        budgets: The budget of each table, and of analysts at tables.
        clock: The source of the time of entries.
        anchor: A `LedgerHead` that the ledger had before, or the path of a file that keeps its newest one: created with
            a new ledger, replaced after each charge.
        key: The owner's secret, or the path of a file that holds it. The digests of a new ledger are computed with it
            (HMAC), and nobody without it can change what the last entries state.
        database: The identity of the queried database, as in `dpsql.ledger.anchor`; None if there is none.
        max_failures: The number of failures that locks each table; three unless given.

    Returns:
        The ledger. Close it after use.

    Raises:
        IntegrityError: `ledger_corrupt` or `ledger_tampered`, if dpsql did not write the stored ledger as it is;
            `ledger_rolled_back`, if it does not contain the head of the anchor; `anchor_missing`, if it has entries and
            the anchor file does not exist.
        PolicyError: `budget_changed`, if a stored budget differs; `another_database`, if the ledger belongs to another
            database.
        OperationalError: `ledger_key`, without the ledger's key, or with a key for a ledger without one; other codes,
            if the target cannot be a ledger.
    """
    digests = KeyedDigest(read_ledger_key(key))
    accounts = {
        AccountKey(name) if isinstance(name, str) else name: Account.from_budget(budget)
        for name, budget in budgets.items()
    }
    anchor_file = None if anchor is None or isinstance(anchor, LedgerHead) else AnchorFile(anchor)
    _require_possible_anchor(target, anchor, anchor_file)
    expected = anchor if isinstance(anchor, LedgerHead) else read_anchored_head(anchor_file)
    # SQLAlchemy takes longer to import than the rest of dpsql, and only a ledger in use needs it.
    from dpsql.ledger.accounts import AccountBook
    from dpsql.ledger.journal import Journal, prepare_ledger
    from dpsql.ledger.sql_ledger import SqlLedger

    journal = Journal(_open_store(target, expected), digests, anchor_file)
    book = AccountBook(accounts, clock, FailureLimit(max_failures or {}))
    try:
        prepare_ledger(journal, book, expected, database)
    except BaseException:
        journal.close()
        raise
    return SqlLedger(journal, book, database)


def _require_possible_anchor(
    target: str | Path, anchor: LedgerHead | str | Path | None, anchor_file: AnchorFile | None
) -> None:
    """Raise ProgrammingError for the ledger's own file as its anchor, NotSupportedError for an anchor of a ledger in memory."""
    if anchor_file is not None and not is_url(target) and anchor_file.path == _resolve_path(target):
        raise ProgrammingError(
            "the anchor file must be another file than the ledger",
            code="anchor_unavailable",
            hint="give the anchor a path of its own, best on another disk",
        )
    if str(target) == MEMORY and anchor is not None:
        raise NotSupportedError(
            "a ledger in memory cannot have an anchor",
            code="ledger_target",
            hint="leave the anchor out, or keep the ledger in a file",
        )


def _open_store(target: str | Path, expected: LedgerHead) -> Store:
    """Return the database that a target names; a file is created if it is missing and no head of it is `expected`."""
    if is_url(target):
        return _open_server_store(str(target))
    if str(target) == MEMORY:
        return _open_memory_store()
    return _open_file_store(target, expected)


def is_url(target: str | Path) -> bool:
    """Return whether a target is a URL and no path."""
    return isinstance(target, str) and "://" in target


def open_existing_store(target: str | Path) -> Store:
    """Return the database of an existing ledger. Raises OperationalError (`ledger_unavailable`) if it does not exist."""
    if is_url(target):
        return _open_server_store(str(target))
    from dpsql.ledger.stores.sqlite import SqliteStore

    path = _resolve_path(target)
    if not path.is_file():
        raise OperationalError(
            f"the ledger {target} does not exist", code="ledger_unavailable", hint="check the path"
        )
    return SqliteStore(path)


def _open_memory_store() -> Store:
    from dpsql.ledger.stores.sqlite import SqliteStore

    return SqliteStore(None)


def _open_file_store(target: str | Path, expected: LedgerHead) -> Store:
    from dpsql.ledger.stores.sqlite import SqliteStore, create_private_file

    # Absolute, so that a later chdir cannot lead to another, fresh, ledger.
    path = _resolve_path(target)
    if expected != START and not path.exists():
        raise make_rollback_error(str(path), expected)
    create_private_file(path)
    return SqliteStore(path)


def _open_server_store(url: str) -> Store:
    if url.partition("://")[0] not in {"postgresql", "postgres"}:
        raise NotSupportedError(
            "a ledger must be a file or a PostgreSQL database",
            code="ledger_target",
            hint="give the path of a file, or a URL such as postgresql://user@host/name",
        )
    from dpsql.ledger.stores.postgres import PostgresStore

    return PostgresStore(url.replace("postgres://", "postgresql://", 1))


def _resolve_path(target: str | Path) -> Path:
    try:
        return Path(os.path.realpath(target))
    except (OSError, ValueError):
        raise OperationalError("the path of the ledger is not valid", code="ledger_unavailable") from None
