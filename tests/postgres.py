"""A real PostgreSQL server for tests, from the system's packages: in a directory of its own, on a socket alone."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

MISSING = "there is no PostgreSQL server here; on Debian: apt-get install postgresql"


def binaries() -> Path | None:
    """The directory with the server's newest programs, None if it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    known = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(known).resolve().parent if known and shutil.which("pg_ctl") else None


@contextmanager
def running() -> Iterator[Server]:
    """A server, stopped at the end. Where none is installed a test is skipped; in CI, which installs one, it fails."""
    programs = binaries()
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    with serving(programs) as started:
        yield started


@dataclass(frozen=True)
class Server:
    """A server that can be stopped and started again, fast or as by a crash."""

    programs: Path
    folder: Path
    user: str | None

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://ledger@/postgres?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        """Runs one of the server's programs, which refuse to run as root."""
        as_user: dict[str, Any] = {}
        if self.user is not None:
            as_user = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            timeout=120,
            **as_user,
        )

    def start(self) -> None:
        """Starts it and waits until it answers."""
        options = f"-c listen_addresses='' -k {self.folder}"
        self.run(
            "pg_ctl", "start", "-w", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-o", options
        )

    def stop(self, mode: str = "fast") -> None:
        """Stops it: "fast", or "immediate" as in a crash."""
        self.run("pg_ctl", "stop", "-w", "-D", f"{self.folder}/data", "-m", mode)


@contextmanager
def serving(programs: Path) -> Iterator[Server]:
    """A new server, until the end."""
    folder = Path(tempfile.mkdtemp(prefix="dpsql-"))  # short, for a socket's path has few characters
    user = "nobody" if os.geteuid() == 0 else None
    server = Server(programs, folder, user)
    try:
        if user is not None:
            shutil.chown(folder, user)
        server.run(
            "initdb", "-D", f"{folder}/data", "-U", "ledger", "-A", "trust", "-E", "UTF8", "--locale=C"
        )
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
