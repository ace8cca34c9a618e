"""How a server bears long use and many idle connections: `python -m benchmarks.endurance`.

`--minutes` is how long clients of both doors ask, log in and leave, and look around, each question charged, while the memory of
the server's process is read. `--idle` is how many connections are opened that say nothing, to see which are held, which are
refused and how, and whether a client that logs in meanwhile is answered. How to read it: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import socket
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.server import EPSILON, PASSWORD, QUERY, Served, numbered, serving

_STARTUP = b"\0\3\0\0user\0ana\0\0"
_HELLO = (len(_STARTUP) + 4).to_bytes(4, "big") + _STARTUP


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's process at a time: seconds since the start, resident bytes, threads, open files, queries answered so far."""

    at: float
    resident: int
    threads: int
    files: int
    answered: int


@dataclass(frozen=True, slots=True)
class Soaked:
    """What was read, and what clients were told that was no answer."""

    readings: list[Reading]
    errors: Counter[str]

    def growth(self) -> float:
        """Resident bytes that the second half of the readings has more than the second quarter, as medians."""
        resident = [each.resident for each in self.readings]
        quarter = len(resident) // 4
        return statistics.median(resident[2 * quarter :]) - statistics.median(resident[quarter : 2 * quarter])


def read(process: int, at: float, answered: int) -> Reading:
    """A reading of a process, from Linux's /proc."""
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    )
    return Reading(
        at,
        int(status["VmRSS"].split()[0]) * 1024,
        int(status["Threads"]),
        len(list(Path(f"/proc/{process}/fd").iterdir())),
        answered,
    )


class _Clients:
    """Clients that ask, repeat, are refused, look around, log in and leave, up to a time."""

    def __init__(self, served: Served, end: float) -> None:
        self._served, self._end = served, end
        self._numbers = numbered()
        self._counted, self.answered = count(1), 0
        self.errors = Counter[str]()
        self.failed = list[BaseException]()

    def threads(self) -> list[threading.Thread]:
        """Two clients of each door."""
        works = (self._postgres, self._http)
        return [threading.Thread(target=self._guarded, args=(work,)) for work in (*works, *works)]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while time.monotonic() < self._end:
                work()
        except BaseException as error:  # noqa: BLE001  (it is raised by `soak`)
            self.failed.append(error)

    def _postgres(self) -> None:
        import psycopg

        address = f"host=127.0.0.1 port={self._served.postgres} user=ana dbname=visits password='{PASSWORD}'"
        with psycopg.connect(address, autocommit=True, options=f"-c dpsql.epsilon={EPSILON}") as session:
            for _ in range(20):
                number = next(self._numbers)
                for _ in range(2):  # the second is a replay
                    session.execute(QUERY.format("%s"), (number,)).fetchall()
                    self.answered = next(self._counted)
                session.execute("SELECT relname FROM pg_class WHERE relkind = 'r'").fetchall()
                try:
                    session.execute("SELECT age FROM visits")
                except psycopg.Error as error:
                    self.errors[error.sqlstate or ""] += 1

    def _http(self) -> None:
        import dpsql

        address = f"http://127.0.0.1:{self._served.http}"
        with dpsql.connect(address, token=self._served.token, epsilon=EPSILON) as session:
            for _ in range(20):
                session.query(QUERY.format("?"), [next(self._numbers)]).intervals(0.9)
                self.answered = next(self._counted)
                try:
                    session.query("SELECT age FROM visits")
                except dpsql.Error as error:
                    self.errors[error.code] += 1


def soak(served: Served, seconds: float, readings: int = 40) -> Soaked:
    """Asks for so long, and reads the server's process meanwhile."""
    begun = time.monotonic()
    clients = _Clients(served, begun + seconds)
    threads, found = clients.threads(), list[Reading]()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found.append(read(served.process, time.monotonic() - begun, clients.answered))
        time.sleep(seconds / readings)
    for thread in threads:
        thread.join()
    if clients.failed:
        raise clients.failed[0]
    return Soaked(found, clients.errors)


@dataclass(frozen=True, slots=True)
class Idle:
    """What became of connections that say nothing, by door: held, refused with words, closed without."""

    wanted: int
    outcomes: Counter[str]
    login: float
    resident: int


