"""Refusals say in the user's own words what is wrong, and what to write instead."""

from __future__ import annotations

import duckdb
import pytest
from sql.study import prepare

import dpsql
from dpsql.connection import Connection

WORDS = {
    "SELECT cost FROM visits": ("row by row", "AVG(cost)"),
    "SELECT plan, COUNT(*) FROM visits": ("plan is neither in GROUP BY", "COUNT(plan)"),
    "SELECT patient_id FROM visits WHERE cost > 900": ("row by row", "COUNT(DISTINCT patient_id)"),
    "SELECT patient_id, COUNT(*) FROM visits": ("patient_id is neither", "COUNT(DISTINCT patient_id)"),
    "SELECT MODE(note) FROM visits": ("among values that are public", "ORDER BY COUNT(*) DESC LIMIT 1"),
    "SELECT plan, MODE(region) FROM visits GROUP BY plan": ("MODE is of all rows", "GROUP BY k, x"),
    "SELECT ARG_MAX(plan, cost) FROM visits": ("would show one row's value", "ORDER BY SUM(x) DESC LIMIT 1"),
    "SELECT STRING_AGG(plan) FROM visits": (
        "would show the value of each row",
        "SELECT x, COUNT(*) … GROUP BY x",
    ),
    "SELECT PRODUCT(age) FROM visits": ("one row decides how large a product is", "GEOMEAN(x)"),
    "SELECT bit_or(age) FROM visits": ("one row decides a bit", "COUNT_IF((x & 4) = 4)"),
    "SELECT HISTOGRAM(cost) FROM visits": ("values, that are public", "name bins, HISTOGRAM(x, [10, 20])"),
    "SELECT note, HISTOGRAM(cost, [9]) FROM visits GROUP BY note": (
        "and so are its groups",
        "GROUP BY k, bin",
    ),
    "SELECT SUM(weight * 2 + 1) FROM visits": ("((weight * 2) + 1) has no bounds", "LEAST"),
}


