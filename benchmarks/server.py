"""How many charged queries a server answers a second, and how soon: `python -m benchmarks.server`.

`dpsql serve` runs in a process of its own over a small table, so that what is measured is what a query costs whatever the data.
Clients, in two processes, ask one query after the other, each charged, at both doors; beside them as many threads ask the same
engine in this process, and plain DuckDB. How to read the table: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import yaml
from rich.console import Console
from rich.table import Table

import dpsql

QUERY = "SELECT region, COUNT(*) AS n FROM visits WHERE age < {} GROUP BY region"
EPSILON = "0.001"
PASSWORD = "correct horse battery staple"
_PROCESSES = 2
_POLICY: Mapping[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "database": "benchmark",
    "budget": {"epsilon": 1_000_000, "delta": 1e-6},
    "tables": {
        "visits": {
            "unit": "patient",
            "rows_per_unit": 30,
            "columns": {
                "patient": {"type": "integer"},
                "region": {"type": "varchar", "values": ["north", "south", "east", "west"]},
                "age": {"type": "double", "bounds": [0, 100]},
            },
        }
    },
}
_TABLE = """
    CREATE TABLE visits AS
    SELECT CAST(hash(i, 1) % 5_000 AS BIGINT) AS patient,
           list_extract(['north', 'south', 'east', 'west'], CAST(1 + hash(i, 2) % 4 AS BIGINT)) AS region,
           CAST(hash(i, 3) % 90 AS DOUBLE) AS age
    FROM range(50_000) AS numbers(i)
"""
Ask = Callable[[float], None]
"""Asks the query with a number that nobody has asked it with."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server: its process, ports, and a token of its user."""

    process: int
    postgres: int
    http: int
    token: str


