"""Whether the data are still those of their `data_version`: fingerprints of tables, stored beside the policy for its owner.

A stored release answers a query again while the policy's `data_version` is the same, so an owner who changes the data and
forgets the version has answers of former data. What was there is a file, `hie.compute_fingerprints` for `hie.yaml`: for each version
the time and a fingerprint of each declared table, under a salt that is drawn once. It says exactly whether data changed, so only
its owner can read the file.
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
    from dpsql.backends.catalog import DatabaseSchema
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import Policy

ENDING: Final = ".fingerprints"


def compare_fingerprints(
    rules: Policy, policy: Path, backend: DuckDBBackend, schema: DatabaseSchema, answered: datetime | None
) -> Iterator[str]:
    """What is to be said of the data beside their version; a version that is new, or a table, is noted.

    `answered` is when the ledger last answered with this version, None where it has not.
    """
    path, this = policy.with_suffix(ENDING), str(rules.data_version)
    try:
        record = _read_record(path)
    except OSError as error:  # somebody else's file is not begun anew
        yield f"{path} cannot be read ({error.strerror}), so that changes of the data are not noticed"
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
        last = "" if answered is None else f", and the ledger's last answer of it of {_format_time(answered)}"
        yield (
            f"{', '.join(changed)} changed: the fingerprint of data_version {this} is of {when}{last}."
            " Write another data_version into the policy: until then stored answers are of the former data"
        )
    elif not fresh:
        yield f"the data are those of data_version {this}, as they were on {when}"
    if fresh:
        known["tables"] |= fresh
        if _write_record(path, record):
            yield f"the fingerprint of data_version {this} is noted in {path.name}: the next check compares"
        else:
            yield f"{path} cannot be written, so that changes of the data will not be noticed"


def find_last_answer_time(ledger: str, key: Path | None, this: str) -> datetime | None:
    """When a ledger last charged an answer of this data version."""
    from contextlib import closing

    from dpsql.ledger.key import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(ledger, read_ledger_key(key))) as history:
        times = [
            entry.at for entry in history.iterate_entries() if str(entry.details.get("data_version")) == this
        ]
    return max(times, default=None)


def _list_answer_columns(rules: Policy, schema: DatabaseSchema) -> dict[str, list[str]]:
    """The columns of each declared table that answers may depend on."""
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
    """What is stored, empty where there is none or it is not what was written. Raises OSError where it cannot be read."""
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
    """Whether the file could be written, for its owner alone."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        beside.replace(path)
    except OSError:
        return False
    return True
