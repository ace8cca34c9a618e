"""Folders into which an engine may write what does not fit into memory.

Each is private to the user (mode 0700), bounded, and removed when the last connection on its database closes; what a
process that was killed has left is removed when the next folder beside it is made.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import OperationalError, ProgrammingError

_LIMIT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})? ?([KMGT]i?B)", re.IGNORECASE)
_MEBIBYTE = 2**20
_LOCK = threading.Lock()


@dataclass(eq=False, slots=True)
class SpillFolder:
    """A folder of this process, with the most that it may hold; `users` are the connections that share it."""

    path: Path
    request: tuple[Path, str | None]
    limit: str
    key: str | None
    process: int
    users: int = 0

    @property
    def config(self) -> dict[str, str]:
        """The engine's settings. They come before the one that closes the file system."""
        return {"temp_directory": str(self.path), "max_temp_directory_size": self.limit}

    def drop_user(self) -> None:
        """One connection less; the last one removes the folder."""
        with _LOCK:
            self.users -= 1
            if self.users > 0 or self.process != os.getpid():
                return
            if self.key is not None:
                _SHARED.pop(self.key, None)
        shutil.rmtree(self.path, ignore_errors=True)


_SHARED: dict[str, SpillFolder] = {}


def open_spill_folder(parent: str | Path, limit: str | None, database: str | None) -> SpillFolder:
    """A folder within `parent` for an engine on the file `database`; the same for all its connections in this process.

    `limit` is the most that it may hold, as "20GB"; half of what is free now unless stated. Raises OperationalError
    (`temp_directory`) where no folder can be made, ProgrammingError (`temp_limit`) for another text.
    """
    if limit is not None and not _LIMIT.fullmatch(limit):
        raise ProgrammingError(
            f"{limit!r} is not an amount of disk space",
            code="temp_limit",
            hint='write temp_limit="20GB", for example',
        )
    where, key = Path(parent), None if database is None else os.path.realpath(database)
    with _LOCK:
        found = None if key is None else _SHARED.get(key)
        if found is None or found.process != os.getpid() or found.request != (where, limit):
            found = _make_folder(where, limit, key)
            if key is not None:
                _SHARED[key] = found
        found.users += 1
        return found


def _make_folder(where: Path, limit: str | None, key: str | None) -> SpillFolder:
    prefix = f".dpsql-{re.sub(r'[^0-9A-Za-z]', '', platform.node())}-"
    try:
        _remove_stale_folders(where, prefix)
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=where))
        free = shutil.disk_usage(path).free
    except OSError:
        path = None
    if path is None:
        raise OperationalError(
            f"cannot create a folder for temporary files in {where}",
            code="temp_directory",
            hint="choose a writable directory on a local disk",
        )
    most = limit or f"{max(1, free // 2 // _MEBIBYTE)}MiB"
    return SpillFolder(path, (where, limit), most, key, os.getpid())


def _remove_stale_folders(where: Path, prefix: str) -> None:
    """Removes the folders of this machine's processes that are no more."""
    for path in where.glob(f"{prefix}*-*"):
        process = path.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and int(process) != os.getpid() and not _is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
