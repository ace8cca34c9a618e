"""DECIMAL columns: what is asked of them has the value and the type that DuckDB's answer has, to the last digit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.base_connection import NUMBER
from dpsql.interfaces.shell.answers import AnswerFormat, View, format_answer
from dpsql.results import json_format

SCHEMA = """
    CREATE TABLE t AS
    SELECT i % 300 AS id, CAST(CASE WHEN i % 9 > 0 THEN (i % 1000) / 10.0 END AS DECIMAL(7, 2)) AS d,
           CAST((i % 5) / 10.0 AS DECIMAL(3, 1)) AS e, CAST(i % 100 + 0.123 AS DECIMAL(18, 3)) AS w, i % 7 AS n,
           CAST((i % 1000) * 9999.99 AS DECIMAL(12, 2)) AS b
    FROM range(1800) r(i);
    CREATE TABLE rates AS SELECT CAST(i / 10.0 AS DECIMAL(4, 2)) AS rate FROM range(4) r(i);
"""
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e15, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "id",
            "rows_per_unit": 6,
            "columns": {
                "d": {"type": "numeric(7,2)", "bounds": [0, 100]},
                "e": {"type": "decimal(3,1)", "values": [0, 0.1, 0.2, 0.3, 0.4], "nullable": False},
                "w": {"type": "decimal(18,3)", "bounds": [0, 100], "nullable": False},
                "b": {"type": "numeric(12,2)", "bounds": [0, 10_000_000], "nullable": False},
                "n": {"type": "integer", "bounds": [0, 6], "nullable": False},
            },
        },
        "rates": {"public": True},
    },
}
QUERIES = (
    "SELECT COUNT(*), SUM(d), MIN(d), MAX(d), SUM(w), MIN(w) FROM t",
    "SELECT SUM(b), SUM(b - 0.01), MAX(b) FROM t",
    "SELECT e, SUM(d) FROM t GROUP BY e",
    "SELECT DISTINCT e FROM t",
    "SELECT SUM(d * e), SUM(d + e), SUM(d * 2), SUM(d - 1.5), SUM(DISTINCT e) FROM t",
    "SELECT SUM(d) * 2, SUM(d) + 0.5, ROUND(SUM(d), 1), TRUNC(SUM(d) * 0.5, 1), ROUND(SUM(d)), SUM(d) % 100 FROM t",
    "SELECT CAST(SUM(d) AS DECIMAL(20, 1)), CAST(SUM(d) AS BIGINT), CAST(SUM(d) AS VARCHAR) FROM t",
    "SELECT -SUM(d), ABS(SUM(d)), GREATEST(SUM(d), SUM(e)), COALESCE(SUM(d), 0), NULLIF(SUM(d), 0) FROM t",
    "SELECT typeof(SUM(d)), typeof(AVG(d)), typeof(MAX(d)), typeof(SUM(d) / 2) FROM t",
    "SELECT SUM(d) FILTER (WHERE e > 0.2), COUNT(*) FROM t",
    "SELECT e, SUM(d), SUM(SUM(d)) OVER (), LAG(SUM(d)) OVER (ORDER BY e), RANK() OVER (ORDER BY SUM(d)) FROM t GROUP BY e",
    "SELECT e, SUM(d) FROM t GROUP BY ROLLUP (e)",
    "SELECT SUM(s), MAX(s) FROM (SELECT e, SUM(d) AS s FROM t GROUP BY e)",
    "SELECT (SELECT SUM(d) FROM t) AS x, COUNT(*) FROM t",
    "SELECT 'd' AS what, SUM(d) FROM t UNION ALL SELECT 'w', SUM(w) FROM t",
    "SELECT e, SUM(d) FROM t GROUP BY e HAVING SUM(d) * 0.1 >= 1456.4",
    "SELECT SUM(s) FROM (SELECT id, SUM(d) AS s FROM t GROUP BY id)",
    "SELECT SUM(g) FROM (SELECT d - LAG(d) OVER (PARTITION BY id ORDER BY d, w) AS g FROM t)",
    "SELECT COUNT(*) FROM (SELECT id, SUM(e) AS s FROM t GROUP BY id) WHERE s = 1.2",
    "SELECT s, COUNT(*) FROM (SELECT id, SUM(e) AS s FROM t GROUP BY id) GROUP BY s",
    "SELECT e + 0.10 AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT e * 3 + e AS k, COUNT(*) FROM t GROUP BY e * 3 + e",
    "SELECT CASE WHEN d > 50 THEN e ELSE 0 END AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT k, COUNT(*) FROM (SELECT e + 0.2 AS k FROM t) GROUP BY k",
    "SELECT CAST(e + 0.25 AS VARCHAR) AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT 'rate ' || e AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT COUNT(*) FROM t WHERE e * 3 <= 0.3",
    "SELECT COUNT(*) FROM t WHERE e * 3 >= 0.9 AND e + 0.2 BETWEEN 0.3 AND 0.5",
    "SELECT COUNT(*) FROM t WHERE e + 0.2 = 0.3 OR e * 3 IN (0.3, 0.6)",
    "SELECT COUNT(*) FROM (SELECT e + 0.2 AS k FROM t) WHERE k > 0.3",
    "SELECT COUNT(*) FROM t WHERE d % 0.1 = 0 AND (e * 3) % 0.2 = 0.1",
    "SELECT COUNT(*) FROM t WHERE n * 0.1 <= 0.3",
    "SELECT COUNT(DISTINCT e + 0.2), COUNT(DISTINCT e * 3 - e), COUNT(DISTINCT w) FROM t",
    "SELECT COUNT(*) FROM (SELECT DISTINCT e * 3 AS k, n FROM t)",
    "SELECT COUNT(*) FROM t WHERE CAST(d AS VARCHAR) LIKE '%.50'",
    "SELECT COUNT(*) FROM t JOIN rates ON rate = e",
    "SELECT rate, SUM(d) FROM t JOIN rates ON rate = e * 1 GROUP BY rate",
    "SELECT SUM(d * rate) FROM t JOIN rates ON rate = e",
    "SELECT rate, rate * 2, rate + 1 FROM rates",
    "SELECT SUM(rate), MIN(rate), COUNT(DISTINCT rate) FROM rates",
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, without noise but in one answer of many."""
    with duckdb.connect() as database:
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**12) as connection:
            yield database, connection


