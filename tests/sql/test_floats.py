"""FLOAT columns and casts: what is asked of them means what it means in DuckDB, where they have 32 bits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.analysis.intervals import derive_interval
from dpsql.analysis.number_types import find_nearest_float
from dpsql.plan.expressions import Column, ColumnInfo, Expr
from dpsql.plan.functions import build_function_call
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

SCHEMA = """
    CREATE TABLE t AS
    SELECT i AS id, CAST(CASE WHEN i % 11 > 0 THEN i % 13 / 10.0 - 0.4 END AS FLOAT) AS f,
           CAST((hash(i) % 20000)::BIGINT / 7.0 - 900 AS FLOAT) AS g,
           CAST(i % 5 / 10.0 AS FLOAT) AS k, i % 13 / 10.0::DOUBLE AS d, i % 7 - 2 AS n, 16777216 + i % 5 AS big,
           CAST(i % 13 / 10.0 - 0.4 AS DECIMAL(9, 3)) AS p, {'x': CAST(i % 5 / 10.0 AS FLOAT)} AS s
    FROM range(400) r(i);
    CREATE TABLE codes AS SELECT CAST(i / 10.0 AS FLOAT) AS code, i AS number FROM range(5) r(i);
"""
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e18, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "f": {"type": "float"},
                "g": {"type": "float", "bounds": [-1000, 3000]},
                "k": {"type": "float", "values": [0, 0.1, 0.2, 0.3, 0.4], "nullable": False},
                "s.x": {"type": "float", "bounds": [0, 0.4]},
                "d": {"type": "double"},
                "n": {"type": "integer", "bounds": [-2, 4]},
                "big": {"type": "integer"},
                "p": {"type": "decimal(9,3)"},
            },
        },
        "codes": {"public": True},
    },
}
QUERIES = (
    *(
        f"SELECT COUNT(*) FROM t WHERE {condition}"
        for condition in (
            "f = 0.1",
            "0.1 = f",
            "f IN (0.1, 0.3)",
            "f NOT IN (0.1, -0.3)",
            "f <= 0.1",
            "f < 0.1",
            "f BETWEEN 0 AND 0.1",
            "f <> CAST(1e-1 AS DECIMAL(6, 2))",
            "f >= CAST('0.1' AS DECIMAL(6, 2)) + 0.1",
            "f IN (CAST(1e-1 AS DECIMAL(6, 2)), 0.3)",
            "f = CASE WHEN f > 1e-1 THEN 0.3 ELSE 0.1 END",
            "f = CAST(3e-1 AS DECIMAL(3, 1)) * CAST(1e0 AS INTEGER)",
            "f = CAST(0.3 AS DECIMAL(3, 1)) * 1e0",
            "f = -0.1",
            "f = 0.1 + 0.2",
            "f = 1e-1",
            "f = CAST(0.1 AS DOUBLE)",
            "f IN (0.1, 3e-1)",
            "f = d",
            "f = p",
            "f = n",
            "f IS DISTINCT FROM 0.1",
            "s.x = 0.4 AND s.x <= 0.4",
            "CASE f WHEN 0.1 THEN 1 WHEN 0.3 THEN 2 END = 1",
            "f + 0.1 = 0.3",
            "f * 3 = 0.3",
            "f / 3 = 0.1",
            "f - f / 3 > 0.2",
            "(f + 0.1) + 0.1 = f + 0.2",
            "ROUND(g, 1) = 0.3 OR ROUND(g, 1) IN (1214.3, 14.6)",
            "f % 0.3 = 0.1",
            "COALESCE(f, 0.1) = 0.1",
            "GREATEST(f, 0.1) = 0.1",
            "NULLIF(f, 0.1) IS NULL",
            "CAST(d AS FLOAT) = 0.7",
            "CAST(d AS FLOAT) = d",
            "CAST(p AS REAL) = 0.7",
            "CAST(big AS FLOAT) = 16777217",
            "big = f",
            "CAST(f AS DECIMAL(10, 2)) = 0.1",
            "f || 'x' = '0.1x'",
            "CONCAT(f, '') LIKE '0._'",
            "CAST(f AS VARCHAR) = '0.1'",
            "CAST(f + 0.1 AS VARCHAR) = '0.3'",
        )
    ),
    "SELECT f, COUNT(*) FROM (SELECT k AS f FROM t) GROUP BY f",
    "SELECT CAST(k AS VARCHAR) AS c, COUNT(*) FROM t GROUP BY c",
    "SELECT k + 0.1 AS c, COUNT(*) FROM t GROUP BY c",
    "SELECT CAST(k AS VARCHAR) || '!', COUNT(*) FROM t GROUP BY k HAVING k > 0.1",
    "SELECT CAST(k * 2 AS VARCHAR), COUNT(*) FROM t GROUP BY k",
    "SELECT COUNT(*) FROM t WHERE k = 0.3",
    "SELECT CAST(CAST(COUNT(*) / 811.0 AS REAL) AS VARCHAR) FROM t",
    "SELECT CAST(COUNT(*) / 811.0 AS REAL) AS r, CAST(CAST(COUNT(*) AS REAL) * 0.1 AS VARCHAR) FROM t",
    "SELECT CAST(r AS VARCHAR), r || '', r = 0.37, r * 0.1 = 0.037 FROM (SELECT CAST(0.37 * COUNT(*) / 400.0 AS REAL) AS r FROM t)",
    "SELECT COUNT(*) FROM (SELECT id, MAX(f) AS m FROM t GROUP BY id) WHERE m = 0.1",
    "SELECT COUNT(*) FROM (SELECT id, AVG(s.x) AS m FROM t GROUP BY id) WHERE m = 0.1",
    "SELECT COUNT(*) FROM (SELECT f AS m FROM t UNION ALL SELECT k FROM t) WHERE m = 0.1",
    "SELECT COUNT(*) FROM (SELECT LAG(f, 0) OVER (PARTITION BY id ORDER BY n) AS m FROM t) WHERE m = 0.1",
    "SELECT COUNT(*) FROM t JOIN codes ON k = code WHERE code = 0.1",
    "SELECT code, CAST(code AS VARCHAR), code = 0.1, code + 0.1 FROM codes",
    "SELECT typeof(code), typeof(code + 1), typeof(code * 1e0), typeof(SQRT(code)) FROM codes",
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, without noise but in one answer of many."""
    with duckdb.connect() as database:
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**9) as connection:
            yield database, connection


