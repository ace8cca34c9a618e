"""Distinct rows across privacy units: counted as DuckDB counts them, and read in no other way."""

from __future__ import annotations

import duckdb
import pytest
from filling import insert

import dpsql
from dpsql.api.connection import Connection
from tests.sql.study import clinic, prepare

COUNTED = (
    "SELECT COUNT(*), COUNT(age) FROM (SELECT DISTINCT plan, age FROM visits)",
    "SELECT plan, COUNT(*), COUNT(age), COUNT(DISTINCT age) FROM (SELECT DISTINCT plan, age, region FROM visits) WHERE region <> 1 GROUP BY plan",
    "SELECT COUNT(*) FILTER (WHERE age > 30), COUNT_IF(age > 50) FROM (SELECT DISTINCT age, plan FROM visits)",
    "SELECT COUNT(DISTINCT (plan, age)), COUNT(DISTINCT (note, urgent)), COUNT(DISTINCT (day, seen, cost)) FROM visits",
    "SELECT plan, COUNT(DISTINCT (note, urgent)) FROM visits GROUP BY plan",
    "SELECT AVG(n) FROM (SELECT patient_id, COUNT(DISTINCT (plan, region, note)) AS n FROM visits GROUP BY patient_id)",
    "SELECT COUNT(*), COUNT(age), COUNT(DISTINCT age) FROM (SELECT age FROM visits UNION SELECT region FROM visits)",
    'SELECT COUNT(*) FROM (SELECT age FROM visits UNION SELECT region FROM visits UNION SELECT "Ward No" FROM visits)',
    "SELECT COUNT(*), COUNT(x) FROM (SELECT region AS x FROM visits INTERSECT SELECT age - 20 FROM visits)",
    "SELECT COUNT(*) FROM (SELECT age, urgent FROM visits EXCEPT SELECT age, urgent FROM visits WHERE plan = 'A')",
    "SELECT COUNT(*) FROM (SELECT note, plan FROM visits INTERSECT (SELECT note, plan FROM visits WHERE urgent UNION SELECT note, plan FROM visits WHERE age > 60))",
    "SELECT COUNT(*) FROM (SELECT age FROM visits WHERE plan = 'A' INTERSECT SELECT age FROM visits WHERE plan = 'B' INTERSECT SELECT age FROM visits WHERE urgent)",
    "SELECT COUNT(*), COUNT(age) FROM (SELECT age, plan FROM visits EXCEPT SELECT age, plan FROM visits WHERE urgent EXCEPT SELECT age, plan FROM visits WHERE region = 1)",
    "SELECT COUNT(*) FROM (SELECT age FROM visits EXCEPT (SELECT age FROM visits WHERE urgent INTERSECT SELECT age FROM visits WHERE plan = 'A'))",
    "SELECT COUNT(*) FROM ((SELECT note FROM visits WHERE urgent INTERSECT SELECT note FROM visits WHERE plan = 'A') UNION SELECT note FROM visits WHERE region = 2)",
    "SELECT plan, COUNT(*) FROM ((SELECT plan, age FROM visits WHERE urgent UNION SELECT plan, age FROM visits WHERE age > 60) INTERSECT SELECT plan, age FROM visits WHERE region < 2 EXCEPT SELECT plan, age FROM visits WHERE region = 0) WHERE age > 20 GROUP BY plan",
    "WITH d AS (SELECT DISTINCT note, urgent FROM visits) SELECT urgent, COUNT(*) FROM d GROUP BY urgent",
    "SELECT COUNT(*) FROM (SELECT DISTINCT grade, salary FROM staff)",
)  # fmt: skip
REFUSED = (
    "SELECT COUNT(*) FROM ("
    + " INTERSECT ".join(f"SELECT age FROM visits WHERE region <> {n}" for n in range(5))
    + ")",
    "SELECT COUNT(*) FROM ("
    + " EXCEPT ".join(f"SELECT age FROM visits WHERE region <> {n}" for n in range(9))
    + ")",
    "SELECT COUNT(*) FROM (SELECT age FROM visits INTERSECT SELECT region FROM visits INTERSECT SELECT cost FROM visits)",
    "SELECT COUNT(DISTINCT age) FROM ((SELECT age FROM visits INTERSECT SELECT region FROM visits) UNION SELECT age FROM visits)",
    "SELECT COUNT(*) FROM (SELECT DISTINCT age FROM visits) AS d JOIN regions ON d.age = id",
    "SELECT COUNT(*) FROM regions JOIN (SELECT age FROM visits UNION SELECT region FROM visits) AS d ON d.age = id",
    "SELECT COUNT(*) FROM (SELECT age + 1 AS x FROM (SELECT DISTINCT age FROM visits))",
    "SELECT COUNT(*) FROM (SELECT age FROM (SELECT DISTINCT age FROM visits) UNION ALL SELECT region FROM visits)",
    "SELECT COUNT(*) FROM (SELECT DISTINCT age FROM visits) WHERE EXISTS (SELECT 1 FROM regions WHERE id = age)",
    "SELECT SUM(age) FROM (SELECT DISTINCT age FROM visits)",
    "SELECT AVG(age) FROM (SELECT age FROM visits UNION SELECT region FROM visits)",
    "SELECT MEDIAN(age) FROM (SELECT DISTINCT age FROM visits)",
    "SELECT COUNT(DISTINCT age) FROM (SELECT age FROM visits EXCEPT SELECT region FROM visits)",
    "SELECT VARIANCE(age) FROM (SELECT DISTINCT age, plan FROM visits)",
    "SELECT plan FROM (SELECT DISTINCT plan, age FROM visits) GROUP BY plan ORDER BY COUNT(*) DESC, SUM(age) LIMIT 1",
)


