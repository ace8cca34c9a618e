"""How time and memory grow with rows, units, groups, aggregates and processors: `python -m benchmarks.growth`.

Each size runs in a process of its own, whose peak memory is measured, over a Parquet file that another has
written, or, on Spark with `--generated`, over rows that are made as they are read. The exponent is the slope between the last two
sizes on doubly logarithmic axes: 1 is in proportion. How to read the table: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from benchmarks.engines import spark_session
from benchmarks.overhead import run_statements
from dpsql.api.connection import Connection
from dpsql.backends.spark.catalog import TableDescription
from dpsql.engine.replay.replays import plan_and_match

KINDS: Mapping[str, tuple[int, ...]] = {
    "rows": (100_000, 1_000_000),
    "units": (1_000, 10_000),
    "known groups": (1_000, 10_000),
    "secret groups": (1_000, 10_000),
    "aggregates": (1, 10),
}
"""What grows, with the sizes that are run unless others are asked for."""
_CORES = "cores"
"""What grows on Spark alone: the threads of a local one."""
FAR: Mapping[str, tuple[int, ...]] = {
    "rows": (10**6, 10**7, 10**8, 10**9),
    "units": (10**3, 10**4, 10**5, 10**6, 10**7),
    "known groups": (1, 100, 10**4),
    "secret groups": (1, 100, 10**4, 10**6),
    "aggregates": (1, 10, 98),
}
"""The sizes that are run with `--far`: the last ones take minutes each, and 20 GB of disk."""
_ROWS, _GROUPS, _UNIT_ROWS, _MANY = 100_000, 100, 10, 10**7
_MEMORY = 1024 if sys.platform == "darwin" else 1
"""Kibibytes are what `resource` counts, but on macOS, where it counts bytes."""


@dataclass(frozen=True, slots=True)
class Run:
    """One query: seconds to the answer, of it of the engine's statements, and to its Arrow table with intervals; peak MiB.

    `engine` is None where the query is the first of its session, before which no statement is run apart.
    """

    size: int
    query: float
    engine: float | None
    table: float
    memory: float


@dataclass(frozen=True, slots=True)
class Shape:
    """How many rows a table has, how many of each unit, in how many groups."""

    rows: int
    unit_rows: int
    groups: int

    @classmethod
    def of(cls, kind: str, size: int) -> Shape:
        """The table in which so much is of that kind."""
        rows = max(_ROWS, 10 * size if "groups" in kind or kind == "units" else 0)
        rows = {"rows": size, _CORES: _MANY}.get(kind, rows)
        return cls(
            rows, rows // size if kind == "units" else _UNIT_ROWS, size if "groups" in kind else _GROUPS
        )

    def write(self, path: Path) -> None:
        """Writes such a table as a Parquet file; a unit's rows lie in two groups."""
        with duckdb.connect() as database:
            database.execute("SET enable_progress_bar = false")
            database.execute(
                f"COPY (SELECT CAST(i // {self.unit_rows} AS BIGINT) AS person,"
                f" 'k' || (hash(i // {self.unit_rows}, i % 2) % {self.groups}) AS k,"
                f" CAST(hash(i, 2) % 101 AS DOUBLE) AS x FROM range({self.rows}) AS numbers(i))"
                f" TO '{path}' (FORMAT parquet)"
            )

    @property
    def made_by_spark(self) -> str:
        """Spark's SQL for rows of the same shape, which are made as they are read."""
        person = f"id DIV {self.unit_rows}"
        return (
            f"SELECT {person} AS person, 'k' || PMOD(XXHASH64({person}, id % 2), {self.groups}) AS k,"
            f" CAST(PMOD(XXHASH64(id, 2L), 101) AS DOUBLE) AS x FROM RANGE({self.rows})"
        )


@contextmanager
def _opened(
    engine: str, cores: int, path: Path, generated: Shape | None
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What `dpsql.connect` is given for the table in that file, and further arguments; `generated` rows need no file."""
    if engine == "duckdb":
        yield {"visits": path}, {"temp_directory": path.parent}
        return
    with spark_session(cores) as session:
        if generated is None:
            session.sql(f"CREATE TABLE visits USING parquet LOCATION '{path}'")
            yield session, {}
            return
        session.sql(f"CREATE VIEW visits AS {generated.made_by_spark}")
        with mock.patch.object(
            TableDescription, "foreign", ()
        ):  # a view is refused, as its rows may fail; these do not
            yield session, {}


def _peak() -> float:
    """The most memory that this process had, with those that it began and which are there yet, in MiB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEMORY / 1024
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    begun = listed.read_text(encoding="ascii").split() if listed.exists() else []
    return own + sum(
        int(line.split()[1]) / 1024
        for number in begun
        for line in Path(f"/proc/{number}/status").read_text(encoding="utf-8").splitlines()
        if line.startswith("VmHWM")
    )


def run(kind: str, size: int, options: argparse.Namespace, path: Path) -> Run:
    """Asks one query of the table in that file, in this process."""
    shape = Shape.of(kind, size)
    keys = [f"k{number}" for number in range(shape.groups)]
    key = {"type": "varchar"} if kind == "secret groups" else {"type": "varchar", "values": keys}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1_000, "delta": 1e-6, "accountant": options.accountant},
        "tables": {
            "visits": {
                "unit": "person",
                "rows_per_unit": 4 * shape.unit_rows,
                "max_groups": 4,
                "columns": {"k": key, "x": {"type": "double", "bounds": [0, 100]}},
            }
        },
    }
    sums = ", ".join(
        f"SUM({number + 1} * x) AS s{number}" for number in range(size if kind == "aggregates" else 1)
    )
    sql = f"SELECT k, COUNT(*) AS n, {sums} FROM visits GROUP BY k"
    cores = size if kind == _CORES else options.cores
    with (
        _opened(options.engine, cores, path, shape if options.generated else None) as (database, more),
        dpsql.connect(database, policy=policy, ledger=":memory:", **more) as con,
    ):
        engine = None if options.once else _statements(con, sql)
        start = time.perf_counter()
        result = con.query(sql, epsilon=10)
        answered = time.perf_counter()
        result.to_arrow_table(intervals=True)
        end = time.perf_counter()
        peak = _peak()
    return Run(size, answered - start, engine, end - answered, peak)


