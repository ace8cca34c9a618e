"""Lattice points that are computed where a table is read: DuckDB adds them up before it joins, and the sums are the same.

Of DECIMAL they are what they are of DOUBLE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.analysis.release_analysis import Measure
from dpsql.backends.duckdb.versions import supports
from dpsql.plan.expressions import Column
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.lattice import emit_decimal_lattice_point, emit_lattice_point

RULES = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10, "delta": 1e-6, "accountant": "zcdp"},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {"id": {"type": "integer"}, "town": {"type": "integer", "bounds": [0, 9]}},
        },
        "visits": {
            "unit": "person",
            "rows_per_unit": 100,
            "columns": {"person": {"type": "integer"}, "cost": {"type": "double", "bounds": [-5, 70]}},
        },
        "towns": {"public": True},
    },
}
JOINS = {
    "a unit's row": "SELECT town, SUM(cost) FROM people JOIN visits ON id = person GROUP BY town",
    "and public rows": "SELECT area, SUM(cost) FROM people JOIN visits ON id = person JOIN towns ON town = number GROUP BY area",
    "some without a row": "SELECT town, SUM(cost), COUNT(cost) FROM visits LEFT JOIN people ON person = id GROUP BY town",
}


DATABASES = {
    "unique keys": ("range", "range"),
    "NULL and doubles among keys": ("NULLIF(range, 7)", "range // 2"),
}
"""The ids of people and the numbers of towns."""


@contextmanager
def database(keys: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Many visits of few people and of nobody; with NULL, NaN and infinity as values."""
    ids, numbers = DATABASES[keys]
    with duckdb.connect() as made:
        made.execute(
            f"CREATE TABLE people AS SELECT {ids} AS id, range % 10 AS town FROM range(1, 2001);"
            f"CREATE TABLE towns AS SELECT {numbers} AS number, range % 5 AS area FROM range(10);"
            "CREATE TABLE visits AS SELECT NULLIF(range % 2500, 3) AS person, CASE WHEN range % 17 = 0 THEN NULL"
            " WHEN range % 19 = 0 THEN 'NaN' WHEN range % 23 = 0 THEN '-Infinity' ELSE range % 1009 / 7.0 END AS cost"
            " FROM range(200000)"
        )
        yield made


