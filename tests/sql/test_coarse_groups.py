"""Sums over released groups are sums over their rows: the same values, also of groups that are not released."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.plan.steps import list_releases
from dpsql.policy.request.query import Query

_TABLE = """
    CREATE TABLE sales (who BIGINT, shop VARCHAR, kind VARCHAR, region VARCHAR, day DATE, qty INTEGER, cost DOUBLE);
    INSERT INTO sales
    SELECT i % 40, CASE WHEN i % 11 = 0 THEN NULL ELSE 'shop ' || i % 7 END, ['a', 'b', NULL][i % 3 + 1],
           ['n', 's'][i % 2 + 1], DATE '2026-01-01' + CAST(i % 60 AS INTEGER), CASE WHEN i % 5 = 0 THEN NULL ELSE i % 9 END,
           CASE WHEN i % 3 = 2 OR i % 4 = 0 THEN NULL ELSE i % 13 * 0.5 END
    FROM range(400) AS r(i);
    INSERT INTO sales SELECT who, shop, kind, region, day, qty, cost FROM sales WHERE shop = 'shop 3';
    INSERT INTO sales SELECT 99, 'rare ' || i, 'rare', 'n', DATE '2026-03-01', 8, 6 FROM range(3) AS r(i);
"""
"""Doubled rows, groups whose values are all NULL, groups of one unit, and keys that are NULL."""
_POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "sales": {
            "unit": "who",
            "rows_per_unit": 40,
            "columns": {
                "shop": {"type": "varchar"},
                "kind": {"type": "varchar"},
                "region": {"type": "varchar", "values": ["n", "s"], "nullable": False},
                "day": {"type": "date", "bounds": ["2026-01-01", "2026-03-31"]},
                "qty": {"type": "integer", "bounds": [0, 9]},
                "cost": {"type": "double", "bounds": [0, 10]},
            },
        }
    },
}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """The sales."""
    made = duckdb.connect()
    made.execute(_TABLE)
    return made


@pytest.fixture(scope="module")
def connection(database: duckdb.DuckDBPyConnection) -> Iterator[Connection]:
    """A connection that answers without noise."""
    with dpsql.connect(database, policy=_POLICY, ledger=":memory:", epsilon=10**15, replay=False) as opened:
        yield opened


def _same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        a == b or (isinstance(a, float) and isinstance(b, (int, float)) and math.isclose(a, b, rel_tol=1e-6))
        for mine, other in zip(sorted(ours, key=repr), sorted(theirs, key=repr), strict=True)
        for a, b in zip(mine, other, strict=True)
    )


_COUNTS = "SELECT shop, kind, region, COUNT(*) AS n, COUNT(qty) AS q FROM sales GROUP BY shop, kind, region"
_SUMS = "SELECT shop, kind, region, SUM(qty) AS s, SUM(cost) AS c, COUNT(*) AS n FROM sales GROUP BY ALL"
_PAIRS = "SELECT region, kind, SUM(qty) AS s FROM sales GROUP BY region, kind"

ANSWERED = [
    f"SELECT SUM(n), SUM(q) FROM ({_COUNTS})",
    f"SELECT region, SUM(n), SUM(q) FROM ({_COUNTS}) GROUP BY region",
    f"SELECT region, SUM(n) AS m FROM ({_COUNTS}) AS virtual_table WHERE shop <> 'shop 2' GROUP BY region HAVING SUM(n) > 1 ORDER BY m DESC",
    f"SELECT region, COUNT(*), AVG(n), COUNT(n) FROM ({_COUNTS}) GROUP BY region",
    f"SELECT COUNT(*), COUNT(DISTINCT shop), COUNT(DISTINCT kind) FROM ({_COUNTS})",
    f"SELECT region, SUM(s), SUM(s) * 1.0 / SUM(n), SUM(c) FROM ({_SUMS}) GROUP BY region",
    f"SELECT SUM(CASE WHEN kind = 'a' THEN n END), SUM(CASE WHEN kind = 'b' THEN q ELSE 0 END), SUM(n) FILTER (WHERE kind IS NULL) FROM ({_COUNTS})",
    f"SELECT SUM(n * 2), SUM(-n), SUM(n / 4), SUM(CASE region WHEN 'n' THEN 3 * n ELSE n END) FROM ({_COUNTS})",
    f"SELECT SUM(COALESCE(s, 0)), SUM(COALESCE(c, 0)), SUM(3 * n) FROM ({_SUMS})",
    "SELECT date_trunc('month', day), SUM(n) FROM (SELECT day, shop, COUNT(*) AS n FROM sales GROUP BY day, shop) GROUP BY 1",
    f"WITH fine AS ({_COUNTS}), middle AS (SELECT shop, region, SUM(n) AS n FROM fine GROUP BY 1, 2) SELECT region, SUM(n), COUNT(*) FROM middle GROUP BY 1",
    f"WITH fine AS (SELECT * FROM ({_COUNTS}) WHERE region = 'n') SELECT SUM(n) FROM fine WHERE kind = 'rare'",
    f"SELECT region, MAX(CASE WHEN kind = 'a' THEN s END) AS a, MIN(CASE WHEN kind = 'b' THEN s END) AS b FROM ({_PAIRS}) GROUP BY region",
    f"SELECT region, MAX(CASE WHEN kind = 'a' THEN s ELSE 0 END), AVG(CASE WHEN 'b' = kind THEN s END) FROM ({_PAIRS}) GROUP BY region",
    "SELECT kind, SUM(n), MAX(n), MIN(n) FROM (SELECT kind, COUNT(*) AS n FROM sales WHERE kind <> 'rare' GROUP BY kind) GROUP BY kind",
    f"SELECT region, SUM(n) FROM ({_COUNTS}) GROUP BY ROLLUP (region)",
    "SELECT r.kind, r.n, t.n FROM (SELECT kind, COUNT(*) AS n FROM sales WHERE kind <> 'rare' GROUP BY kind) AS r CROSS JOIN (SELECT SUM(n) AS n FROM (SELECT kind, COUNT(*) AS n FROM sales GROUP BY kind)) AS t",
    f"SELECT SUM(n) FROM ({_COUNTS}) WHERE kind = 'nothing'",
]


@pytest.mark.whole
@pytest.mark.parametrize("sql", ANSWERED)
def test_sums_over_groups_are_those_of_duckdb(
    connection: Connection, database: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """Rare groups count, though they are not released; sums over no rows are 0."""
    theirs = [
        tuple(0 if value is None and "nothing" in sql else value for value in row)
        for row in database.execute(sql).fetchall()
    ]
    assert _same(connection.query(sql).rows, theirs)


REFUSED = [
    f"SELECT MIN(n) FROM ({_COUNTS})",
    f"SELECT STDDEV_POP(n) FROM ({_COUNTS})",
    f"SELECT SUM(n * n) FROM ({_COUNTS})",
    f"SELECT SUM(n + 1) FROM ({_COUNTS})",
    f"SELECT SUM(LEAST(n, 5)) FROM ({_COUNTS})",
    f"SELECT SUM(n) FROM ({_COUNTS}) WHERE n > 5",
    f"SELECT SUM(CASE WHEN n > 5 THEN n END) FROM ({_COUNTS})",
    f"SELECT SUM(CASE WHEN region = 'n' THEN n ELSE 1 END) FROM ({_COUNTS})",
    f"SELECT n, SUM(n) FROM ({_COUNTS}) GROUP BY n",
    f"SELECT SUM(n) FROM ({_COUNTS} HAVING COUNT(*) > 3)",
    f"SELECT SUM(n) FROM ({_COUNTS} ORDER BY n DESC LIMIT 3)",
    f"SELECT AVG(s) FROM ({_SUMS})",
    f"SELECT SUM(COALESCE(s, 1)) FROM ({_SUMS})",
    f"SELECT SUM(s + n) FROM ({_SUMS})",
    f"SELECT SUM(ROUND(c)) FROM ({_SUMS})",
    "SELECT SUM(m) FROM (SELECT kind, AVG(qty) AS m FROM sales GROUP BY kind)",
    "SELECT SUM(m) FROM (SELECT kind, COUNT(DISTINCT shop) AS m FROM sales GROUP BY kind)",
    f"SELECT region, MIN(CASE WHEN kind = 'a' OR kind = 'b' THEN s END) FROM ({_PAIRS}) GROUP BY region",
    f"SELECT MIN(CASE WHEN kind = 'a' THEN s END) FROM ({_PAIRS})",
    f"SELECT region, MIN(CASE WHEN kind = 'a' THEN s ELSE 0 END) FROM ({_PAIRS}) GROUP BY region",
    f"SELECT SUM(m) FROM (SELECT kind, SUM(n) OVER (ORDER BY kind) AS m FROM ({_COUNTS}))",
    f"SELECT COUNT(*) FROM (SELECT region, shop, SUM(n) AS n FROM ({_COUNTS}) GROUP BY ALL HAVING SUM(n) > 2)",
]


@pytest.mark.whole
@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_sum_over_rows_is_refused(connection: Connection, sql: str) -> None:
    """Whatever else is computed over all groups would miss those that are not released."""
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.explain(sql)
    assert refused.value.code == "hidden_groups"


SAME = [
    (
        f"SELECT region, SUM(n) FROM ({_COUNTS}) GROUP BY region",
        "SELECT region, COUNT(*) FROM sales GROUP BY region",
    ),
    (f"SELECT SUM(s) FROM ({_SUMS}) WHERE kind = 'a'", "SELECT SUM(qty) FROM sales WHERE kind = 'a'"),
    (
        "SELECT SUM(n) FROM (SELECT region, COUNT(*) AS n FROM sales GROUP BY region)",
        "SELECT COUNT(*) FROM sales",
    ),
    (f"SELECT COUNT(DISTINCT shop) FROM ({_COUNTS})", "SELECT COUNT(DISTINCT shop) FROM sales"),
]


@pytest.mark.parametrize(("nested", "direct"), SAME)
def test_release_is_that_of_the_direct_query(connection: Connection, nested: str, direct: str) -> None:
    """The plan is that of the query without the derived table, so that bounds, noise and loss are its own."""
    one, other = (
        plan_and_match(connection.engine, Query(sql, epsilon=Fraction(1))) for sql in (nested, direct)
    )
    assert list_releases(one.outer) == list_releases(other.outer)
    assert [part.plan for part in one.releases] == [part.plan for part in other.releases]


KEPT = [
    "WITH r AS (SELECT region, COUNT(*) AS n FROM sales GROUP BY region) SELECT region, n, (SELECT SUM(n) FROM r) FROM r",
    "SELECT SUM(CASE WHEN region = 'n' THEN n END), SUM(CASE WHEN region = 's' THEN n END) FROM (SELECT region, COUNT(*) AS n FROM sales GROUP BY region)",
    "SELECT COUNT(*), SUM(n) FROM (SELECT region, COUNT(*) AS n FROM sales GROUP BY region)",
]


SCALED = [
    "SELECT SUM(s * length(region)) FROM (SELECT region, SUM(qty) AS s FROM sales GROUP BY region)",
    "SELECT SUM(1000000 * n) FROM (SELECT region, COUNT(*) AS n FROM sales GROUP BY region)",
]


@pytest.mark.parametrize("sql", SCALED)
def test_factors_of_public_groups_multiply_what_is_released(
    connection: Connection, database: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """A factor that has no near bounds would leave nothing of the rows but noise, where each group is released without it."""
    outer = plan_and_match(connection.engine, Query(sql, epsilon=Fraction(1))).outer
    (release,) = list_releases(outer)
    assert len(release.keys) == 1
    assert _same(connection.query(sql).rows, database.execute(sql).fetchall())


@pytest.mark.parametrize("sql", KEPT)
def test_one_release_of_public_groups_serves_all_parts(connection: Connection, sql: str) -> None:
    """Public groups that are read twice, or for more values than they have, are released once."""
    outer = plan_and_match(connection.engine, Query(sql, epsilon=Fraction(1))).outer
    (release,) = list_releases(outer)
    assert [item.function for item in release.aggregations] == ["count_rows"]
    assert len(release.keys) == 1
