"""Record the ledgers that a policy was used with, so that a mistyped path does not create another ledger silently.

Two ledgers over the same data are two budgets, which a user who types `--ledger hie.ledgr` does not intend. The ledgers of
`hie.yaml` are listed in a file beside it, `hie.ledgers`, with one path or URL per line: there all users of the policy share the
list, and it moves with the policy. It holds no password and no data. The database's file is no place for it, since it is opened
read-only; nor is a file in the user's home, since colleagues share a budget; nor the policy itself, whose digest is in receipts.
If the folder cannot be written, the ledger beside the policy is still known. This guards against mistakes only: anybody who can
remove the file can create a ledger, as they can with `--new-ledger` or from Python.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dpsql.errors import OperationalError, ProgrammingError

ENDING: Final = ".ledgers"
_HEAD: Final = (
    "# The ledgers that this policy was used with, for dpsql. Only --new-ledger creates another one.\n"
)
_MOST_BYTES: Final = 100_000


def is_new_ledger(rules: Path, ledger: str, *, wanted: bool = False) -> bool:
    """Return whether opening a ledger would create it; False for a ledger in memory.

    Raises ProgrammingError (`new_ledger`) if it would be created although the policy was used with a ledger before, unless
    that is `wanted`.
    """
    from dpsql.ledger.open import MEMORY

    if ledger == MEMORY or _is_existing_ledger(ledger):
        return False
    met = next(_iterate_known_ledgers(rules, ledger), None)
    if met is not None and not wanted:
        gone = met == _normalize_ledger_name(ledger)
        said = "no longer exists" if gone else f"does not exist, and {rules.name} was used with {met} before"
        raise ProgrammingError(
            f"the ledger {_normalize_ledger_name(ledger)} {said}; a new ledger would be a second budget for the same data",
            code="new_ledger",
            hint=f"{'restore it' if gone else 'correct the path'},"
            " or create a ledger with --new-ledger; the losses of both add up",
        )
    return True


def remember_ledger(rules: Path, ledger: str) -> None:
    """Record once that the policy was used with a ledger, if the file can be written."""
    from dpsql.ledger.open import MEMORY

    name, path = _normalize_ledger_name(ledger), rules.with_suffix(ENDING)
    if ledger == MEMORY or name in _read_listed_ledgers(path):
        return
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{'' if file.tell() else _HEAD}{name}\n")


def _iterate_known_ledgers(rules: Path, ledger: str) -> Iterator[str]:
    """Yield the ledgers that the policy was used with: the listed ones, and the one beside the policy."""
    yield from _read_listed_ledgers(rules.with_suffix(ENDING))
    beside = rules.with_suffix(".ledger")
    if beside.is_file() and _normalize_ledger_name(str(beside)) != _normalize_ledger_name(ledger):
        yield _normalize_ledger_name(str(beside))


def _read_listed_ledgers(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _is_existing_ledger(ledger: str) -> bool:
    from dpsql.ledger.open import is_url, open_existing_store

    if not is_url(ledger):
        return Path(ledger).exists()
    try:
        store = open_existing_store(ledger)
    except OperationalError:
        return True  # opening it raises the error
    with contextlib.closing(store), store.open_connection() as connection:
        return not store.is_empty(connection)


def _normalize_ledger_name(ledger: str) -> str:
    """Return a ledger's name for the list: an absolute path, or a URL without user, password and options.

    >>> _normalize_ledger_name("postgresql://ana:secret@host:5432/ledgers?sslmode=require")
    'postgresql://host:5432/ledgers'
    """
    from dpsql.ledger.open import is_url

    if not is_url(ledger):
        return os.path.realpath(ledger)
    parts = urlsplit(ledger)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
