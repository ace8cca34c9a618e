"""Sums, means and conditions of one unit's rows, and casts of decimals: the numbers that DuckDB has."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pytest
from filling import insert

import dpsql
from dpsql.analysis.intervals import KnownIntervals
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PerUnitAggregate
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.per_unit_aggregates import emit_per_unit_aggregate

COLUMNS = {
    "x": {"type": "double", "bounds": [-1000, 1000]},
    "price": {"type": "double", "bounds": [-100, 100]},
    "n": {"type": "integer", "bounds": [0, 9]},
    "wide": {"type": "integer"},
}
ALIKE = [
    "SELECT COUNT(*) FROM (SELECT id, SUM(x) AS s, MAX(x) AS m FROM t GROUP BY id) WHERE s = m",
    "SELECT COUNT(*) FROM (SELECT id, AVG(x) AS s, MIN(x) AS m FROM t GROUP BY id) WHERE s = m",
    "SELECT COUNT(*) FROM (SELECT id, SUM(x) AS s, SUM(x) AS m FROM t GROUP BY id) WHERE s <> m",
    "SELECT COUNT(*) FROM (SELECT id, COUNT_IF(n > 3) AS c FROM t GROUP BY id) WHERE c IS NULL",
    "SELECT COUNT(*) FROM (SELECT id, COUNT_IF(n > 3) AS c FROM t GROUP BY id) WHERE c = 0",
    "SELECT COUNT(*) FROM (SELECT id, COUNT_IF(n > 3 OR n < 1) AS c FROM t GROUP BY id) WHERE c > 0",
    "SELECT COUNT(*) FROM t WHERE CAST(price AS INTEGER) = 3",
    "SELECT COUNT(*) FROM t WHERE CAST(price * 3 AS BIGINT) = 8",
    "SELECT COUNT(*) FROM t WHERE CAST(-price AS INTEGER) = -3",
    "SELECT COUNT(*) FROM t WHERE CAST(CAST(price AS DOUBLE) AS INTEGER) = 2",
    "SELECT COUNT(*) FROM t WHERE CAST(3 - wide AS TEXT) = '-1'",
    "SELECT COUNT(*) FROM t WHERE wide * 3 || '' = '12'",
    "SELECT COUNT(*) FROM t WHERE CAST((wide + 1) * 2 - wide AS TEXT) = '4'",
    "SELECT COUNT(*) FROM t WHERE CAST(CAST(wide AS DOUBLE) - 1 AS TEXT) = '2.0'",
    "SELECT COUNT(*) FROM (SELECT id, CAST(3 - MIN(wide) AS TEXT) AS k FROM t GROUP BY id) WHERE k = '3'",
]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[dpsql.Connection, duckdb.DuckDBPyConnection]]:
    """Three hundred units of one row each and one of three, with reals of all sizes."""
    chance = random.Random(7)
    plain = duckdb.connect()
    plain.execute("CREATE TABLE t (id INTEGER, x DOUBLE, price DECIMAL(8, 2), n INTEGER, wide BIGINT)")
    rows = [
        (
            unit,
            chance.choice((1, -1)) * 1000 * chance.random() ** 3 + 1e-3,
            2.5,
            (unit % 7, None)[unit % 3 == 0],
            unit % 5,
        )
        for unit in range(300)
    ]
    rows += [(300, x, 1.5, None, None) for x in (0.1, 0.2, 0.3)]
    insert(plain, "t", rows)
    table = {"unit": "id", "rows_per_unit": 3, "columns": COLUMNS}
    rules = {"version": 1, "privacy_unit": "id", "budget": {"epsilon": 10**6}, "tables": {"t": table}}
    with dpsql.connect(plain, policy=rules, ledger=":memory:", epsilon=1000) as opened:
        yield opened, plain


@pytest.mark.parametrize("sql", ALIKE)
def test_numbers_of_one_unit_are_those_of_duckdb(
    both: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], sql: str
) -> None:
    """As many units or rows fulfil a condition on them as in DuckDB, with hardly any noise."""
    connection, plain = both
    assert connection.query(sql).rows == tuple(plain.execute(sql).fetchall())


DECIMALS = [
    "ROUND(p, 1)", "ROUND(q, 2)", "ROUND(q, 1)", "ROUND(q)", "ROUND(w, 2)", "ROUND(w, -1)", "ROUND(p, 5)", "ROUND_EVEN(q, 2)",
    "TRUNC(q, 2)", "TRUNC(p, 2)", "TRUNC(q, 1)", "TRUNC(p)", "FLOOR(p * 100)", "CEIL(q * 100)", "FLOOR(q)", "TRUNC(p * 1.1, 1)",
    "ROUND(p * n, 1)", "ROUND(p * 0.5, 2)", "ROUND(p * 1.19, 2)", "ROUND(n * 0.15, 1)", "ROUND(p + q, 2)", "ROUND(q - p, 1)",
    "ROUND(p * q, 3)", "ROUND(COALESCE(q, 0), 2)", "ROUND(CASE WHEN n > 0 THEN q ELSE 0 END, 2)", "ROUND(GREATEST(q, p), 2)",
    "ROUND(ABS(q), 2)", "ROUND(NULLIF(q, 0), 2)", "ROUND(CAST(q AS DECIMAL(9, 2)), 1)", "ROUND(p * n, -1)",
    "CAST(p AS DECIMAL(12, 1))", "CAST(q AS DECIMAL(9, 2))", "CAST(-q AS DECIMAL(9, 2))", "CAST(w AS DECIMAL(9, 0))",
    "CAST(p * 3 AS DECIMAL(18, 1))", "CAST(p * 1.15 AS DECIMAL(12, 2))", "CAST(q AS DECIMAL(12, 6))",
    "CAST(p AS SMALLINT)", "CAST(p AS HUGEINT)", "CAST(p * 0.5 AS INTEGER)", "CAST(q * 10 AS BIGINT)",
    "ROUND(CAST(q AS DOUBLE), 2)", "CAST(CAST(q AS DOUBLE) AS DECIMAL(9, 2))", "ROUND(p / 3, 2)",
]  # fmt: skip
"""Values of DECIMAL columns that are rounded, and some of DOUBLE that look like them."""
SOURCES = [
    "t",
    "(SELECT id, n, p, q, w FROM t) s",
    "(SELECT id, n, p, q, w FROM t UNION ALL SELECT id, 0, 0, q, 0 FROM t) s",
    "(SELECT id, MAX(n) AS n, SUM(p) AS p, MIN(q) AS q, MAX(w) AS w FROM t GROUP BY id) s",
]


@pytest.fixture(scope="module")
def decimals() -> Iterator[tuple[dpsql.Connection, duckdb.DuckDBPyConnection]]:
    """Four hundred rows of decimals of both signs, of which many are halves of some digit."""
    chance = random.Random(3)

    def drawn(some: tuple[int, ...], most: int, scale: int) -> str:
        size = chance.choice((*some, chance.randrange(most), chance.randrange(most // 10) * 10 + 5))
        return str(Decimal(chance.choice((1, -1)) * size).scaleb(-scale))

    rows = [
        (
            unit,
            drawn((5, 15, 25, 50, 100, 115), 10**5, 2),
            drawn((500, 1005, 2500, 8120), 10**6, 3),
            drawn((), 10**7, 4),
            chance.randrange(-50, 50),
        )
        for unit in range(400)
    ]
    plain = duckdb.connect()
    plain.execute(
        "CREATE TABLE t (id INTEGER, p DECIMAL(12, 2), q DECIMAL(9, 3), w DECIMAL(15, 4), n INTEGER)"
    )
    insert(plain, "t", rows)
    columns = {name: {"type": "double", "bounds": [-(10**6), 10**6]} for name in "pqw"}
    table = {
        "unit": "id",
        "rows_per_unit": 1,
        "columns": columns | {"n": {"type": "integer", "bounds": [-50, 50]}},
    }
    rules = {"version": 1, "privacy_unit": "id", "budget": {"epsilon": 10**9}, "tables": {"t": table}}
    with dpsql.connect(plain, policy=rules, ledger=":memory:", epsilon=10**4) as opened:
        yield opened, plain


@pytest.mark.parametrize("expression", DECIMALS)
def test_decimals_are_rounded_as_duckdb_does(
    decimals: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], expression: str
) -> None:
    """The counts of each value, with halves of both signs, are DuckDB's, also through derived tables."""
    connection, plain = decimals
    for source in SOURCES:
        counted = plain.execute(
            f"SELECT CAST({expression} AS DOUBLE), COUNT(*) FROM {source} GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        for value, rows in counted.fetchall()[:6]:
            query = f"SELECT COUNT(*) FROM {source} WHERE {expression} = {value!r}"
            assert connection.query(query).rows == ((rows,),), (source, value)


@pytest.mark.parametrize("sql", ["LOG(n - 4)", "LN(n - 4)"])
def test_logarithms_of_less_than_zero_are_null_in_spark(
    both: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], sql: str
) -> None:
    """DuckDB has NaN there, which is not NULL."""
    connection, plain = both
    query = f"SELECT COUNT(*) FROM t WHERE {sql} IS NULL"
    expected = plain.execute("SELECT COUNT(*) FROM t WHERE n IS NULL OR n <= 4").fetchall()
    assert connection.query(query, dialect="spark").rows == tuple(expected)


