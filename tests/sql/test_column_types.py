"""Columns of every type, by the engine's names for them, tables of several schemas, and parameters: DuckDB's answers."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest

import dpsql
from tests.sql.test_phrases import check, check_refused

SCHEMA = """
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
    CREATE SCHEMA emr;
    CREATE TABLE people AS SELECT i AS id, ['a', 'b', 'c'][1 + i % 3] AS plan FROM range(300) r(i);
    CREATE TABLE t AS
    SELECT i % 300 AS id, TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL 1 HOUR * (i % 1000) AS moment,
           CAST(TIME '00:00:00' + INTERVAL 1 MINUTE * (i % 1440) AS TIME) AS tm,
           CAST('00000000-0000-0000-0000-00000000000' || (i % 4) AS UUID) AS u, CAST(['sad', 'ok', 'happy'][1 + i % 3] AS mood) AS m,
           CAST('ab' || (i % 3) AS BLOB) AS b, CAST(i % 7 AS HUGEINT) AS h, CAST(i % 7 AS UBIGINT) AS ub,
           [i % 3, i % 4] AS l, {'city': 'c' || (i % 3), 'z': {'n': i % 5}, 'hidden': i} AS s, CAST(i % 50 AS FLOAT) AS f
    FROM range(1800) r(i);
    CREATE TABLE emr.visits AS SELECT i % 300 AS id, i % 10 AS cost FROM range(1200) r(i);
    CREATE TABLE north AS SELECT i % 10 AS x, i % 3 AS g FROM range(500) r(i);
    CREATE TABLE south AS SELECT i % 10 AS x, i % 3 AS g FROM range(700) r(i);
    CREATE TABLE keys AS SELECT CAST(18446744073709551615 - i AS UBIGINT) AS k, CAST('k' || (i % 9) AS BLOB) AS b FROM range(90) r(i);