def _statements(con: Connection, sql: str) -> float:
    """Seconds of the statements of the query, after another query."""
    con.query("SELECT COUNT(*) FROM visits", epsilon=1)
    part = plan_and_match(con.engine, con._queries.build_query(sql, (), {"epsilon": 10})).single_release
    start = time.perf_counter()
    run_statements(con.engine, part)
    return time.perf_counter() - start


def apart(kind: str, size: int, options: argparse.Namespace) -> Run:
    """As `run`, in a process of its own, as is the writing of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "visits.parquet"
        if not options.generated:
            write = Shape.of(kind, size).write
            writer = multiprocessing.get_context("spawn").Process(target=write, args=(path,))
            writer.start()
            writer.join()
        given = [
            *(["--generated"] if options.generated else []),
            *(["--once"] if options.once else []),
            "--accountant",
            options.accountant,
            "--engine",
            options.engine,
            "--cores",
            str(options.cores),
        ]
        command = [sys.executable, "-m", "benchmarks.growth", *given, "--one", kind, str(size), str(path)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def exponent(runs: Sequence[Run], of: str) -> float:
    """The slope between the last two sizes."""
    before, last = runs[-2:]
    return math.log(getattr(last, of) / getattr(before, of)) / math.log(last.size / before.size)


def table(kind: str, runs: Sequence[Run]) -> Table:
    """The sizes of one kind, and the exponents."""
    shown = Table(title=f"growth with {kind}")
    apart = runs[0].engine is not None
    measured = {"query": "query s", "engine": "its SQL s", "table": "Arrow table with intervals s"}
    seconds = [of for of in measured if of != "engine" or apart]
    for name in (kind, *(measured[of] for of in seconds), "peak MiB"):
        shown.add_column(name, justify="right")
    for each in runs:
        times = (f"{getattr(each, of):,.3f}" for of in seconds)
        shown.add_row(f"{each.size:,}", *times, f"{each.memory:,.0f}")
    if len(runs) > 1:
        shown.add_section()
        shown.add_row("exponent", *(f"{exponent(runs, of):.2f}" for of in (*seconds, "memory")))
    return shown


def plot(found: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draws the seconds of a query and the peak memory against each size. Raises ImportError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(
        2, len(found), figsize=(3 * len(found) + 1, 6), sharey="row", squeeze=False, layout="constrained"
    )
    for column, (kind, runs) in enumerate(found.items()):
        for row, (of, name) in enumerate((("query", "seconds"), ("memory", "peak MiB"))):
            axes[row][column].loglog(
                [each.size for each in runs], [getattr(each, of) for each in runs], marker="o"
            )
            axes[row][column].set_xlabel(kind)
            if kind == _CORES:
                axes[row][column].set_xticks(
                    [each.size for each in runs], labels=[each.size for each in runs]
                )
                axes[row][column].xaxis.set_minor_locator(ticker.NullLocator())
            axes[row][column].grid(alpha=0.3)
            axes[row][0].set_ylabel(name)
            axes[row][0].yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
            axes[row][0].yaxis.set_minor_formatter(
                ticker.LogFormatter()
            )  # some of them, where a decade is long
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each kind of growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = [*KINDS, _CORES]
    parser.add_argument("--kinds", nargs="*", choices=kinds, default=list(KINDS), help="what grows")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb", help="the engine")
    parser.add_argument("--cores", type=int, default=2, help="threads of Spark, where these do not grow")
    parser.add_argument(
        "--generated", action="store_true", help="Spark makes rows as it reads them, without a file"
    )
    parser.add_argument(
        "--once", action="store_true", help="the first query of a session alone, without its SQL apart"
    )
    parser.add_argument(
        "--sizes", nargs="*", type=int, help="the sizes of each kind, in place of modest ones"
    )
    parser.add_argument("--far", action="store_true", help="sizes up to the largest that are measured")
    parser.add_argument("--accountant", default="zcdp", help="the accountant of the budget")
    parser.add_argument("--plot", type=Path, help="a file for a plot, where matplotlib is installed")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        kind, size, path = options.one
        print(json.dumps(asdict(run(kind, int(size), options, Path(path)))))
        return
    if _CORES in options.kinds and options.engine != "spark":
        parser.error("the number of cores grows on Spark alone")
    if options.generated and options.engine != "spark":
        parser.error("rows are generated by Spark alone")
    found, sizes = {}, {**(FAR if options.far else KINDS), _CORES: (1, 2)}
    for kind in options.kinds:
        found[kind] = [apart(kind, size, options) for size in options.sizes or sizes[kind]]
        Console(width=110).print(table(kind, found[kind]))
    if options.plot is not None:
        if importlib.util.find_spec("matplotlib") is None:
            parser.error("a plot needs matplotlib")
        plot(found, options.plot)


if __name__ == "__main__":
    main()