def idle(served: Served, door: str, wanted: int, *, speaking: bool = False) -> Idle:
    """Opens connections from one address that say nothing, or their first words alone; then a client of another one asks.

    `login` are the seconds until that client has its answer, `resident` the bytes of the server's process then.
    """
    port = served.postgres if door == "PostgreSQL" else served.http
    words = b"" if not speaking else _HELLO if door == "PostgreSQL" else b"GET /health HTTP/1.1\r\n"
    outcomes = Counter[str]()
    with ExitStack() as stack:
        waiting = stack.enter_context(selectors.DefaultSelector())
        for _ in range(wanted):
            made = stack.enter_context(socket.socket())
            made.bind(("127.0.0.2", 0))  # the client that asks has another address
            made.settimeout(30)
            try:
                made.connect(("127.0.0.1", port))
                if words:
                    made.sendall(words)
            except OSError as error:
                outcomes[f"no connection: {type(error).__name__}"] += 1
                continue
            waiting.register(made, selectors.EVENT_READ)
        begun = time.monotonic()
        _ask(served, door)
        login, resident = time.monotonic() - begun, read(served.process, 0, 0).resident
        for kind in _endings(waiting):
            outcomes[kind] += 1
        outcomes["held"] += len(waiting.get_map())
    return Idle(wanted, outcomes, login, resident)


def _endings(waiting: selectors.BaseSelector) -> Iterator[str]:
    """How connections have ended by now; those that have not stay registered."""
    while found := waiting.select(timeout=0.5):
        for key, _ in found:
            made = key.fileobj
            assert isinstance(made, socket.socket)
            text = b""
            try:
                while part := made.recv(4_096):
                    text += part
                    if text.startswith(b"R"):
                        break
            except OSError as error:
                text = text or type(error).__name__.encode()
            waiting.unregister(made)
            if text.startswith(b"R"):
                yield "asked for a password"
            elif text.startswith(b"E"):
                yield "refused: " + text.split(b"M", 1)[1].split(b"\0")[0].decode()
            elif text.startswith(b"HTTP"):
                yield "refused: " + text.split(b"\r\n")[0].decode()
            else:
                yield f"closed: {text.decode()}" if text else "closed without a word"


def _ask(served: Served, door: str) -> None:
    import psycopg

    import dpsql

    if door == "PostgreSQL":
        address = f"host=127.0.0.1 port={served.postgres} user=ana dbname=visits password='{PASSWORD}' connect_timeout=60"
        with psycopg.connect(address, autocommit=True) as session:
            session.execute("SELECT 1").fetchall()
    else:
        with dpsql.connect(f"http://127.0.0.1:{served.http}", token=served.token, epsilon=EPSILON) as session:
            session.query("SELECT 1 AS one")


def files_allowed(wanted: int) -> int:
    """How many files this process may open, after asking for enough of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = min(hard, max(soft, wanted + 1_000)) if hard != resource.RLIM_INFINITY else wanted + 1_000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    return max(soft, enough)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what was read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long clients ask; 0 for not at all")
    parser.add_argument("--idle", type=int, default=10_000, help="how many idle connections; 0 for none")
    options = parser.parse_args(arguments)
    files_allowed(options.idle)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as served:
        print(f"at the start: {_described(read(served.process, 0, 0))}")
        for door in ("PostgreSQL", "HTTP") if options.idle else ():
            for speaking in (False, True):
                found = idle(served, door, options.idle, speaking=speaking)
                said = "that begin to speak" if speaking else "that say nothing"
                print(
                    f"{door}, {options.idle:,} {said}: {json.dumps(found.outcomes, sort_keys=True)};"
                    f" another client is answered in {found.login:.2f} s, memory {found.resident / 2**20:.0f} MiB"
                )
                time.sleep(1)
        if options.minutes:
            soaked = soak(served, 60 * options.minutes)
            for each in soaked.readings[:: max(1, len(soaked.readings) // 20)]:
                print(_described(each))
            print(f"refused on purpose: {dict(soaked.errors)}")
            print(f"growth from the second quarter to the second half: {soaked.growth() / 2**20:+.1f} MiB")


def _described(each: Reading) -> str:
    return (
        f"{each.at:6.0f} s: {each.resident / 2**20:6.1f} MiB, {each.threads} threads, {each.files} files,"
        f" {each.answered:,} answers"
    )


if __name__ == "__main__":
    main()
