"""Connections to a ledger in an SQLite file, and what their failures mean.

A connection lives for one transaction: SQLite's handles and locks must not cross a fork, and this way
none is open when a process forks. All use of SQLite here holds one lock, which the fork waits for.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from dpsql.errors import DatabaseError, IntegrityError, OperationalError

BUSY_SECONDS = 60

_IN_USE = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_IN_USE.acquire, after_in_parent=_IN_USE.release, after_in_child=_IN_USE.release
    )


def memory_engine() -> Engine:
    """An engine on a database in memory, gone with the process."""
    return create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False),
        poolclass=StaticPool,
    )


def file_engine(path: Path) -> Engine:
    """An engine on an existing file; it never makes one, so a deleted ledger is not a fresh budget."""
    return create_engine("sqlite://", creator=_opener(path), poolclass=NullPool)


def _opener(path: Path) -> Callable[[], sqlite3.Connection]:
    def open_connection() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS, isolation_level=None
        )
        try:
            # FULL: the write-ahead log is on the disk when COMMIT returns (on macOS with fullfsync).
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    return open_connection


@contextmanager
def connected(engine: Engine, where: str) -> Iterator[Connection]:
    """A connection outside any transaction, every failure as a dpsql error."""
    with _IN_USE, explained(where), engine.connect() as connection:
        yield connection


@contextmanager
def transaction(engine: Engine, where: str, mode: str) -> Iterator[Connection]:
    """A transaction, committed durably on leaving; `mode` is IMMEDIATE (to write) or DEFERRED."""
    with _IN_USE, explained(where), engine.begin() as connection:
        connection.exec_driver_sql(f"BEGIN {mode}")
        yield connection


def make_private(path: Path) -> None:
    """Makes an empty file that only its owner may read, unless there is one; durable with its name.

    An existing file is not opened: closing it would drop this process's SQLite locks on it.
    """
    with _IN_USE, explained(str(path)):
        if not path.parent.is_dir():
            raise OperationalError(
                f"there is no directory {path.parent} for the ledger",
                code="ledger_directory",
                hint="make the directory, or correct the path",
            )
        if path.is_dir():
            raise OperationalError(f"the ledger {path} is a directory", code="not_a_ledger")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        if os.name == "posix":
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turns what SQLite, SQLAlchemy and the file system raise into dpsql's errors."""
    try:
        yield
    except DBAPIError as error:
        raise _meaning(error.orig, where) from None
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        # UnicodeDecodeError: Python's sqlite3 fails on SQLite's own message about damaged bytes.
        raise _meaning(error, where) from None


def _meaning(error: BaseException | None, where: str) -> DatabaseError:
    code = getattr(error, "sqlite_errorcode", None)
    kind = None if code is None else code & 0xFF
    if kind in _MEANINGS:
        name, text, hint = _MEANINGS[kind]
        return OperationalError(f"the ledger {where} {text}", code=name, hint=hint)
    if isinstance(error, OSError):
        return OperationalError(f"the ledger {where} cannot be made", code="ledger_unavailable")
    return IntegrityError(
        f"the ledger {where} is damaged", code="ledger_corrupt", hint="restore its newest backup"
    )


_BUSY = (
    "ledger_busy",
    f"was in use by another program for {BUSY_SECONDS} seconds",
    "nothing was charged; try again",
)
_MEANINGS: dict[int | None, tuple[str, str, str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PROTOCOL: _BUSY,
    sqlite3.SQLITE_NOTADB: ("not_a_ledger", "is no ledger but some other file", "give another path"),
    sqlite3.SQLITE_READONLY: ("ledger_unavailable", "cannot be written", "allow this user to write it"),
    sqlite3.SQLITE_PERM: ("ledger_unavailable", "cannot be written", "allow this user to write it"),
    sqlite3.SQLITE_CANTOPEN: (
        "ledger_unavailable",
        "cannot be opened",
        "check that it is there, and that this user may write it and its directory",
    ),
    sqlite3.SQLITE_FULL: ("ledger_unavailable", "has no room left on its disk", "nothing was charged"),
    sqlite3.SQLITE_IOERR: ("ledger_unavailable", "cannot be read or written", "check its disk"),
}