@pytest.mark.parametrize("sql", COUNTED)
def test_distinct_rows_are_counted_as_duckdb_does(connection: Connection, sql: str) -> None:
    """Without noise, with NULLs and duplicates, the number of distinct rows is DuckDB's."""
    ours = sorted(connection.query(sql).rows, key=str)
    with clinic() as plain:
        assert ours == sorted(plain.execute(sql).fetchall(), key=str)


@pytest.mark.parametrize("sql", REFUSED)
def test_uses_other_than_counts_are_refused(connection: Connection, sql: str) -> None:
    """Joined, computed upon, added up or put in order, rows would be as many as units have them."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert caught.value.code == "distinct"
    assert "COUNT(*)" in str(caught.value.hint)


def test_several_columns_count_rows_without_null(connection: Connection) -> None:
    """COUNT(DISTINCT a, b) leaves out rows with NULL, as in MySQL and Spark; COUNT(DISTINCT (a, b)) does not."""
    ours = connection.query("SELECT COUNT(DISTINCT age, note), COUNT(DISTINCT (age, note)) FROM visits").rows
    with clinic() as plain:
        several = "SELECT COUNT(DISTINCT (age, note)) FROM visits"
        (without,), (all_rows,) = (
            plain.execute(f"{several}{where}").fetchall()[0]
            for where in (" WHERE age IS NOT NULL AND note IS NOT NULL", "")
        )
    assert ours == ((without, all_rows),)
    assert without < all_rows


def test_rows_differ_where_a_value_differs() -> None:
    """Texts that meet at other places, NULL, empty texts, and zeros of both signs."""
    texts = ("a", "ab", "abc", "", "1:a", "-", "1:", "e\u0301", "e", None)
    rows = [(place, s, t, x) for place, s in enumerate(texts) for t in texts for x in (0.0, -0.0, 1.5, None)]
    database = duckdb.connect()
    database.execute("CREATE TABLE t (id BIGINT, s VARCHAR, u VARCHAR, x DOUBLE)")
    insert(database, "t", rows)
    columns = {"s": {"type": "varchar"}, "u": {"type": "varchar"}, "x": {"type": "double"}}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**30},
        "tables": {"t": {"unit": "id", "rows_per_unit": 100, "columns": columns}},
    }
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=10**15) as opened:
        for sql in (
            "SELECT COUNT(DISTINCT (s, u)) FROM t",
            "SELECT COUNT(DISTINCT (x, s)), COUNT(DISTINCT (s, x, u)) FROM t",
        ):
            assert tuple(opened.query(sql).rows) == tuple(database.execute(sql).fetchall())
