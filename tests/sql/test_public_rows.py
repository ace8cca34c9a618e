"""Public rows next to private ones: all their groups, in derived tables too, and rows that a window or LIMIT makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.plan.nodes import Values, iterate_sources

SCHEMA = """
    CREATE TABLE sales AS
    SELECT i AS id, i % 30 AS person, ['a', 'b', 'c'][1 + (i * 7) % 3] AS code, i % 5 AS place, i % 40 AS amount FROM range(120) r(i);
    CREATE TABLE products AS
    SELECT * FROM (VALUES ('a', 'Apple', 1, 10), ('b', 'Pear', 1, 20), ('c', 'Plum', 2, 30), ('d', 'Fig', 2, NULL)) v(code, name, class, price);
    CREATE TABLE versions AS
    SELECT * FROM (VALUES ('a', 1, 'old'), ('a', 2, 'new'), ('a', 3, 'new'), ('b', 1, 'new'), ('c', 1, 'old'), ('c', 2, 'new')) v(code, number, state);
"""
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e18, "delta": 1e-6},
    "tables": {
        "sales": {
            "unit": "person",
            "rows_per_unit": 4,
            "columns": {
                "id": {"type": "integer"},
                "code": {"type": "varchar", "values": ["a", "b", "c"]},
                "place": {"type": "integer", "bounds": [0, 4]},
                "amount": {"type": "integer", "bounds": [0, 40]},
            },
        },
        "products": {"public": True},
        "versions": {"public": True},
    },
}
JOIN = "FROM products p LEFT JOIN sales s ON p.code = s.code"
ANSWERED = (
    f"SELECT p.code, p.name, COUNT(s.id) {JOIN} GROUP BY p.code, p.name",
    f"SELECT p.price, COUNT(s.id) AS n {JOIN} GROUP BY p.price",
    f"SELECT AVG(n), COUNT(*) FROM (SELECT p.price, COUNT(s.id) AS n {JOIN} GROUP BY p.price)",
    f"SELECT p.name, p.class, p.price, COUNT(s.id) AS n {JOIN} GROUP BY ALL ORDER BY n DESC, p.name",
    f"SELECT p.class, p.code, p.price + 1 AS next, COUNT(DISTINCT s.person) {JOIN} WHERE p.class > 1 GROUP BY 1, 2, 3",
    f"SELECT UPPER(p.name) AS u, p.code, COUNT(s.id), RANK() OVER (ORDER BY COUNT(s.id) DESC) {JOIN} GROUP BY p.code, UPPER(p.name)",
    f"SELECT p.code, p.class, COUNT(s.id) {JOIN} GROUP BY p.code, p.class HAVING COUNT(s.id) > 1 OR p.class = 2 ORDER BY p.class DESC, p.code LIMIT 3",
    f"WITH x AS (SELECT p.code, COUNT(s.id) AS n {JOIN} GROUP BY p.code) SELECT code, n, RANK() OVER (ORDER BY n) FROM x",
    f"SELECT class, SUM(n), COUNT(*) FROM (SELECT p.class, p.code, COUNT(s.id) AS n {JOIN} AND s.amount > 10 GROUP BY p.class, p.code) GROUP BY class",
    f"SELECT MAX(n) FROM (SELECT p.name, COUNT(s.id) AS n {JOIN} GROUP BY p.name)",
    f"SELECT q.name, x.n FROM products q JOIN (SELECT p.code, p.name, COUNT(s.id) AS n {JOIN} GROUP BY p.code, p.name) x USING (code)",
    f"SELECT COUNT(*) FROM sales WHERE place < (SELECT MAX(n) / 20 FROM (SELECT p.code, COUNT(s.id) AS n {JOIN} GROUP BY p.code))",
    "SELECT COUNT(*) FROM sales s JOIN (SELECT code FROM products ORDER BY price DESC LIMIT 2) q USING (code)",
    "SELECT q.r, COUNT(*), SUM(amount) FROM sales s JOIN (SELECT code, ROW_NUMBER() OVER (ORDER BY name) AS r FROM products) q ON q.code = s.code GROUP BY q.r",
    "WITH v AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY code ORDER BY number DESC) AS r FROM versions) SELECT v.state, COUNT(*) FROM sales s JOIN v ON v.code = s.code AND v.r = 1 GROUP BY v.state",
    "WITH v AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY code ORDER BY number DESC) AS r FROM versions) SELECT v.state, COUNT(*) FROM sales s JOIN v ON v.code = s.code GROUP BY v.state",
    "SELECT COUNT(*) FROM sales s LEFT JOIN (SELECT code, number FROM versions ORDER BY code, number LIMIT 4) v ON v.code = s.code WHERE v.code IS NULL",
    "SELECT COUNT(*) FROM sales s JOIN (SELECT code FROM versions ORDER BY code, number LIMIT 5) v ON v.code = s.code",
    "SELECT COUNT(*) FROM sales s JOIN (SELECT code FROM versions GROUP BY code HAVING COUNT(*) > 1 ORDER BY code LIMIT 9) v ON v.code = s.code",
    "SELECT COUNT(*) FROM sales s JOIN (SELECT AVG(price) OVER (PARTITION BY class) AS m, code FROM products) v ON v.code = s.code WHERE amount < v.m",
    "WITH m AS (SELECT COUNT(*) AS x FROM sales) SELECT code, COUNT(*) - (SELECT x FROM m) FROM sales GROUP BY code",
    "WITH m AS (SELECT AVG(amount) AS x, COUNT(*) AS n FROM sales) SELECT COUNT(*) FROM sales WHERE amount > (SELECT x FROM m) AND place < (SELECT n FROM m)",
    "WITH m AS (SELECT AVG(amount) AS x FROM sales), k AS (SELECT x + 1 AS y FROM m WHERE x > 0) SELECT COUNT(*) FROM sales WHERE amount > (SELECT y FROM k)",
)  # fmt: skip
REFUSED = {
    f"SELECT AVG(n) FROM (SELECT s.person, p.code, COUNT(s.id) AS n {JOIN} GROUP BY s.person, p.code)": "join",
    f"SELECT COUNT(*) FROM (SELECT p.code, s.amount {JOIN})": "join",
    f"SELECT MAX(n) FROM (SELECT s.person, p.code, COUNT(s.id) AS n {JOIN} GROUP BY GROUPING SETS ((s.person), (s.person, p.code)))": "join",
    f"SELECT p.class, p.price > 15 AS dear, COUNT(s.id) {JOIN} GROUP BY ALL": "join",
    "SELECT COUNT(*) FROM sales s JOIN (SELECT x AS amount FROM range(3000) r(x) ORDER BY 1 LIMIT 2000) q USING (amount)": "join",
}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, without noise but in one answer of many."""
    with duckdb.connect() as database:
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**9) as connection:
            yield database, connection


