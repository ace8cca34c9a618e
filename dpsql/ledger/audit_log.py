"""The audit log: a file of events, one line of JSON each, chained as the ledger's entries are and under the ledger's key.

Claim: `append` returns when its event is durable. A log in which a line was edited, removed, inserted or moved does not
verify; nor does one that was cut at its end, if it is compared with a head that it had. Without the key nobody can make a line
that verifies.
Why: each line has its number and the digest of the line before, and its own digest (`KeyedDigest`) covers all of it. Anybody who
can write the file and knows the key, or writes a log without a key, can make another one: a head that is kept elsewhere, as for
a ledger, reveals that. A failed write is undone, so that the next event follows the last acknowledged one;
after a failed synchronization no event is accepted, since the system may have dropped what it held.
Source: Schneier, Kelsey 1999, "Secure Audit Logs to Support Computer Forensics" (a hash chain under a key); Gray, Reuter
1992, Section 9.4.7 (group commit).
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeAlias

from dpsql.errors import Error, IntegrityError, OperationalError
from dpsql.ledger.anchor import AnchorFile, sync_directory
from dpsql.ledger.digest import KeyedDigest, Row, to_canonical_json
from dpsql.ledger.protocol import FIRST_PREVIOUS, START, Clock, LedgerHead, utc_now

EventFacts: TypeAlias = Mapping[str, Any]
_FIELDS = frozenset({"number", "at", "event", "facts", "previous", "digest"})
_MOST_BYTES = 65_536
"""Bytes of a line."""
_RESTORE = "find out who could change the log, and compare it with its newest copy"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event: its number from 1, when it was written (UTC), its name, and its facts."""

    number: int
    at: datetime
    name: str
    facts: EventFacts
    digest: str

    @property
    def head(self) -> LedgerHead:
        """Return the head of a log that ends with this event."""
        return LedgerHead(self.number, self.digest)


@dataclass(slots=True, eq=False)
class _PendingEvent:
    name: str
    facts: EventFacts
    number: int = 0
    error: Error | None = None
    done: bool = False


