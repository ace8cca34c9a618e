"""What people and their tools write, phrase by phrase, means what it means to DuckDB, on private rows with NULLs and duplicates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql

SCHEMA = """
    CREATE TABLE people AS
    SELECT i AS id, ['a', 'b', 'c'][1 + i % 3] AS plan, CASE WHEN i % 7 > 0 THEN 20 + i % 50 END AS age FROM range(300) r(i);
    CREATE TABLE sales AS
    SELECT i % 300 AS id, i // 3 AS ticket, i % 3 AS item, CASE WHEN i % 5 > 0 THEN i % 40 END AS price, i % 4 AS store,
           DATE '2024-01-01' + CAST(i % 90 AS INTEGER) AS day
    FROM range(1800) r(i);
    CREATE TABLE refunds AS SELECT id, ticket, item, price AS amount FROM sales WHERE ticket % 4 = 1;
    CREATE TABLE stores (store BIGINT, city VARCHAR, size DOUBLE);
    INSERT INTO stores VALUES (0, 'Bonn', 5), (1, 'Cork', NULL), (2, 'Bonn', 7), (3, 'Cork', 2), (9, NULL, 1);
"""
WHOLE = {"type": "integer", "nullable": False}
PRICE = {"type": "integer", "bounds": [0, 39]}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e12, "delta": 1e-6},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "id": WHOLE,
                "plan": {"type": "varchar", "values": ["a", "b", "c"], "nullable": False},
                "age": {"type": "integer", "bounds": [20, 69]},
            },
        },
        "sales": {
            "link": {"column": "id", "references": "people.id"},
            "rows_per_unit": 6,
            "columns": {
                "id": WHOLE,
                "ticket": WHOLE,
                "item": WHOLE,
                "price": PRICE,
                "store": {"type": "integer", "values": [0, 1, 2, 3], "nullable": False},
                "day": {"type": "date", "bounds": ["2024-01-01", "2024-03-30"], "nullable": False},
            },
        },
        "refunds": {
            "unit": "id",
            "links": [{"columns": ["ticket", "item"], "references": ["sales.ticket", "sales.item"]}],
            "rows_per_unit": 6,
            "columns": {"id": WHOLE, "ticket": WHOLE, "item": WHOLE, "amount": PRICE},
        },
        "stores": {"public": True},
    },
}

PHRASES = {
    "1 link of several columns": "SELECT COUNT(*), SUM(amount) FROM sales s JOIN refunds r ON s.ticket = r.ticket AND s.item = r.item",
    "1 link in WHERE": "SELECT COUNT(*) FROM sales s, refunds r WHERE (s.ticket = r.ticket) AND s.item = r.item AND s.price > 3",
    "1 link with further conditions": "SELECT COUNT(*) FROM sales s JOIN refunds r ON (s.ticket = r.ticket AND s.item = r.item AND r.amount > 10)",
    "1 LEFT JOIN on a link": "SELECT COUNT(*), COUNT(r.amount) FROM sales s LEFT JOIN refunds r ON s.ticket = r.ticket AND s.item = r.item",
    "1 SEMI JOIN on a link": "SELECT COUNT(*) FROM sales s SEMI JOIN refunds r ON s.ticket = r.ticket AND s.item = r.item",
    "1 ANTI JOIN on a link": "SELECT COUNT(*) FROM sales s ANTI JOIN refunds r ON s.ticket = r.ticket AND s.item = r.item",
    "1 EXISTS on a link": "SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM refunds r WHERE s.ticket = r.ticket AND s.item = r.item)",
    "1 NOT EXISTS on a link": "SELECT COUNT(*) FROM sales s WHERE NOT EXISTS (SELECT 1 FROM refunds r WHERE s.ticket = r.ticket AND s.item = r.item LIMIT 1)",
    "2 sums in IN": "SELECT COUNT(*) FROM sales WHERE price IN (3, 3 + 1, 3 + 2)",
    "2 days in BETWEEN": "SELECT COUNT(*) FROM sales WHERE day BETWEEN DATE '2024-01-05' AND DATE '2024-01-05' + INTERVAL 30 DAY",
    "2 casts": "SELECT COUNT(*) FROM sales WHERE day > CAST('2024-02-' || '10' AS DATE) AND price > CAST('7' AS INTEGER)",
    "2 the present day": "SELECT COUNT(*) FROM sales WHERE day < current_date",
    "2 functions of constants": "SELECT COUNT(*) FROM sales WHERE price < GREATEST(4, ABS(-7)) AND store = LENGTH('ab')",
    "3 one public row by LIMIT": "SELECT COUNT(*) FROM sales WHERE price > (SELECT size FROM stores WHERE size IS NOT NULL ORDER BY size DESC LIMIT 1)",
    "3 one public row by WHERE": "SELECT COUNT(*) FROM sales WHERE price > (SELECT size FROM stores WHERE store = 0)",
    "3 one public row by DISTINCT": "SELECT COUNT(*) FROM sales WHERE price > (SELECT DISTINCT 5 FROM stores)",
    "4 EXISTS under OR": "SELECT COUNT(*) FROM people p WHERE age > 60 OR EXISTS (SELECT 1 FROM sales s WHERE s.id = p.id AND price > 37)",
    "4 IN under NOT": "SELECT COUNT(*) FROM sales WHERE NOT (store IN (SELECT store FROM stores WHERE size > 4) OR price > 30)",
    "4 EXISTS under CASE": "SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM sales s WHERE s.id = p.id AND price > 37) THEN 1 ELSE 0 END) FROM people p",
    "4 rows of values": "SELECT COUNT(*) FROM sales WHERE (store, item) IN ((1, 2), (2, 0))",
    "4 IN of a column": "SELECT COUNT(*) FROM sales WHERE price IN (store, item)",
    "4 = ANY": "SELECT COUNT(*) FROM sales WHERE store = ANY (SELECT store FROM stores WHERE size > 4)",
    "4 rows of values in a subquery": "SELECT COUNT(*) FROM people WHERE age > 60 OR (id, 0) IN (SELECT id, store FROM sales WHERE price > 30)",
    "5 COUNT over DISTINCT": "SELECT COUNT(*) FROM (SELECT DISTINCT store, item FROM sales)",
    "5 COUNT DISTINCT of a row": "SELECT COUNT(DISTINCT (store, item)), COUNT(DISTINCT price) FROM sales",
    "5 set operations": "SELECT COUNT(*) FROM (SELECT ticket, item FROM sales INTERSECT SELECT ticket, item FROM refunds)",
    "5 SUM and AVG DISTINCT": "SELECT SUM(DISTINCT price), AVG(DISTINCT price), VAR_POP(DISTINCT price) FROM sales",
    "6 first order": "SELECT SUM(price) FROM (SELECT price, ROW_NUMBER() OVER (PARTITION BY id ORDER BY day, ticket, item) AS n FROM sales) WHERE n = 1",
    "6 LAG": "SELECT AVG(gap) FROM (SELECT day - LAG(day) OVER (PARTITION BY id ORDER BY day, ticket, item) AS gap FROM sales)",
    "6 running sums": "SELECT COUNT(*) FROM (SELECT SUM(price) OVER (PARTITION BY id ORDER BY day, ticket, item) AS so_far FROM sales) WHERE so_far > 40",
    "6 QUALIFY": "SELECT COUNT(*) FROM (SELECT id FROM sales QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, ticket, item) = 2)",
    "6 LEAD and sessions": "SELECT COUNT(*), AVG(after) FROM (SELECT LEAD(price) OVER (PARTITION BY id ORDER BY day, ticket, item) AS after, COUNT(price) OVER (PARTITION BY id) AS n FROM sales) WHERE n > 4",
    "6 retention": "SELECT COUNT(*) FROM (SELECT id, MIN(day) AS first, MAX(day) AS last FROM sales GROUP BY id) WHERE last > first + INTERVAL 30 DAY",
    "7 windows over grouping sets": "SELECT plan, COUNT(*), RANK() OVER (ORDER BY COUNT(*) DESC, plan) FROM people GROUP BY ROLLUP (plan)",
    "7 MEDIAN per unit": "SELECT AVG(m) FROM (SELECT id, MEDIAN(price) AS m FROM sales GROUP BY id)",
    "7 STDDEV of released rows": "SELECT STDDEV(n), MEDIAN(n), CORR(n, s) FROM (SELECT store, COUNT(*) AS n, SUM(price) AS s FROM sales WHERE price > store GROUP BY store)",
    "7 quantiles per unit": "SELECT AVG(q) FROM (SELECT id, QUANTILE_CONT(price, 0.25) AS q, STDDEV(price) AS s FROM sales GROUP BY id) WHERE s > 1",
    "7 ranks of ROLLUP": "SELECT plan, GROUPING(plan), RANK() OVER (PARTITION BY GROUPING(plan) ORDER BY SUM(age) DESC) FROM people GROUP BY ROLLUP (plan)",
    "8 more than 8 keys": "SELECT store, city, size, store + 1 AS a, size + 1 AS b, size + 2 AS c, size + 3 AS d, size + 4 AS e, size + 5 AS f, COUNT(*) FROM sales JOIN stores USING (store) GROUP BY ALL",
    "8 keys of one public row": "SELECT store, city, size, COUNT(*) FROM sales JOIN stores USING (store) GROUP BY store, city, size",
    "8 a CTE many times": "WITH t AS (SELECT store, COUNT(*) AS n FROM sales GROUP BY store) SELECT a.store, b.n - c.n FROM t a JOIN t b USING (store) JOIN t c USING (store)",
    "9 a released MIN re-enters": "SELECT AVG(price - lo) FROM sales CROSS JOIN (SELECT MIN(price) AS lo FROM sales)",
    "9 a released value has an interval": "SELECT AVG(LEAST(price, (SELECT MAX(price) FROM sales))) FROM sales",
    "10 schema and catalog": 'SELECT COUNT(*) FROM main.sales, "memory"."main"."stores" AS t WHERE sales.store = t.store',
    "10 A.*": "SELECT COUNT(*) FROM (SELECT a.* FROM (SELECT id, price FROM sales) AS a) WHERE price > 3",
    "10 NATURAL JOIN": "SELECT city, COUNT(*) FROM sales NATURAL JOIN stores GROUP BY city",
    "10 parentheses in FROM": "SELECT COUNT(*) FROM (sales JOIN stores USING (store)) WHERE price > 3",
    "10 ORDER BY in a derived table": "SELECT COUNT(*) FROM (SELECT id FROM sales ORDER BY day, price DESC)",
    "10 generate_series": "SELECT i, COUNT(*) FROM sales JOIN generate_series(0, 1) AS g(i) ON item = i GROUP BY i",
    "10 UNNEST of constants": "SELECT x, COUNT(*) FROM sales, UNNEST([0, 1]) AS u(x) WHERE item = x GROUP BY x",
    "10 PIVOT of public rows": "PIVOT stores ON city IN ('Bonn' AS b, 'Cork') USING SUM(size)",
    "10 names of columns": 'WITH "t" ("k", "v") AS (SELECT plan, age FROM people) SELECT k, COUNT(v) FROM t GROUP BY k',
    "10 an alias hides a column": "SELECT plan, SUM(age) AS age FROM people GROUP BY plan HAVING age > 10 ORDER BY age",
    "10 an alias in WHERE": "SELECT price % 7 AS k, COUNT(*) FROM sales WHERE k > 2 AND k + 1 < store + 6 GROUP BY k",
    "10 an alias in WHERE beside EXISTS": "SELECT COUNT(*) FROM (SELECT id AS i, price AS v FROM sales s WHERE v > 10 AND i IN (SELECT id FROM people WHERE age > 30))",
    "10 an alias in a later item": "SELECT SUM(z) FROM (SELECT price + 1 AS y, y * 2 AS z FROM sales WHERE y > 3)",
    "10 a column comes before an alias": "SELECT price AS store, COUNT(*) FROM sales WHERE store = 2 AND price < 9 GROUP BY price",
    "10 unused CTEs": "WITH nobody AS (SELECT id FROM people) SELECT COUNT(*) FROM sales",
    "10 series": "SELECT i, COUNT(*) FROM sales, range(3) AS r(i) WHERE item = i GROUP BY i",
    "10 VALUES": "SELECT label, COUNT(*) FROM sales JOIN (VALUES (0, 'x'), (1, 'y')) AS v(store, label) USING (store) GROUP BY label",
    "10 PIVOT of released rows": "PIVOT (SELECT store, item % 2 AS odd, COUNT(*) AS n FROM sales WHERE item IN (0, 1) GROUP BY ALL) ON store IN (0 AS a, 1) USING SUM(n)",
    "10 UNPIVOT": "SELECT what, COUNT(*) FROM sales UNPIVOT (v FOR what IN (price, store)) GROUP BY what",
    "10 a boolean is 1": "SELECT COUNT(*) FROM sales WHERE (price > 3) = 1",
    "10 spellings": "SELECT VARIANCE(price), STDDEV_SAMP(price), VAR_POP(price) FROM sales",
    "10 ANY_VALUE": "SELECT store, ANY_VALUE(city), FIRST(size) FROM sales JOIN stores USING (store) GROUP BY store",
    "10 typeof": "SELECT typeof(COUNT(*)) FROM sales",
    "12 average of counts": "SELECT AVG(n), COUNT(*) FROM (SELECT plan, COUNT(*) AS n FROM people GROUP BY plan)",
    "12 LIMIT over groups": "SELECT SUM(n) FROM (SELECT plan, COUNT(*) AS n FROM people GROUP BY plan ORDER BY plan LIMIT 2)",
    "12 the group of NULL": "SELECT age, COUNT(*) FROM people WHERE age IS NULL OR age < 22 GROUP BY age HAVING COUNT(*) > 0",
    "12 COALESCE": "SELECT COALESCE(plan, 'none') AS p, COUNT(*) FROM people GROUP BY p",
    "12 nobody": "SELECT COUNT(*), SUM(age), AVG(age) FROM people WHERE age > 69",
    "12 nobody by FILTER": "SELECT plan, SUM(age) FILTER (WHERE age > 69), COUNT(*) FILTER (WHERE age > 69) FROM people GROUP BY plan",
    "12 another FILTER": "SELECT store, SUM(price) FILTER (WHERE price > 30), COUNT(*) FILTER (WHERE price > 39) FROM sales GROUP BY store",
    "12 a count of NULL": "SELECT store, SUM(price) FILTER (WHERE price > 30), COUNT(CASE WHEN price > 30 THEN NULL END) FROM sales GROUP BY store",
    "12 somebody by FILTER": "SELECT plan, SUM(age) FILTER (WHERE age > 68), COUNT(*) FILTER (WHERE age > 68), COUNT(*) FROM people GROUP BY plan",
}
REFUSED = {
    "1 a join off the unit": (
        "SELECT COUNT(*) FROM sales s JOIN refunds r ON s.ticket = r.ticket",
        "the owner of the data can declare",
        "SELECT COUNT(*) FROM sales s JOIN refunds r ON s.ticket = r.ticket AND s.id = r.id",
    ),
    "6 a window without the unit": (
        "SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY store ORDER BY day) AS n FROM sales) WHERE n = 1",
        "PARTITION BY",
        "SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY id, store ORDER BY day) AS n FROM sales) WHERE n = 1",
    ),
    "10 WIDTH_BUCKET": (
        "SELECT COUNT(*) FROM sales WHERE width_bucket(price, 0, 40, 4) = 2",
        "FLOOR((x - low) / width) + 1",
        "SELECT COUNT(*) FROM sales WHERE FLOOR((price - 0) / 10) + 1 = 2",
    ),
    "10 PIVOT of a private table without GROUP BY": (
        "PIVOT sales ON store IN (0, 1) USING SUM(price)",
        "GROUP BY with the columns to keep",
        "PIVOT (SELECT store, item, price FROM sales WHERE item IN (0, 1, 2)) ON store IN (0, 1) USING SUM(price)",
    ),
}
"""What is refused: the phrase, a part of the hint, and a statement that follows it."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, nearly without noise."""
    with duckdb.connect() as database:
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**8) as connection:
            yield database, connection