"""


def _column(kind: str, **more: object) -> dict[str, object]:
    return {"type": kind, "nullable": False, **more}


_ROWS = {
    "unit": "row",
    "columns": {"x": _column("int", bounds=[0, 9]), "g": _column("int", values=[0, 1, 2])},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e12, "delta": 1e-6},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {"id": _column("bigint"), "plan": _column("text", values=["a", "b", "c"])},
        },
        "t": {
            "link": {"column": "id", "references": "people.id"},
            "rows_per_unit": 6,
            "columns": {
                "id": _column("int8"),
                "moment": _column("timestamptz", bounds=["2024-01-01", "2024-03-01"]),
                "tm": _column("time"),
                "u": _column("uuid"),
                "m": _column("enum", values=["sad", "ok", "happy"]),
                "b": _column("bytea"),
                "h": _column("hugeint", bounds=[0, 6]),
                "ub": _column("ubigint", bounds=[0, 6]),
                "l": _column("bigint", bounds=[0, 3], max_elements=2),
                "s.city": _column("string"),
                "s.z.n": _column("integer", bounds=[0, 4]),
                "f": _column("float", bounds=[0, 50]),
            },
        },
        "emr.visits": {
            "link": {"column": "id", "references": "people.id"},
            "rows_per_unit": 4,
            "columns": {"id": _column("int"), "cost": _column("int", bounds=[0, 9])},
        },
        "north": _ROWS,
        "south": _ROWS,
        "keys": {"unit": "k", "rows_per_unit": 1, "columns": {"b": _column("blob")}},
    },
}
QUERIES = (
    # TIMESTAMP WITH TIME ZONE
    "SELECT COUNT(*) FROM t WHERE moment >= TIMESTAMPTZ '2024-01-15 02:00:00+02' AND moment < '2024-02-01 00:00:00+00'",
    "SELECT EXTRACT(hour FROM moment) AS hh, COUNT(*) FROM t GROUP BY hh",
    "SELECT CAST(moment AS DATE) = DATE '2024-01-05' AS k, COUNT(*) FROM t GROUP BY k",
    # TIME
    "SELECT HOUR(tm) AS k, COUNT(*), AVG(MINUTE(tm)) FROM t GROUP BY k",
    "SELECT COUNT(*), MIN(tm) FROM t WHERE tm BETWEEN TIME '08:00:00' AND '12:30:00'",
    "SELECT tm, COUNT(*) FROM t WHERE tm IN (TIME '08:00', TIME '09:00') GROUP BY tm",
    # UUID
    "SELECT u, COUNT(*) FROM t GROUP BY u",
    "SELECT COUNT(*) FROM t WHERE u IN ('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000003')",
    "SELECT COUNT(DISTINCT u), COUNT(DISTINCT b), COUNT(DISTINCT m), COUNT(DISTINCT tm) FROM t",
    # ENUM
    "SELECT m, COUNT(*) FROM t GROUP BY m ORDER BY m",
    "SELECT CASE m WHEN 'sad' THEN 0 ELSE 1 END AS k, COUNT(*) FROM t WHERE m <> 'ok' GROUP BY k",
    # BLOB
    "SELECT b, COUNT(*) FROM t WHERE b <> 'ab1'::BLOB GROUP BY b",
    "SELECT COUNT(*) FROM keys WHERE b = 'k1'::BLOB",
    # HUGEINT and UBIGINT
    "SELECT SUM(h), AVG(h), SUM(ub), MAX(h) FROM t WHERE h = 3 OR ub <> 2",
    "SELECT ub + h AS k, COUNT(*) FROM t GROUP BY k",
    "SELECT COUNT(*) FROM keys WHERE k IN (18446744073709551615, 18446744073709551000)",
    # LIST
    "SELECT x, COUNT(*) FROM t, UNNEST(t.l) AS v(x) GROUP BY x",
    "SELECT SUM(x), COUNT(DISTINCT x) FROM (SELECT id, UNNEST(l) AS x FROM t) WHERE x > 0",
    "SELECT SUM(x) FROM t CROSS JOIN UNNEST(l) AS v(x) WHERE f > 10",
    "SELECT plan, AVG(x) FROM people p LEFT JOIN (SELECT id, UNNEST(l) AS x FROM t) v ON p.id = v.id GROUP BY plan",
    # STRUCT
    "SELECT s.city, SUM(t.s.z.n) FROM t GROUP BY s.city",
    "SELECT (s).city AS k, COUNT(*) FROM t WHERE s.z.n > 2 GROUP BY k",
    "SELECT s['city'] AS k, SUM(s['z']['n']) FROM t GROUP BY k",
    "SELECT t.s['city'] AS k, SUM((t.s).z['n']), AVG(struct_extract(s, 'z')['n']) FROM t GROUP BY k",
    # FLOAT
    "SELECT SUM(f), AVG(f), COUNT(*) FROM t WHERE f = 3.0 OR f > 40.5",
    # Schemas
    "SELECT COUNT(*), SUM(cost) FROM emr.visits",
    'SELECT SUM(visits.cost) FROM "emr"."visits" WHERE cost > 3',
    "SELECT plan, SUM(v.cost) FROM main.people p JOIN memory.emr.visits v ON p.id = v.id GROUP BY plan",
    # Tables of which each row is a unit
    "SELECT COUNT(*), SUM(x) FROM (SELECT x FROM north UNION ALL SELECT x FROM south)",
    "SELECT g, COUNT(*), AVG(x) FROM (SELECT * FROM north UNION ALL SELECT * FROM south) GROUP BY g",
    "WITH u AS (SELECT 'n' AS side, x FROM north UNION ALL SELECT 's', x FROM south WHERE x > 2) SELECT side, COUNT(*) FROM u GROUP BY side",
    "SELECT g, APPROX_COUNT_DISTINCT(x) FROM north GROUP BY g",
    # Derived tables for LATERAL
    "SELECT SUM(v.f) FROM people p JOIN LATERAL (SELECT id, f FROM t) v ON v.id = p.id",
)
ASKED: dict[str, tuple[str, Any, str]] = {
    "a sequence": ("SELECT COUNT(*), SUM(x) FROM north WHERE x > ? AND g <> ?", [3, 1], "x > 3 AND g <> 1"),
    "names": (
        "SELECT COUNT(*), SUM(x) FROM north WHERE x > :a AND g <> :b",
        {"a": 3, "b": 1},
        "x > 3 AND g <> 1",
    ),
    "names with dollars": ("SELECT COUNT(*) FROM north WHERE x > $a", {"a": 3}, "x > 3"),
    "a list": ("SELECT COUNT(*) FROM north WHERE x IN ?", [[1, 2, 3]], "x IN (1, 2, 3)"),
    "a named list": ("SELECT COUNT(*) FROM north WHERE x IN :xs", {"xs": (1, 2)}, "x IN (1, 2)"),
    "a decimal": ("SELECT COUNT(*) FROM north WHERE x * 0.1 = ?", [Decimal("0.3")], "x * 0.1 = 0.3"),
    "NumPy's integer": ("SELECT COUNT(*) FROM north WHERE x > ?", [np.int64(3)], "x > 3"),
    "NumPy's real": ("SELECT COUNT(*) FROM north WHERE x > ?", [np.float32(3.5)], "x > 3.5"),
    "NumPy's array": ("SELECT COUNT(*) FROM north WHERE x IN ?", [np.array([1, 2])], "x IN (1, 2)"),
    "NumPy's day": (
        "SELECT COUNT(*) FROM t WHERE moment > ?",
        [np.datetime64("2024-01-15")],
        "moment > TIMESTAMPTZ '2024-01-15 00:00:00+00'",
    ),
    "a time": ("SELECT COUNT(*) FROM t WHERE tm > ?", [dt.time(12)], "tm > TIME '12:00'"),
}
"""The statement, what it is given, and the condition that it has then."""
REFUSED = {
    "LATERAL that reads the tables before": (
        "SELECT plan, SUM(v.f) FROM people p, LATERAL (SELECT f FROM t WHERE t.id = p.id) v GROUP BY plan",
        "JOIN (SELECT unit, SUM(x) AS s FROM … GROUP BY unit) AS q ON q.unit = t.unit",
        "SELECT plan, SUM(v.s) FROM people p JOIN (SELECT id, SUM(f) AS s FROM t GROUP BY id) AS v ON v.id = p.id GROUP BY plan",
    ),
    "a derived table that reads the tables before": (
        "SELECT COUNT(*) FROM people p, (SELECT f FROM t WHERE t.id = p.id AND f > 10) v",
        "in FROM write a join",
        "SELECT COUNT(*) FROM people p JOIN (SELECT id, f FROM t WHERE f > 10) AS v ON v.id = p.id",
    ),
    "a list of the optional side": (
        "SELECT x, COUNT(*) FROM people p LEFT JOIN t ON p.id = t.id LEFT JOIN UNNEST(t.l) AS v(x) ON TRUE GROUP BY x",
        "unnest it in a subquery",
        "SELECT x, COUNT(*) FROM people p LEFT JOIN (SELECT t.id, x FROM t LEFT JOIN UNNEST(t.l) AS u(x) ON true) AS q ON p.id = q.id GROUP BY x",
    ),
    "a function of a list": (
        "SELECT COUNT(*) FROM t WHERE len(l) = 2",
        "FROM t, UNNEST(t.l) AS u(x)",
        "SELECT COUNT(*) FROM (SELECT id, moment, tm, COUNT(x) AS n FROM t, UNNEST(t.l) AS u(x) GROUP BY id, moment, tm) WHERE n = 2",
    ),
    **{
        f"{field}, which is no field": (
            f"SELECT {field} AS k, COUNT(*) FROM t GROUP BY k",
            f"did you mean {meant}?",
            f"SELECT {meant} AS k, COUNT(*) FROM t GROUP BY k",
        )
        for meant, fields in {
            "s.city": (
                "s.citty",
                "T.S.Citty",
                "(s).citty",
                "s['citty']",
                "struct_extract(t.s, 'citty')",
                "s.city.a",
            ),
            "s.z.n": ("s.z.m", "t.s.z.m", "(s).z.m", "t.s['z'].m", "s.y.n"),
        }.items()
        for field in fields
    },
    "a name that is no element's": (
        "SELECT SUM(xx) FROM t, UNNEST(t.l) AS v(x)",
        "did you mean x?",
        "SELECT SUM(x) FROM t, UNNEST(t.l) AS v(x)",
    ),
    "a column of another table of the STRUCT's name": (
        "SELECT SUM(s.qqqq) FROM t JOIN t AS s ON t.id = s.id",
        "there are: ",
        "SELECT SUM(s.f) FROM t JOIN t AS s ON t.id = s.id",
    ),
}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB, in UTC, and dpsql, nearly without noise."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(SCHEMA)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**8) as connection:
            yield database, connection


@pytest.mark.parametrize("query", QUERIES)
def test_values_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], query: str
) -> None:
    """All rows, numbers but for the last digits."""
    check(*both, query)


@pytest.mark.parametrize("case", ASKED)
def test_parameters_mean_their_constants(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], case: str
) -> None:
    """The answer is DuckDB's to the statement with the constants."""
    query, given, condition = ASKED[case]
    plainly = f"{query.partition(' WHERE ')[0]} WHERE {condition}"
    assert both[1].query(query, given).rows == tuple(both[0].execute(plainly).fetchall())