REWRITES = {
    "SELECT plan, ANY_VALUE(region) FROM visits GROUP BY plan": "SELECT plan, region, COUNT(*) FROM visits GROUP BY plan, region",
    "SELECT LISTAGG(plan, ',') FROM visits": "SELECT plan, COUNT(*) FROM visits GROUP BY plan",
    "SELECT PRODUCT(age) FROM visits": "SELECT GEOMEAN(age), SUM(age) FROM visits",
    "SELECT AVG(starts) FROM devices": "SELECT AVG(HOUR(starts) * 60 + MINUTE(starts)) FROM devices",
    "SELECT BIT_AND(age) FROM visits": "SELECT COUNT_IF((age & 4) = 4) FROM visits",
    "PIVOT visits ON plan IN ('A', 'B') USING SUM(cost)": "PIVOT (SELECT plan, region, cost FROM visits) ON plan IN ('A', 'B') USING SUM(cost)",
    "SELECT COUNT(*) FROM visits WHERE region = (SELECT id FROM regions)": "SELECT COUNT(*) FROM visits WHERE region = (SELECT MIN(id) FROM regions)",
    "SELECT COUNT(*) FROM visits WHERE cost > (SELECT price FROM plans WHERE plans.plan = visits.plan)": "SELECT COUNT(*) FROM visits WHERE cost > (SELECT MIN(price) FROM plans WHERE plans.plan = visits.plan)",
    "SELECT COUNT(*) FROM visits v WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.age = v.age)": "SELECT COUNT(*) FROM visits v WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.age = v.age)",
    "SELECT COUNT(*) FROM visits v SEMI JOIN visits w ON v.age = w.age": "SELECT COUNT(*) FROM visits v SEMI JOIN visits w ON v.patient_id = w.patient_id AND v.age = w.age",
    "SELECT COUNT(*) FROM visits WHERE NOT ((region, plan) IN (SELECT id, name FROM regions) OR age > 30)": "SELECT COUNT(*) FROM visits WHERE NOT (EXISTS (SELECT 1 FROM regions WHERE id = region AND name = plan) OR age > 30)",
    "SELECT COUNT(*) FROM surveys WHERE score > 3 OR EXISTS (SELECT 1 FROM regions WHERE id < score)": "SELECT COUNT(*) FROM surveys WHERE EXISTS (SELECT 1 FROM regions WHERE id < score)",
    "SELECT COUNT(*) FROM visits v WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.cost > v.cost)": "SELECT COUNT(*) FROM visits v WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.cost > v.cost)",
    "SELECT COUNT(*) FROM visits v JOIN regions r ON region = id WHERE age > 30 OR EXISTS (SELECT 1 FROM plans WHERE price > v.age + r.id)": "SELECT COUNT(*) FROM (SELECT v.patient_id, v.age, r.id FROM visits v JOIN regions r ON region = id) AS t WHERE age > 30 OR EXISTS (SELECT 1 FROM plans WHERE price > t.age + t.id)",
    "SELECT COUNT(*) FROM visits v JOIN regions r ON region = id WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.age > r.id)": "SELECT COUNT(*) FROM (SELECT v.patient_id, v.age, r.id FROM visits v JOIN regions r ON region = id) AS t WHERE age > 30 OR EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = t.patient_id AND w.age > t.id)",
    "SELECT COUNT(*) FROM visits v LEFT JOIN regions r ON region = id WHERE age > 30 OR EXISTS (SELECT 1 FROM plans WHERE price > r.id)": "SELECT COUNT(*) FROM visits v LEFT JOIN regions r ON region = id WHERE EXISTS (SELECT 1 FROM plans WHERE price > r.id)",
    "SELECT COUNT(*) FROM visits SEMI JOIN regions": "SELECT COUNT(*) FROM visits SEMI JOIN regions ON region = id",
    "SELECT COUNT(*) FROM visits SEMI JOIN regions ON region = id RIGHT JOIN plans USING (plan)": "SELECT COUNT(cost) FROM plans LEFT JOIN (SELECT * FROM visits SEMI JOIN regions ON region = id) AS v USING (plan)",
    "SELECT COUNT(*) FROM visits JOIN (regions LEFT JOIN plans ON id = price) ON region = id": "SELECT COUNT(*) FROM visits JOIN (SELECT id FROM regions LEFT JOIN plans ON id = price) AS t ON region = id",
    "SELECT COUNT(*) FROM (visits JOIN regions ON region = id) AS t": "SELECT COUNT(*) FROM (SELECT * FROM visits JOIN regions ON region = id) AS t",
    "SELECT COUNT(*) FROM other.visits": "SELECT COUNT(*) FROM main.visits",
    "SELECT COUNT(*) FROM visits WHERE region IN (1, CAST('x' AS INTEGER))": "SELECT COUNT(*) FROM visits WHERE region IN (1, NULL)",
    "SELECT COUNT(*) FROM visits WHERE (region, plan) IN ((1, 'A', 2))": "SELECT COUNT(*) FROM visits WHERE (region, age) IN ((1, 2), (3, 4))",
    "SELECT COUNT(*) FROM range(NULL)": "SELECT COUNT(*) FROM range(0, 10)",
    "SELECT COUNT(*) FROM UNNEST(visits) AS t(a)": "SELECT COUNT(*) FROM UNNEST([1, 2]) AS t(x)",
    "SELECT 'a' AS label, COUNT(*) FROM visits GROUP BY label": "SELECT 'a' AS label, COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE urgent = 2": "SELECT COUNT(*) FROM visits WHERE CAST(urgent AS INTEGER) = 2",
    "SELECT COUNT(*) FROM visits NATURAL JOIN (VALUES (1)) AS t (x)": "SELECT COUNT(*) FROM visits JOIN (VALUES (1)) AS t (x) ON region = x",
    "SELECT COUNT(*) FROM (SELECT typeof(cost) AS k FROM visits) AS t": "SELECT typeof(COUNT(*)) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE current_time IS NULL": "SELECT COUNT(*) FROM visits WHERE seen < now()",
    "SELECT WIDTH_BUCKET(cost, 0, 1000, 10) AS b, COUNT(*) FROM visits GROUP BY b": "SELECT FLOOR(cost / 100) + 1 AS b, COUNT(*) FROM visits GROUP BY b",
    "SELECT COUNT(*) FROM visits WHERE SUM(cost) > 3": "SELECT COUNT(*) FROM visits HAVING SUM(cost) > 3",
    "SELECT COUNT(*) FROM (SELECT UNNEST(tags), UNNEST([1, 2]) FROM devices)": "SELECT COUNT(*) FROM devices t, UNNEST(t.tags) AS u(x), UNNEST([1, 2]) AS w(y)",
    "SELECT COUNT(UNNEST(tags)) FROM devices": "SELECT COUNT(x) FROM devices t, UNNEST(t.tags) AS u(x)",
    "SELECT COUNT(*) FROM devices WHERE UNNEST(tags) = 'new'": "SELECT COUNT(*) FROM devices t, UNNEST(t.tags) AS u(x) WHERE x = 'new'",
    "SELECT * FROM regions PIVOT (SUM(id) FOR name IN ('north'))": "SELECT * FROM regions PIVOT (SUM(id) FOR name IN ('north') GROUP BY id)",
    "SELECT COUNT(*) FROM (SELECT answer FROM surveys UNION ALL SELECT answer FROM surveys)": "SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM surveys UNION ALL SELECT COUNT(*) AS n FROM surveys WHERE score > 0)",
    "SELECT COUNT(*) FROM (SELECT plan FROM visits UNION ALL SELECT plan FROM plans)": "SELECT SUM(n) FROM (SELECT COUNT(*) AS n FROM visits UNION ALL SELECT COUNT(*) AS n FROM plans)",
    "SELECT COUNT(*) FROM visits WHERE FIRST(plan) = 'A'": "SELECT COUNT(*) FROM visits WHERE plan = 'A'",
    "VALUES (1), (2)": "SELECT * FROM (VALUES (1), (2)) AS t(x)",
    "TABLE plans": "SELECT plan, price FROM plans",
    "PIVOT visits ON plan USING SUM(cost) GROUP BY region": "PIVOT visits ON plan IN ('A', 'B') USING SUM(cost) GROUP BY region",
    "CALL range(3)": "SELECT x FROM RANGE(3) AS t(x)",
    "SET enable_progress_bar = false": "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM visits",
    "EXPLAIN ANALYZE SELECT COUNT(*) FROM visits": "EXPLAIN SELECT COUNT(*) FROM visits",
    "SELECT LIST(n) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan)": "SELECT n, COUNT(*) FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan) GROUP BY n",
    "SELECT plan, COUNT(*) FROM visits GROUP BY plan HAVING plan IN (SELECT plan FROM visits WHERE cost > 9)": "SELECT plan, COUNT(*) FROM visits GROUP BY plan HAVING plan IN (SELECT plan FROM visits WHERE cost > 9 GROUP BY plan)",
    "SELECT COUNT(*) FROM visits WHERE age > ANY ([region, 5])": "SELECT COUNT(*) FROM visits WHERE age > region OR age > 5",
}
"""Refused statements, each with one that its hint leads to."""