@pytest.mark.parametrize("query", QUERIES)
def test_values_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str
) -> None:
    """Every digit, and the type of each value: sums are exact, equal decimals are one group, and 0.1 * 3 is 0.3."""
    database, connection = both
    found, expected = connection.query(query), database.execute(query)
    ours, theirs = (sorted(rows, key=repr) for rows in (found.rows, expected.fetchall()))
    assert ours == theirs
    assert [list(map(type, row)) for row in ours] == [list(map(type, row)) for row in theirs]


def test_column_types_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection],
) -> None:
    """Columns, sums and extremes: the digits that DuckDB says; of what is computed, 38."""
    database, connection = both
    query = "SELECT e, SUM(d) AS s, MAX(d) AS m, AVG(d) AS a FROM t GROUP BY e"
    types = connection.query(query).types
    assert list(types) == [str(kind) for _, kind, *_ in database.execute(query).description]
    assert connection.query("SELECT SUM(d) * 0.5 FROM t").types == ("DECIMAL(38,3)",)
    cursor = connection.cursor()
    cursor.execute(query)
    assert [column[1] == NUMBER for column in cursor.description or ()] == [True] * 4


def test_noise_has_the_last_digit_as_its_step(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection],
) -> None:
    """A noisy sum has as many digits after the point as the column, and its interval is about it.

    Its noise is none with a probability of about 10^-8.
    """
    _, connection = both
    result = connection.query("SELECT SUM(d) FROM t", epsilon=0.001)
    ((value,),), (((low, high),),) = result.rows, result.intervals()
    assert isinstance(value, Decimal)
    assert value.as_tuple().exponent == -2
    assert low < value < high
    assert value != Decimal("72800.00")


def test_every_interface_shows_decimals(both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection]) -> None:
    """Frames, Arrow, JSON, CSV and the table that is printed."""
    _, connection = both
    result = connection.query("SELECT e, SUM(d) AS s FROM t GROUP BY e ORDER BY e LIMIT 2")
    exact = [(Decimal("0.0"), Decimal("14500.00")), (Decimal("0.1"), Decimal("14492.00"))]
    assert list(result.rows) == exact
    table = result.to_arrow_table()
    assert [str(field.type) for field in table.schema] == ["decimal128(3, 1)", "decimal128(38, 2)"]
    assert table.to_pydict() == {"e": [row[0] for row in exact], "s": [row[1] for row in exact]}
    assert result.pl().rows() == exact
    assert [str(kind) for kind in result.df().dtypes] == ["float64", "float64"]
    assert "14,500.00" in str(result)
    assert format_answer(result, AnswerFormat.CSV, View()).splitlines()[1].startswith("0.0,14500.00,")
    assert json.loads(format_answer(result, AnswerFormat.JSON, View()))["rows"][1]["s"] == 14492
    again = json_format.read_answer(
        json.loads(json.dumps(json_format.write_answer(result, [0.95]))), lambda _: ()
    )
    assert again.rows == result.rows
    assert again.types == result.types