@pytest.mark.parametrize("phrase", PHRASES)
def test_rows_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], phrase: str
) -> None:
    """All rows, numbers but for the last digits."""
    check(*both, PHRASES[phrase])


@pytest.mark.parametrize("phrase", REFUSED)
def test_refused_phrases_have_an_accepted_rewrite(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], phrase: str
) -> None:
    """The hint says it, and its answer is DuckDB's."""
    check_refused(*both, *REFUSED[phrase])


def test_sum_alone_does_not_show_an_empty_group(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection],
) -> None:
    """The group of NULL has the sum 0 until a count next to it shows that it is empty."""
    alone, keyed = (
        "SELECT SUM(age) FROM people WHERE age > 69",
        "SELECT age, SUM(age) FROM people WHERE age < 22",
    )
    assert both[1].query(alone).rows == ((0,),)
    assert both[1].query(alone.replace("SUM", "COUNT(*), SUM")).rows == ((0, None),)
    assert None in [row[0] for row in both[1].query(f"{keyed} OR age IS NULL AND id < 0 GROUP BY age").rows]
    counted = f"{keyed} OR age IS NULL AND id < 0 GROUP BY age".replace("SUM", "COUNT(*), SUM")
    assert None not in [row[0] for row in both[1].query(counted).rows]


def check_refused(
    database: duckdb.DuckDBPyConnection, connection: dpsql.Connection, refused: str, hint: str, instead: str
) -> None:
    """A statement is refused with a hint, and what it says to write instead is answered as DuckDB does."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(refused)
    assert hint in str(caught.value.hint)
    check(database, connection, instead)


def check(database: duckdb.DuckDBPyConnection, connection: dpsql.Connection, query: str) -> None:
    """The answer is DuckDB's, numbers but for the last digits."""
    ours = sorted(map(tuple, connection.query(query).rows), key=repr)
    theirs = sorted(database.execute(query).fetchall(), key=repr)
    assert len(ours) == len(theirs), (ours, theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert len(our) == len(their)
        assert all(map(_alike, our, their)), (our, their)


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)
    return bool(a == b)