@pytest.mark.parametrize("query", QUERIES)
def test_values_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str
) -> None:
    """A constant beside a FLOAT is one, beside a DOUBLE it is not, and a FLOAT has the text of a FLOAT."""
    database, connection = both
    ours, theirs = connection.query(query).rows, database.execute(query).fetchall()
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)


_LEAVES = (
    *("f", "f", "g", "k", "s.x", "d", "n", "big", "p", "f", "g", "k"),
    *("0.1", "0.3", "-0.7", "2", "1e-1", "16777217", "123456.789", "CAST(0.1 AS DOUBLE)"),
    *("CAST(f AS DOUBLE)", "CAST(d AS FLOAT)", "CAST(p AS REAL)"),
)


def _expression(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(_LEAVES)
    one, other = (_expression(chance, chance.randrange(depth)) for _ in range(2))
    return chance.choice(
        (
            *(f"({one} {operator} {other})" for operator in "+-*"),
            *(f"({one} / {by})" for by in ("3", "0.3", "NULLIF(g, 0)")),
            *(f"{name}({one})" for name in ("ABS", "FLOOR", "CEIL", "ROUND", "TRUNC", "-")),
            *(f"ROUND({one}, {digits})" for digits in (1, 2)),
            *(f"{name}({one}, {other})" for name in ("LEAST", "GREATEST", "COALESCE", "NULLIF")),
            f"CASE WHEN n > 0 THEN {one} ELSE {other} END",
            f"CASE WHEN n > 0 THEN {one} WHEN n = 0 THEN {other} END",
        )
    )


def _condition(chance: random.Random) -> str:
    one, other, third = (_expression(chance, chance.randrange(3)) for _ in range(3))
    return chance.choice(
        (
            *(
                f"{one} {operator} {other}"
                for operator in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")
            ),
            f"{one} IN ({other}, {third})",
            f"{one} NOT IN (0.1, 0.3)",
            f"{one} BETWEEN {chance.choice(_LEAVES[:9])} AND {third}",
            f"CAST(f + {chance.choice(_LEAVES[:9])} AS VARCHAR) LIKE '%{chance.randrange(10)}'",
            f"k || '' = '0.{chance.randrange(5)}'",
        )
    )


@pytest.mark.parametrize("seed", range(60))
def test_conditions_hold_for_the_rows_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], seed: int
) -> None:
    """Random conditions over FLOAT, DOUBLE, DECIMAL and whole numbers."""
    database, connection = both
    chance = random.Random(seed)
    for _ in range(25):
        query = f"SELECT COUNT(*) FROM t WHERE {_condition(chance)}"
        try:
            ours = connection.query(query).rows
        except dpsql.QueryRejected:
            continue
        assert ours == tuple(database.execute(query).fetchall()), query


def test_interval_holds_the_rounded_value() -> None:
    """Ends that are FLOATs stay unchanged, as noise does; others move outward."""
    chance = random.Random(1)
    ends = [chance.uniform(-10, 10) * 10.0 ** chance.randrange(-40, 30) for _ in range(500)]
    for low, high in itertools.pairwise(sorted([*ends, 0.0, 0.1, 0.5, 16777216.0, 16777217.0, 3e38])):
        around = derive_interval(_rounded(Interval(Fraction(low), Fraction(high))))
        for end in (low, high):
            assert around.contains(Fraction(find_nearest_float(end) or 0.0))
    for whole in (Interval(0, 1), Interval(-3, Fraction(1, 4)), Interval(-(2**24), 2**60)):
        assert derive_interval(_rounded(whole)) == whole


def _rounded(around: Interval) -> Expr:
    found = build_function_call("cast_float", Column("t", "x", ColumnInfo(Type.DOUBLE, "DOUBLE", around)))
    assert found is not None
    return found