@pytest.mark.parametrize("case", REFUSED)
def test_refused_forms_have_an_accepted_rewrite(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], case: str
) -> None:
    """The hint says it, and its answer is DuckDB's."""
    check_refused(*both, *REFUSED[case])


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("s.citty", "s has no field citty"),
        ("s.hidden", "s has no field hidden"),
        ("t.s.z.m", "s.z has no field m"),
        ("s.y.n", "s has no field y.n"),
        ("s.city.a", "s has no field city.a"),
        ("S['Citty']", "S has no field Citty"),
    ],
)
def test_unknown_field_names_the_struct(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], field: str, words: str
) -> None:
    """The error names the STRUCT; whether the database has the field is not disclosed."""
    with pytest.raises(dpsql.QueryRejected, match=re.escape(words)) as caught:
        both[1].explain(f"SELECT SUM({field}) FROM t")
    assert caught.value.code == "column"


@pytest.mark.parametrize("asked", ["COUNT(s)", "COUNT_IF(s IS NOT NULL)", "COUNT_IF(t.s IS NULL)"])
def test_struct_as_a_value_is_refused_with_its_fields(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], asked: str
) -> None:
    """It is there, and its fields are what is read."""
    with pytest.raises(
        dpsql.QueryRejected, match="s is a STRUCT, of which only declared fields can be read"
    ) as caught:
        both[1].explain(f"SELECT {asked} FROM t")
    assert "which is NULL where s is" in str(caught.value.hint)


