"""The audit log: what was edited, cut, moved or put in is found, and an event is acknowledged when it is durable alone."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import Error, IntegrityError, OperationalError
from dpsql.ledger import AnchorFile
from dpsql.ledger.audit_log import AuditLog, iterate_events, require_ledger_entries, verify_log
from dpsql.ledger.digest import KeyedDigest, to_canonical_json
from dpsql.ledger.protocol import LedgerHead

KEY = b"a key of the owner's"
Lines = list[bytes]


def made(path: Path, key: bytes | None = KEY, count: int = 6) -> Lines:
    """A log of some events, and its lines."""
    log = AuditLog.open(path, key)
    for number in range(1, count + 1):
        assert log.append("login", {"user": f"ana{number}", "kind": "charge", "box": None}) == number
    log.close()
    return path.read_bytes().splitlines(keepends=True)


def code(work: Callable[[], object]) -> str:
    """The code of the error that some work raises, empty where it raises none."""
    try:
        work()
    except Error as error:
        return error.code
    return ""


def edited(line: bytes, **changes: Any) -> bytes:
    return f"{to_canonical_json({**json.loads(line), **changes})}\n".encode()


def sealed(line: bytes, key: bytes | None, **changes: Any) -> bytes:
    """A line that was edited and given the digest that it is to have by a key."""
    row = {name: value for name, value in {**json.loads(line), **changes}.items() if name != "digest"}
    return f"{to_canonical_json({**row, 'digest': KeyedDigest(key).compute_digest(row)})}\n".encode()


@pytest.mark.parametrize("key", [None, KEY])
def test_a_log_verifies_and_goes_on(tmp_path: Path, key: bytes | None) -> None:
    path = tmp_path / "server.audit"
    made(path, key)
    assert path.stat().st_mode & 0o777 == 0o600
    log = AuditLog.open(path, key)
    assert log.append("stop", {}) == 7
    log.close()
    found = verify_log(path, key)
    assert (found.head, found.counts) == (log.head, {"login": 6, "stop": 1})
    assert [each.number for each in iterate_events(path, key)] == list(range(1, 8))


CHANGES: dict[str, Callable[[Lines], Lines]] = {
    "edited": lambda lines: [*lines[:2], edited(lines[2], facts={"user": "eve"}), *lines[3:]],
    "a null that is left out": lambda lines: [
        *lines[:2],
        edited(lines[2], facts={"user": "ana3", "kind": "charge"}),
        *lines[3:],
    ],
    "renamed": lambda lines: [*lines[:2], edited(lines[2], event="stop"), *lines[3:]],
    "dated back": lambda lines: [*lines[:2], edited(lines[2], at="2020-01-01T00:00:00+00:00"), *lines[3:]],
    "cut out": lambda lines: [*lines[:2], *lines[3:]],
    "cut at the start": lambda lines: lines[1:],
    "reordered": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "renumbered": lambda lines: [
        lines[0],
        edited(lines[2], number=2),
        edited(lines[1], number=3),
        *lines[3:],
    ],
    "repeated": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "sealed without the key": lambda lines: [
        *lines[:2],
        sealed(lines[2], None, facts={"user": "eve"}),
        *lines[3:],
    ],
    "sealed at the end": lambda lines: [*lines[:5], sealed(lines[5], None, facts={})],
    "no line": lambda lines: [*lines[:2], b"{}\n", *lines[3:]],
    "spelt otherwise": lambda lines: [*lines[:2], lines[2].replace(b":", b": ", 1), *lines[3:]],
    "a field more": lambda lines: [*lines[:2], edited(lines[2], more=1), *lines[3:]],
    "no object": lambda lines: [*lines[:2], b"[" * 5_000 + b"\n", *lines[3:]],
}


@pytest.mark.parametrize("change", [*CHANGES, "the end of another log"])
def test_a_changed_line_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "server.audit"
    lines = made(path)
    if change in CHANGES:
        lines = CHANGES[change](lines)
    else:
        lines[4:] = made(tmp_path / "other.audit")[4:]
    path.write_bytes(b"".join(lines))
    assert code(lambda: verify_log(path, KEY)) == "audit_tampered"


def test_a_chain_rebuilt_without_a_key_is_found_by_a_head(tmp_path: Path) -> None:
    """As of a ledger: who can write a log without a key can write another one."""
    path = tmp_path / "server.audit"
    lines = made(path, None)
    kept = verify_log(path).head
    mended = [*lines[:2], sealed(lines[2], None, facts={"user": "eve"})]
    for line in lines[3:]:
        mended.append(sealed(line, None, previous=json.loads(mended[-1])["digest"]))
    path.write_bytes(b"".join(mended))
    assert code(lambda: verify_log(path)) == ""
    assert code(lambda: verify_log(path, None, kept)) == "audit_rolled_back"


def test_a_truncated_log_is_found_by_its_anchor(tmp_path: Path) -> None:
    path, anchor = tmp_path / "server.audit", tmp_path / "anchor"
    log = AuditLog.open(path, KEY, anchor)
    for _ in range(4):
        log.append("login", {})
    log.close()
    whole = path.read_bytes()
    kept = AnchorFile(anchor).read_head()
    assert kept == log.head
    AuditLog.open(path, KEY, anchor).close()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert code(lambda: verify_log(path, KEY)) == ""
    assert code(lambda: verify_log(path, KEY, kept)) == "audit_rolled_back"
    assert code(lambda: AuditLog.open(path, KEY, anchor)) == "audit_rolled_back"
    path.unlink()
    assert code(lambda: AuditLog.open(path, KEY, anchor)) == "audit_rolled_back"


def test_another_key_is_noticed_before_anything_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "server.audit"
    before = made(path)
    for other in (None, b"another key than that"):
        assert code(lambda key=other: AuditLog.open(path, key)) == "audit_tampered"  # type: ignore[misc]
    assert path.read_bytes() == b"".join(before)


def test_a_line_that_a_crash_left_unfinished_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "server.audit"
    lines = made(path)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:40])
    assert verify_log(path, KEY).head.entries == 4
    log = AuditLog.open(path, KEY)
    assert log.append("start", {}) == 5
    log.close()
    assert verify_log(path, KEY).counts == {"login": 4, "start": 1}


@pytest.mark.parametrize("what", ["cut", "edited", "replaced", "removed"])
def test_a_file_that_changes_under_a_server_takes_no_event(tmp_path: Path, what: str) -> None:
    path = tmp_path / "server.audit"
    made(path)
    log = AuditLog.open(path, KEY)
    lines = path.read_bytes().splitlines(keepends=True)
    if what == "cut":
        os.truncate(path, len(b"".join(lines[:-1])))
    elif what == "edited":
        with path.open("ab") as file:
            file.write(sealed(lines[-1], None, number=7))
    elif what == "replaced":
        path.rename(tmp_path / "old")
        path.write_bytes(b"".join(lines))
    else:
        path.unlink()
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises((IntegrityError, OperationalError)) as refused:
        log.append("login", {})
    assert refused.value.code in ("audit_tampered", "audit_unavailable")
    assert (path.read_bytes() if path.exists() else b"") == before
    log.close()


def test_two_processes_append_to_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "server.audit"
    logs = [AuditLog.open(path, KEY) for _ in range(2)]
    numbers = [log.append("login", {}) for _ in range(5) for log in logs]
    assert numbers == list(range(1, 11))
    assert verify_log(path, KEY).head == logs[1].head
    for log in logs:
        log.close()


def test_threads_share_synchronisations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event is there once, under the number that its thread was told; those that wait share a synchronisation."""
    log = AuditLog.open(tmp_path / "server.audit", KEY)
    synchronised = list[int]()
    entered, go_on = threading.Event(), threading.Event()

    def slow(file: int) -> None:
        synchronised.append(file)
        entered.set()
        go_on.wait(30)

    monkeypatch.setattr(os, "fsync", slow)
    told = dict[str, int]()
    threads = [
        threading.Thread(target=lambda name=f"{place}": told.update({name: log.append(name, {})}))  # type: ignore[misc]
        for place in range(20)
    ]
    threads[0].start()
    assert entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(log._waiting) < 19:
        pass
    assert not told
    go_on.set()
    for thread in threads:
        thread.join()
    log.close()
    assert len(synchronised) == 2
    assert told == {each.name: each.number for each in iterate_events(log.path, KEY)}


