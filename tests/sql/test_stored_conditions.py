"""Conditions that are written of stored columns: the same rows are left as by the clamped ones, on DuckDB row for row."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import Declared, close_all, connected, prepared, statistics, world

import dpsql
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.sql.compile import relations
from dpsql.sql.compile.scan_conditions import StoredConditions

NUMBERS = (None, -128, -3, -2, -1, 0, 1, 4, 5, 6, 127)
REALS = (
    None,
    "NaN",
    "-Infinity",
    "Infinity",
    -1e308,
    -2.5,
    -2.0,
    -0.0,
    0.0,
    1e-300,
    0.1,
    0.3,
    4.999,
    5.0,
    5.001,
)
DAYS = (
    None,
    "-infinity",
    "infinity",
    "1999-12-31",
    "2000-01-01",
    "2000-01-02",
    "2010-05-05",
    "2020-01-01",
    "2020-01-02",
)
KINDS: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]]] = {
    "TINYINT": (NUMBERS, {"type": "integer", "bounds": [-2, 5]}, ("-2", "-1", "0", "5", "6", "0.5", "NULL")),
    "HUGEINT": (NUMBERS, {"type": "integer", "bounds": [-2, 5]}, ("0",)),
    "DOUBLE": (REALS, {"type": "double", "bounds": [-2, 5]}, ("-2", "-1.5e0", "0", "0.3", "5", "9007199254740993")),
    "FLOAT": (REALS, {"type": "double", "bounds": [-2, 5]}, ("0.1", "0.3", "5e0")),
    "DECIMAL(6, 3)": ((None, -2.5, -2, 0.299, 0.3, 0.301, 5, 5.001), {"type": "double", "bounds": [-2, 5]}, ("0.3", "0.3e0", "0.3001", "5", "-1", "0.30000000000000004", "0")),
    "DECIMAL(16, 3)": ((None, -2.5, 0.299, 0.3, 0.301, 5), {"type": "double", "bounds": [-2, 5]}, ("0.3",)),
    "DATE": (DAYS, {"type": "date", "bounds": ["2000-01-01", "2020-01-01"]},
             ("DATE '2000-01-01'", "DATE '2000-01-02'", "DATE '2010-05-05'", "'2020-01-01'", "TIMESTAMP '2010-05-05 00:00:01'")),
    "TIMESTAMP": (DAYS, {"type": "timestamp", "bounds": ["2000-01-01", "2020-01-01"]},
                  ("TIMESTAMP '2000-01-01'", "TIMESTAMP '2010-05-05'", "DATE '2010-05-05'")),
    "TIMESTAMPTZ": (DAYS, {"type": "timestamptz", "bounds": ["2000-01-01", "2020-01-01"]}, ("TIMESTAMP '2010-05-05'",)),
}  # fmt: skip
"""By engine type the values of a column, what is declared of it, and what it is compared with."""
COMPARED = ("x < {0}", "x <= {0}", "x > {0}", "x >= {0}", "x = {0}", "x <> {0}", "{0} < x", "{0} >= x", "x IN ({0}, {0})",
            "NOT x > {0}", "x > {0} OR x IS NULL", "x BETWEEN {0} AND {0}")  # fmt: skip


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def conditions(kind: str) -> Iterator[str]:
    """Each comparison with each constant, and of three together."""
    constants = KINDS[kind][2]
    for compared in COMPARED:
        yield from (compared.format(constant) for constant in constants)
    yield f"x >= {constants[0]} AND x < {constants[-1]} AND x IS NOT NULL"


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_conditions_keep_the_same_rows(kind: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those that remain under conditions of clamped columns."""
    values, declared, _ = KINDS[kind]
    columns: Declared = {"id": ("INTEGER", None), "x": (kind, declared)}
    connection = world(
        *({"id": who, "x": value} for who, value in enumerate(values)), columns=columns, unit=unit
    )
    for condition in conditions(kind):
        sql = f"SELECT COUNT(*) FROM people WHERE {condition}"
        found = statistics(connection, sql)
        with monkeypatch.context() as patched:
            patched.setattr(relations, "emit_stored_conditions", lambda *_, **__: StoredConditions())
            assert statistics(connection, sql) == found, condition


OF_FRAMES = ("x < 5", "x >= 0.3", "x = 0", "x IN (0.3, 4)", "n > 3", "n <= 4", "day = DATE '2010-05-05'", "day >= DATE '2000-01-02'",
             "seen < TIMESTAMP '2010-05-05'", "d >= 0.3", "d IN (0.3, 4.5)")  # fmt: skip


