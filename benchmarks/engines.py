"""What privacy costs on each engine: `python -m benchmarks.engines`.

Six questions about TPC-H, whose privacy unit is the customer, are asked of dpsql over DuckDB, PostgreSQL and Spark, and of the
same engine without privacy and by SQL with clamps that an expert wrote: turn by turn in one run. How to read the tables:
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

import dpsql
from benchmarks.accuracy.data import generate
from benchmarks.overhead import median_ms, seconds
from dpsql.backends.duckdb import LOCKED
from tests import postgres
from tests.tpch.study import TABLES, policy

TARGET = 1.3
"""The most that dpsql's time may be, in parts of the time of the SQL by hand."""
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "8",
}


@dataclass(frozen=True, slots=True)
class Question:
    """Counts and sums by keys, of a unit's rows; `through` is joined by hand to know the customer.

    `sums` are expressions with their largest absolute value.
    """

    name: str
    tables: str
    keys: Sequence[str] = ()
    sums: Mapping[str, int] | None = None
    where: str = "TRUE"
    unit: str = "o_custkey"
    through: str = ""

    @property
    def sql(self) -> str:
        """The question in SQL, with and without privacy."""
        keys = ", ".join(self.keys)
        values = ", ".join(["COUNT(*)", *(f"SUM({value})" for value in self.sums or {})])
        grouped = f" GROUP BY {keys}" if keys else ""
        return f"SELECT {keys and keys + ', '}{values} FROM {self.tables} WHERE {self.where}{grouped}"

    def by_hand(self, double: str, *, shared: bool) -> str:
        """The same, where a unit counts with at most a radius, as an expert writes it who knows the bounds and the radius.

        `double` is what the engine calls a number of 64 bits. `shared` says that it computes a MATERIALIZED expression once;
        for others a window over it has each unit's norm.
        """
        names = [f"k{place}" for place in range(len(self.keys))]
        keys = [f"{key} AS {name}" for key, name in zip(self.keys, names, strict=True)]
        sums = [
            f"SUM(LEAST(GREATEST(CAST({value} AS {double}), -{bound}), {bound})) AS s{place}"
            for place, (value, bound) in enumerate((self.sums or {}).items())
        ]
        grouped = ", ".join([self.unit, *self.keys])
        items = ", ".join([f"{self.unit} AS person", *keys, f"CAST(COUNT(*) AS {double}) AS n", *sums])
        pairs = f"SELECT {items} FROM {self.tables} {self.through} WHERE {self.where} GROUP BY {grouped}"
        values = ["n", *(f"s{place}" for place in range(len(sums)))]
        if not names:
            return (
                f"SELECT {', '.join(f'SUM(LEAST({value}, 1e9))' for value in values)} FROM ({pairs}) AS pairs"
            )
        scaled = ", ".join(f"SUM({value} * LEAST(1, 100 / norm))" for value in values)
        by = ", ".join(names)
        if not shared:
            window = "SQRT(SUM(n * n) OVER (PARTITION BY person)) AS norm"
            return f"SELECT {by}, {scaled} FROM (SELECT *, {window} FROM ({pairs})) GROUP BY {by}"
        return (
            f"WITH pairs AS MATERIALIZED ({pairs}),"
            " norms AS (SELECT person, SQRT(SUM(n * n)) AS norm FROM pairs GROUP BY person)"
            f" SELECT {by}, {scaled} FROM pairs JOIN norms USING (person) GROUP BY {by}"
        )