@pytest.mark.parametrize("role", ["a column", "the unit"])
def test_name_of_a_column_and_of_a_field_is_refused(role: str) -> None:
    """At connect: a query would read the column, where DuckDB reads the field."""
    columns = {"addr.zip": {"type": "integer"}} if role == "a column" else {}
    rules = {"unit": "id" if role == "a column" else "addr.zip", "rows_per_unit": 1, "columns": columns}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"t": rules}}
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS id, {'zip': 2} AS addr, 3 AS \"addr.zip\"")
        with pytest.raises(dpsql.PolicyError) as caught:
            dpsql.connect(database, policy=policy, ledger=":memory:")
        assert caught.value.code == "column_ambiguous"


def test_public_column_named_like_a_field_is_not_read() -> None:
    """It is a name of two meanings where nobody has declared it."""
    rules = {"t": {"unit": "id", "rows_per_unit": 1}, "u": {"public": True}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": rules}
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS id")
        database.execute('CREATE TABLE u AS SELECT 1 AS x, {\'zip\': 2} AS addr, 3 AS "addr.zip", 4 AS "a.b"')
        with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as connection:
            assert connection.query('SELECT x, "a.b" FROM u').rows == ((1, 4),)
            with pytest.raises(dpsql.QueryRejected):
                connection.query("SELECT addr.zip FROM u")
