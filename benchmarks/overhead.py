"""What privacy costs in time, next to plain DuckDB: `python -m benchmarks.overhead`.

Each query is asked of dpsql and, without privacy, of DuckDB: over the same file, on the same threads,
turn by turn in one run, so that whatever else the machine does slows both. How to read the tables:
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from dpsql.backends.duckdb import LOCKED
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ROWS_OF_A_UNIT = 100
"""On average; a policy here allows twice as many, which no unit reaches."""
PREPARE_TARGET = 15
"""Milliseconds from a query's text to the SQL for the engine."""
EPSILON = Fraction(1, 100)

_TABLE = """
    CREATE TABLE visits AS
    SELECT
        patient,
        list_extract({days}, CAST(1 + hash(i, 2) % 7 AS BIGINT)) AS day,
        list_extract({days}, CAST(1 + hash(patient, 3) % 7 AS BIGINT)) AS home_day,
        1000 * uniform AS cost,
        CASE WHEN hash(i, 5) % 100 > 0 THEN 1010 * uniform - 5 END AS raw_cost,
        CAST(hash(i, 6) % {groups} AS BIGINT) AS item
    FROM (
        SELECT i, CAST(hash(i, 1) % {units} AS BIGINT) AS patient, hash(i, 4) / 2e0**64 AS uniform
        FROM range({rows}) AS numbers(i)
    )
"""
_BY_ROW = "SELECT {key}, SUM({value}), AVG({value}), COUNT(*) FROM visits GROUP BY {key}"
_BY_UNIT = """
    SELECT {key}, COUNT(*), SUM(n), SUM(c), SUM(s)
    FROM (
        SELECT patient, {key}, COUNT(*) AS n, COUNT({value}) AS c, SUM({value}) AS s
        FROM visits GROUP BY patient, {key}
    ) GROUP BY {key}
"""

_BY_HAND = """
    WITH pairs AS MATERIALIZED (
        SELECT patient, {key} AS k, COUNT(*) AS n, COUNT({value}) AS c, SUM(LEAST(GREATEST({value}, 0), 1000)) AS s
        FROM visits GROUP BY 1, 2 {limit}
    ), norms AS (SELECT patient, SQRT(SUM(n * n)) AS norm FROM pairs GROUP BY patient)
    SELECT
        k, COUNT(*), SUM(n * LEAST(1, {radius} / norm)), SUM(c * LEAST(1, {radius} / norm)),
        SUM(s * LEAST(1, {radius} / norm))
    FROM pairs JOIN norms USING (patient) GROUP BY k
"""
"""Contributions clamped to a radius of the unit's whole vector, as an expert writes them who knows the radius."""
_FIRST = "QUALIFY ROW_NUMBER() OVER (PARTITION BY patient ORDER BY HASH(patient, k)) <= {groups}"


@dataclass(frozen=True, slots=True)
class Case:
    """A query with its policy; `target` is the largest ratio to plain DuckDB, None where none is set.

    `by_unit` says that DuckDB aggregates by unit and key first, as bounding contributions asks for.
    """

    name: str
    target: float | None
    by_unit: bool
    key: str = "day"
    value: str = "cost"
    rules: Mapping[str, object] | None = None
    key_is_public: bool = True
    key_type: str = "varchar"

    @property
    def by_hand(self) -> str:
        """The best SQL that we know for the same clamped statistic, in DOUBLE; for a row a unit, the plain query."""
        if not self.by_unit:
            return self.plain
        groups = (self.rules or {}).get("max_groups")
        limit = "" if groups is None else _FIRST.format(groups=groups)
        return _BY_HAND.format(key=self.key, value=self.value, limit=limit, radius=ROWS_OF_A_UNIT)

    @property
    def private(self) -> str:
        """The query as dpsql is asked."""
        return _BY_ROW.format(key=self.key, value=self.value)

    @property
    def plain(self) -> str:
        """The query as DuckDB is asked."""
        return (_BY_UNIT if self.by_unit else _BY_ROW).format(key=self.key, value=self.value)

    def asked(self, number: int) -> Query:
        """The query at a loss of its own: no two alike, so that no answer or plan can be a stored one."""
        return Query(self.private, epsilon=EPSILON + Fraction(number, 10**6))

    def policy(self) -> dict[str, Any]:
        """The policy under which dpsql answers."""
        key: dict[str, Any] = {"type": self.key_type}
        if self.key_is_public:
            key["values"] = list(DAYS)
        unit = {"unit": "patient", "rows_per_unit": 2 * ROWS_OF_A_UNIT} if self.by_unit else {"unit": "row"}
        columns = {self.key: key, self.value: {"type": "double", "bounds": [0, 1000]}}
        return {
            "version": 1,
            "privacy_unit": "patient" if self.by_unit else "visit",
            "budget": {"epsilon": 10_000, "delta": 1e-6, "accountant": "zcdp"},
            "tables": {"visits": {**unit, **(self.rules or {}), "columns": columns}},
        }