_ITEMS = "JOIN orders ON l_orderkey = o_orderkey"
QUESTIONS = (
    Question(
        "pricing summary (Q1)",
        "lineitem",
        ("l_returnflag", "l_linestatus"),
        {"l_quantity": 50, "l_extendedprice": 105_000},
        "l_shipdate <= DATE '1998-09-02'",
        through=_ITEMS,
    ),
    Question(
        "late items by priority (Q4)",
        "orders JOIN lineitem ON o_orderkey = l_orderkey",
        ("o_orderpriority",),
        where="l_commitdate < l_receiptdate",
    ),
    Question(
        "turnover by nation (Q5)",
        "customer JOIN orders ON c_custkey = o_custkey JOIN nation ON c_nationkey = n_nationkey",
        ("n_name",),
        {"o_totalprice": 600_000},
    ),
    Question(
        "discounted revenue (Q6)",
        "lineitem",
        sums={"l_extendedprice * l_discount": 10_500},
        where="l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'"
        " AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        through=_ITEMS,
    ),
    Question(
        "urgent items by mode (Q12)",
        "orders JOIN lineitem ON o_orderkey = l_orderkey",
        ("l_shipmode",),
        {"CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END": 1},
        "l_shipdate < l_commitdate AND l_commitdate < l_receiptdate",
    ),
    Question("turnover by status", "orders", ("o_orderstatus",), {"o_totalprice": 600_000}),
)


@dataclass(frozen=True, slots=True)
class Opened:
    """TPC-H on an engine: what `dpsql.connect` takes, and how other SQL is answered by it."""

    database: Any
    answer: Callable[[str], object]
    double: str
    shared: bool


@contextmanager
def on_duckdb(folder: Path) -> Iterator[Opened]:
    """A DuckDB file."""
    path = folder / "tpch.duckdb"
    if not path.exists():
        with duckdb.connect(str(path)) as made:
            for table in TABLES:
                made.execute(f"CREATE TABLE {table} AS SELECT * FROM '{folder / table}.parquet'")
    with duckdb.connect(str(path), read_only=True, config=LOCKED) as opened:
        yield Opened(path, lambda sql: opened.execute(sql).fetchall(), "DOUBLE", shared=True)


@contextmanager
def on_postgres(folder: Path) -> Iterator[Opened]:
    """A PostgreSQL server of its own, with its defaults."""
    import psycopg

    with postgres.running() as server, psycopg.connect(server.url, autocommit=True) as owner:
        owner.execute("CREATE ROLE reader LOGIN")
        with duckdb.connect() as source:
            for table in TABLES:
                _copied(source, folder, table, owner)
        owner.execute("VACUUM ANALYZE")
        owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        url = server.url.replace("ledger@", "reader@")
        with psycopg.connect(url, autocommit=True) as opened:
            yield Opened(url, lambda sql: opened.execute(sql).fetchall(), "double precision", shared=True)


def _copied(source: duckdb.DuckDBPyConnection, folder: Path, table: str, owner: Any) -> None:
    """Copies a table to PostgreSQL, in the types that it has."""
    rows = f"'{folder / table}.parquet'"
    columns = [
        (name, {"DOUBLE": "double precision", "VARCHAR": "text"}.get(kind, kind))
        for name, kind, *_ in source.execute(f"DESCRIBE FROM {rows}").fetchall()
    ]
    owner.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns)})")
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "rows.csv"
        names = ", ".join(name for name, _ in columns)
        source.execute(f"COPY (SELECT {names} FROM {rows}) TO '{path}' (FORMAT csv, HEADER false)")
        with path.open("rb") as stream, owner.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            while block := stream.read(1 << 20):
                copy.write(block)


@contextmanager
def spark_session(cores: int) -> Iterator[Any]:
    """A local Spark that works with so many threads."""
    from pyspark.sql import SparkSession

    warehouse = tempfile.mkdtemp(prefix="spark-")
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    for name, value in {**_SPARK, "spark.sql.warehouse.dir": warehouse}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(warehouse, ignore_errors=True)


@contextmanager
def on_spark(folder: Path) -> Iterator[Opened]:
    """Parquet files in the catalogue of a local Spark."""
    with spark_session(cores=2) as session:
        for table in TABLES:
            session.sql(f"CREATE TABLE {table} USING parquet LOCATION '{folder / table}.parquet'")
        yield Opened(session, lambda sql: session.sql(sql).collect(), "DOUBLE", shared=False)


