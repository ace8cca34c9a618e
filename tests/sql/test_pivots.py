"""PIVOT and UNPIVOT mean what they mean to DuckDB, on private, released and public rows with NULLs and duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.sql.parse.pivots import MOST_COLUMNS, MOST_PIVOTS

K = {"type": "varchar", "values": ["a", "b", "c"], "nullable": False}
G = {"type": "integer", "values": [0, 1, 2, 3], "nullable": False}
NUMBERS = {"x": {"type": "integer", "bounds": [0, 6]}, "y": {"type": "integer", "bounds": [0, 1]}}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e9, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "u",
            "rows_per_unit": 2,
            "columns": {"u": {"type": "integer"}, "k": K, "g": G, **NUMBERS},
        },
        "p": {"public": True, "columns": {"k": {"type": "varchar"}, "g": {"type": "integer"}, **NUMBERS}},
    },
}
RELEASED = "(SELECT k, g, SUM(x) AS x, COUNT(y) AS y FROM t GROUP BY k, g)"


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, nearly without noise."""
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t AS SELECT i // 2 AS u, ['a', 'b', 'c'][1 + i % 3] AS k, i % 4 AS g, "
            "CASE WHEN i % 5 > 0 THEN i % 7 END AS x, i % 2 AS y FROM range(2400) r(i)"
        )
        database.execute(
            "CREATE TABLE p AS SELECT * FROM (VALUES ('a', 1, 5, NULL), ('a', 1, 5, NULL), ('a', 2, 3, 1), "
            "('b', 1, NULL, 0), (NULL, 1, 3, 1), ('c', 3, 4, NULL)) AS v(k, g, x, y)"
        )
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=1_000_000) as connection:
            yield database, connection


@pytest.mark.parametrize("source", ["t", "p", RELEASED], ids=["private", "public", "released"])
@pytest.mark.parametrize(
    "query",
    [
        "PIVOT {} ON k IN ('a', 'b') USING SUM(x) GROUP BY g",
        "PIVOT {} ON k IN ('a', 'c') USING SUM(x) AS s, COUNT(*) AS n GROUP BY g",
        "PIVOT {} ON g IN (1, 2) GROUP BY k",
        "PIVOT {} ON k IN ('a' AS one, 'b') USING SUM(x) GROUP BY g ORDER BY g",
        "PIVOT {} ON k IN ('a', 'b' AS \"b b\"), y IN (0, 1) USING COUNT(x) AS m, COUNT(*) AS n GROUP BY g",
        "SELECT * FROM {} PIVOT (COUNT(x) FOR k IN ('a', 'b') y IN (1) GROUP BY g)",
        "WITH w AS (SELECT g, k, x FROM {} AS t) PIVOT w ON k IN ('a') USING SUM(x) ORDER BY g DESC NULLS LAST LIMIT 2",
        "SELECT *, COUNT(*) AS n FROM (SELECT k, g FROM {} AS t) GROUP BY ALL",
        "PIVOT {} ON k IN ('a') USING COUNT(DISTINCT y) GROUP BY g",
        "SELECT w.g, bb + 1 AS more FROM {} PIVOT (MAX(x) FOR k IN ('a', 'b' AS bb) GROUP BY g) AS w WHERE w.a > 0",
        "WITH w AS (PIVOT {} ON k IN ('a') USING SUM(x) GROUP BY g) SELECT COUNT(*) AS n, SUM(a) AS a FROM w",
        "SELECT what, SUM(v) AS s, COUNT(*) AS n FROM {} UNPIVOT (v FOR what IN (x, y)) GROUP BY what",
        "SELECT name, COUNT(*) AS n FROM (UNPIVOT {} ON x, y) GROUP BY name",
        "PIVOT (SELECT g, k, x FROM {} AS t) ON k IN ('a', 'b') USING SUM(x)",
        "SELECT * FROM (SELECT k, x FROM {} AS t) PIVOT (SUM(x) FOR k IN ('a', 'b'))",
        "SELECT name, COUNT(*) AS n FROM (UNPIVOT {} ON X, Y) GROUP BY name",
        "SELECT n, COUNT(*) AS c, COUNT(v) AS h FROM {} UNPIVOT INCLUDE NULLS (v FOR n IN (x AS 'ex', y)) GROUP BY n",
    ],
)
def test_rows_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str, source: str
) -> None:
    """The names of columns, and all values."""
    database, connection = both
    sql = query.format(source)
    theirs = database.execute(sql)
    names, rows = [column[0] for column in theirs.description], theirs.fetchall()
    ours = connection.query(sql)
    assert list(ours.columns) == names
    assert sorted(map(tuple, ours.rows), key=repr) == sorted(rows, key=repr)


VALUES = "(VALUES ('a', 1, 5), ('a', 1, 5), ('b', 1, NULL), ('c', NULL, 2)) AS v(k, g, x)"


@pytest.mark.parametrize("source", ["p", VALUES, RELEASED], ids=["public", "values", "released"])
@pytest.mark.parametrize(
    "query",
    [
        "PIVOT {} ON k IN ('a', 'b') USING SUM(x)",
        "PIVOT {} ON k IN ('a'), g IN (1, 2) USING COUNT(x)",
        "SELECT * FROM {} PIVOT (SUM(x) FOR k IN ('a', 'b' AS two))",
        "SELECT n, v FROM {} UNPIVOT (v FOR n IN (x, g))",
        "SELECT * EXCLUDE (x), SUM(x) AS s FROM {} GROUP BY ALL",
    ],
)
def test_all_other_columns_are_the_groups(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str, source: str
) -> None:
    """A pivot of no private table groups by them without GROUP BY."""
    test_rows_are_those_of_duckdb(both, query, source)


def test_grouping_a_private_table_by_all_other_columns_is_refused(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection],
) -> None:
    """The database may have more columns than the policy, and has those of the unit."""
    with pytest.raises(dpsql.QueryRejected, match="the column of the privacy unit included") as caught:
        both[1].explain("PIVOT t ON k IN ('a') USING SUM(x)")
    assert caught.value.code == "group_by"


def test_released_rows_are_released_once(both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection]) -> None:
    """One release serves any number of columns that become rows."""
    _, connection = both
    explained = connection.explain(f"UNPIVOT {RELEASED} ON x, y")
    assert len(explained.prepared.releases) == 1


def columns(number: int) -> str:
    return ", ".join(f"c{place}" for place in range(number))


def nested(times: int) -> str:
    """UNPIVOT of UNPIVOT, of few columns: each writes out the one within it once a column."""
    return f"(UNPIVOT {nested(times - 1)} ON {columns(MOST_COLUMNS)})" if times else "p"


@pytest.mark.parametrize(
    "source",
    [
        nested(MOST_PIVOTS),
        nested(2),
        f"(UNPIVOT p ON {columns(MOST_COLUMNS + 1)})",
        ", ".join(["(UNPIVOT p ON x, y)"] * (MOST_PIVOTS + 1)),
    ],
    ids=["nested", "twice", "columns", "many"],
)
def test_short_text_makes_no_endless_query(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], source: str
) -> None:
    """Within each limit alone a text could fill the memory, and keep others waiting."""
    _, connection = both
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(f"SELECT COUNT(*) FROM {source}")
    assert caught.value.code == "too_long"
