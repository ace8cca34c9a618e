"""The audit log: a file of events, one line of JSON each, chained as the ledger's entries are and under the ledger's key.

Claim: `append` returns when its event is durable. A log in which a line was edited, removed, put in or moved does not
verify; nor does one that was cut at its end, beside a head that it had. Without the key nobody makes a line that verifies.
Why: each line has its number and the digest of the line before, and its own digest (`KeyedDigest`) covers all of it. Who
can write the file and knows the key, or writes a log without a key, can make another one: that shows beside a head that
is kept elsewhere, as of a ledger. A failed write is undone, so that the next event follows the last that was acknowledged;
after a failed synchronisation nothing is taken any more, as the system may have dropped what it holds.
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
from dpsql.ledger.anchor import Anchor
from dpsql.ledger.atomic_file import sync_directory
from dpsql.ledger.digest import KeyedDigest, Row, canonical
from dpsql.ledger.protocol import Clock, Head, utc_now
from dpsql.ledger.rows import FIRST_PREVIOUS, START

Facts: TypeAlias = Mapping[str, Any]
_FIELDS = frozenset({"number", "at", "event", "facts", "previous", "digest"})
_MOST_BYTES = 65_536
"""Bytes of a line."""
_RESTORE = "find out who can write the log; the newest copy of it shows what was there"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event: its number from 1, when it was written (UTC), its name, and what is known of it."""

    number: int
    at: datetime
    name: str
    facts: Facts
    digest: str

    @property
    def head(self) -> Head:
        """The head of a log that ends with this event."""
        return Head(self.number, self.digest)


@dataclass(slots=True, eq=False)
class _Pending:
    name: str
    facts: Facts
    number: int = 0
    error: Error | None = None
    done: bool = False


