"""Windows over rows of several units are released values: the rewritten statement has DuckDB's answer to the original."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.sql.lower.statement_context import CrossingWindow
from dpsql.sql.lower.windows_across_units import rewrite_crossing_window
from dpsql.sql.parse.parse import parse_statement
from dpsql.sql.parse.rejection import QueryText

EXACT = (
    "SELECT k, x, AVG(x) OVER (PARTITION BY k) FROM t",
    "SELECT *, x - MIN(x) OVER () AS above FROM t",
    "SELECT t.*, MAX(x) OVER (PARTITION BY k, y > 2) AS m FROM t",
    "SELECT k, COUNT(*) OVER (PARTITION BY k) + COUNT(y) OVER (PARTITION BY k) AS n FROM t WHERE x > 3",
    "SELECT k, SUM(x) FILTER (WHERE y > 2) OVER (PARTITION BY k) AS s FROM t",
    "SELECT k, MEDIAN(x) OVER w AS m FROM t WINDOW w AS (PARTITION BY k)",
    "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY y ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s FROM t",
    "SELECT k, COUNT(*) FROM (SELECT k, x FROM t QUALIFY x > AVG(x) OVER (PARTITION BY k)) q GROUP BY k",
    "SELECT a.k, COUNT(*) OVER (PARTITION BY a.k) AS n FROM t AS a JOIN t AS b ON a.x = b.x",
    "SELECT k, SUM(x) AS s, AVG(SUM(x)) OVER () AS m FROM t GROUP BY k HAVING COUNT(*) > 1",
    "SELECT DISTINCT k, AVG(x) OVER (PARTITION BY k) AS m FROM t ORDER BY k",
    "SELECT DISTINCT k > 1 AS big, MEDIAN(x) OVER (PARTITION BY k) AS m FROM t",
    "SELECT DISTINCT k, x, COUNT(*) OVER (PARTITION BY k) AS n FROM t",
    "WITH q AS (SELECT k, x, AVG(x) OVER (PARTITION BY k) AS m FROM t) SELECT k, COUNT(*) FROM q WHERE x > m GROUP BY k",
    "SELECT COUNT(*) FROM (SELECT x, AVG(x) OVER (PARTITION BY k) AS a, COUNT(*) OVER () AS n FROM t) q WHERE x > a + n / 9",
)  # fmt: skip
RANKED = (
    "SELECT id, NTILE(4) OVER (ORDER BY u) AS q FROM t",
    "SELECT id, NTILE(3) OVER (ORDER BY u DESC) AS q FROM t",
    "SELECT id, NTILE(3) OVER (ORDER BY v NULLS FIRST) AS q FROM t WHERE v IS NOT NULL",
    "SELECT id, NTILE(2) OVER (PARTITION BY k ORDER BY u) AS q FROM t",
    "SELECT id, NTILE(1) OVER (ORDER BY u) AS q FROM t",
)
SHARES = {
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t WHERE x IS NOT NULL) q WHERE p < 0.3": 0,
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t WHERE x IS NOT NULL) q WHERE p <= 0.3": 0,
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x DESC) AS p FROM t WHERE x IS NOT NULL) q WHERE p < 0.25": 0,
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x DESC) AS p FROM t WHERE x IS NOT NULL) q WHERE NOT p > 0.25": 0,
    "SELECT COUNT(*) FROM (SELECT x FROM t WHERE x IS NOT NULL QUALIFY CUME_DIST() OVER (ORDER BY x) BETWEEN 0.2 AND 0.7) q": 0,
    "SELECT k, COUNT(*) FROM (SELECT k, CUME_DIST() OVER (PARTITION BY k ORDER BY x) AS p FROM t WHERE x IS NOT NULL) q WHERE 0.5 < p GROUP BY k ORDER BY k": 0,
    "SELECT COUNT(*) FROM (SELECT PERCENT_RANK() OVER (ORDER BY u) AS p FROM t) q WHERE p < 0.3": 1,
    "SELECT COUNT(*) FROM (SELECT PERCENT_RANK() OVER (ORDER BY u DESC) AS p FROM t) q WHERE p <= 0.25": 1,
    "SELECT CASE WHEN p < 0.5 THEN 'low' WHEN p >= 0.9 THEN 'top' ELSE 'high' END AS part, COUNT(*) FROM (SELECT PERCENT_RANK() OVER (ORDER BY u) AS p FROM t) q GROUP BY 1 ORDER BY 1": 2,
}  # fmt: skip
"""Statements that compare ranks with shares, and by how many rows the rewritten ones may be off; equal values make it more."""
UNCHANGED = (
    "SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p = 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < 1",
    "SELECT AVG(p) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < x / 10.0",
    "SELECT DISTINCT * FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q(r) WHERE r < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t UNION ALL SELECT x FROM t) q WHERE p < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q JOIN t USING (p) WHERE p < 0.5",
    "SELECT p, COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < 0.5 GROUP BY p",
    "SELECT COUNT(*) FROM (SELECT DISTINCT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q WHERE p < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x) AS p FROM t) q NATURAL JOIN t WHERE p < 0.5",
    "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY x, y) AS p FROM t) q WHERE p < 0.5",
    "SELECT SUM(x) OVER (ORDER BY y) AS s FROM t",
    "SELECT SUM(x) OVER (ORDER BY y ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM t",
    "SELECT SUM(x) OVER (PARTITION BY k ORDER BY y ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS s FROM t",
    "SELECT ROW_NUMBER() OVER (ORDER BY x) AS r FROM t",
    "SELECT LAG(x) OVER (PARTITION BY k ORDER BY y) AS r FROM t",
    "SELECT FIRST_VALUE(x) OVER (PARTITION BY k) AS r FROM t",
    "SELECT RANK() OVER (PARTITION BY k) AS r FROM t",
    "SELECT NTILE(4) OVER (ORDER BY x, y) AS q FROM t",
    "SELECT NTILE(1000) OVER (ORDER BY x) AS q FROM t",
    "SELECT NTILE(x) OVER (ORDER BY x) AS q FROM t",
    f"SELECT NTILE(100) OVER (ORDER BY {' + '.join('x' * 30)}) AS q FROM t",
    f"SELECT {', '.join(f'NTILE(100) OVER (ORDER BY x + {i}) AS q{i}' for i in range(20))} FROM t",
    f"SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY {' + '.join('x' * 30)}) AS p FROM t) WHERE {' OR '.join(f'p < 0.{i}' for i in range(10, 60))}",
    "SELECT AVG(x) OVER (PARTITION BY 1) AS m FROM t",
    "SELECT AVG((SELECT MAX(y) FROM t)) OVER () AS m FROM t",
    "SELECT COLUMNS(*), AVG(x) OVER () AS m FROM t",
    "SELECT AVG(x) OVER () AS m FROM t TABLESAMPLE 10%",
)  # fmt: skip


def _rewrite(text: str) -> exp.Expr | None:
    """Rewrite all windows of a statement, as if all its rows were of several units."""
    tree: exp.Expr = parse_statement(text).query
    for _ in range(9):
        window = next(
            (each for each in tree.find_all(exp.Window) if type(each.this) is not exp.Identifier), None
        )
        if window is None:
            return tree
        named = {str(each.this): each for each in tree.find_all(exp.Window)}
        defined = named.get(str(window.args.get("alias")), window)
        parts = (defined.args.get(name) for name in ("partition_by", "order", "spec"))
        partition, order, frame = parts
        found = rewrite_crossing_window(
            QueryText(text), tree, CrossingWindow(window, partition or [], order, frame, orders_null=False)
        )
        if found is None:
            return None
        tree = found.tree
    return None


def _fill(database: duckdb.DuckDBPyConnection, rows: int, seed: int) -> None:
    """Make a table with keys and values that may be NULL, and with two columns of distinct values, one of which may be NULL."""
    chance = random.Random(seed)
    places = chance.sample(range(1000), rows)

    def draw(most: int) -> int | None:
        return None if chance.random() < 0.2 else chance.randrange(most)

    made = [
        (i, draw(3), draw(10), draw(5), place, place if i % 4 else None) for i, place in enumerate(places)
    ]
    database.execute("CREATE OR REPLACE TABLE t(id INT, k INT, x INT, y INT, u INT, v INT)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", made)


def _as_duckdb(tree: exp.Expr) -> str:
    """Return a rewritten statement in DuckDB's SQL, where QUALIFY needs a window."""
    for qualify in list(tree.find_all(exp.Qualify)):
        if qualify.find(exp.Window) is None:
            qualify.set(
                "this", exp.And(this=qualify.this, expression=exp.maybe_parse("COUNT(*) OVER () > 0"))
            )
    return tree.sql("duckdb")


