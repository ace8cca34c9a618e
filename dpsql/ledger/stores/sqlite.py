"""A ledger in SQLite: its one connection, its file, and the meaning of its errors.

A connection is opened at first use and kept. SQLite's handles and locks must not cross a fork, so all are
closed before one. All use of SQLite here holds one lock, which the fork waits for.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from dpsql.errors import DatabaseError, IntegrityError, OperationalError
from dpsql.ledger.anchor import sync_directory

BUSY_SECONDS = 60
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")
MEMORY: Final = ":memory:"

FileIdentity: TypeAlias = tuple[tuple[int, int] | None, ...]
"""The device and inode of the file, of its write-ahead log and of that log's index; None where there is none."""


class SqliteStore:
    """A `Store`: the database in the file at `path`, or in memory if that is None.

    Its file is never made here, so a deleted ledger is not a fresh budget. When the path names another
    file than the one that was opened, the kept connection is closed and that file is opened.
    """

    def __init__(self, path: Path | None) -> None:
        self.where = MEMORY if path is None else str(path)
        self.patience: float = BUSY_SECONDS
        self._path = path
        self._files = () if path is None else tuple(Path(f"{path}{end}") for end in ("", "-wal", "-shm"))
        self._owner = os.getpid() if path is None else None
        self._opened_by: tuple[int, FileIdentity] | None = None
        self._raw: sqlite3.Connection | None = None
        self._engine = create_engine("sqlite://", creator=self._open_sqlite, poolclass=StaticPool)

    def lock(self) -> AbstractContextManager[object]:
        """See `Store.lock`: the lock that all use of SQLite here holds, and that a fork waits for."""
        return _IN_USE

    @contextmanager
    def open_connection(self) -> Iterator[Connection]:
        """See `Store.open_connection`."""
        with _IN_USE, translate_errors(self.where):
            self._prepare_connection()
            with self._engine.connect() as connection:
                yield connection

    @contextmanager
    def open_transaction(self, *, write: bool) -> Iterator[Connection]:
        """See `Store.open_transaction`: a writer has SQLite's write lock from the start."""
        with _IN_USE, translate_errors(self.where):
            self._prepare_connection()
            with self._engine.begin() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN DEFERRED")
                yield connection

    def configure_database(self, connection: Connection) -> None:
        """See `Store.configure_database`: a write-ahead log, so that readers never wait for a writer."""
        mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
        if mode not in ("wal", "memory"):
            raise OperationalError(
                f"the ledger {self.where} is on a file system without shared memory, which SQLite needs",
                code="ledger_unavailable",
                hint="move the ledger to a local disk",
            )

    def is_empty(self, connection: Connection) -> bool:
        """See `Store.is_empty`."""
        return not connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1").all()

    def list_columns(self, connection: Connection, table: str) -> frozenset[str]:
        """See `Store.list_columns`."""
        found = connection.exec_driver_sql("SELECT name FROM pragma_table_info(?)", (table,))
        return frozenset(map(str, found.scalars()))

    def require_owner(self) -> None:
        """See `Store.require_owner`: one in memory belongs to the process that made it."""
        if self._owner not in (None, os.getpid()):
            # The child's copy would spend the parent's budget a second time.
            raise OperationalError(
                "a ledger in memory can only be used by the process that made it",
                code="ledger_forked",
                hint="keep the ledger in a file, which several processes can use",
            )

    def close(self) -> None:
        """Close the connection; the last one of a file brings its write-ahead log into it."""
        with _IN_USE:
            if self.has_own_connection():
                self._engine.dispose()
                self._opened_by = self._raw = None
                _OPEN.discard(self)

    def abandon(self) -> None:
        """See `close`, but never waits: for the garbage collector, which may run inside any other code."""
        _ABANDONED.append(self)
        held = _is_lock_held()  # by the interrupted code; the next use of SQLite closes it then
        try:
            if not held and _IN_USE.acquire(blocking=False):
                _close_abandoned()
        finally:
            # An interrupt may have come after the lock was taken and before `acquire` returned.
            if not held and _is_lock_held():
                _IN_USE.release()

    def _prepare_connection(self) -> None:
        _close_abandoned()
        if any(store.has_inherited_connection() for store in tuple(_OPEN)):
            # SQLite would believe that this process holds the locks of the one that it was copied from.
            raise OperationalError(
                "the process was forked outside of Python while a ledger was open",
                code="ledger_forked",
                hint="fork with os.fork or multiprocessing, or open ledgers only after the fork",
            )
        if self._path is not None:
            require_one_name(self._path)
        if self._opened_by is not None and self._opened_by[1] != _identify_files(self._files):
            self.close()
        if self._raw is not None and self._raw.in_transaction:
            self._raw.rollback()  # left open by a failure while the connection was released

    def has_own_connection(self) -> bool:
        """Return whether this process opened the connection that is kept."""
        return self._opened_by is not None and self._opened_by[0] == os.getpid()

    def has_inherited_connection(self) -> bool:
        """Return whether another process opened the connection that is kept; not one that is closed meanwhile."""
        opened = self._opened_by
        return opened is not None and opened[0] != os.getpid()

    def _open_sqlite(self) -> sqlite3.Connection:
        if self._path is not None:
            require_not_mounted(self._path)
        # The file is identified before it is opened: if it is replaced in between, it is opened again later.
        file = _identify_files(self._files)[:1]
        target = MEMORY if self._path is None else f"{self._path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            target, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            # FULL: the write-ahead log is on the disk when COMMIT returns (on macOS with fullfsync).
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
            # No page is kept between uses, so that each sees the file as it is now.
            connection.execute("PRAGMA cache_size = 0")
            # The first read opens the write-ahead log, which then stays open with the connection.
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        except BaseException:
            connection.close()
            raise
        self._raw = connection
        self._opened_by = os.getpid(), file + _identify_files(self._files)[1:]
        if self._path is not None:
            _OPEN.add(self)
        return connection


