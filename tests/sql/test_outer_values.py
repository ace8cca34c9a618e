"""Subqueries that compare the rows around them by more than equality: DuckDB's answers, within a unit and over public rows."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.api.connection import Connection
from tests.sql.study import clinic, prepare

_OWN = "w.patient_id = v.patient_id"
ANSWERED = (
    f"SELECT COUNT(*) FROM visits v WHERE age > 60 OR EXISTS (SELECT 1 FROM visits w WHERE {_OWN} AND w.cost > v.cost)",
    f"SELECT COUNT(*) FROM visits v WHERE NOT (age > 60 OR EXISTS (SELECT 1 FROM visits w WHERE {_OWN} AND w.day > v.day AND w.cost < v.cost))",
    f"SELECT COUNT(*), SUM(cost) FROM visits v WHERE age > 60 OR NOT EXISTS (SELECT 1 FROM visits w WHERE {_OWN} AND (w.day > v.day OR v.day IS NULL))",
    f"SELECT plan, SUM(CASE WHEN EXISTS (SELECT 1 FROM visits w WHERE {_OWN} AND w.note <> v.note) THEN 1 ELSE 0 END) FROM visits v GROUP BY plan ORDER BY plan",
    f"SELECT COUNT(*) FROM visits v WHERE cost > (SELECT AVG(w.cost) FROM visits w WHERE {_OWN} AND w.day <> v.day)",
    f"SELECT SUM(n), MAX(n) FROM (SELECT patient_id, (SELECT COUNT(*) FROM visits w WHERE {_OWN} AND w.region IS DISTINCT FROM v.region) AS n FROM visits v)",
    f"SELECT SUM(n), MAX(n) FROM (SELECT patient_id, (SELECT COUNT(*) FROM visits w WHERE {_OWN} AND w.cost > v.region * 100) AS n FROM visits v)",
    f"SELECT COUNT(*) FROM visits v WHERE age > 60 OR v.age NOT IN (SELECT w.age FROM visits w WHERE {_OWN} AND w.cost > v.cost)",
    f"SELECT COUNT(*) FROM visits v WHERE urgent OR EXISTS (SELECT 1 FROM visits w JOIN regions r ON w.region = r.id WHERE {_OWN} AND r.id * 20 > v.age)",
    "SELECT COUNT(*) FROM visits v WHERE age > 60 OR EXISTS (SELECT 1 FROM regions WHERE id < region)",
    "SELECT COUNT(*) FROM visits v WHERE age > 60 OR region IN (SELECT id FROM regions WHERE id * 30 < age)",
    "SELECT COUNT(*) FROM visits v JOIN regions r ON region = id WHERE age > 60 OR EXISTS (SELECT 1 FROM regions q WHERE q.id > r.id)",
    "SELECT COUNT(*) FROM regions r WHERE id = 0 OR EXISTS (SELECT 1 FROM regions q WHERE q.id > r.id)",
)
REFUSED = (
    "SELECT COUNT(*) FROM visits v WHERE age > 60 OR EXISTS (SELECT 1 FROM visits w WHERE w.cost > v.cost)",
    "SELECT COUNT(*) FROM visits v WHERE age > 60 OR EXISTS (SELECT 1 FROM visits w WHERE w.age = v.age AND w.cost > v.cost)",
    "SELECT COUNT(*) FROM visits v WHERE cost > (SELECT AVG(w.cost) FROM visits w WHERE w.plan = v.plan AND w.day <> v.day)",
    "SELECT COUNT(*) FROM visits v WHERE cost > ALL (SELECT w.cost FROM visits w WHERE w.day < v.day)",
    "SELECT COUNT(*) FROM regions r WHERE id = 0 OR EXISTS (SELECT 1 FROM visits v WHERE v.region > r.id)",
)
"""What would let rows of other units decide on a row, or on a public one."""


@pytest.mark.parametrize("sql", ANSWERED)
def test_answers_are_those_of_duckdb(connection: Connection, sql: str) -> None:
    """Without noise, with NULLs and duplicates."""
    ours = [tuple(row) for row in connection.query(sql, replay=False).rows]
    with clinic() as plain:
        assert ours == [pytest.approx(row) for row in plain.execute(sql).fetchall()]


@pytest.mark.parametrize("sql", REFUSED)
def test_rows_of_other_units_have_no_influence(connection: Connection, sql: str) -> None:
    """This holds also where no equality compares the units."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert caught.value.code == "private_join"