@contextmanager
def serving(folder: Path, processes: int = 1) -> Iterator[Served]:
    """A server over a new table until the end."""
    from dpsql.interfaces.server.users import Role, UserStore

    with duckdb.connect(str(folder / "visits.duckdb")) as made:
        made.execute(_TABLE)
    (folder / "visits.yaml").write_text(yaml.safe_dump(dict(_POLICY)), encoding="utf-8")
    store = UserStore.open(folder / "dpsql.users", create=True)
    store.add_user("ana", Role.analyst, PASSWORD)
    token = store.add_token("ana", "benchmark", 1).to_text()
    store.close()
    command = [
        sys.executable, "-m", "dpsql", "serve", "visits.yaml", "--database", "visits.duckdb", "--host", "127.0.0.1",
        "--port", "0", "--http-port", "0", "--running", "8", "--processes", str(processes),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        ports = [int(line.rpartition(":")[2]) for _, line in zip(range(2), _listening(process), strict=False)]
        yield Served(process.pid, ports[0], ports[1], token)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _listening(process: subprocess.Popen[str]) -> Iterator[str]:
    for line in process.stdout or ():
        if ": listening on " in line:
            yield line


@contextmanager
def by_postgres(served: Served) -> Iterator[Ask]:
    """A client of the PostgreSQL protocol."""
    import psycopg

    address = f"host=127.0.0.1 port={served.postgres} user=ana dbname=visits password='{PASSWORD}'"
    with psycopg.connect(address, autocommit=True, options=f"-c dpsql.epsilon={EPSILON}") as connection:
        yield lambda number: connection.execute(QUERY.format("%s"), (number,)).fetchall() and None


@contextmanager
def by_http(served: Served) -> Iterator[Ask]:
    """A client of the HTTP API."""
    with dpsql.connect(f"http://127.0.0.1:{served.http}", token=served.token, epsilon=EPSILON) as connection:
        yield lambda number: connection.query(QUERY.format("?"), [number]).rows and None


DOORS: Mapping[str, Callable[[Served], Any]] = {"PostgreSQL": by_postgres, "HTTP": by_http}


Measured = tuple[list[float], float]
"""The seconds that each query took, and those from the first question to the last answer."""


def asked(opened: Sequence[Any], seconds: float, numbers: Iterator[float]) -> Measured:
    """What these clients see, who ask at the same time for so long, and wait for their last answers."""
    took, begin, logins = list[float](), threading.Barrier(len(opened)), threading.Semaphore(4)
    first, end, last = math.inf, 0.0, 0.0

    def ask(client: Any) -> None:
        nonlocal first, end, last
        with ExitStack() as stack:
            stack.callback(begin.abort)  # who cannot ask keeps nobody waiting
            with logins:
                question = stack.enter_context(client)
            question(next(numbers))  # what is opened by the first is not measured
            begin.wait(60)
            first, end = min(first, time.monotonic()), max(end, time.monotonic() + seconds)
            while time.monotonic() < end:
                begun = time.perf_counter()
                question(next(numbers))
                took.append(time.perf_counter() - begun)
                last = max(last, time.monotonic())

    threads = [threading.Thread(target=ask, args=(client,)) for client in opened]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, last - first


def numbered(first: int = 0, step: int = 1) -> Iterator[float]:
    """Numbers from 0 to 90, each another, for any number of threads: no generator, which one thread runs at a time."""

    def written(number: int) -> float:
        return 90 * ((first + step * number) * 0.6180339887 % 1)

    return map(written, count(1))


def _share(door: str, served: Served, clients: int, seconds: float, place: int) -> Measured:
    """A process' share of the clients, whose numbers are no other's."""
    numbers = numbered(place, _PROCESSES)
    return asked([DOORS[door](served) for _ in range(clients)], seconds, numbers)


def at_door(door: str, served: Served, clients: int, seconds: float, first: int) -> Measured:
    """What clients in processes of their own see."""
    shares = [clients // _PROCESSES + (place < clients % _PROCESSES) for place in range(_PROCESSES)]
    jobs = [
        (door, served, share, seconds, first + 1_000_003 * place)
        for place, share in enumerate(shares)
        if share
    ]
    with multiprocessing.get_context("spawn").Pool(len(jobs)) as pool:
        shared = pool.starmap(_share, jobs)
    return [each for took, _ in shared for each in took], max(elapsed for _, elapsed in shared)


def in_process(folder: Path, clients: int, seconds: float, first: int) -> Measured:
    """What threads of one process see that share a ledger, each with a connection of its own."""
    policy = {**_POLICY, "database": "in process"}
    numbers = numbered(first)

    @contextmanager
    def client() -> Iterator[Ask]:
        with dpsql.connect(
            str(folder / "visits.duckdb"), policy=policy, ledger=ledger, analyst="ana", epsilon=EPSILON
        ) as connection:
            yield lambda number: connection.query(QUERY.format("?"), [number]).rows and None

    with dpsql.SharedLedger(folder / f"{first}.ledger", policy=policy, analysts=["ana"]) as ledger:
        return asked([client() for _ in range(clients)], seconds, numbers)


def plain_duckdb(folder: Path, clients: int, seconds: float, first: int) -> Measured:
    """What as many threads see of DuckDB alone, each with a cursor of its own: no privacy, no ledger."""
    numbers = numbered(first)

    @contextmanager
    def client() -> Iterator[Ask]:
        with database.cursor() as cursor:
            yield lambda number: cursor.execute(QUERY.format("?"), [number]).fetchall() and None

    with duckdb.connect(str(folder / "visits.duckdb"), read_only=True) as database:
        return asked([client() for _ in range(clients)], seconds, numbers)


HERE: Mapping[str, Callable[[Path, int, float, int], Measured]] = {
    "in process": in_process,
    "DuckDB": plain_duckdb,
}


def processor(process: int) -> float | None:
    """The seconds of the processor that a process and those that it began have used; None where the system does not say it."""
    own = _processor(process)
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        begun = [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        return own
    return None if own is None else own + sum(processor(each) or 0.0 for each in begun)


def _processor(process: int) -> float | None:
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server", description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[1, 2], help="of the server: how many answer questions"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each line is measured")
    options = parser.parse_args(arguments)
    table = Table(title=f"charged queries, {options.seconds:g} seconds a line")
    for name in (
        "asked",
        "processes",
        "clients",
        "queries/s",
        "median ms",
        "99th ms",
        "processor ms a query",
        "cores",
    ):
        table.add_column(name, justify="left" if name == "asked" else "right")
    place = 0
    for clients in options.clients:
        for processes in (*options.processes, 0):
            with tempfile.TemporaryDirectory() as name, serving(Path(name), processes or 1) as served:
                for door in DOORS if processes else HERE:
                    place += 1
                    before, first = _used(served, door), 10_000_019 * place
                    took, elapsed = (
                        at_door(door, served, clients, options.seconds, first)
                        if processes
                        else HERE[door](Path(name), clients, options.seconds, first)
                    )
                    cells = _cells(took, elapsed, _used(served, door) - before)
                    table.add_row(door, str(processes or ""), str(clients), *cells)
    Console(width=100).print(table)


def _used(served: Served, door: str) -> float:
    found = time.process_time() if door in HERE else processor(served.process)
    return math.nan if found is None else found


def _cells(took: Sequence[float], seconds: float, used: float) -> tuple[str, ...]:
    ordered = sorted(took)
    late = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return (
        f"{len(took) / seconds:,.1f}",
        f"{1_000 * statistics.median(ordered):,.1f}",
        f"{1_000 * late:,.1f}",
        f"{1_000 * used / len(took):,.1f}",
        f"{used / seconds:.2f}",
    )


if __name__ == "__main__":
    main()