@pytest.mark.parametrize("source", ["parquet", "arrow"])
def test_files_and_frames_skip_no_counted_rows(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics of row groups and Arrow's filters skip no row that counts."""
    days = [None, dt.date(1999, 1, 1), dt.date(2000, 1, 2), dt.date(2010, 5, 5), dt.date(2030, 1, 1)] * 9
    reals = [None if value is None else float(value) for value in REALS] * 3
    table = pa.table({
        "id": pa.array(range(45)), "x": pa.array(reals), "n": pa.array([None, 0, 3, 4, 100] * 9, pa.uint8()),
        "day": pa.array(days), "seen": pa.array(days).cast(pa.timestamp("ms")),
        "d": pa.array([None, Decimal(-9), Decimal("0.3"), Decimal("4.5"), Decimal(77)] * 9, pa.decimal128(9, 2)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    ends = {"bounds": ["2000-01-01", "2020-01-01"]}
    columns = {
        **{name: {"type": "double", "bounds": [-2, 7]} for name in "xd"},
        "n": {"type": "integer", "bounds": [0, 50]},
        "day": {"type": "date", **ends},
        "seen": {"type": "timestamp", **ends},
    }
    rules = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**12},
        "tables": {"t": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    found = []
    for emitted in (relations.emit_stored_conditions, lambda *_, **__: StoredConditions()):
        monkeypatch.setattr(relations, "emit_stored_conditions", emitted)
        opened = str(tmp_path / "t.parquet") if source == "parquet" else table
        with dpsql.connect({"t": opened}, policy=rules, ledger=":memory:", epsilon=10**6) as connection:
            queries = (f"SELECT COUNT(*) FROM t WHERE {condition}" for condition in OF_FRAMES)
            found.append([connection.query(sql).rows for sql in queries])
    assert found[0] == found[1]
    assert any(count for ((count,),) in found[0])


def test_clamping_keeps_the_order_of_two_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A comparison of two stored columns leaves out no row that counts."""
    reals = {"type": "double", "bounds": [-2, 5]}
    columns: Declared = {
        "id": ("INTEGER", None),
        "x": ("DOUBLE", reals),
        "y": ("DOUBLE", reals),
        "z": ("FLOAT", reals | {"bounds": [0, 9]}),
    }
    rows = [
        {"id": number, "x": x, "y": y, "z": y}
        for number, (x, y) in enumerate(itertools.product(REALS, REALS))
    ]
    connection = world(*rows, columns=columns)
    for pair, sign in itertools.product(
        ("x {} y", "y {} x", "x {} z", "z {} y"), ("<", ">", "<=", ">=", "=", "<>")
    ):
        sql = f"SELECT COUNT(*) FROM people WHERE {pair.format(sign)}"
        found = statistics(connection, sql)
        with monkeypatch.context() as patched:
            capabilities = replace(DUCKDB.capabilities, short_circuits=True)
            patched.setattr(connection.engine.backend, "dialect", replace(DUCKDB, capabilities=capabilities))
            text = str(prepared(connection, sql).statement.sql)
            assert statistics(connection, sql) == found, sql
            assert (f'WHERE "{pair[0]}" {sign} "{pair[-1]}"' in text) == (
                sign in ("<", ">") and "z" not in pair
            ), sql


def test_constants_at_or_beyond_a_bound_are_compared_with_clamped_values() -> None:
    """There a value beyond the bound is not on the same side."""
    columns: Declared = {"id": ("INTEGER", None), "x": ("INTEGER", {"type": "integer", "bounds": [-2, 5]})}
    connection = world({"id": 1, "x": 9}, columns=columns)
    for constant, stored in ((-3, False), (-2, False), (-1, True), (4, True), (5, False), (6, False)):
        queries = prepared(connection, f"SELECT COUNT(*) FROM people WHERE x >= {constant}")
        assert (f'"x" >= CAST({constant} AS BIGINT)) AS "people"' in str(queries.statement.sql)) == stored


JOINED = [
    "SELECT COUNT(*) FROM t JOIN p ON t.k = p.k WHERE t.d > 3 AND p.n < 3",
    "SELECT COUNT(*) FROM t JOIN p ON t.k = p.k AND t.d > 3 WHERE t.d > 3",
    "SELECT COUNT(*) FROM t LEFT JOIN p ON t.k = p.k AND t.d > 3 WHERE t.d > 3",
    "SELECT COUNT(*) FROM t LEFT JOIN p ON t.k = p.k AND p.n < 2",
    "SELECT COUNT(*) FROM t a LEFT JOIN t b ON a.id = b.id AND a.k = b.k WHERE a.d > 3",
    "SELECT COUNT(*) FROM t a LEFT JOIN t b ON a.id = b.id AND a.k = b.k AND b.d > 8 WHERE b.d > 5 OR b.d IS NULL",
    "SELECT COUNT(*) FROM t a LEFT JOIN t b ON a.id = b.id AND a.k = b.k WHERE b.d > 5",
    "SELECT COUNT(*) FROM t WHERE d > 3 AND k IN (SELECT k FROM p WHERE n > 1)",
    "SELECT COUNT(*) FROM (SELECT id, SUM(d) AS s FROM t WHERE d > 3 GROUP BY id) WHERE s < 8",
    "SELECT COUNT(*) FROM (SELECT d FROM t WHERE d < 5) WHERE d > 3",
    "SELECT COUNT(*) FROM t a WHERE d > 3 AND EXISTS (SELECT 1 FROM t b WHERE b.id = a.id AND b.d < 5)",
]  # fmt: skip
"""Queries of several tables."""


@pytest.mark.parametrize("sql", JOINED)
def test_rows_of_an_outer_join_stay(sql: str) -> None:
    """Each side has its own conditions."""
    engine = duckdb.connect()
    engine.execute(
        "CREATE TABLE t AS FROM (VALUES (1, 'a', 2), (1, 'b', 9), (2, 'a', 4), (3, 'c', 7)) AS v (id, k, d);"
        "CREATE TABLE p AS FROM (VALUES ('a', 1), ('b', 2)) AS v (k, n)"
    )
    bounded = {"type": "integer", "bounds": [0, 10]}
    tables = {
        "t": {"unit": "id", "rows_per_unit": 9, "columns": {"k": {"type": "varchar"}, "d": bounded}},
        "p": {"public": True},
    }
    connection = connected(engine, {"budget": {"epsilon": 10**9, "delta": 1e-6}, "tables": tables})
    ((count,),) = engine.execute(sql).fetchall()
    assert statistics(connection, sql)[()][0] == (count,)
