"""Flat chains of UNION ALL: many queries side by side are no deep query, and mean what they mean in DuckDB."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.sql.lower.derived_tables import MAX_CHAIN, MAX_UNION_ALL

RELEASED = [f"SELECT {i} AS k, COUNT(*) AS n FROM visits WHERE region = {i % 3}" for i in range(127)]
PRIVATE = [f"SELECT patient_id, age + {i} AS x FROM visits WHERE age IS NOT NULL" for i in range(127)]
MIXED = ["NULL", "1", "2.5", "CAST(3 AS DOUBLE)", "0.125"]


@pytest.mark.parametrize(
    "query",
    [
        " UNION ALL ".join(RELEASED) + " ORDER BY k",
        f"SELECT COUNT(*), COUNT(DISTINCT patient_id) FROM ({' UNION ALL '.join(PRIVATE)}) AS q",
        f"SELECT COUNT(*) FROM visits JOIN ({' UNION ALL '.join(f'SELECT {i} AS i' for i in range(127))}) AS q ON age = i",
        " UNION ALL ".join(f"SELECT {MIXED[i % 5]} AS x, {i} AS i" for i in range(60)) + " ORDER BY i",
        f"SELECT SUM(n) FROM ({' UNION ALL '.join(RELEASED[:50])}) AS q WHERE k > 3",
    ],
    ids=["released", "private", "public", "mixed types", "filtered"],
)
def test_long_chains_mean_what_duckdb_answers(
    connection: Connection, plain: duckdb.DuckDBPyConnection, query: str
) -> None:
    """127 queries in one chain are answered, with DuckDB's rows."""
    answered = connection.query(query, replay=False).rows
    assert [tuple(row) for row in answered] == plain.execute(query).fetchall()


def test_row_keeps_its_place_without_order_by(connection: Connection) -> None:
    """The rows come in the order of the queries."""
    rows = connection.query(" UNION ALL ".join(f"SELECT {i} AS i" for i in range(100))).rows
    assert [tuple(row) for row in rows] == [(i,) for i in range(100)]


@pytest.mark.parametrize(
    ("words", "number", "limit"),
    [("UNION ALL", 300, MAX_UNION_ALL), ("UNION", 127, MAX_CHAIN + 1), ("INTERSECT", 127, MAX_CHAIN + 1)],
)
def test_too_long_a_chain_is_refused_as_a_chain(
    connection: Connection, words: str, number: int, limit: int
) -> None:
    """The refusal names the number of queries and no depth: nothing is nested."""
    with pytest.raises(
        dpsql.QueryRejected, match=f"at most {limit} queries, and this one has {number}"
    ) as caught:
        connection.explain(f" {words} ".join(f"SELECT {i} AS i" for i in range(number)))
    assert caught.value.code == "too_long"