_IN_USE = threading.RLock()
# Without ledgers in memory, which stay with the process that made them. The garbage collector may remove others at any time.
_OPEN: set[SqliteStore] = set()
_ABANDONED: deque[SqliteStore] = deque()


def _is_lock_held() -> bool:
    """Return whether this thread holds the lock."""
    return bool(_IN_USE._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001  (as threading.Condition asks)


def _close_abandoned() -> None:
    while _ABANDONED:
        _ABANDONED.popleft().close()


def _close_before_fork() -> None:
    _IN_USE.acquire()
    _close_abandoned()
    for store in tuple(_OPEN):
        store.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_close_before_fork, after_in_parent=_IN_USE.release, after_in_child=_IN_USE.release
    )


def _identify_files(files: Sequence[Path]) -> FileIdentity:
    return tuple(map(_identify_file, files))


def _identify_file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_one_name(path: Path) -> None:
    """Raise OperationalError (`ledger_names`) where the file has two names, or is mounted by itself.

    SQLite keeps the last charges in a log next to the file, under the file's name: through another name they are not seen.
    """
    try:
        links = path.stat().st_nlink
    except OSError:
        return  # opening the file raises the error
    if links > 1:
        raise OperationalError(
            f"the ledger {path} has {links} hard links, and each name could spend the budget again",
            code="ledger_names",
            hint="remove the other links; `find DISK -samefile LEDGER` lists them",
        )


def require_not_mounted(path: Path) -> None:
    """Raise OperationalError (`ledger_names`) where the file itself is mounted at its path, as some containers do."""
    try:
        mounts = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return  # a system without such a list
    points = (_OCTAL.sub(lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in mounts if line)
    if os.fsencode(path) in points:
        raise OperationalError(
            f"the ledger {path} is mounted as a single file, so its SQLite log is not shared with other mounts",
            code="ledger_names",
            hint="mount the directory of the ledger instead, which also holds SQLite's log",
        )


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read, durably, unless the file exists.

    An existing file is not opened: closing it would drop this process's SQLite locks on it.
    """
    with _IN_USE, translate_errors(str(path)):
        if not path.parent.is_dir():
            raise OperationalError(
                f"the directory {path.parent} of the ledger does not exist",
                code="ledger_directory",
                hint="create the directory, or correct the path",
            )
        if path.is_dir():
            raise OperationalError(
                f"the ledger {path} is a directory, not a file",
                code="not_a_ledger",
                hint="give the path of a file in it",
            )
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        sync_directory(path.parent)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Turn what SQLite, SQLAlchemy and the file system raise into dpsql's errors."""
    try:
        yield
    except DBAPIError as error:
        raise _to_ledger_error(error.orig, where) from None
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        # UnicodeDecodeError: Python's sqlite3 fails on SQLite's own message about damaged bytes.
        raise _to_ledger_error(error, where) from None


def _to_ledger_error(error: BaseException | None, where: str) -> DatabaseError:
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    if kind in _MEANINGS:
        name, text, hint = _MEANINGS[kind]
        return OperationalError(f"the ledger {where} {text}", code=name, hint=hint)
    if isinstance(error, OSError):
        return OperationalError(
            f"the ledger {where} cannot be created",
            code="ledger_unavailable",
            hint="check that this user may write to its directory",
        )
    if isinstance(error, sqlite3.ProgrammingError):
        return OperationalError(
            f"the ledger {where} was closed while it was in use, or its process was forked",
            code="ledger_unavailable",
            hint="nothing was charged; try again",
        )
    return IntegrityError(
        f"the ledger {where} is damaged", code="ledger_corrupt", hint="restore the newest backup"
    )


_BUSY = (
    "ledger_busy",
    f"was locked by another program for {BUSY_SECONDS} seconds",
    "nothing was charged; try again",
)
_MEANINGS: dict[int | None, tuple[str, str, str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_NOTADB: (
        "not_a_ledger",
        "is not a ledger but another kind of file",
        "give the path of a ledger, or of a new file",
    ),
    sqlite3.SQLITE_READONLY: (
        "ledger_unavailable",
        "cannot be written",
        "allow this user to write to the file",
    ),
    sqlite3.SQLITE_PERM: ("ledger_unavailable", "cannot be written", "allow this user to write to the file"),
    sqlite3.SQLITE_CANTOPEN: (
        "ledger_unavailable",
        "cannot be opened",
        "check that it exists, and that this user may write to it and to its directory",
    ),
    sqlite3.SQLITE_FULL: (
        "ledger_unavailable",
        "cannot grow because its disk is full",
        "nothing was charged; free space on the disk",
    ),
    sqlite3.SQLITE_IOERR: (
        "ledger_unavailable",
        "cannot be read or written",
        "check the disk of the ledger for errors",
    ),
}