class AuditLog:
    """A log that is appended to; any number of threads may. Close it after use."""

    def __init__(
        self, path: Path, file: int, digests: KeyedDigest, anchor: AnchorFile | None, clock: Clock
    ) -> None:
        self.path, self._file, self._digests = path, file, digests
        self._anchor, self._clock = anchor, clock
        self._end, self._head = 0, START
        self._waiting = deque[_PendingEvent]()
        self._writing = threading.Lock()
        self._failed = False

    @classmethod
    def open(
        cls,
        path: str | Path,
        key: bytes | None = None,
        anchor: str | Path | None = None,
        clock: Clock = utc_now,
    ) -> AuditLog:
        """Return the log in a file, which is made with mode 0600 if it is missing; its last line is checked, `verify_log` checks all.

        A line that a crash has left unfinished was never acknowledged, and is removed. `anchor` is the path of a file that
        keeps the newest head. Raises IntegrityError (`audit_tampered`) where the last line is not what dpsql wrote with this
        key, (`audit_rolled_back`) where the anchor's head is not in the log; OperationalError (`audit_unavailable`)
        where the file cannot be written.
        """
        place, beside = Path(os.path.realpath(path)), None if anchor is None else AnchorFile(anchor)
        with _translate_errors(path):
            file = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            log = cls(place, file, KeyedDigest(key), beside, clock)
            try:
                sync_directory(place.parent)
                with _lock_file(file):
                    log._recover_end()
                expected = START if beside is None else beside.read_head() or START
                if expected not in (START, log._head):
                    require_log_head(place, expected)
            except BaseException:
                log.close()
                raise
        return log

    @property
    def head(self) -> LedgerHead:
        """Return the number and digest of the last event that this process knows of."""
        return self._head

    def append(self, name: str, facts: EventFacts) -> int:
        """Append an event, and return its number when it is durable. Events that wait meanwhile are written together.

        Raises OperationalError (`audit_unavailable`) where it cannot be written, and IntegrityError (`audit_tampered`) where
        the file was replaced, cut or edited at its end since; no line was added then.
        """
        mine = _PendingEvent(name, facts)
        self._waiting.append(mine)
        with self._writing:
            if not mine.done:
                self._write_waiting()
        if mine.error is not None:
            raise mine.error
        return mine.number

    def _write_waiting(self) -> None:
        group = list[_PendingEvent]()
        while self._waiting:
            group.append(self._waiting.popleft())
        failed: Error | None = None
        try:
            with _translate_errors(self.path), _lock_file(self._file):
                self._write_group(group)
        except Error as error:
            failed = error
        for each in group:
            # Each thread gets an error object of its own, since a traceback belongs to one thread.
            each.error = None if failed is None else _copy_error(failed)
            each.done = True

    def _write_group(self, group: list[_PendingEvent]) -> None:
        if self._failed:
            raise OSError
        self._require_same_file()
        head, lines = self._head, list[bytes]()
        for each in group:
            line, head = self._encode_event(each, head)
            lines.append(line)
        data = b"".join(lines)
        try:
            _write_bytes(self._file, data, self._end)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        try:
            os.fsync(self._file)
        except OSError:
            self._failed = True
            raise
        self._end, self._head = self._end + len(data), head
        if self._anchor is not None:
            self._anchor.replace_head(head)

    def _encode_event(self, pending: _PendingEvent, before: LedgerHead) -> tuple[bytes, LedgerHead]:
        row = {
            "number": before.entries + 1,
            "at": self._clock().astimezone(UTC).isoformat(timespec="milliseconds"),
            "event": pending.name,
            "facts": dict(pending.facts),
            "previous": before.digest,
        }
        digest = self._digests.compute_digest(row)
        line = f"{to_canonical_json({**row, 'digest': digest})}\n".encode("ascii")
        if len(line) > _MOST_BYTES:
            raise OSError
        pending.number = before.entries + 1
        return line, LedgerHead(pending.number, digest)

    def _require_same_file(self) -> None:
        """Require that the file is the one that was opened, and not shorter; follow what another process appended."""
        own, named = os.fstat(self._file), self.path.stat()
        if (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) or own.st_size < self._end:
            raise _make_tampering_error(
                self._head.entries, "was removed or replaced while the log was in use"
            )
        if own.st_size > self._end:
            known = self._head
            self._recover_end()
            if self._head.entries < known.entries or (
                self._head.entries == known.entries and self._head != known
            ):
                raise _make_tampering_error(known.entries, "was changed while the log was in use")

    def _recover_end(self) -> None:
        """Find the last line and checks it; removes an unfinished one behind it."""
        size = os.fstat(self._file).st_size
        start = max(0, size - 2 * _MOST_BYTES)
        os.lseek(self._file, start, os.SEEK_SET)
        tail = _read_bytes(self._file, size - start)
        whole = tail[: tail.rfind(b"\n") + 1]
        if not whole and start:
            raise _make_tampering_error(None, "is not a complete line")
        if len(whole) < len(tail):
            os.ftruncate(self._file, start + len(whole))
            os.fsync(self._file)
        self._end, self._head = start + len(whole), START
        if whole:
            last = whole[:-1].rpartition(b"\n")[2]
            row = _parse_line(last, None)
            if not self._digests.is_intact(row):
                raise _make_tampering_error(row["number"], "was changed, or made with another key")
            self._head = LedgerHead(row["number"], row["digest"])

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def iterate_events(path: str | Path, key: bytes | None = None) -> Iterator[AuditEvent]:
    """Yield the events of a log, each checked against the one before it.

    An unfinished line at the end, which a crash leaves, is no event. Raises IntegrityError (`audit_tampered`) with the number
    of the first line that is not what dpsql wrote, OperationalError (`audit_unavailable`) where there is no log.
    """
    digests, before = KeyedDigest(key), START
    for line in _iterate_lines(path):
        number = before.entries + 1
        row = _parse_line(line, number)
        if row["number"] > number:
            raise _make_tampering_error(number, "is missing")
        if row["number"] < number:
            raise _make_tampering_error(
                number, f"has the number {row['number']}: it was moved or inserted later"
            )
        if not digests.is_intact(row):
            raise _make_tampering_error(number, "was changed, or made with another key")
        if row["previous"] != (before.digest if before.entries else FIRST_PREVIOUS):
            raise _make_tampering_error(number, "does not continue the event before it")
        before = LedgerHead(number, row["digest"])
        yield AuditEvent(number, datetime.fromisoformat(row["at"]), row["event"], row["facts"], row["digest"])


@dataclass(slots=True)
class VerifiedLog:
    """The content of a verified log: its head, and the number of events of each name.

    `ledger_digests` are the digests that the events state of entries of the ledger, by number; `charge_events` whose charges begin with which entry.
    """

    head: LedgerHead = START
    counts: dict[str, int] = field(default_factory=dict)
    ledger_digests: dict[int, tuple[int, str]] = field(default_factory=dict)
    charge_events: dict[int, tuple[int, str]] = field(default_factory=dict)


