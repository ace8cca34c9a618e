"""Check whether the data still match their `data_version`, by fingerprints of tables stored beside the policy.

A stored release answers a query again while the policy's `data_version` is the same, so an owner who changes the data but not
the version gets answers of the former data. The file `hie.fingerprints` for `hie.yaml` holds, for each version, the time and a
fingerprint of each declared table, with a salt that is drawn once. The file reveals exactly whether data changed, so only its
owner can read it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dpsql.policy.names import normalize_name

if TYPE_CHECKING:
    from dpsql.backends.analyst_schema import DatabaseSchema
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import Policy

ENDING: Final = ".fingerprints"


def compare_fingerprints(
    rules: Policy, policy: Path, backend: DuckDBBackend, schema: DatabaseSchema, answered: datetime | None
) -> Iterator[str]:
    """Yield remarks on whether the data match their version; record a new version or table.

    `answered` is when the ledger last answered with this version, or None.
    """
    path, this = policy.with_suffix(ENDING), str(rules.data_version)
    try:
        record = _read_record(path)
    except OSError as error:  # do not replace another user's file
        yield f"cannot read {path} ({error.strerror}), so changes of the data go unnoticed"
        return
    engine = f"duckdb {version('duckdb')}"
    if record.get("engine") != engine:  # another engine hashes otherwise
        record = {"engine": engine, "salt": secrets.token_hex(32), "versions": {}}
    now = backend.compute_fingerprints(_list_answer_columns(rules, schema), bytes.fromhex(record["salt"]))
    known = record["versions"].setdefault(
        this, {"at": datetime.now(UTC).isoformat(timespec="seconds"), "tables": {}}
    )
    when = _format_time(datetime.fromisoformat(known["at"]))
    changed = [table for table, found in now.items() if known["tables"].get(table, found) != found]
    fresh = {table: found for table, found in now.items() if table not in known["tables"]}
    if changed:
        last = "" if answered is None else f", its last answer from {_format_time(answered)}"
        yield (
            f"{', '.join(changed)} changed: the fingerprint of data_version {this} is from {when}{last}."
            " Change data_version in the policy; until then, stored answers of the former data are reused"
        )
    elif not fresh:
        yield f"the data match data_version {this}, recorded on {when}"
    if fresh:
        known["tables"] |= fresh
        if _write_record(path, record):
            yield f"recorded the fingerprint of data_version {this} in {path.name} for the next check"
        else:
            yield f"cannot write {path}, so changes of the data will go unnoticed"


def find_last_answer_time(ledger: str, key: Path | None, this: str) -> datetime | None:
    """Return when a ledger last charged an answer of this data version, or None."""
    from contextlib import closing

    from dpsql.ledger.key import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(ledger, read_ledger_key(key))) as history:
        times = [
            entry.at for entry in history.iterate_entries() if str(entry.details.get("data_version")) == this
        ]
    return max(times, default=None)


def _list_answer_columns(rules: Policy, schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return the columns of each declared table that answers may depend on."""
    found: dict[str, list[str]] = {}
    for name, columns in schema.items():
        declared = rules.find_table(name)
        if declared is None:
            continue
        names = {normalize_name(column) for column in declared.columns}
        names |= {
            normalize_name(column.partition(".")[0]) for column in declared.columns
        }  # fields of a STRUCT
        names |= {normalize_name(column) for link in declared.all_links for column in link.names}
        names.add(normalize_name(declared.unit or ""))
        every = declared.public and not declared.columns
        found[name] = [column for column, _ in columns if every or normalize_name(column) in names]
    return found


def _format_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _read_record(path: Path) -> dict[str, Any]:
    """Return the stored record, empty if it is missing or malformed. Raises OSError if it cannot be read."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
        bytes.fromhex(found["salt"])
        for each in found["versions"].values():
            datetime.fromisoformat(each["at"])
            dict(each["tables"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_record(path: Path, record: Mapping[str, Any]) -> bool:
    """Write the record, readable by its owner only; return whether that succeeded."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        beside.replace(path)
    except OSError:
        return False
    return True