@pytest.mark.parametrize("text", EXACT)
def test_rewritten_aggregate_has_the_answer_of_the_original(text: str) -> None:
    """DuckDB answers both alike, with NULLs among keys and values, for few rows and for many."""
    rewritten = _rewrite(text)
    assert rewritten is not None
    with duckdb.connect() as database:
        for rows in (1, 2, 3, 5, 17, 60):
            _fill(database, rows, seed=rows)
            theirs = database.execute(text)
            names = [column[0] for column in theirs.description]
            known = Counter(map(str, theirs.fetchall()))
            ours = database.execute(_as_duckdb(rewritten.copy()))
            assert [column[0] for column in ours.description] == names
            assert Counter(map(str, ours.fetchall())) == known, rows


@pytest.mark.parametrize("text", RANKED)
def test_rewritten_ntile_numbers_distinct_values_as_the_original(text: str) -> None:
    """Where the parts are equally long the numbers are the same; otherwise a limit is off by less than the number of parts."""
    rewritten = _rewrite(text)
    assert rewritten is not None
    with duckdb.connect() as database:
        for rows in (1, 2, 3, 12, 24, 25, 61):
            _fill(database, rows, seed=rows)
            if "PARTITION" in text or "IS NOT NULL" in text:
                database.execute("UPDATE t SET k = id % 2, v = u")
            theirs, ours = (
                dict(database.execute(each).fetchall()) for each in (text, rewritten.sql("duckdb"))
            )
            assert theirs.keys() == ours.keys()
            differ = sum(number != ours[key] for key, number in theirs.items())
            assert differ == 0 if rows % 12 == 0 else differ <= 3
            assert all(abs(number - ours[key]) <= 1 for key, number in theirs.items())