def emitted(engine: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The statement of a query."""
    with dpsql.connect(engine, policy=RULES, ledger=":memory:") as con:
        return str(con.explain(sql, epsilon=1).prepared.releases[0].statement.sql)


@pytest.mark.skipif(not supports("partial_sums"), reason="DuckDB has no optimizer that moves sums")
def test_sums_are_made_before_a_join() -> None:
    """DuckDB moves sums of one table's columns below a join, but not those of products."""
    with database("unique keys") as engine:
        statement = emitted(engine, JOINS["and public rows"])
        assert "EXPORT_STATE" in str(engine.execute(f"EXPLAIN {statement}").fetchall())


@pytest.mark.skipif(not supports("partial_sums"), reason="DuckDB has no optimizer that moves sums")
@pytest.mark.parametrize("keys", DATABASES)
@pytest.mark.parametrize("sql", JOINS.values(), ids=JOINS)
def test_sums_before_and_after_a_join_are_equal(sql: str, keys: str) -> None:
    """They are compared with and without the optimizer that moves a sum below a join."""
    with database(keys) as engine:
        statement = emitted(engine, sql)
        other = engine.cursor()
        before = in_order(other.execute(statement).fetchall())
        other.execute("SET disabled_optimizers = 'partial_aggregate_pushdown'")
        assert "EXPORT_STATE" not in str(other.execute(f"EXPLAIN {statement}").fetchall())
        assert in_order(other.execute(statement).fetchall()) == before


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows, and the intervals of their histograms, in the order of their texts: the statement has none."""
    return sorted(
        ([sorted(value) if isinstance(value, list) else value for value in row] for row in rows), key=str
    )


DECIMALS = {
    "DECIMAL(4,1)": ((-2, 5), (0.3, 7.7), (-0.1, 999.9), (-5000, 5000), (5, 5)),
    "DECIMAL(3,3)": ((0, 1), (-0.001, 0.5)),
    "DECIMAL(9,0)": ((-2, 5), (0, 10**9)),
    "DECIMAL(15,2)": ((0, 600_000), (-9_999_999.99, 10_000_000), (0.07, 4.35)),
}
"""Bounds by the type of a column, whose points are computed of it."""
DECIMAL_BOUNDS = [(kind, bounds) for kind, each in DECIMALS.items() for bounds in each]


def measured(made: duckdb.DuckDBPyConnection, bounds: tuple[float, float]) -> Measure:
    """What is added up of the column `x` of a table `t` with these bounds."""
    declared = {
        "unit": "id",
        "rows_per_unit": 9,
        "columns": {"x": {"type": "double", "bounds": list(bounds)}},
    }
    rules = {**RULES, "tables": {"t": declared}}
    with dpsql.connect(made, policy=rules, ledger=":memory:") as con:
        found = con.explain("SELECT SUM(x) FROM t", epsilon=1).prepared.releases[0].plan.analysis.measures
    return found[0]


def points(measure: Measure) -> tuple[str | None, str]:
    """The SQL of a point, of DECIMAL and of DOUBLE."""
    column = measure.expr
    assert isinstance(column, Column)
    assert measure.lattice is not None
    of_double = emit_lattice_point(
        DUCKDB_COMPILER,
        column,
        measure.lattice,
        DUCKDB_COMPILER.dialect.columns.emit_bounded_column(column),
        measure.interval,
    )
    return emit_decimal_lattice_point(DUCKDB_COMPILER, column, measure.lattice), of_double


def near(kind: str, bounds: tuple[float, float]) -> list[str]:
    """All values of a small type, and those about zero, the bounds and the ends of others; as texts."""
    digits, scale = map(int, kind[len("DECIMAL(") : -1].split(","))
    last = 10**digits - 1
    about = [0, last, -last, *(round(end * 10**scale) for end in bounds)]
    units = (
        [end + step for end in about for step in range(-999, 1000)] if digits > 4 else range(-last, last + 1)
    )
    return [str(Decimal(unit).scaleb(-scale)) for unit in units if abs(unit) <= last]


@pytest.mark.parametrize(("kind", "bounds"), DECIMAL_BOUNDS)
def test_points_of_decimals_are_those_of_doubles(kind: str, bounds: tuple[float, float]) -> None:
    """All values of the small types are tried, and the critical ones of others."""
    with duckdb.connect() as made:
        made.execute(f"CREATE TABLE t (id INTEGER, x {kind})")
        made.execute(f"INSERT INTO t SELECT 0, CAST(UNNEST(?) AS {kind})", [[*near(kind, bounds), None]])
        ours, theirs = points(measured(made, bounds))
        assert ours is not None
        found = made.execute(f"SELECT x, {ours}, {theirs} FROM t").fetchall()
    require_alike(found, bounds)


def require_alike(
    found: Sequence[tuple[Decimal | None, int | None, int | None]], bounds: tuple[float, float]
) -> None:
    """Asserts that points of values are the same in both ways, and of the value within the bounds; NULL of NULL."""
    for value, ours, theirs in found:
        assert ours == theirs, value
        if value is None:
            assert ours is None
        else:
            within = max(min(value, Decimal(str(bounds[1]))), Decimal(str(bounds[0])))
            assert ours == within.scaleb(-Decimal(value.as_tuple().exponent))


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("DECIMAL(16,2)", (0, 10)),  # more digits than a DOUBLE tells apart
        ("DECIMAL(12,6)", (0, 10)),  # more digits than 64 bits have
        ("DECIMAL(4,1)", (0, 0.25)),
        ("DECIMAL(15,2)", (0, 10**8)),  # whose points are not hundredths
        ("DOUBLE", (0, 10)),
        ("FLOAT", (0, 10)),
    ],
)
def test_other_points_are_computed_from_a_double(kind: str, bounds: tuple[float, float]) -> None:
    """They could differ otherwise, or exceed 64 bits."""
    with duckdb.connect() as made:
        made.execute(f"CREATE TABLE t (id INTEGER, x {kind})")
        assert points(measured(made, bounds))[0] is None


def test_numbers_beyond_the_decimal_type_are_clamped(tmp_path: Path) -> None:
    """A file may have numbers with more digits than its type says."""
    units = [9 * 10**18, -9 * 10**18, 10**15, 60_000_001, -1]
    numbers = b"".join(each.to_bytes(16, "little", signed=True) for each in units)
    column = pa.Array.from_buffers(pa.decimal128(15, 2), len(units), [None, pa.py_buffer(numbers)])
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": range(len(units)), "x": column}), path, store_decimal_as_integer=True)
    with duckdb.connect() as made:
        made.execute(f"CREATE TABLE t AS SELECT id, CAST(0 AS DECIMAL(15,2)) AS x FROM '{path}'")
        ours, theirs = points(measured(made, (0, 600_000)))
        found = made.execute(f"SELECT {ours}, {theirs} FROM '{path}'").fetchall()
    assert found == [(value, value) for value in (60_000_000, 0, 60_000_000, 60_000_000, 0)]
