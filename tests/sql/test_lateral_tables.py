"""LATERAL tables of one row are the expressions of their columns: the answers are DuckDB's, and other LATERAL tables are refused."""

from __future__ import annotations

import time

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from tests.sql.study import prepare

ANSWERED = [
    "SELECT AVG(per) AS mean FROM visits, LATERAL (SELECT cost * age AS per) AS x",
    (
        "SELECT plan, AVG(x.per) AS a, MAX(y.more) AS m FROM visits v CROSS JOIN LATERAL (SELECT v.cost * v.age AS per, age + 1 AS older) AS x, "
        "LATERAL (SELECT x.per + x.older AS more) y WHERE x.per > 10 GROUP BY plan HAVING AVG(per) > 0"
    ),
    "SELECT SUM(z.p2) AS s FROM visits, LATERAL (SELECT cost + 1 AS per) x, LATERAL (SELECT per * 2 AS p2) z",
    "SELECT band, COUNT(*) AS n FROM visits LEFT JOIN LATERAL (SELECT age // 10 AS b) x(band) ON true GROUP BY band",
    "SELECT v.plan, SUM(x.per + 1), AVG(per) FROM visits v, LATERAL (SELECT cost + 1 AS per) x GROUP BY ALL",
    "SELECT AVG(p) AS m FROM (SELECT v.*, x.p FROM visits v, LATERAL (SELECT cost + age AS p) x)",
    "SELECT COUNT(*) FROM visits v, LATERAL (SELECT age + 1 AS a) x WHERE EXISTS (SELECT 1 FROM regions r WHERE r.id = v.region AND x.a > 30)",
    "SELECT r.name, x.n FROM regions r CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM visits q WHERE q.region = r.id) x",
    (
        "SELECT p.plan, AVG(x.n) AS m, SUM(x.s) AS s FROM visits p CROSS JOIN LATERAL (SELECT COUNT(*) AS n, SUM(age) AS s FROM visits f "
        "WHERE f.patient_id = p.patient_id AND f.age > 30) x WHERE x.n > 0 GROUP BY p.plan"
    ),
    (
        "SELECT COUNT(*) AS c, COUNT(x.s) AS k FROM visits p LEFT JOIN LATERAL (SELECT SUM(age) AS s FROM visits f WHERE f.patient_id = p.patient_id "
        "AND f.age > 45) x ON true"
    ),
    "SELECT x.n, COUNT(*) AS people FROM visits p CROSS JOIN LATERAL (SELECT COUNT(*) AS n FROM visits f WHERE f.patient_id = p.patient_id) x GROUP BY x.n",
    # A value within a subquery is of the row outside, also where the subquery's table has columns of these names.
    "SELECT COUNT(*) FROM regions, LATERAL (SELECT id + 1 AS p) x WHERE EXISTS (SELECT 1 FROM regions q WHERE q.id = x.p)",
    "SELECT id, (SELECT COUNT(*) FROM regions q WHERE q.id < x.p) AS m FROM regions, LATERAL (SELECT id * 2 AS p) x",
    "SELECT r.id, y.n FROM regions r, LATERAL (SELECT id * 2 AS p) x, LATERAL (SELECT COUNT(*) AS n FROM regions q WHERE q.id < x.p) y",
    "SELECT AVG((SELECT COUNT(*) FROM visits w WHERE w.patient_id = v.patient_id AND w.age < x.p)) FROM visits v, LATERAL (SELECT age + 1 AS p) x",
    "SELECT AVG(y.q) AS m FROM visits v JOIN regions r ON r.id = v.region, LATERAL (SELECT age + 1 AS p) x, LATERAL (SELECT x.p * 2 AS q) y",
]
REFUSED = {
    "a table of the same name in a subquery": "SELECT COUNT(*) FROM regions r, LATERAL (SELECT r.id + 1 AS p) x WHERE EXISTS (SELECT 1 FROM regions r WHERE r.id = x.p)",
    "a name of one of two tables in a subquery": (
        "SELECT COUNT(*) FROM visits v JOIN plans p ON p.plan = v.plan, LATERAL (SELECT region + 1 AS k) x WHERE EXISTS (SELECT 1 FROM regions r WHERE r.id = x.k)"
    ),
    "rows": "SELECT COUNT(*) FROM visits v, LATERAL (SELECT w.age FROM visits w WHERE w.patient_id = v.patient_id) x",
    "a limit": "SELECT COUNT(*) FROM visits v, LATERAL (SELECT MAX(w.age) AS a FROM visits w WHERE w.patient_id = v.patient_id LIMIT 0) x",
    "groups": "SELECT COUNT(*) FROM visits v, LATERAL (SELECT COUNT(*) AS n FROM visits w WHERE w.patient_id = v.patient_id GROUP BY plan) x",
    "a row padded by RIGHT JOIN": "SELECT SUM(x.p) FROM visits v, LATERAL (SELECT COALESCE(v.cost, 0) AS p) x RIGHT JOIN regions r ON r.id = v.region",
    "a row padded by FULL JOIN": "SELECT SUM(x.p) FROM regions v CROSS JOIN LATERAL (SELECT COALESCE(v.id, 0) AS p) x FULL JOIN plans q ON q.price = p",
    "a condition": "SELECT COUNT(*) FROM visits v LEFT JOIN LATERAL (SELECT v.age AS a) x ON x.a > 30",
    "an alias of the same name": "SELECT plan, SUM(x.per) AS per FROM visits, LATERAL (SELECT cost + 1 AS per) x GROUP BY plan ORDER BY per",
    "an alias of the same name in HAVING": "SELECT plan, SUM(x.per) AS per FROM visits, LATERAL (SELECT cost + 1 AS per) x GROUP BY plan HAVING per > 0",
    "an alias in the formula": "SELECT age + 1 AS age, COUNT(*) FROM visits v, LATERAL (SELECT age * 2 AS d) x GROUP BY d, v.age ORDER BY age",
    "all columns": "SELECT COUNT(*) FROM (SELECT * FROM visits v, LATERAL (SELECT v.age + 1 AS a) x)",
    "a column beside an aggregate": "SELECT COUNT(*) FROM visits p, LATERAL (SELECT COUNT(*) + p.age AS n FROM visits f WHERE f.patient_id = p.patient_id) x",
}