class AuditLog:
    """A log that is appended to; any number of threads may. Close it after use."""

    def __init__(
        self, path: Path, file: int, digests: KeyedDigest, anchor: Anchor | None, clock: Clock
    ) -> None:
        self.path, self._file, self._digests = path, file, digests
        self._anchor, self._clock = anchor, clock
        self._end, self._head = 0, START
        self._waiting = deque[_Pending]()
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
        """The log in a file, which is made with mode 0600 if it is missing; its last line is checked, `verified` checks all.

        A line that a crash has left unfinished was never acknowledged, and is removed. `anchor` is the path of a file that
        keeps the newest head. Raises IntegrityError (`audit_tampered`) where the last line is not what dpsql wrote with this
        key, (`audit_rolled_back`) where the anchor's head is not in the log; OperationalError (`audit_unavailable`)
        where the file cannot be written.
        """
        place, beside = Path(os.path.realpath(path)), None if anchor is None else Anchor(anchor)
        with _explained(path):
            file = os.open(place, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            log = cls(place, file, KeyedDigest(key), beside, clock)
            try:
                sync_directory(place.parent)
                with _alone(file):
                    log._find_end()
                expected = START if beside is None else beside.head() or START
                if expected not in (START, log._head):
                    require_holds(place, expected)
            except BaseException:
                log.close()
                raise
        return log

    @property
    def head(self) -> Head:
        """The number and digest of the last event that this process knows of."""
        return self._head

    def append(self, name: str, facts: Facts) -> int:
        """Appends an event, and returns its number when it is durable. What waits meanwhile is written with the next one.

        Raises OperationalError (`audit_unavailable`) where it cannot be written, and IntegrityError (`audit_tampered`) where
        the file was replaced, cut or edited at its end since; no line was added then.
        """
        mine = _Pending(name, facts)
        self._waiting.append(mine)
        with self._writing:
            if not mine.done:
                self._write_waiting()
        if mine.error is not None:
            raise mine.error
        return mine.number

    def _write_waiting(self) -> None:
        group = list[_Pending]()
        while self._waiting:
            group.append(self._waiting.popleft())
        failed: Error | None = None
        try:
            with _explained(self.path), _alone(self._file):
                self._write(group)
        except Error as error:
            failed = error
        for each in group:
            # An error of its own for each thread: a traceback is of one.
            each.error = None if failed is None else _like(failed)
            each.done = True

    def _write(self, group: list[_Pending]) -> None:
        if self._failed:
            raise OSError
        self._require_same_file()
        head, lines = self._head, list[bytes]()
        for each in group:
            line, head = self._line(each, head)
            lines.append(line)
        data = b"".join(lines)
        try:
            _write_all(self._file, data, self._end)
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
            self._anchor.replace(head)

    def _line(self, pending: _Pending, before: Head) -> tuple[bytes, Head]:
        row = {
            "number": before.entries + 1,
            "at": self._clock().astimezone(UTC).isoformat(timespec="milliseconds"),
            "event": pending.name,
            "facts": dict(pending.facts),
            "previous": before.digest,
        }
        digest = self._digests.digest(row)
        line = f"{canonical({**row, 'digest': digest})}\n".encode("ascii")
        if len(line) > _MOST_BYTES:
            raise OSError
        pending.number = before.entries + 1
        return line, Head(pending.number, digest)

    def _require_same_file(self) -> None:
        """Another file, or less of this one, is a log that somebody has replaced or cut; more is another process'."""
        own, named = os.fstat(self._file), self.path.stat()
        if (own.st_dev, own.st_ino) != (named.st_dev, named.st_ino) or own.st_size < self._end:
            raise _tampered(self._head.entries, "was cut off or replaced while the log was in use")
        if own.st_size > self._end:
            known = self._head
            self._find_end()
            if self._head.entries < known.entries or (
                self._head.entries == known.entries and self._head != known
            ):
                raise _tampered(known.entries, "was changed while the log was in use")

    def _find_end(self) -> None:
        """Finds the last line and checks it; removes an unfinished one behind it."""
        size = os.fstat(self._file).st_size
        start = max(0, size - 2 * _MOST_BYTES)
        os.lseek(self._file, start, os.SEEK_SET)
        tail = _read_all(self._file, size - start)
        whole = tail[: tail.rfind(b"\n") + 1]
        if not whole and start:
            raise _tampered(None, "ends with what is no line")
        if len(whole) < len(tail):
            os.ftruncate(self._file, start + len(whole))
            os.fsync(self._file)
        self._end, self._head = start + len(whole), START
        if whole:
            last = whole[:-1].rpartition(b"\n")[2]
            row = _row(last, None)
            if not self._digests.holds(row):
                raise _tampered(row["number"], "was changed, or made with another key")
            self._head = Head(row["number"], row["digest"])

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def events(path: str | Path, key: bytes | None = None) -> Iterator[AuditEvent]:
    """The events of a log, each held against the one before as it is read.

    An unfinished line at the end, which a crash leaves, is no event. Raises IntegrityError (`audit_tampered`) with the number
    of the first line that is not what dpsql wrote, OperationalError (`audit_unavailable`) where there is no log.
    """
    digests, before = KeyedDigest(key), START
    for line in _lines(path):
        number = before.entries + 1
        row = _row(line, number)
        if row["number"] > number:
            raise _tampered(number, "is missing")
        if row["number"] < number:
            raise _tampered(number, f"has the number {row['number']}: it was moved or put in")
        if not digests.holds(row):
            raise _tampered(number, "was changed, or made with another key")
        if row["previous"] != (before.digest if before.entries else FIRST_PREVIOUS):
            raise _tampered(number, "does not follow the one before")
        before = Head(number, row["digest"])
        yield AuditEvent(number, datetime.fromisoformat(row["at"]), row["event"], row["facts"], row["digest"])


@dataclass(slots=True)
class Verified:
    """What a verified log holds: its head, and how many events there are of each name.

    `ledger` are the digests that the events state of entries of the ledger, by number; `charged` whose charges begin with which entry.
    """

    head: Head = START
    counts: dict[str, int] = field(default_factory=dict)
    ledger: dict[int, tuple[int, str]] = field(default_factory=dict)
    charged: dict[int, tuple[int, str]] = field(default_factory=dict)


def verified(path: str | Path, key: bytes | None = None, expected: Head = START) -> Verified:
    """The log, checked from the first line to the last, and that it holds the head `expected`.

    Raises as `events`; IntegrityError (`audit_rolled_back`) where that head is not in it.
    """
    found, holds = Verified(), expected == START
    for each in events(path, key):
        found.head = each.head
        found.counts[each.name] = found.counts.get(each.name, 0) + 1
        holds = holds or each.head == expected
        stated = each.facts.get("ledger")
        if isinstance(stated, str):
            entry = Head.parse(stated)
            if entry.entries:
                known = found.ledger.setdefault(entry.entries, (each.number, entry.digest))
                if known[1] != entry.digest:
                    raise _of_another_ledger(each.number, entry.entries)
        charge = each.facts.get("charge")
        if type(charge) is int:
            found.charged[charge] = each.number, str(each.facts.get("analyst"))
    if not holds:
        raise _rolled_back(path, expected)
    return found


def require_ledger(found: Verified, entries: Iterable[Row]) -> None:
    """Requires that a ledger, whose entries are these, holds all entries that a verified log states.

    Raises IntegrityError (`audit_ledger`) with the event that it does not agree with.
    """
    heads, charged = dict(found.ledger), dict(found.charged)
    for row in entries:
        number = row["id"]
        event, digest = heads.pop(number, (0, row["digest"]))
        if digest != row["digest"]:
            raise _of_another_ledger(event, number)
        event, analyst = charged.pop(number, (0, row["analyst"]))
        if analyst != row["analyst"] or (event and row["charge"] != number):
            raise _of_another_ledger(event, number)
    for number, (event, _) in sorted({**charged, **heads}.items()):
        raise _of_another_ledger(event, number)


def require_holds(path: str | Path, head: Head) -> None:
    """Raises IntegrityError (`audit_rolled_back`) unless a log holds a head that it had; nothing else is checked."""
    for line in _lines(path):
        row = _row(line, None)
        if (row["number"], row["digest"]) == (head.entries, head.digest):
            return
    raise _rolled_back(path, head)


def _lines(path: str | Path) -> Iterator[bytes]:
    with _explained(path):
        file = _opened(path)
    with file:
        while True:
            with _explained(path):
                line = file.readline(_MOST_BYTES + 1)
            if not line.endswith(b"\n"):
                if len(line) > _MOST_BYTES:
                    raise _tampered(None, "is longer than any that dpsql writes")
                return
            yield line[:-1]


def _opened(path: str | Path) -> IO[bytes]:
    return Path(path).open("rb")


def _row(line: bytes, number: int | None) -> dict[str, Any]:
    """The fields of a line, whose types are those that dpsql writes; what they say is not checked."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    kinds: Mapping[str, type] = {"number": int, "facts": dict}
    if (
        not isinstance(row, dict)
        or row.keys() != _FIELDS
        or any(type(row[name]) is not kinds.get(name, str) for name in _FIELDS)
        or canonical(row).encode("ascii") != line
        or not _is_time(row["at"])
    ):
        raise _tampered(number, "is none that dpsql wrote")
    return row


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _read_all(file: int, size: int) -> bytes:
    parts = list[bytes]()
    while size and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write_all(file: int, data: bytes, place: int) -> None:
    os.lseek(file, place, os.SEEK_SET)
    while data:
        data = data[os.write(file, data) :]


@contextmanager
def _alone(file: int) -> Iterator[None]:
    """Keeps other processes from appending meanwhile, where the system has locks for it."""
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
def _explained(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError):
        raise unavailable(path) from None


def unavailable(path: str | Path) -> OperationalError:
    """The error of a log that cannot be read or written."""
    return OperationalError(
        f"the audit log {path} cannot be read or written",
        code="audit_unavailable",
        hint="check its directory, its owner and the free space of the disk",
    )


def _like(error: Error) -> Error:
    return type(error)(error.message, code=error.code, hint=error.hint)


def _tampered(number: int | None, what: str) -> IntegrityError:
    which = "a line" if number is None else f"event {number}"
    return IntegrityError(f"{which} of the audit log {what}", code="audit_tampered", hint=_RESTORE)


def _rolled_back(path: str | Path, head: Head) -> IntegrityError:
    return IntegrityError(
        f"the audit log {path} no longer holds event {head.entries} as it was: it was cut, or another one took its place",
        code="audit_rolled_back",
        hint=_RESTORE,
    )


def _of_another_ledger(event: int, entry: int) -> IntegrityError:
    return IntegrityError(
        f"event {event} of the audit log states entry {entry} of the ledger, and the ledger has another one or none there",
        code="audit_ledger",
        hint="give the ledger of the same server, and verify it: dpsql ledger verify",
    )
