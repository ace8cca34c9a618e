"""Text constants next to numbers and truth values mean what they mean in DuckDB, or are refused before a charge."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA = """
    CREATE TABLE t AS
    SELECT i AS id, CAST(i % 23 - 4 AS TINYINT) AS n, i % 13 / 10.0::DOUBLE AS d, CAST(i % 13 / 10.0 AS FLOAT) AS f,
           CAST(i % 17 / 10.0 - 0.4 AS DECIMAL(9, 2)) AS p, i % 3 = 0 AS b, DATE '2024-01-01' + CAST(i % 90 AS INTEGER) AS day
    FROM range(300) r(i);
    CREATE TABLE codes AS SELECT i AS n, i * 2 AS twice FROM range(-4, 20) r(i);
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
                "n": {"type": "integer", "bounds": [-4, 20]},
                "d": {"type": "double", "bounds": [0, 2]},
                "f": {"type": "float"},
                "p": {"type": "decimal(9,2)", "bounds": [-1, 2]},
                "b": {"type": "boolean"},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
            },
        },
        "codes": {"public": True},
    },
}
CONDITIONS = (
    *(f"{column} {operator} '{text}'" for column, text in (("n", "7"), ("n", " +7 "), ("n", "0.7e1"), ("n", "-2"), ("n", "7."),
        ("d", "0.3"), ("d", "3e-1"), ("f", "0.3"), ("f", "3e-1"), ("p", "0.30"), ("p", ".3"), ("p", "1"), ("n + 1", "7"), ("n + 0.5", "7.5"),
        ("p * 2", "0.60"), ("n / 2", "3.5"), ("MONTH(day)", "2"), ("id * 9223372036854775807", "0"))
      for operator in ("=", "<>", "<", ">=", "IS DISTINCT FROM")),
    "'7' > n", "n IN ('1', '2', '3')", "n IN (1, '2')", "n NOT IN ('1', '2')", "d IN ('0.1', '0.3')", "f IN ('0.1', '0.3')", "p IN ('0.1', '0.25')",
    "n BETWEEN '2' AND '5'", "f BETWEEN '0.1' AND '0.3'", "d NOT BETWEEN '0.1' AND '0.3'", "CASE n WHEN '3' THEN TRUE ELSE b END",
    "NULLIF(n, '3') IS NULL", "COALESCE(n, '3') = 3", "n = ANY(['3'])", "NULLIF(f, '0.3') IS NULL",
    "b = 'true'", "b <> 'No'", "b IN ('t')", "b IS NOT DISTINCT FROM 'y'", "n = '3' AND b = '1'",
)  # fmt: skip
OTHERS = (
    "SELECT SUM(CASE WHEN n > '6' THEN 1 ELSE 0 END), COUNT(*) FILTER (WHERE d >= '0.5') FROM t",
    "SELECT b, COUNT(*) FROM t GROUP BY b HAVING COUNT(*) > '150'",
    "SELECT COUNT(*) FROM t JOIN codes USING (n) WHERE twice < '10'",
    "SELECT COUNT(*) FROM (SELECT id, SUM(p) AS s FROM t GROUP BY id) WHERE s > '0.5'",
    "SELECT n, COUNT(*) FROM t WHERE n IN ('3', '5') GROUP BY n",
)
REFUSED = {
    "n < '7.5'": "write the number without quotes: 7.5",
    "n IN ('7', '7.5')": "write the number without quotes: 7.5",
    "p = '0.125'": "write the number without quotes: 0.125",
    "n = 'seven'": "write a number without quotes, as 40; or compare texts: CAST(x AS VARCHAR) = 'text'",
    "n = ''": "write a number without quotes, as 40; or compare texts: CAST(x AS VARCHAR) = 'text'",
    "d < '1.5x'": "write a number without quotes, as 40; or compare texts: CAST(x AS VARCHAR) = 'text'",
    "d < 'inf'": "write a number without quotes, as 40; or compare texts: CAST(x AS VARCHAR) = 'text'",
    "b = 'perhaps'": "write TRUE or FALSE",
}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, without noise but in one answer of many."""
    with duckdb.connect() as database:
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**9) as connection:
            yield database, connection


@pytest.mark.parametrize("query", [*(f"SELECT COUNT(*) FROM t WHERE {each}" for each in CONDITIONS), *OTHERS])
def test_quoted_constants_match_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str
) -> None:
    """A text constant has the type of the values next to it, in each comparison and at each of its digits."""
    database, connection = both
    ours, theirs = connection.query(query).rows, database.execute(query).fetchall()
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)


@pytest.mark.parametrize("condition", REFUSED)
def test_other_texts_are_refused_without_a_charge(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], condition: str
) -> None:
    """A text that is not a number, or has more digits than the values, says what to write."""
    _, connection = both
    before = str(connection.budget())
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.query(f"SELECT COUNT(*) FROM t WHERE {condition}")
    assert (refused.value.code, refused.value.hint) == ("constant", REFUSED[condition])
    assert str(connection.budget()) == before


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_any_spelling_match_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], seed: int
) -> None:
    """Random spellings of numbers: what is answered counts the rows that DuckDB counts."""
    database, connection = both
    chance = random.Random(seed)
    for _ in range(10):
        text = f"{chance.choice(('', '-', '+', ' '))}{chance.choice(('7', '0.3', '.50', '12.', '1.25', '03', '1e18'))}{chance.choice(('', '', 'e0', 'E1', 'e-1'))}"
        query = f"SELECT COUNT(*) FROM t WHERE {chance.choice(('n + 0', 'd', 'f', 'p', 'd - f', 'p + n'))} {chance.choice(('=', '<', '>='))} '{text}'"
        try:
            ours = connection.query(query).rows
        except dpsql.QueryRejected:
            continue
        assert ours == tuple(database.execute(query).fetchall()), query