@pytest.mark.parametrize(("text", "off"), SHARES.items())
def test_rank_that_is_compared_with_shares_is_a_quantile(text: str, off: int) -> None:
    """CUME_DIST has DuckDB's answer, ties among them; PERCENT_RANK of distinct values is one row off at most."""
    rewritten = _rewrite(text)
    assert rewritten is not None
    with duckdb.connect() as database:
        for rows in (1, 2, 3, 7, 12, 24, 25, 60, 61):
            _fill(database, rows, seed=rows)
            known = {row[:-1]: row[-1] for row in database.execute(text).fetchall()}
            ours = {row[:-1]: row[-1] for row in database.execute(_as_duckdb(rewritten.copy())).fetchall()}
            assert all(abs(known.get(key, 0) - ours.get(key, 0)) <= off for key in {*known, *ours})


@pytest.mark.parametrize("text", UNCHANGED)
def test_window_without_a_released_value_is_left_alone(text: str) -> None:
    """A value that depends on single rows of other units has no release."""
    assert _rewrite(text) is None


def _connect(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    database.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 3 AS k, CASE WHEN i % 5 > 0 THEN i % 50 END AS y FROM range(3000) r(i)"
    )
    columns = {
        "k": {"type": "integer", "values": [0, 1, 2]},
        "y": {"type": "integer", "bounds": [0, 100]},
    }
    return dpsql.connect(
        database,
        policy={
            "version": 1,
            "privacy_unit": "person",
            "budget": {"epsilon": 1e18, "delta": 1e-6},
            "tables": {"t": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
        },
        ledger=":memory:",
        epsilon=10**9,
    )


ANSWERED = (
    "SELECT COUNT(*) AS n FROM (SELECT CUME_DIST() OVER (PARTITION BY k ORDER BY y) AS p FROM t WHERE y IS NOT NULL) WHERE p < 0.503",
    "SELECT k, COUNT(*) AS n FROM (SELECT k, y, AVG(y) OVER (PARTITION BY k) AS m FROM t) WHERE y > m GROUP BY k ORDER BY k",
    "SELECT COUNT(*) AS n FROM (SELECT y FROM t QUALIFY y > AVG(y) OVER ())",
    "SELECT AVG(y) AS m FROM (SELECT y, MIN(y) OVER () AS a, MAX(y) OVER () AS b FROM t) WHERE y NOT IN (a, b)",
    "SELECT DISTINCT k, COUNT(*) OVER (PARTITION BY k) AS n FROM t ORDER BY k",
)  # fmt: skip


@pytest.mark.parametrize("text", ANSWERED)
def test_answer_is_that_of_duckdb(text: str) -> None:
    """Without noise the answer is DuckDB's; a notice says that rows are compared with what is released, where they are."""
    with duckdb.connect() as database, _connect(database) as connection:
        theirs = database.execute(text).fetchall()
        found = connection.query(text)
        assert [tuple(map(float, row)) for row in found.rows] == [tuple(map(float, row)) for row in theirs]
        assert ("DISTINCT" in text) != any("released" in notice for notice in found.notices)


@pytest.mark.parametrize("descending", ["", " DESC"])
@pytest.mark.parametrize("nulls", ["FIRST", "LAST"])
def test_ntile_counts_null_where_it_is_sorted(descending: str, nulls: str) -> None:
    """A fifth of the rows are NULL, and are the first or the last part; a limit is off by one value at most, which 60 rows have."""
    text = f"SELECT q, COUNT(*) AS n, COUNT(y) AS m FROM (SELECT y, NTILE(5) OVER (ORDER BY y{descending} NULLS {nulls}) AS q FROM t) GROUP BY q ORDER BY q"
    with duckdb.connect() as database, _connect(database) as connection:
        theirs = database.execute(text).fetchall()
        found = connection.query(text)
        assert [row[0] for row in found.rows] == [row[0] for row in theirs]
        for ours, known in zip(found.rows, theirs, strict=True):
            assert all(abs(a - b) <= 120 for a, b in zip(ours, known, strict=True))
        assert any("rows with equal values are in one part" in notice for notice in found.notices)


def test_null_keys_of_a_released_source_match() -> None:
    """IS NOT DISTINCT FROM joins each private row to one released row, also with NULL; an equality leaves NULL out."""
    joined = (
        "SELECT COUNT(*) AS n FROM t {} JOIN (SELECT y > 25 AS key, COUNT(*) AS c FROM t GROUP BY y > 25) AS w "
        "ON (y > 25) {} w.key WHERE w.c IS NOT NULL"
    )
    with duckdb.connect() as database, _connect(database) as connection:
        for kind in ("LEFT", "INNER"):
            for equal, rows in (("IS NOT DISTINCT FROM", 3000), ("=", 2400)):
                assert connection.query(joined.format(kind, equal)).rows == ((rows,),)


@pytest.mark.parametrize(
    "condition",
    [
        "k IS DISTINCT FROM w.key",
        "k IS NOT DISTINCT FROM w.key OR k = 1",
        "k IS NOT DISTINCT FROM w.c",
        "TRUE",
    ],
)
def test_released_rows_of_other_keys_are_not_joined(condition: str) -> None:
    """A private row is joined to one released row at most, whatever is released."""
    text = f"SELECT COUNT(*) FROM t LEFT JOIN (SELECT k AS key, COUNT(*) AS c FROM t GROUP BY k) AS w ON {condition}"
    with duckdb.connect() as database, _connect(database) as connection:
        with pytest.raises(dpsql.QueryRejected) as refused:
            connection.explain(text)
        assert refused.value.code == "join"


def test_rank_of_values_that_may_be_null_is_refused() -> None:
    """A NULL is ranked among the rows, and compares with no quantile."""
    text = "SELECT COUNT(*) FROM (SELECT CUME_DIST() OVER (ORDER BY y) AS p FROM t{}) WHERE p < 0.5"
    with duckdb.connect() as database, _connect(database) as connection:
        assert connection.explain(text.format(" WHERE y IS NOT NULL"))
        with pytest.raises(dpsql.QueryRejected) as refused:
            connection.explain(text.format(""))
        assert refused.value.code == "private_window"
