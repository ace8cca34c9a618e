"""What planning costs: `python -m benchmarks.planning`.

Each statement of the retail workload and of TPC-H is planned, from its text to the statement that would be sent, and answered
by plain DuckDB. With `--growing`, statements that grow are explained instead, as the attack test A46 has them. How to read the table: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import LOCKED
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks.test_a46_plans_that_explode import GROWING
from attacks.test_a46_plans_that_explode import connect as connected
from retail import study as retail
from retail.workload import STATEMENTS
from tpch import study as tpch

ENOUGH, TIMES = 0.02, 5
"""Planning may take so many seconds, or so many times what plain DuckDB takes to answer, whichever is more."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The least processor time of planning a statement, and of plain DuckDB's answer, in seconds."""

    name: str
    ours: float
    theirs: float

    @property
    def share(self) -> float:
        """The part of what it may take."""
        return self.ours / max(ENOUGH, TIMES * self.theirs)


def least(action: Callable[[], object], rounds: int) -> float:
    """The least processor time of several rounds, after one that fills caches of constants."""
    action()
    found = []
    for _ in range(rounds):
        before = time.process_time()
        action()
        found.append(time.process_time() - before)
    return min(found)


def stored(
    stack: ExitStack, made: AbstractContextManager[duckdb.DuckDBPyConnection], path: Path
) -> tuple[Path, duckdb.DuckDBPyConnection]:
    """A database in a file, as one that is connected to has it, and a connection of plain DuckDB to it."""
    with made as database:
        database.execute(f"ATTACH '{path}' AS stored")
        database.execute("COPY FROM DATABASE memory TO stored")
        database.execute("DETACH stored")
    # The same settings: DuckDB then opens the file once, with one pool of threads and of memory.
    return path, stack.enter_context(duckdb.connect(str(path), read_only=True, config=LOCKED))


def workloads(stack: ExitStack) -> Iterator[tuple[str, str, Connection, duckdb.DuckDBPyConnection]]:
    """Each statement by its name, with the connection that plans it and the one that answers it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    path, shops = stored(stack, retail.database(), folder / "retail.duckdb")
    con = dpsql.connect(path, policy=retail.policy(), ledger=":memory:", epsilon=1, replay=False)
    for each in STATEMENTS:
        yield str(each), each.sql, con, shops
    path, sales = stored(stack, tpch.database(), folder / "tpch.duckdb")
    for unit in tpch.UNITS:
        con = dpsql.connect(path, policy=tpch.policy(unit), ledger=":memory:", epsilon=1, replay=False)
        for number, sql in tpch.QUERIES.items():
            yield f"tpch-{number}-{unit}", sql, con, sales


def planned(con: Connection, sql: str) -> bool:
    """Plans a statement; whether it would be answered."""
    try:
        with con.engine.backend.open_snapshot():
            plan_and_match(con.engine, Query(sql, epsilon=Fraction(1), delta=Fraction(1, 1000), replay=False))
    except dpsql.QueryRejected:
        return False
    return True


def answered(plain: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Runs a statement in plain DuckDB, and fetches its rows."""
    plain.execute(sql).fetchall()


def measured(rounds: int, only: Sequence[str]) -> list[Planned]:
    """The cost of each statement, the dearest for its answer first."""
    found = []
    with ExitStack() as stack:
        for name, sql, con, plain in workloads(stack):
            if only and not any(word in name for word in only):
                continue
            ours = least(partial(planned, con, sql), rounds)
            theirs = least(partial(answered, plain, sql), rounds)
            found.append(Planned(name, ours, theirs))
    return sorted(found, key=lambda each: -each.share)


def growing(rounds: int) -> Table:
    """The table of statements that grow: how long each takes to be explained, or refused."""
    printed = Table(title="statements that grow: none may take longer than a second")
    for name in ("statement", "size", "planning ms", "refused"):
        printed.add_column(name, justify="left" if name == "statement" else "right")
    con = connected()
    for name, (written, sizes) in GROWING.items():
        for size in sizes:
            seconds = least(partial(planned, con, written(size)), rounds)
            refused = "" if planned(con, written(size)) else "refused"
            printed.add_row(name, str(size), f"{1000 * seconds:.1f}", refused)
    return printed


def table(found: Sequence[Planned], shown: int) -> Table:
    """The table that is printed."""
    beyond = sum(each.share > 1 for each in found)
    most = sum(each.ours > ENOUGH for each in found)
    printed = Table(title=f"{len(found)} statements: {most} above 20 ms, {beyond} above what they may take")
    for name in ("statement", "planning ms", "DuckDB ms", "part of what it may take"):
        printed.add_column(name, justify="left" if name == "statement" else "right")
    for each in found[:shown]:
        printed.add_row(
            each.name, f"{1000 * each.ours:.1f}", f"{1000 * each.theirs:.1f}", f"{each.share:.2f}"
        )
    return printed


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times that each statement is planned")
    parser.add_argument("--shown", type=int, default=20, help="lines of the table")
    parser.add_argument("--only", nargs="*", default=[], help="words in the names of statements")
    parser.add_argument(
        "--growing", action="store_true", help="statements that grow, in place of the workloads"
    )
    options = parser.parse_args(arguments)
    if options.growing:
        Console(width=110).print(growing(options.rounds))
        return
    Console(width=110).print(table(measured(options.rounds, options.only), options.shown))


if __name__ == "__main__":
    main()