def test_full_disk_undoes_the_charge_and_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.audit"
    log, write, full = AuditLog.open(path, KEY), os.write, [True]
    log.append("login", {})

    def written(file: int, data: bytes) -> int:
        if not full[0]:
            return write(file, data)
        if len(data) > 20:
            return write(file, data[:20])
        raise OSError(errno.ENOSPC, "no space")

    before = path.read_bytes()
    monkeypatch.setattr(os, "write", lambda file, data: written(file, data[:30]))
    assert code(lambda: log.append("login", {})) == "audit_unavailable"
    assert path.read_bytes() == before
    full[0] = False
    assert log.append("login", {}) == 2
    log.close()
    assert verify_log(path, KEY).head == log.head


def test_after_a_failed_synchronisation_nothing_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have dropped what it could not write, and say of the next synchronisation that all is well."""
    log, sync = AuditLog.open(tmp_path / "server.audit", KEY), os.fsync

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr(os, "fsync", broken)
    assert code(lambda: log.append("login", {})) == "audit_unavailable"
    monkeypatch.setattr(os, "fsync", sync)
    assert code(lambda: log.append("login", {})) == "audit_unavailable"
    log.close()


def test_the_log_is_compared_with_its_ledger(tmp_path: Path) -> None:
    path = tmp_path / "server.audit"
    log = AuditLog.open(path, KEY)
    rows = [{"id": number, "digest": f"{number}" * 64, "charge": 2, "analyst": "ana"} for number in (1, 2, 3)]
    log.append("answered", {"charge": 2, "analyst": "ana", "ledger": str(LedgerHead(3, "3" * 64))})
    log.close()
    found = verify_log(path, KEY)
    require_ledger_entries(found, rows)
    for wrong in (
        rows[:2],
        [*rows[:2], {**rows[2], "digest": "4" * 64}],
        [rows[0], {**rows[1], "analyst": "eve"}, rows[2]],
        [rows[0], {**rows[1], "charge": 1}, rows[2]],
    ):
        assert code(lambda each=wrong: require_ledger_entries(found, each)) == "audit_ledger"  # type: ignore[misc]