@pytest.mark.parametrize("query", ANSWERED)
def test_answers_are_those_of_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, query: str
) -> None:
    """Formulas, chains of them, aggregates of a unit's rows, empty ones too, wherever their columns are read."""
    ours = sorted((tuple(row) for row in connection.query(query).rows), key=str)
    theirs = sorted(plain.execute(query).fetchall(), key=str)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for mine, known in zip(one, other, strict=True):
            assert mine == known or mine == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize("kind", REFUSED)
def test_other_lateral_tables_are_refused(connection: Connection, kind: str) -> None:
    """What has several rows, or a row that a join pads, is not replaced, and neither is a name that could mean another column."""
    with pytest.raises(dpsql.QueryRejected):
        prepare(connection, REFUSED[kind])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT SUM(x30.c) FROM visits, LATERAL (SELECT age AS c) x0"
        + "".join(f", LATERAL (SELECT x{i}.c + x{i}.c AS c) x{i + 1}" for i in range(30)),
        "SELECT COUNT(*) FROM visits" + "".join(f", LATERAL (SELECT age AS c) x{i}" for i in range(3_000)),
    ],
    ids=["doubled", "many"],
)
def test_chains_of_lateral_tables_are_bounded(connection: Connection, query: str) -> None:
    """Neither a chain that doubles nor thousands of tables take long to refuse."""
    begun = time.process_time()
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepare(connection, query)
    assert refused.value.code == "too_long"
    assert time.process_time() - begun < 4  # far less on an idle machine