@pytest.mark.parametrize(("sql", "words"), WORDS.items(), ids=WORDS)
def test_what_is_wrong_and_what_to_write(connection: Connection, sql: str, words: tuple[str, str]) -> None:
    """The message names what was written, the hint something that would pass in its place."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert words[0] in str(caught.value)
    assert words[1] in str(caught.value.hint)


def test_a_type_that_cannot_be_read_can_be_cast_in_a_view() -> None:
    """A policy cannot declare what the database has there, so the hint does not ask for that."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (id BIGINT, seen TIMETZ)")
    table = {"unit": "id", "rows_per_unit": 1, "columns": {"seen": {"type": "time"}}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"t": table}}
    with (
        pytest.raises(dpsql.PolicyError) as caught,
        dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con,
    ):
        con.explain("SELECT COUNT(*) FROM t")
    assert caught.value.code == "column_type"
    assert "a view that casts it to TIME" in str(caught.value.hint)
    database.execute("CREATE VIEW v AS SELECT id, CAST(seen AS TIME) AS seen FROM t")
    policy["tables"] = {"v": table}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.explain("SELECT COUNT(*) FROM v")


@pytest.mark.parametrize(("sql", "instead"), REWRITES.items(), ids=REWRITES)
def test_a_statement_that_is_refused_can_be_written_otherwise(
    connection: Connection, sql: str, instead: str
) -> None:
    """The refusal has a hint, and what follows it is answered."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert caught.value.hint
    assert prepare(connection, instead)


@pytest.mark.parametrize(
    "name",
    [
        "any_value",
        "listagg",
        "string_agg",
        "group_concat",
        "first",
        "list",
        "array_agg",
        "arbitrary",
        "entropy",
        "product",
        "bit_xor",
    ],
)
def test_a_refusal_names_what_was_written(connection: Connection, name: str) -> None:
    """Whatever the parser calls it."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, f"SELECT {name}(cost) FROM visits")
    assert caught.value.message.lower().startswith(f"{name} ")
