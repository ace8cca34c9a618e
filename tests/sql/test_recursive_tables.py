"""WITH RECURSIVE over constants: its rows are DuckDB's, they read nothing private, and their work is bounded before a charge."""

from __future__ import annotations

import random
import time
from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from tests.sql.study import prepare

SERIES = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < {}) "


def _draw(seed: int) -> str:
    """Draw a recursive query of two columns, that ends."""
    choose = random.Random(seed)
    firsts = " UNION ALL ".join(
        f"SELECT {choose.choice(['0', '1', '-3', 'CAST(NULL AS INTEGER)'])}, {choose.choice(['2', '5', 'CAST(NULL AS INTEGER)'])} "
        f"{choose.choice(['', 'FROM regions', 'WHERE FALSE'])}"
        for _ in range(choose.randint(1, 3))
    )
    first = choose.choice(
        ["a + 1", "b", "a + b", "CASE WHEN a > 3 THEN NULL ELSE a + 2 END", "7", "a * 2 + 1"]
    )
    second = choose.choice(["b", "b + 1", "a", "a - b", "COALESCE(b, 1) + 1"])
    distinct = choose.random() < 0.3
    kept = choose.choice(
        [
            "a BETWEEN -20 AND 20 AND b BETWEEN -20 AND 30",
            "a BETWEEN -20 AND 20 AND b % 7 <> 3 AND b > -20",
            "COALESCE(a, b, 99) BETWEEN -9 AND 9 AND b BETWEEN -9 AND 9",
        ]
    )
    counted = "c + 1" if not distinct or choose.random() < 0.5 else "(c + 1) % 4"
    return (
        f"WITH RECURSIVE t(a, b, c) AS (SELECT *, 0 FROM ({firsts}) UNION {'' if distinct else 'ALL '}"
        f"SELECT {first}, {second}, {counted} FROM t WHERE {kept}{'' if distinct and '%' in counted else ' AND c < 6'}) SELECT a, b, c FROM t"
    )


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, seed: int
) -> None:
    """Under NULLs, repeated rows, rows that end at once and UNION that drops what was there, the rows are DuckDB's."""
    query = _draw(seed)
    ours = Counter(tuple(row) for row in connection.query(query).rows)
    assert ours == Counter(plain.execute(query).fetchall()), query


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE t(n) AS (SELECT age FROM visits UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT COUNT(n) FROM t",
        "WITH RECURSIVE t(n) AS (SELECT MAX(age) FROM visits UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT COUNT(n) FROM t",
        "WITH RECURSIVE v AS (SELECT COUNT(*) AS n FROM visits), t(n) AS (SELECT n FROM v UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t, visits WHERE n < 9) SELECT COUNT(n) FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < (SELECT MAX(age) FROM visits)) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE EXISTS (SELECT * FROM visits)) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT (SELECT COUNT(*) FROM visits) UNION ALL SELECT n + 1 FROM t WHERE n < 9) SELECT n FROM t",
        "WITH RECURSIVE visits AS (SELECT * FROM visits) SELECT COUNT(*) FROM visits",
        "WITH RECURSIVE t(n) AS (SELECT n FROM t UNION ALL SELECT 1) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT MAX(n) FROM t) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT a.n FROM t a, t b) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL (WITH u AS (SELECT * FROM t) SELECT n FROM u)) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 INTERSECT SELECT n FROM t) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 0.1 UNION ALL SELECT n + 0.1 FROM t WHERE n < 1) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 'a' UNION ALL SELECT n || n FROM t WHERE LENGTH(n) < 9) SELECT n FROM t",
    ],
)
def test_what_is_private_or_may_grow_is_refused(connection: Connection, query: str) -> None:
    """Private rows, released values, joins, subqueries, aggregates, fractions and computed texts are refused."""
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(connection, query)
    assert refused.value.code in ("constant", "subquery")
    assert refused.value.hint


def test_later_table_of_a_recursive_with_is_refused(connection: Connection) -> None:
    """A name means a later query in PostgreSQL, and the declared table in DuckDB."""
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(
            connection,
            "WITH RECURSIVE a AS (SELECT * FROM visits), visits AS (SELECT 1 AS n) SELECT COUNT(*) FROM a",
        )
    assert refused.value.code == "ambiguous"


@pytest.mark.parametrize(
    "query",
    [
        SERIES.format("n + 2") + "SELECT n FROM t",
        SERIES.format(20_000) + "SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n * 2 FROM t) SELECT n FROM t",
        "WITH RECURSIVE t(n) AS (SELECT id FROM regions, range(2000) UNION ALL SELECT n FROM t) SELECT n FROM t",
        "WITH RECURSIVE t(d) AS (SELECT DATE '2024-01-01' UNION ALL SELECT d + 1000000 FROM t) SELECT d FROM t",
        f"WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT COALESCE({', '.join(['n % 3'] * 300)}) FROM t) SELECT n FROM t",
        f"WITH RECURSIVE t(s) AS (SELECT '{'a' * 101}' UNION ALL SELECT s FROM t) SELECT s FROM t",
    ],
)
def test_recursion_without_an_end_is_refused_soon(connection: Connection, query: str) -> None:
    """Rows, steps, numbers and operations are bounded before the first step."""
    begun = time.process_time()
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(connection, query)
    assert refused.value.code == "too_long"
    assert time.process_time() - begun < 3  # a second on an idle machine


def test_recursions_of_a_statement_share_their_work(connection: Connection) -> None:
    """Many recursive queries of one statement take no more work than one may."""
    tables = ", ".join(
        f"t{i}(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t{i} WHERE n < {9_000 + i})" for i in range(40)
    )
    read = " UNION ALL ".join(f"SELECT COUNT(*) FROM t{i}" for i in range(40))
    begun = time.process_time()
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(connection, f"WITH RECURSIVE {tables} {read}")
    assert refused.value.code == "too_long"
    assert time.process_time() - begun < 5


def test_recursive_table_beside_private_rows(
    connection: Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    """A calendar keeps the days without rows, as any public table; it is charged as the count that it is joined with."""
    query = (
        "WITH RECURSIVE days(d) AS (SELECT DATE '2026-01-01' UNION ALL SELECT d + 1 FROM days WHERE d < DATE '2026-01-20') "
        "SELECT d, COUNT(v.patient_id) AS n FROM days LEFT JOIN visits v ON v.day = d GROUP BY d ORDER BY d"
    )
    assert prepare(connection, query).tables == ("visits",)
    assert [tuple(row) for row in connection.query(query).rows] == plain.execute(query).fetchall()


@pytest.mark.parametrize("dialect", ["tsql", "snowflake"])
def test_dialects_without_the_word_read_their_own_rows(connection: Connection, dialect: str) -> None:
    """In T-SQL and Snowflake a query that reads itself is recursive, also where a table has its name."""
    for name in ("t", "visits"):
        query = f"WITH {name} AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM {name} WHERE n < 4) SELECT n FROM {name} ORDER BY n"
        assert [row[0] for row in connection.query(query, dialect=dialect).rows] == [1, 2, 3, 4]
