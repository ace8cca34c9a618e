"""IN, EXISTS, = ANY and <> ALL of a subquery beside groups and windows are those of DuckDB, with NULL and duplicates."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.api.connection import Connection

GROUPED = "FROM visits GROUP BY plan, region"
HAVING = (
    "region IN (SELECT id FROM regions WHERE country = 'X')",
    "region NOT IN (SELECT id FROM regions WHERE country = 'X')",
    "region NOT IN (SELECT NULLIF(id, 2) FROM regions)",
    "region = ANY (SELECT id FROM regions WHERE name <> 'west') AND COUNT(*) > 20",
    "region <> ALL (VALUES (0), (1)) OR n > 30",
    "COUNT(*) IN (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM visits GROUP BY plan, region))",
    "EXISTS (SELECT 1 FROM regions WHERE id = region AND country = 'X')",
    "NOT EXISTS (SELECT 1 FROM prices p WHERE p.plan = visits.plan AND p.price > 2)",
    "(plan, region) IN (SELECT 'A', id FROM regions)",
    "CASE WHEN region IN (SELECT id FROM regions WHERE id > 0) THEN n > 20 ELSE plan = 'B' END",
    "plan IN (SELECT plan FROM visits GROUP BY plan HAVING COUNT(*) > 100) AND MAX(age) > 30",
    "cost > 100 AND region IN (SELECT UNNEST([0, 1, NULL]))",
)
WHOLE = (
    "SELECT region IN (SELECT id FROM regions) AS known, region, COUNT(*) FROM visits GROUP BY 2 HAVING region + 1 IN (SELECT id FROM regions)",
    "SELECT COUNT(*) AS n, region FROM visits GROUP BY ALL HAVING region + 1 IN (SELECT id FROM regions)",
    "SELECT COUNT(*) AS n, plan, region FROM visits GROUP BY ROLLUP (2, 3) HAVING plan IN (SELECT plan FROM prices)",
    "SELECT UNNEST(tags) AS tag, COUNT(*) AS n FROM devices GROUP BY tag HAVING tag IN (SELECT UNNEST(['new', NULL]))",
    "SELECT plan, RANK() OVER (ORDER BY COUNT(*) DESC, plan) AS r FROM visits GROUP BY plan HAVING plan IN (SELECT plan FROM prices)",
    "SELECT plan, SUM(COUNT(*)) OVER w AS s FROM visits GROUP BY plan HAVING plan IN (SELECT plan FROM prices) WINDOW w AS (ORDER BY plan)",
    "SELECT plan FROM visits GROUP BY plan QUALIFY ROW_NUMBER() OVER (ORDER BY plan) IN (SELECT id FROM regions)",
    "SELECT plan, ROW_NUMBER() OVER (ORDER BY plan) AS r FROM visits GROUP BY plan HAVING plan <> ALL (SELECT 'A') QUALIFY r IN (SELECT id FROM regions)",
    "SELECT plan FROM visits GROUP BY plan QUALIFY ROW_NUMBER() OVER (ORDER BY plan) <= ALL (SELECT id FROM regions WHERE id > 1)",
    "SELECT plan FROM visits GROUP BY plan QUALIFY ROW_NUMBER() OVER (ORDER BY plan) > ANY (SELECT id FROM regions)",
    "SELECT region, region IN (SELECT id FROM regions WHERE id > 0) AS far, COUNT(*) FROM visits GROUP BY region ORDER BY region",
    "SELECT region IN (SELECT id FROM regions WHERE id > 0) AS far, COUNT(*) FROM visits GROUP BY far HAVING COUNT(*) IN (SELECT 180)",
    "SELECT region, COUNT(*) FROM visits GROUP BY ROLLUP (region) HAVING region IN (SELECT id FROM regions)",
    "SELECT COUNT(*) FROM visits HAVING COUNT(*) NOT IN (SELECT id FROM regions)",
    "SELECT DISTINCT plan IN (SELECT plan FROM prices) AS known FROM visits GROUP BY plan, region ORDER BY known LIMIT 1",
    "SELECT n, COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits WHERE age > 30 GROUP BY patient_id HAVING n IN (SELECT 4 + id FROM regions)) GROUP BY n HAVING COUNT(*) > 0",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM visits GROUP BY patient_id HAVING patient_id IN (SELECT patient_id FROM devices WHERE price > 5))",
    "SELECT COUNT(*) FROM (SELECT cost FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY seen) IN (SELECT id FROM regions))",
    "SELECT plan, COUNT(*) FILTER (WHERE region IN (SELECT id FROM regions)) AS c FROM visits GROUP BY plan HAVING plan IN (SELECT plan FROM plans) ORDER BY SUM(age) DESC",
)


@pytest.mark.parametrize("condition", HAVING)
def test_having_matches_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, condition: str
) -> None:
    """The kept groups by two keys, with NULL among them, and their values are DuckDB's."""
    sql = f"SELECT plan, region, COUNT(*) AS n, MAX(cost) AS cost {GROUPED} HAVING {condition}"
    ours = connection.query(sql, replay=False)
    assert ours.columns == ("plan", "region", "n", "cost")
    assert sorted(ours.rows, key=str) == sorted(plain.execute(sql).fetchall(), key=str)


@pytest.mark.parametrize("sql", WHOLE)
def test_windows_and_items_match_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """Windows are over what HAVING keeps, and QUALIFY chooses among them."""
    theirs = plain.execute(sql)
    names = tuple(column[0] for column in theirs.description or ())
    ours = connection.query(sql, replay=False)
    assert len(ours.columns) == len(names)
    assert sorted(ours.rows, key=str) == sorted(theirs.fetchall(), key=str)


def test_condition_on_a_subquery_leaves_its_columns_known(connection: Connection) -> None:
    """Where a condition says more of a column than its source does, the result's notices still find it there."""
    assert len(connection.query(WHOLE[14], replay=False).rows) == 1