@pytest.mark.parametrize("bound", [1e-200, 1e-5, 1.0, 1000.0, 1e17, 1e150], ids=str)
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_sums_of_one_value_are_exact_in_any_order(function: str, bound: float) -> None:
    """Other sums are within one rounding of a DOUBLE; infinities and NaN within bounds."""
    column = Column("t", "x", ColumnInfo(Type.DOUBLE, "", Interval(-bound, bound)))
    named = Column("g", "s", ColumnInfo(Type.DOUBLE, "", Interval(-bound * 1000, bound * 1000)))
    known: KnownIntervals = {}
    text = emit_per_unit_aggregate(DUCKDB_COMPILER, PerUnitAggregate(function, column), named, known)
    chance = random.Random(f"{function}{bound}")
    with duckdb.connect() as engine:

        def answer(values: list[float]) -> float:
            told = ", ".join(
                f"({number}, CAST('{value!r}' AS DOUBLE))" for number, value in enumerate(values)
            )
            (found,) = engine.execute(f"SELECT {text} FROM (VALUES {told}) AS t(i, x)").fetchall()[0:1][0]
            return float(found)

        for _ in range(20):
            values = [bound * chance.uniform(-1, 1) * 2.0 ** -chance.randrange(20) for _ in range(9)]
            assert answer(values[:1]) == values[0]
            once = answer(values)
            chance.shuffle(values)
            exact = math.fsum(values) / (1 if function == "sum" else len(values))
            assert answer(values) == once == pytest.approx(exact, rel=1e-12, abs=bound * 1e-20)
        odd = answer([math.inf, -math.inf, math.nan, 1.7e308, -1.7e308, bound])
        assert abs(odd) <= bound * 1.001
