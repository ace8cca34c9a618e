"""Comparisons with ALL and ANY are those of DuckDB: true, false and unknown, of no values, NULL, NaN and equal ones."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from dpsql.api.connection import Connection

SETS = {
    "nothing": "SELECT y FROM (VALUES (1)) AS t(y) WHERE y > 1",
    "NULL alone": "SELECT y FROM (VALUES (CAST(NULL AS DOUBLE))) AS t(y)",
    "one": "SELECT y FROM (VALUES (40)) AS t(y)",
    "one and NULL": "SELECT y FROM (VALUES (40), (NULL)) AS t(y)",
    "equal ones": "SELECT y FROM (VALUES (40), (40)) AS t(y)",
    "several": "SELECT y FROM (VALUES (20), (60.5), (40)) AS t(y)",
    "several and NULL": "SELECT y FROM (VALUES (20), (NULL), (60.5), (60.5)) AS t(y)",
    "a column": "SELECT price FROM prices",
}
COMPARED = [
    f"{sign} {side}" for sign, side in itertools.product(("=", "<>", "<", "<=", ">", ">="), ("ALL", "ANY"))
]
VALUES = ("age", "cost", "NULLIF(region, 1) * 20")
"""What is compared: whole numbers, numbers, and what is NULL at times."""


WITHIN = (
    "cost {0} (SELECT w.cost FROM visits w WHERE w.patient_id = v.patient_id)",
    "age {0} (SELECT NULLIF(w.region, 1) * 20 FROM visits w WHERE w.patient_id = v.patient_id AND w.day > v.day)",
    "cost {0} (SELECT price FROM plans p WHERE p.plan <> v.plan)",
)
"""Compared with the rows of the same unit, and with public rows that depend on the row."""


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("compared", COMPARED)
def test_rows_are_those_of_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, name: str, compared: str
) -> None:
    """How many rows it is true of, false of, and unknown of."""
    outcomes = [
        f"COUNT(*) FILTER (WHERE {wanted.format(f'{value} {compared} ({SETS[name]})')}) AS n{place}_{at}"
        for place, value in enumerate(VALUES)
        for at, wanted in enumerate(("{0}", "NOT ({0})", "({0}) IS NULL"))
    ]
    sql = f"SELECT {', '.join(outcomes)} FROM visits"
    assert [tuple(row) for row in connection.query(sql, replay=False).rows] == plain.execute(sql).fetchall()


@pytest.mark.parametrize("compared", [sign for sign in COMPARED if sign not in ("= ANY", "<> ALL")])
def test_rows_of_the_same_unit_are_compared_as_by_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, compared: str
) -> None:
    """How many rows it is true of, false of, and unknown of."""
    sql = f"SELECT {', '.join(f'COUNT(*) FILTER (WHERE {text.format(compared)}), COUNT(*) FILTER (WHERE ({text.format(compared)}) IS NULL)' for text in WITHIN)} FROM visits v"
    assert [tuple(row) for row in connection.query(sql, replay=False).rows] == plain.execute(sql).fetchall()


GROUPS = (
    "SELECT plan, SUM(cost) FROM visits GROUP BY plan HAVING SUM(cost) >= ALL (SELECT SUM(cost) FROM visits GROUP BY plan)",
    "SELECT plan, COUNT(*) > ANY (SELECT price FROM plans) FROM visits GROUP BY plan ORDER BY plan",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM visits GROUP BY patient_id HAVING SUM(cost) > ALL (SELECT price * 10 FROM plans))",
    "SELECT COUNT(*) FROM (SELECT patient_id FROM visits GROUP BY patient_id HAVING SUM(cost) > ALL ([100, 200]))",
    "SELECT COUNT(*) FROM visits v WHERE age > ALL ([30, 40]) OR cost > ALL (SELECT w.cost FROM visits w WHERE w.patient_id = v.patient_id AND w.day < v.day)",
    "SELECT plan, COUNT(*) < ANY ([100, 120.5]) FROM visits GROUP BY plan ORDER BY COUNT(*) > ALL ([3, 4]), plan",
    "SELECT age > ANY ([30, 50]) AS k, COUNT(*) FROM visits GROUP BY k ORDER BY k",
    "SELECT COUNT(*), age > ALL (SELECT price FROM plans) FROM visits GROUP BY ALL ORDER BY 2",
    "SELECT cost > ALL (SELECT w.cost FROM visits w WHERE w.patient_id = v.patient_id AND w.day < v.day) AS k, COUNT(*) FROM visits v GROUP BY k HAVING k = ANY ([TRUE, FALSE]) ORDER BY k",
)


@pytest.mark.parametrize("sql", GROUPS)
def test_groups_are_compared_as_by_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, sql: str
) -> None:
    """HAVING and SELECT compare aggregates with public and released values."""
    assert [tuple(row) for row in connection.query(sql, replay=False).rows] == plain.execute(sql).fetchall()