CASES = (
    Case("a row a unit", 1.5, by_unit=False),
    Case("a row a unit, 1% NULL, 1% outside bounds", None, by_unit=False, value="raw_cost"),
    Case("patients, public keys", 1.5, by_unit=True),
    Case("patients, 1% NULL, 1% outside bounds", None, by_unit=True, value="raw_cost"),
    Case("patients, one key each", 1.5, by_unit=True, key="home_day", rules={"partition": "home_day"}),
    Case("patients, at most 3 groups each", 3, by_unit=True, rules={"max_groups": 3}),
    Case("patients, secret keys, 3 groups", 3, by_unit=True, rules={"max_groups": 3}, key_is_public=False),
    Case(
        "patients, very many secret keys",
        3,
        by_unit=True,
        key="item",
        key_is_public=False,
        key_type="integer",
    ),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round: plain DuckDB, SQL by hand, the whole private query, and its engine statements alone."""

    plain: Sequence[float]
    by_hand: Sequence[float]
    private: Sequence[float]
    statement: Sequence[float]

    def ratio(self, of: Sequence[float], to: Sequence[float]) -> float:
        """The median over the rounds of a time to another in the same round."""
        return statistics.median(spent / other for spent, other in zip(of, to, strict=True))


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long `action` takes by this clock."""
    start = clock()
    action()
    return clock() - start


def median_ms(times: Iterable[float]) -> str:
    """The median of some seconds, in milliseconds."""
    return f"{1000 * statistics.median(times):,.1f}"


def write_table(path: Path, rows: int, groups: int | None = None) -> None:
    """Writes the DuckDB file that is asked: the same table each time. `groups` are the items, a tenth of the rows by default."""
    with duckdb.connect(str(path)) as database:
        units, groups = max(1, rows // ROWS_OF_A_UNIT), groups or max(1, rows // 10)
        database.execute(_TABLE.format(units=units, rows=rows, days=list(DAYS), groups=groups))


def run_statements(engine: Engine, part: PreparedRelease) -> None:
    """Runs what the engine is sent for a release: its stages, with the expected clamps, or its one statement."""
    stages = part.statement.stages
    if stages is None:
        engine.backend.run_statement(part.statement.sql)
        return
    clamps = tuple(
        replace(clamp, chosen=(clamp.default_index,) * len(clamp.sides)) for clamp in part.plan.clamps
    )
    with engine.backend.stage_tables(stages.tables):
        engine.backend.run_statement(stages.histograms)
        engine.backend.run_statement(part.emit_group_sums(replace(part.plan, clamps=clamps)).sql)


def run(case: Case, path: Path, ledger: Path, rounds: int, clock: Callable[[], float]) -> Times:
    """Asks DuckDB and dpsql in turn, `rounds` times after once to warm up."""
    with (
        # The same settings: DuckDB then opens the file once, with one pool of threads and of memory.
        duckdb.connect(str(path), read_only=True, config=LOCKED) as plain,
        dpsql.connect(path, policy=case.policy(), ledger=ledger, replay=False) as private,
    ):
        part = plan_and_match(private.engine, case.asked(0)).single_release
        times = []
        for number in range(rounds + 1):
            epsilon = case.asked(number).epsilon
            times.append(
                (
                    seconds(lambda: plain.execute(case.plain).fetchall(), clock),
                    seconds(lambda: plain.execute(case.by_hand).fetchall(), clock),
                    seconds(partial(private.query, case.private, epsilon=epsilon), clock),
                    seconds(partial(run_statements, private.engine, part), clock),
                )
            )
        return Times(*zip(*times[1:], strict=True))


def prepare_times(case: Case, path: Path, repeats: int = 50) -> list[float]:
    """Seconds from the text to the SQL for the engine: parse, lower, analyse, choose, verify, emit."""
    with dpsql.connect(path, policy=case.policy(), ledger=":memory:", replay=False) as private:
        return [
            seconds(partial(plan_and_match, private.engine, case.asked(number))) for number in range(repeats)
        ]


def import_times(repeats: int = 5) -> list[float]:
    """Seconds of `import dpsql`, each in a fresh interpreter."""
    code = "import time; start = time.perf_counter(); import dpsql; print(time.perf_counter() - start)"
    runs = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(repeats)
    )
    return [float(run.stdout) for run in runs]


def queries_table(path: Path, options: argparse.Namespace) -> Table:
    """Runs every case over a new file at `path`."""
    write_table(path, options.rows, options.groups)
    with duckdb.connect() as database:
        ((threads,),) = database.execute("SELECT current_setting('threads')").fetchall()
    what = "processor time" if options.processor else "clock"
    table = Table(
        title=f"{options.rows:,} rows, {threads} threads, {what}, medians of {options.rounds} rounds"
    )
    table.add_column("SUM, AVG, COUNT by key")
    for name in (
        "DuckDB ms",
        "dpsql ms",
        "ratio",
        "at most",
        "its SQL ms",
        "ratio ",
        "by hand ms",
        "its SQL to it",
    ):
        table.add_column(name, justify="right")
    clock = time.process_time if options.processor else time.perf_counter
    for index, case in enumerate(CASES):
        if options.only and not any(word in case.name for word in options.only):
            continue
        times = run(case, path, path.with_name(f"{index}.ledger"), options.rounds, clock)
        table.add_row(
            case.name,
            median_ms(times.plain),
            median_ms(times.private),
            f"{times.ratio(times.private, times.plain):.2f}",
            "" if case.target is None else f"{case.target:g}",
            median_ms(times.statement),
            f"{times.ratio(times.statement, times.plain):.2f}",
            median_ms(times.by_hand),
            f"{times.ratio(times.statement, times.by_hand):.2f}",
        )
    return table


def start_table(path: Path) -> Table:
    """Times what happens before the engine is asked."""
    table = Table(title="before the engine is asked")
    table.add_column("")
    for name in ("ms", "at most"):
        table.add_column(name, justify="right")
    table.add_row("import dpsql", median_ms(import_times()), "")
    for case in CASES:
        table.add_row(f"text to SQL: {case.name}", median_ms(prepare_times(case, path)), str(PREPARE_TARGET))
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=9, help="times that each query is asked")
    parser.add_argument("--groups", type=int, help="items that there are, a tenth of the rows by default")
    parser.add_argument("--only", nargs="*", help="words in the names of cases")
    parser.add_argument(
        "--processor", action="store_true", help="processor time of all threads, not the clock"
    )
    options = parser.parse_args(arguments)
    console = Console(width=140)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "visits.duckdb"
        console.print(queries_table(path, options))
        console.print(start_table(path))


if __name__ == "__main__":
    main()