ENGINES: Mapping[str, Callable[[Path], Any]] = {
    "duckdb": on_duckdb,
    "postgresql": on_postgres,
    "spark": on_spark,
}
"""How TPC-H is opened on each engine, from a folder of Parquet files."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round of one question on one engine."""

    engine: str
    question: str
    plain: Sequence[float]
    by_hand: Sequence[float]
    private: Sequence[float]

    def ratio(self, to: Sequence[float]) -> float:
        """The median over the rounds of dpsql's time to another in the same round."""
        return statistics.median(spent / other for spent, other in zip(self.private, to, strict=True))


def ask(opened: Opened, engine: str, question: Question, rounds: int, console: Console) -> Times:
    """Asks a question in the three ways, `rounds` times after once to warm up."""
    by_hand = question.by_hand(opened.double, shared=opened.shared)
    rules = {**policy("customer"), "budget": {"epsilon": 10**6, "delta": 1e-6, "accountant": "zcdp"}}
    rules["max_epsilon"] = None
    with closing(dpsql.connect(opened.database, policy=rules, ledger=":memory:", replay=False)) as private:
        times = [
            (
                seconds(functools.partial(opened.answer, question.sql)),
                seconds(functools.partial(opened.answer, by_hand)),
                seconds(functools.partial(private.query, question.sql, epsilon=1)),
            )
            for _ in range(rounds + 1)
        ]
    found = Times(engine, question.name, *zip(*times[1:], strict=True))
    console.print(f"{engine}: {question.name}: {found.ratio(found.by_hand):.2f}", style="dim")
    return found


def table(found: Sequence[Times], scale: str, rounds: int) -> Table:
    """All questions on all engines."""
    shown = Table(title=f"TPC-H at scale factor {scale}, unit customer, medians of {rounds} rounds")
    shown.add_column("question")
    shown.add_column("engine")
    for name in ("plain ms", "by hand ms", "dpsql ms", "to plain", "to by hand"):
        shown.add_column(name, justify="right")
    for each in found:
        times = map(median_ms, (each.plain, each.by_hand, each.private))
        parts = (f"{each.ratio(to):.2f}" for to in (each.plain, each.by_hand))
        shown.add_row(each.question, each.engine, *times, *parts)
    for engine in dict.fromkeys(each.engine for each in found):
        ratios = [each.ratio(each.by_hand) for each in found if each.engine == engine]
        mean = statistics.geometric_mean(ratios)
        shown.add_row(f"geometric mean, at most {TARGET}", engine, "", "", "", "", f"{mean:.2f}")
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES), help="which engines")
    parser.add_argument("--scale", default="1", help="TPC-H's scale factor")
    parser.add_argument("--rounds", type=int, default=3, help="times that each question is asked")
    parser.add_argument("--only", nargs="*", help="words in the names of questions")
    parser.add_argument("--data", type=Path, help="a folder for TPC-H's files, which are kept there")
    parser.add_argument(
        "--json", action="store_true", help="the seconds of each round, a line for each question"
    )
    options = parser.parse_args(arguments)
    console, errors = Console(width=130), Console(stderr=True)
    with tempfile.TemporaryDirectory() as made:
        folder = options.data or Path(made)
        if not (folder / "lineitem.parquet").exists():
            folder.mkdir(parents=True, exist_ok=True)
            generate(folder, options.scale)
        found = []
        for engine in options.engines:
            with ENGINES[engine](folder) as opened:
                for question in QUESTIONS:
                    if options.only and not any(word in question.name for word in options.only):
                        continue
                    found.append(ask(opened, engine, question, options.rounds, errors))
    if options.json:
        for each in found:
            print(json.dumps({name: getattr(each, name) for name in Times.__slots__}))
        return
    console.print(table(found, options.scale, options.rounds))


if __name__ == "__main__":
    main()
