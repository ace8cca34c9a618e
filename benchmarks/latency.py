"""The fixed cost of a query, from its text to its durable answer: `python -m benchmarks.latency`.

The table is small, so that what is measured is what a query costs whatever the data. Each kind of request is asked turn by
turn with the same statement in plain DuckDB, so that whatever else the machine does slows both. How to read the table:
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.backends.duckdb import LOCKED

REGIONS = ("north", "south", "east", "west")
_TABLE = """
    CREATE TABLE visits AS
    SELECT
        CAST(hash(i, 1) % {units} AS BIGINT) AS patient,
        list_extract({regions}, CAST(1 + hash(i, 2) % 4 AS BIGINT)) AS region,
        CAST(hash(i, 3) % 90 AS DOUBLE) AS age
    FROM range({rows}) AS numbers(i)
"""
QUERIES: Mapping[str, str] = {
    "count": "SELECT COUNT(*) FROM visits",
    "units": "SELECT COUNT(DISTINCT patient) FROM visits",
    "by key": "SELECT region, COUNT(*) FROM visits GROUP BY region",
    "by key, in order": "SELECT region, COUNT(*) AS n FROM visits GROUP BY region ORDER BY n DESC",
    "several": "SELECT region, COUNT(*), SUM(age), AVG(age) FROM visits GROUP BY region",
}
_POLICY: Mapping[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 1_000_000, "delta": 1e-6},
    "tables": {
        "visits": {
            "unit": "patient",
            "rows_per_unit": 30,
            "columns": {
                "patient": {"type": "integer"},
                "region": {"type": "varchar", "values": list(REGIONS)},
                "age": {"type": "double", "bounds": [0, 100]},
            },
        }
    },
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request takes, in seconds of each round: on the clock, and of the processors."""

    clock: Sequence[float]
    processor: Sequence[float]

    @classmethod
    def of(cls, action: Callable[[], object]) -> Cost:
        """The cost of one request."""
        clock, processor = time.perf_counter(), time.process_time()
        action()
        return cls((time.perf_counter() - clock,), (time.process_time() - processor,))

    @classmethod
    def together(cls, costs: Sequence[Cost]) -> Cost:
        """All rounds of one request."""
        return cls(
            tuple(part for each in costs for part in each.clock),
            tuple(part for each in costs for part in each.processor),
        )


def requests(
    con: dpsql.Connection, plain: duckdb.DuckDBPyConnection, sql: str, numbers: Iterator[int]
) -> dict[str, Callable[[], object]]:
    """The ways in which one query is asked: each time at a loss, or with a parameter, of its own, but where it is replayed.

    No two take the same of `numbers`, also of other queries: one may be answered from what was released for another.
    """
    shape = sql.replace("FROM visits", "FROM visits WHERE age > ?")

    def loss() -> Fraction:
        return Fraction(1, 100) + Fraction(next(numbers), 10**7)

    def parameter() -> list[float]:
        return [50 + next(numbers) / 10**5]

    def text() -> str:
        return shape.replace("?", str(*parameter()))

    return {
        "DuckDB": lambda: plain.execute(sql).fetchall(),
        "query": lambda: con.query(sql, epsilon=loss()),
        "replayed": lambda: con.query(sql, epsilon=Fraction(1, 100)),
        "EXPLAIN": lambda: con.explain(sql, epsilon=loss()),
        "DuckDB, other parameter": lambda: plain.execute(shape, parameter()).fetchall(),
        "other parameter": lambda: con.query(shape, parameter(), epsilon=Fraction(1, 100)),
        "other text": lambda: con.query(text(), epsilon=Fraction(1, 100)),
    }


def measured(folder: Path, rows: int, rounds: int) -> dict[str, dict[str, Cost]]:
    """The cost of each kind of request, for each query."""
    path = folder / "visits.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(_TABLE.format(units=max(1, rows // 10), rows=rows, regions=list(REGIONS)))
    found: dict[str, dict[str, Cost]] = {}
    with (
        # The same settings: DuckDB then opens the file once, with one pool of threads and of memory.
        duckdb.connect(str(path), read_only=True, config=LOCKED) as plain,
        dpsql.connect(path, policy=dict(_POLICY), ledger=folder / "visits.ledger") as con,
    ):
        numbers = count(1)
        for name, sql in QUERIES.items():
            asked = requests(con, plain, sql, numbers)
            costs = [{kind: Cost.of(action) for kind, action in asked.items()} for _ in range(rounds + 2)]
            found[name] = {kind: Cost.together([each[kind] for each in costs[2:]]) for kind in asked}
    return found


def milliseconds(seconds: Sequence[float]) -> str:
    """The median, in milliseconds."""
    return f"{1000 * statistics.median(seconds):,.2f}"


def table(found: Mapping[str, Mapping[str, Cost]], rows: int, rounds: int) -> Table:
    """The table that is printed."""
    shown = Table(title=f"{rows:,} rows, medians of {rounds} rounds, in milliseconds")
    for name in ("query", "request"):
        shown.add_column(name)
    for name in ("clock", "processors", "times DuckDB's clock"):
        shown.add_column(name, justify="right")
    for query, kinds in found.items():
        for kind, cost in kinds.items():
            plain = kinds["DuckDB, other parameter" if "other" in kind else "DuckDB"]
            ratio = statistics.median(
                ours / theirs for ours, theirs in zip(cost.clock, plain.clock, strict=True)
            )
            shown.add_row(query, kind, milliseconds(cost.clock), milliseconds(cost.processor), f"{ratio:.1f}")
        shown.add_section()
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=50, help="times that each request is made")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        found = measured(Path(name), options.rows, options.rounds)
    Console(width=100).print(table(found, options.rows, options.rounds))


if __name__ == "__main__":
    main()
