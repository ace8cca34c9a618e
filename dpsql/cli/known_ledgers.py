"""The ledgers that a policy was asked with, so that a mistyped path does not begin another one without a word.

Two ledgers over the same data are two budgets, which nobody may want who types `--ledger hie.ledgr`. What says that a policy
has met a ledger is a file beside it, `hie.ledgers` for `hie.yaml`, with one path or URL a line: it is where all who share the
policy see it, and it moves with the policy. It holds no password and nothing of the data. Not the database's file, which is
opened read-only; not a file of the user's, since colleagues share a budget; not the policy itself, whose digest is in
receipts. Where the folder cannot be written, the ledger beside the policy is still known. This guards against mistakes alone:
whoever can remove the file can begin a ledger, as he can with `--new-ledger`, or from Python.
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
_HEAD: Final = "# The ledgers that this policy was asked with, for dpsql. A further one begins with --new-ledger alone.\n"
_MOST_BYTES: Final = 100_000


def is_new_ledger(rules: Path, ledger: str, *, wanted: bool = False) -> bool:
    """Whether a ledger is not there yet. In memory none begins.

    Raises ProgrammingError (`new_ledger`) where it would begin though the policy has been asked with a ledger before,
    unless that is `wanted`.
    """
    from dpsql.ledger.open import MEMORY

    if ledger == MEMORY or _is_existing_ledger(ledger):
        return False
    met = next(_iterate_known_ledgers(rules, ledger), None)
    if met is not None and not wanted:
        gone = met == _normalize_ledger_name(ledger)
        said = (
            "is not there any more" if gone else f"is not there, and {rules.name} was asked with {met} before"
        )
        raise ProgrammingError(
            f"the ledger {_normalize_ledger_name(ledger)} {said}: a new ledger is a new budget for the same data",
            code="new_ledger",
            hint=f"{'restore it' if gone else 'correct the path'};"
            " or --new-ledger begins one, and what both answer adds up",
        )
    return True


def remember_ledger(rules: Path, ledger: str) -> None:
    """Notes that the policy was asked with a ledger, once; where that cannot be written, nothing is noted."""
    from dpsql.ledger.open import MEMORY

    name, path = _normalize_ledger_name(ledger), rules.with_suffix(ENDING)
    if ledger == MEMORY or name in _read_listed_ledgers(path):
        return
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{'' if file.tell() else _HEAD}{name}\n")


def _iterate_known_ledgers(rules: Path, ledger: str) -> Iterator[str]:
    """The ledgers that the policy has met: those that are listed, and the one beside it."""
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
        return True  # whoever opens it says what is wrong
    with contextlib.closing(store), store.open_connection() as connection:
        return not store.is_empty(connection)


def _normalize_ledger_name(ledger: str) -> str:
    """A ledger's name in the list: a path from the root, or a URL without user, password and options.

    >>> _normalize_ledger_name("postgresql://ana:secret@host:5432/ledgers?sslmode=require")
    'postgresql://host:5432/ledgers'
    """
    from dpsql.ledger.open import is_url

    if not is_url(ledger):
        return os.path.realpath(ledger)
    parts = urlsplit(ledger)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
