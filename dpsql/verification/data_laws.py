"""Laws of sums, ranks, hashes, plans and files: what an engine computes does not depend on order, threads or optimizers."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from dpsql.analysis.release_analysis import Lattice
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.policy.names import NameMap
from dpsql.policy.readings import CellReading, TableReading
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.lattice import emit_lattice_point
from dpsql.verification.calls import Bench
from dpsql.verification.law import Law, Part, require

_ENDS = (0, 1, -1, 7, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
_ROWS = 20_000
_OPTIMIZERS = (
    "",
    "statistics_propagation,common_subexpressions",
    "filter_pushdown,filter_pullup,expression_rewriter",
    "join_order,build_side_probe_side,unused_columns",
)


@contextmanager
def open_numbers() -> Iterator[tuple[duckdb.DuckDBPyConnection, list[tuple[int, int]]]]:
    """Open a table of groups and whole numbers, extremes among them, and return its rows as well."""
    chance = random.Random("numbers")
    rows = [(chance.randrange(9), chance.choice((*_ENDS, chance.randrange(10**6)))) for _ in range(_ROWS)]
    with duckdb.connect() as engine:
        engine.execute("CREATE TABLE t (g INTEGER, x BIGINT)")
        engine.execute(
            "INSERT INTO t SELECT UNNEST($1::INTEGER[]), UNNEST($2::BIGINT[])",
            [list(column) for column in zip(*rows, strict=True)],
        )
        yield engine, rows


def check_sums(settings: str) -> None:
    """Check that sums of whole numbers are exact, and of type HUGEINT."""
    with open_numbers() as (engine, rows):
        engine.execute(settings)
        total = sum(x for _, x in rows)
        groups = {g: sum(x for k, x in rows if k == g) for g in range(9)}
        for order in ("", " ORDER BY x", " ORDER BY -g, x DESC", " ORDER BY HASH(x)"):
            source = f"(SELECT * FROM t{order})"
            ((found, kind),) = engine.execute(f"SELECT SUM(x), TYPEOF(SUM(x)) FROM {source}").fetchall()
            require(
                (int(found), kind) == (total, "HUGEINT"), f"the sum is {found} of type {kind}, not {total}"
            )
            by = dict(engine.execute(f"SELECT g, SUM(x) FROM {source} GROUP BY g").fetchall())
            require({g: int(x) for g, x in by.items()} == groups, f"sums of groups are {by}")
        ((wide,),) = engine.execute("SELECT SUM(x::HUGEINT * 1000000007) FROM t").fetchall()
        require(int(wide) == total * 1000000007, "a sum of HUGEINT is not exact")
        ((distinct, counted),) = engine.execute("SELECT SUM(DISTINCT x), COUNT(DISTINCT x) FROM t").fetchall()
        values = {x for _, x in rows}
        require(
            (int(distinct), counted) == (sum(values), len(values)), "a sum of distinct values is not exact"
        )


def check_points(low: Fraction, high: Fraction, kind: Type) -> None:
    """Check that the lattice point of any value is a BIGINT within the ends, the same in any order."""
    around = Interval(low, high)
    lattice = Lattice.from_interval(around, integral=kind is Type.INTEGER)
    text = emit_lattice_point(DUCKDB_COMPILER, Column("t", "c", ColumnInfo(kind, "")), lattice, "c", around)
    engine = Bench.open().connection
    found = engine.execute(
        f"SELECT {text}, TYPEOF({text}) FROM {kind.name} WHERE c = c ORDER BY id"
    ).fetchall()
    ends = [int(end / lattice.step) for end in (low, high)]
    for point, stored in found:
        require(stored == "BIGINT", f"a point is a {stored}")
        require(
            point is None or min(ends) - 1 <= point <= max(ends) + 1,
            f"the point {point} is not within {ends}",
        )
    ((total,),) = engine.execute(
        f"SELECT SUM({text}) FROM (SELECT * FROM {kind.name} WHERE c = c ORDER BY id DESC)"
    ).fetchall()
    require(int(total) == sum(point or 0 for point, _ in found), "a sum of points depends on the order")


def check_ranks(settings: str) -> None:
    """Check row numbers, ranks, running sums and lists in order against Python."""
    with open_numbers() as (engine, rows):
        engine.execute("CREATE TABLE u AS SELECT g, x, ROW_NUMBER() OVER () AS i FROM t")
        engine.execute(settings)
        stored = engine.execute("SELECT g, x, i FROM u").fetchall()
        found = engine.execute(
            "SELECT g, x, i, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x, i), RANK() OVER (PARTITION BY g ORDER BY x),"
            " SUM(x) OVER (PARTITION BY g ORDER BY x, i ROWS UNBOUNDED PRECEDING),"
            " COUNT(*) OVER (PARTITION BY g) FROM u ORDER BY g, x, i"
        ).fetchall()
        expected = []
        for group in range(9):
            total, rank, before = 0, 0, None
            members = sorted((x, i) for g, x, i in stored if g == group)
            for number, (x, i) in enumerate(members, 1):
                total, rank, before = total + x, number if x != before else rank, x
                expected.append((group, x, i, number, rank, total, len(members)))
        require([tuple(map(int, row)) for row in found] == expected, "ranks or running sums differ")
        listed = engine.execute(
            "SELECT g, LIST(x ORDER BY x), MEDIAN(x) IS NULL FROM t GROUP BY g ORDER BY g"
        ).fetchall()
        require(
            [values for _, values, _ in listed] == [sorted(x for k, x in rows if k == g) for g in range(9)],
            "a list is not in order",
        )


def check_hashes() -> None:
    """Check that hashes depend on values alone: not on storage, order, threads or the place of a row."""
    dialect = DUCKDB.hashes
    with open_numbers() as (engine, _), tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.parquet"
        engine.execute(f"COPY t TO '{file}' (FORMAT parquet)")
        forms = [dialect.emit_shuffle_key(["g", "x"]), dialect.emit_sample_condition("x", "secret", 2**255)]
        forms += ["HASH(ROW(g, x))", "HASH(CAST(x AS VARCHAR))"]
        for form in forms:
            texts = [
                engine.execute(f"SELECT DISTINCT g, x, {form} FROM {source} ORDER BY g, x").fetchall()
                for source in ("t", "(SELECT * FROM t ORDER BY x)", f"read_parquet('{file}')")
            ]
            require(texts[0] == texts[1] == texts[2], f"{form} depends on where a row is stored")
            require(len({row[:2] for row in texts[0]}) == len(texts[0]), f"{form} has two values for one row")
        ((share,),) = engine.execute(
            f"SELECT AVG(CAST({dialect.emit_sample_condition('i', 'secret', 2**255)} AS INTEGER)) FROM range(20000) AS r(i)"
        ).fetchall()
        require(0.48 < share < 0.52, f"a sample of a half has the share {share}")
        ((digest,),) = engine.execute("SELECT SHA256('abc')").fetchall()
        require(
            digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "SHA-256 is another"
        )


_SCANS = (
    "SELECT g, COUNT(*), SUM(x) FROM {0} WHERE x > 5 GROUP BY g ORDER BY g",
    "SELECT COUNT(*) FROM {0} AS a SEMI JOIN (SELECT x FROM {0} WHERE g = 3) AS b USING (x)",
    "SELECT COUNT(*), SUM(TRY(x * x)) FROM {0} WHERE TRY_CAST(x AS INTEGER) BETWEEN 0 AND 9",
    "SELECT MIN(x), MAX(x), COUNT(DISTINCT x) FROM {0} WHERE g IN (1, 2) OR x IS NULL",
    "SELECT a.g, SUM(a.x) FROM {0} AS a JOIN (SELECT g, MAX(x) AS m FROM {0} GROUP BY g) AS b ON a.g = b.g AND a.x < b.m GROUP BY a.g ORDER BY a.g",
)


def check_scans(optimizers: str) -> None:
    """Check that files give what tables give, with the optimizer's passes and without some."""
    with open_numbers() as (engine, _), tempfile.TemporaryDirectory() as folder:
        parquet, text = Path(folder) / "t.parquet", Path(folder) / "t.csv"
        engine.execute("INSERT INTO t VALUES (1, NULL), (NULL, 3)")
        engine.execute(f"COPY t TO '{parquet}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        engine.execute(f"COPY t TO '{text}' (FORMAT csv, HEADER)")
        expected = [engine.execute(form.format("t")).fetchall() for form in _SCANS]
        engine.execute(f"SET disabled_optimizers = '{optimizers}'")
        sources = (
            "t",
            f"read_parquet('{parquet}')",
            f"read_csv('{text}', header = true, columns = {{'g': 'INTEGER', 'x': 'BIGINT'}})",
        )
        for source in sources:
            for form, rows in zip(_SCANS, expected, strict=True):
                require(
                    engine.execute(form.format(source)).fetchall() == rows,
                    f"{form} differs over {source.partition('(')[0]}",
                )


def check_files() -> None:
    """Check that dpsql reads texts of a CSV file that are of no declared type as NULL, and that nothing fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text(
            "id,age,day\n1,30,2024-02-29\n2,x,2024-02-30\n3,9223372036854775808,\n4,,infinity\n",
            encoding="utf-8",
        )
        backend = DuckDBBackend(
            str(path),
            readings={
                "people": TableReading(
                    NameMap(
                        {
                            "id": CellReading("integer"),
                            "age": CellReading("integer"),
                            "day": CellReading("date"),
                        }
                    )
                )
            },
        )
        try:
            for condition in (
                "TRUE",
                "id > 0",
                "age > 0 OR age IS NULL",
                "day IS NULL OR day > DATE '2000-01-01'",
            ):
                rows = backend.read_public_rows(f"SELECT id FROM people WHERE {condition} ORDER BY id")[0]
                require(rows, f"no row fulfills {condition}")
            rows = backend.read_public_rows("SELECT age, day IS NULL FROM people ORDER BY id")[0]
            require([age for age, _ in rows][:2] == [30, None], f"ages are read as {rows}")
        finally:
            backend.close()


def check_origins() -> None:
    """Check that bound plans name every table that a view reads, and everything else that it reads."""
    with duckdb.connect() as engine, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "t.csv"
        file.write_text("x\n1\n", encoding="utf-8")
        engine.execute(
            "CREATE TABLE a (x INTEGER, s VARCHAR COLLATE NOCASE); CREATE TABLE b (x INTEGER PRIMARY KEY);"
            " CREATE MACRO of_b() AS TABLE SELECT * FROM b;"
            " CREATE VIEW plain AS SELECT x FROM a; CREATE VIEW unused AS SELECT a.x FROM a LEFT JOIN b ON a.x = b.x;"
            " CREATE VIEW never AS SELECT x FROM a WHERE FALSE UNION ALL SELECT x FROM of_b();"
            f" CREATE VIEW outside AS SELECT x FROM read_csv('{file}', columns = {{'x': 'INTEGER'}}) UNION ALL SELECT x FROM a"
        )
        backend = DuckDBBackend(engine)
        for name, tables in (("a", 1), ("plain", 1), ("unused", 2), ("never", 2), ("outside", 1)):
            found = backend.find_origin(name)
            require(found is not None, f"the plan of {name} is not shown")
            if found is not None:
                require(len(found.tables) == tables, f"{name} reads {sorted(found.tables)}")
                require(
                    bool(found.foreign_sources) is (name == "outside"),
                    f"{name} reads {found.foreign_sources}",
                )
        found = backend.find_origin("a")
        require(found is not None and found.collated_columns == {"s"}, "a collation is not seen")


def _try_settings(check: Callable[[str], None]) -> Callable[[], Iterator[Part]]:
    return lambda: (
        (settings or "defaults", partial(check, settings))
        for settings in ("", "SET threads = 1", "SET threads = 4; SET preserve_insertion_order = false")
    )


def _list_points() -> Iterator[Part]:
    for kind in (Type.INTEGER, Type.DOUBLE):
        for low, high in ((0, 5), (-(2**40), 2**40), (-(2**63), 2**63), (0, Fraction(1, 2**60))):
            yield f"{kind} in [{low}, {high}]", partial(check_points, Fraction(low), Fraction(high), kind)


def _list_all(*parts: tuple[str, Callable[[], None]]) -> Callable[[], Sequence[Any]]:
    return lambda: parts


LAWS = (
    Law(
        "duckdb",
        "sums",
        "sums of whole numbers are exact in any order, with any number of threads",
        _try_settings(check_sums),
    ),
    Law(
        "duckdb",
        "lattice points",
        "each value has a point within the ends, and sums of points are exact",
        _list_points,
    ),
    Law(
        "duckdb",
        "ranks",
        "row numbers, ranks and running sums are those of sorted rows",
        _try_settings(check_ranks),
    ),
    Law(
        "duckdb", "hashes", "a hash depends on the values of a row alone", _list_all(("hashes", check_hashes))
    ),
    Law(
        "duckdb",
        "scans",
        "files give the rows of tables under every optimizer",
        lambda: ((names or "defaults", partial(check_scans, names)) for names in _OPTIMIZERS),
    ),
    Law("duckdb", "files", "texts of no declared type are read as NULL", _list_all(("CSV", check_files))),
    Law(
        "duckdb",
        "bound plans",
        "the plan of a view names everything that it reads",
        _list_all(("views", check_origins)),
    ),
)