@pytest.mark.parametrize("query", ANSWERED)
def test_answers_match_duckdb(both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str) -> None:
    """All groups of the public table are shown, and each private row meets the rows that SQL joins it to."""
    database, connection = both
    ours = [
        [round(float(x), 3) if isinstance(x, float) else x for x in row]
        for row in connection.query(query).rows
    ]
    theirs = [
        [round(float(x), 3) if isinstance(x, float) else x for x in row]
        for row in database.execute(query).fetchall()
    ]
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)


@pytest.mark.parametrize("query", REFUSED)
def test_rows_of_no_unit_are_refused(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str
) -> None:
    """Groups within units, and combinations of keys that no key determines, are refused before a charge."""
    _, connection = both
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.query(query)
    assert refused.value.code == REFUSED[query]


def test_rows_of_a_public_subquery_count_as_often_as_they_match(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection],
) -> None:
    """A private row that meets three rows counts three times: the bound is that of a join with the same constants."""
    _, connection = both
    texts = (
        "SELECT COUNT(*) FROM sales s JOIN (SELECT code FROM versions ORDER BY code, number LIMIT 5) v ON v.code = s.code",
        "SELECT COUNT(*) FROM sales s JOIN (VALUES ('a'), ('a'), ('a'), ('b'), ('c')) v(code) ON v.code = s.code",
    )
    bounds = []
    for text in texts:
        prepared = connection.explain(text).prepared
        (release,) = (each.release for each in prepared.releases)
        assert any(isinstance(source, Values) for source in iterate_sources(release.input))
        bounds.append(prepared.analyses[release].bound)
    assert bounds[0] == bounds[1]
    assert bounds[0].rows == 3 * 4
