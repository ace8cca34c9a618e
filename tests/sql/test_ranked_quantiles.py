"""Percentiles by numbered rows are quantiles: the rewritten statement has DuckDB's answer to the original at every number of rows."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.sql.lower.ranked_quantiles import rewrite_ranked_quantiles
from dpsql.sql.lower.row_positions import UnknownPositionError, find_share, list_sizes
from dpsql.sql.parse.parse import parse_statement

RANKED = "(SELECT k, x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n, CUME_DIST() OVER (ORDER BY x) AS c FROM t) q"
PARTS = "(SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS r, COUNT(*) OVER (PARTITION BY k) AS n FROM t) q"
REWRITTEN = (
    f"SELECT MIN(CASE WHEN r >= 0.25 * n THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN 0.9 * n <= r THEN x END), MAX(x), AVG(x), COUNT(*) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r < .75 * n THEN 9999 ELSE x END) AS p75 FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= n * 95 / 100.0 THEN q.x ELSE NULL END) FROM {RANKED}",
    f"SELECT MIN(x) FILTER (WHERE r >= CEIL(0.1 * n)) FROM {RANKED}",
    f"SELECT MAX(CASE WHEN r <= CEIL(0.5 * n) THEN x ELSE -1 END) FROM {RANKED}",
    f"SELECT AVG(CASE WHEN r = CEIL(0.5 * n) THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN 1.0 * r / n >= 0.35 THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN CAST(r AS DOUBLE) / n >= 0.5 THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN c >= 0.7 THEN x END) FROM {RANKED}",
    f"SELECT MIN(x) FROM {RANKED} WHERE c >= 0.7",
    f"SELECT MIN(x) AS low FROM {RANKED} WHERE r >= 0.5 * n",
    f"SELECT AVG(x) FROM {RANKED} WHERE r IN (FLOOR((n + 1) / 2.0), CEIL((n + 1) / 2.0))",
    f"SELECT AVG(x) FROM {RANKED} WHERE r IN ((n + 1) // 2, (n + 2) // 2)",
    f"SELECT AVG(x) FROM {RANKED} WHERE r BETWEEN n / 2.0 AND n / 2.0 + 1",
    f"SELECT AVG(x) FROM {RANKED} WHERE r >= n / 2.0 AND r <= n / 2.0 + 1",
    f"SELECT MAX(x) FROM {RANKED} WHERE r = (n + 1) // 2",
    f"SELECT k, MIN(CASE WHEN r >= 0.5 * n THEN x END) AS m FROM {PARTS} GROUP BY k ORDER BY k",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) AS m, k FROM {PARTS} GROUP BY ALL ORDER BY m, k",
    f"SELECT k, AVG(x) FROM {PARTS} WHERE r IN (FLOOR((n + 1) / 2.0), CEIL((n + 1) / 2.0)) GROUP BY 1 HAVING AVG(x) > 3 ORDER BY 1",
    "WITH q AS (SELECT x AS age, ROW_NUMBER() OVER (ORDER BY x, k) AS r, COUNT(x) OVER () AS n FROM t) SELECT MIN(CASE WHEN r >= 0.5 * n THEN age END) FROM q AS w",
    "WITH q AS (SELECT *, ROW_NUMBER() OVER (ORDER BY x) AS r FROM t WHERE k > 0), p AS (SELECT COUNT(*) AS n FROM t WHERE k > 0) SELECT MIN(CASE WHEN r < 0.25 * n THEN 9999 ELSE x END) FROM q CROSS JOIN p",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, (SELECT COUNT(*) FROM t) AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x NULLS FIRST) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN s >= 0.5 THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) * 1.0 / COUNT(*) OVER () AS s FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN s END) FROM (SELECT SUM(x) AS s, ROW_NUMBER() OVER (ORDER BY SUM(x)) AS r, COUNT(*) OVER () AS n FROM t GROUP BY k) AS q",
    f"SELECT a.low + b.high FROM (SELECT MIN(x) AS low FROM {RANKED} WHERE r >= 0.5 * n) AS a, (SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) AS high FROM {RANKED}) AS b",
)
UNCHANGED = (
    f"SELECT MIN(CASE WHEN r > 0.25 * n THEN x END) FROM {RANKED}",
    f"SELECT MAX(CASE WHEN r <= 0.25 * n THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r = FLOOR(0.25 * n) THEN x END) FROM {RANKED}",
    f"SELECT AVG(CASE WHEN r >= 0.25 * n THEN x END) FROM {RANKED}",
    f"SELECT SUM(CASE WHEN r = CEIL(0.5 * n) THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN k END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n AND k > 1 THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x ELSE k END) FROM {RANKED}",
    f"SELECT AVG(CASE WHEN r = CEIL(0.5 * n) THEN x ELSE 0 END) FROM {RANKED}",
    f"SELECT MIN(x), COUNT(*) FROM {RANKED} WHERE r >= 0.5 * n",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM {RANKED} WHERE k > 1",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM {RANKED} WHERE r >= 0.25 * n",
    f"SELECT x FROM {RANKED} WHERE r = CEIL(0.5 * n)",
    f"SELECT MIN(x) FROM {RANKED} WHERE r IN (1, 5)",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= 3",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END), MAX(r) FROM {RANKED}",
    f"SELECT k, MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM {RANKED} GROUP BY k",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM {PARTS}",
    f"SELECT MIN(CASE WHEN r >= 0.123457 * n THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= n / 100 * 95 THEN x END) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN c > 0.7 THEN x END) FROM {RANKED}",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x DESC) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, RANK() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY k) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(k) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER (PARTITION BY k) AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT DISTINCT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t LIMIT 5) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FROM (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, (SELECT COUNT(*) FROM t WHERE k > 1) AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN y END) FROM (SELECT x, k AS y, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) FILTER (WHERE k > 1) FROM {RANKED}",
    f"SELECT MIN(CASE WHEN r >= 0.5 * n THEN x END) OVER () FROM {RANKED}",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= (0.9 * n + 0.9) // 1",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= n // 0.5",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= 0.55 * CAST(n AS DOUBLE)",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= CAST(0.55 AS DOUBLE) * n",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= 0.7 * n / 0.7",
    f"SELECT MIN(x) FROM {RANKED} WHERE r >= n / 20.0 + 0.05",
    "SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) FROM (SELECT * REPLACE (-x AS x), ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) FROM (SELECT * RENAME (k AS x, x AS k), ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t) AS q",
    "WITH q AS (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM t), t AS (SELECT 7 AS x) SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) FROM q",
    "WITH a AS (SELECT x FROM t), q AS (SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r, COUNT(*) OVER () AS n FROM a) SELECT * FROM (WITH a AS (SELECT 7 AS x) SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) FROM q) AS z",
    "SELECT MIN(CASE WHEN r >= 0.9 * n THEN x END) FROM (WITH t AS (SELECT 7 AS x) SELECT x, ROW_NUMBER() OVER (ORDER BY x) AS r FROM t) AS q, (SELECT COUNT(*) AS n FROM t) AS p",
    "SELECT MIN(CASE WHEN r >= 0.5 * n THEN s END) FROM (SELECT ROW_NUMBER() OVER (ORDER BY SUM(x)) AS r, COUNT(*) OVER () AS n, k, SUM(x) AS s FROM t GROUP BY 3) AS q",
)  # fmt: skip


def _rewrite(text: str) -> exp.Expr | None:
    return rewrite_ranked_quantiles(parse_statement(text).query)


@pytest.mark.parametrize("text", REWRITTEN)
def test_rewritten_statement_has_the_answer_of_the_original(text: str) -> None:
    """DuckDB answers both in the same way, for each number of rows up to 45 and for larger ones."""
    rewritten = _rewrite(text)
    assert rewritten is not None
    chance = random.Random(1)
    with duckdb.connect() as database:
        for rows in (*range(1, 46), 199, 200, 1000):
            values = ", ".join(f"({chance.randrange(1, 4)}, {chance.randrange(40)})" for _ in range(rows))
            database.execute(f"CREATE OR REPLACE TABLE t AS SELECT * FROM (VALUES {values}) v(k, x)")
            theirs = database.execute(text).fetchall()
            assert database.execute(rewritten.sql("duckdb")).fetchall() == theirs, rows


@pytest.mark.parametrize("text", UNCHANGED)
def test_statement_of_another_meaning_is_not_rewritten(text: str) -> None:
    """A condition on positions that is no quantile, or rows that are numbered otherwise, are left alone."""
    assert _rewrite(text) is None


def test_names_of_columns_stay() -> None:
    """A column without a name has the name that it has without the rewriting."""
    text = f"SELECT MIN(CASE WHEN r >= 0.25 * n THEN x END), MAX(x), COUNT(*) AS rows FROM {RANKED}"
    rewritten = _rewrite(text)
    assert isinstance(rewritten, exp.Select)
    assert [each.output_name for each in rewritten.selects[:1]] == ["min(CASE WHEN r >= 0.25 * n THEN x END)"]
    assert rewritten.selects[2].alias == "rows"


@pytest.mark.parametrize("q", ["1/4", "1/3", "0.9", "39/40", "1"])
def test_share_of_a_position_is_found(q: str) -> None:
    """CEIL(q * n) is recognized, and FLOOR(q * n) + 1, which differs only where q * n is whole, is not."""
    share = Fraction(q)
    sizes = list_sizes(share.denominator)
    assert find_share([max(1, math.ceil(share * n)) for n in sizes], sizes, share.denominator) == share
    if share < 1:
        with pytest.raises(UnknownPositionError):
            find_share([math.floor(share * n) + 1 for n in sizes], sizes, share.denominator)


def _connect(database: duckdb.DuckDBPyConnection) -> dpsql.Connection:
    database.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 4 AS k, i % 50 AS x, CASE WHEN i % 5 > 0 THEN i % 50 END AS y FROM range(2001) r(i)"
    )
    columns = {
        "k": {"type": "integer", "bounds": [0, 3], "nullable": False},
        "x": {"type": "integer", "bounds": [0, 100], "nullable": False},
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


def test_ranked_rows_are_answered_as_quantiles() -> None:
    """The plan and the answer are those of the statement with QUANTILE_DISC; NULLs that are left out have a notice."""
    with duckdb.connect() as database, _connect(database) as connection:
        ranked = connection.query(f"SELECT MIN(CASE WHEN r >= 0.25 * n THEN x END) AS p FROM {RANKED}")
        plain = connection.query("SELECT QUANTILE_DISC(x, 0.25) AS p FROM (SELECT k, x FROM t) q")
        assert ranked.rows == plain.rows
        assert ranked.columns == plain.columns
        assert not any("NULL are left out" in notice for notice in ranked.notices)
        text = f"SELECT MIN(CASE WHEN r >= 0.25 * n THEN x END) AS p FROM {RANKED.replace('x,', 'y AS x,').replace('ORDER BY x', 'ORDER BY y')}"
        found = connection.query(text)
        assert any("Rows where x is NULL are left out of quantiles" in notice for notice in found.notices)
        assert any("are left out" in notice for notice in connection.explain(text).notices)
        stated = text.replace("FROM t)", "FROM t WHERE y IS NOT NULL)")
        assert not any("NULL are left out" in notice for notice in connection.query(stated).notices)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (UNCHANGED[0], "for a percentile, write QUANTILE_CONT(x, 0.5); for ranks within each unit, OVER (PARTITION BY id …)"),
        (
            "SELECT p, COUNT(*) FROM (SELECT NTILE(4) OVER (ORDER BY x, k) AS p FROM t) GROUP BY p",
            "number the parts by one value, without a tie-break, in at most 100 parts: NTILE(4) OVER (ORDER BY x)",
        ),
    ],
)  # fmt: skip
def test_other_ranks_are_refused_with_quantiles_as_hint(text: str, hint: str) -> None:
    """The hint names the query's own value."""
    with duckdb.connect() as database, _connect(database) as connection:
        with pytest.raises(dpsql.QueryRejected) as refused:
            connection.query(text)
        assert (refused.value.code, refused.value.hint) == ("private_window", hint)