def verify_log(path: str | Path, key: bytes | None = None, expected: LedgerHead = START) -> VerifiedLog:
    """Return the log, checked from the first line to the last, and that it holds the head `expected`.

    Raises as `iterate_events`; IntegrityError (`audit_rolled_back`) where that head is not in it.
    """
    found, holds = VerifiedLog(), expected == START
    for each in iterate_events(path, key):
        found.head = each.head
        found.counts[each.name] = found.counts.get(each.name, 0) + 1
        holds = holds or each.head == expected
        stated = each.facts.get("ledger")
        if isinstance(stated, str):
            entry = LedgerHead.parse(stated)
            if entry.entries:
                known = found.ledger_digests.setdefault(entry.entries, (each.number, entry.digest))
                if known[1] != entry.digest:
                    raise _make_other_ledger_error(each.number, entry.entries)
        charge = each.facts.get("charge")
        if type(charge) is int:
            found.charge_events[charge] = each.number, str(each.facts.get("analyst"))
    if not holds:
        raise _make_rollback_error(path, expected)
    return found


def require_ledger_entries(found: VerifiedLog, entries: Iterable[Row]) -> None:
    """Require that a ledger, whose entries are these, holds all entries that a verified log states.

    Raises IntegrityError (`audit_ledger`) with the event that it does not agree with.
    """
    heads, charged = dict(found.ledger_digests), dict(found.charge_events)
    for row in entries:
        number = row["id"]
        event, digest = heads.pop(number, (0, row["digest"]))
        if digest != row["digest"]:
            raise _make_other_ledger_error(event, number)
        event, analyst = charged.pop(number, (0, row["analyst"]))
        if analyst != row["analyst"] or (event and row["charge"] != number):
            raise _make_other_ledger_error(event, number)
    for number, (event, _) in sorted({**charged, **heads}.items()):
        raise _make_other_ledger_error(event, number)


def require_log_head(path: str | Path, head: LedgerHead) -> None:
    """Raise IntegrityError (`audit_rolled_back`) unless a log holds a head that it had; nothing else is checked."""
    for line in _iterate_lines(path):
        row = _parse_line(line, None)
        if (row["number"], row["digest"]) == (head.entries, head.digest):
            return
    raise _make_rollback_error(path, head)


def _iterate_lines(path: str | Path) -> Iterator[bytes]:
    with _translate_errors(path):
        file = _open_file(path)
    with file:
        while True:
            with _translate_errors(path):
                line = file.readline(_MOST_BYTES + 1)
            if not line.endswith(b"\n"):
                if len(line) > _MOST_BYTES:
                    raise _make_tampering_error(None, "is longer than any line that dpsql writes")
                return
            yield line[:-1]


def _open_file(path: str | Path) -> IO[bytes]:
    return Path(path).open("rb")


def _parse_line(line: bytes, number: int | None) -> dict[str, Any]:
    """Return the fields of a line, with the types that dpsql writes; do not check their content."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    kinds: Mapping[str, type] = {"number": int, "facts": dict}
    if (
        not isinstance(row, dict)
        or row.keys() != _FIELDS
        or any(type(row[name]) is not kinds.get(name, str) for name in _FIELDS)
        or to_canonical_json(row).encode("ascii") != line
        or not _is_time(row["at"])
    ):
        raise _make_tampering_error(number, "was not written by dpsql")
    return row


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _read_bytes(file: int, size: int) -> bytes:
    parts = list[bytes]()
    while size and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_bytes(file: int, data: bytes, offset: int) -> None:
    os.lseek(file, offset, os.SEEK_SET)
    while data:
        data = data[os.write(file, data) :]


@contextmanager
def _lock_file(file: int) -> Iterator[None]:
    """Keep other processes from appending meanwhile, on systems that have file locks."""
    try:
        import fcntl
    except ImportError:  # Windows, where one server has a log of its own
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def _translate_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        raise make_unavailable_error(path) from None


def make_unavailable_error(path: str | Path) -> OperationalError:
    """Return the error of a log that cannot be read or written."""
    return OperationalError(
        f"the audit log {path} cannot be read or written",
        code="audit_unavailable",
        hint="check its directory, its owner and the free space on the disk",
    )


def _copy_error(error: Error) -> Error:
    return type(error)(error.message, code=error.code, hint=error.hint)


def _make_tampering_error(number: int | None, what: str) -> IntegrityError:
    which = "a line" if number is None else f"event {number}"
    return IntegrityError(f"{which} of the audit log {what}", code="audit_tampered", hint=_RESTORE)


def _make_rollback_error(path: str | Path, head: LedgerHead) -> IntegrityError:
    return IntegrityError(
        f"the audit log {path} does not contain event {head.entries} as it was written: it was cut, or replaced by another log",
        code="audit_rolled_back",
        hint=_RESTORE,
    )


def _make_other_ledger_error(event: int, entry: int) -> IntegrityError:
    return IntegrityError(
        f"event {event} of the audit log names entry {entry} of the ledger, which the ledger does not contain in that form",
        code="audit_ledger",
        hint="give the ledger of the same server, and check it with `dpsql ledger verify`",
    )
