"""Domains of computed keys: each value is that of some row that the policy allows, and none that a row can have is missing."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from filling import insert

import dpsql

SMALL, FLAGS, DAYS = (-2, -1, 0, 1, 2), ("a", "B", None), dt.date(2024, 1, 1)
COLUMNS: dict[str, Any] = {
    "id": {"type": "integer"},
    "n": {"type": "integer", "bounds": [-2, 2], "nullable": False},
    "m": {"type": "integer", "bounds": [0, 2]},
    "k": {"type": "varchar", "values": ["a", "B"]},
    "p": {"type": "varchar", "values": ["x", "y"], "nullable": False},
    "d": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "nullable": False},
}
OF = "FROM t GROUP BY g"
KEYS = [
    *(
        f"SELECT {expr} AS g, COUNT(*) {OF}"
        for expr in (
            "n * n", "n * n + n", "ABS(n)", "n % 2", "n // 2", "n / 2", "n * 1.5", "-n * n", "GREATEST(n, m)", "n + m",
            "n * m", "COALESCE(m, 9)", "COALESCE(n, 9)", "COALESCE(k, 'none')", "COALESCE(p, 'none')",
            "NULLIF(n, 0)",
            "n > 5", "k IS NULL", "YEARWEEK(d)", "YEAR(d) * 100 + MONTH(d)", "WEEK(d)", "LAST_DAY(d)",
            "DATE_TRUNC('month', d)", "d + n", "SQRT(m)", "EXP(n)", "LOWER(k)", "UPPER(LEFT(k, 1))", "LENGTH(k)", "k || p",
            "CONCAT(k, p)", "STRFTIME(d, '%Y-%m')", "CASE LOWER(k) WHEN 'b' THEN 'bee' ELSE p END", "m::VARCHAR", "HEX(m)",
        )
    ),
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n > 0 GROUP')}",
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n IN (-1, 1, 7) GROUP')}",
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n * n < 3 GROUP')}",
    f"SELECT COALESCE(m, 9) AS g, COUNT(*) {OF.replace('GROUP', 'WHERE m IS NOT NULL GROUP')}",
    "SELECT g, COUNT(*) FROM (SELECT id, n * n AS g FROM t) GROUP BY g",
    "SELECT g + 1 AS g, COUNT(*) FROM (SELECT id, n * n AS g FROM t WHERE n >= 0) WHERE g > 0 GROUP BY 1",
    "SELECT g, COUNT(*) FROM (SELECT id, n * n AS g, COUNT(*) AS c FROM t GROUP BY id, n * n) GROUP BY g",
    *(
        f"SELECT {expr} AS g, COUNT(*) {OF.replace('GROUP', f'WHERE {condition} GROUP')}"
        for expr, condition in (
            ("k", "k <> 'a'"), ("k", "k NOT IN ('a')"), ("k", "k LIKE 'a%'"), ("k", "k > 'B'"), ("k", "k >= 'B' OR k IS NULL"),
            ("k", "k > 'z'"), ("k", "NOT (k = 'a')"), ("k", "k IS NOT NULL AND n > 1"), ("k", "k || p = 'ax'"),
            ("k", "(k = 'a' AND n = 1) OR (k = 'B' AND n > 7)"), ("k", "k > p"), ("k", "COALESCE(k, 'B') = 'B'"),
            ("CASE WHEN k = 'a' THEN 1 WHEN k = 'B' THEN 2 ELSE 3 END", "k <> 'a'"),
            ("CASE WHEN n > 0 THEN 'up' WHEN n = 0 THEN 'no' ELSE 'down' END", "n <> 0"),
            ("n", "n BETWEEN 0 AND 1"), ("n", "n % 2 = 0"), ("m", "m BETWEEN 1 AND 5"), ("m", "m <> 1 OR n > 9"),
            ("n * n", "n <> 2 AND n <> -2"), ("n + m", "n = m"), ("n + m", "m > n AND n >= 0"), ("n > 0", "n > 1"),
            ("DATE_TRUNC('month', d)", "d >= DATE '2024-06-01' - INTERVAL 7 DAY"),
            ("DATE_TRUNC('month', d)", "d BETWEEN DATE '2024-02-29' AND DATE '2024-05-01'"),
            ("DATE_TRUNC('month', d)", "DATE_TRUNC('quarter', d) <> TIMESTAMP '2024-04-01'"),
            ("MONTH(d)", "WEEKDAY(d) = 1 AND d < DATE '2024-03-03'"), ("d", "DAY(d) = 31"),
            ("d", "d > TIMESTAMP '2024-12-29 12:00:00'"), ("YEAR(d)", "d <> DATE '2024-01-01'"),
            *(
                ("k", condition)
                for condition in (
                    "LOWER(k) = 'b'", "UPPER(k) = 'A'", "k ILIKE 'A%'", "k NOT ILIKE 'A%'", "SUBSTR(k, 1, 1) = 'a'", "LEFT(k, 1) = 'B'",
                    "LENGTH(k) > 3", "LENGTH(k) = 1", "k || 'x' = 'ax'", "CONCAT(k, 'x') = 'x'", "k ~ '[a-z]+'", "k SIMILAR TO '[A-Z]'",
                    "REGEXP_MATCHES(k, '^b')", "REGEXP_REPLACE(k, 'a', 'z') = 'z'", "CASE k WHEN 'a' THEN 1 ELSE 0 END = 0",
                    "CASE LOWER(k) WHEN 'b' THEN TRUE END", "COALESCE(LOWER(k), 'none') <> 'a'", "LOWER(k) IN ('a', 'c')",
                    "k IN (SELECT v FROM (VALUES ('a'), ('z')) AS c(v))", "k NOT IN (SELECT v FROM (VALUES ('a')) AS c(v))",
                    "LOWER(k) IN (SELECT LOWER(k) FROM ks WHERE w > 1)", "k = UPPER('b')", "CONTAINS(k, 'a')", "k GLOB '[a-c]'",
                    "LEVENSHTEIN(k, 'ab') < 2", "GREATEST(k, 'a') = 'a'", "ASCII(k) < 97", "REPLACE(k, 'a', 'b') <> k", "TRIM(k) = 'a'",
                    "EXISTS (SELECT 1 FROM ks WHERE UPPER(ks.k) = UPPER(t.k) AND w > 1)", "TRY_CAST(k AS INTEGER) IS NULL AND k < 'a'",
                    "(k = 'a' AND id > 5) OR (k = 'c' AND id > 6)", "NOT (k <> 'a' OR id < 5)", "(LOWER(k) = 'b' AND id > 5) OR k IS NULL",
                )
            ),
            ("LOWER(k)", "k <> 'a'"), ("k || p", "LOWER(k) = 'b' AND p <> 'x'"), ("m", "CAST(m AS VARCHAR) || 'x' = '1x'"), ("n > 0", "CAST(n > 0 AS VARCHAR) = 'true'"),
            ("d", "CAST(d AS VARCHAR) LIKE '2024-02%'"), ("d", "DAYNAME(d) = 'Monday'"), ("d", "CAST(d AS VARCHAR) = '2024-01-05'"),
            ("MONTHNAME(d)", "EXTRACT(quarter FROM d) = 2"), ("DATE_TRUNC('month', d)", "STRFTIME(d, '%m') > '10'"),
            ("d", "(EXTRACT(day FROM d) = 31 AND id > 5) OR d = DATE '2024-02-29'"),
            ("k", "k IN (SELECT k FROM ks WHERE w > 1)"), ("k", "k NOT IN (SELECT k FROM ks WHERE w > 1)"),
            ("k", "EXISTS (SELECT 1 FROM ks WHERE ks.k = t.k AND w = 1)"), ("k", "k = (SELECT MAX(k) FROM ks)"),
        )
    ),
    f"SELECT t.k AS g, COUNT(*) {OF.replace('GROUP', 'JOIN ks ON ks.k = t.k GROUP')}",
    f"SELECT t.k AS g, COUNT(*) {OF.replace('GROUP', 'JOIN ks ON ks.k = t.k WHERE w = 2 GROUP')}",
    f"SELECT t.k AS g, COUNT(*) {OF.replace('GROUP', 'LEFT JOIN ks ON ks.k = t.k WHERE w = 2 GROUP')}",
    f"SELECT t.k AS g, COUNT(*) {OF.replace('GROUP', 'LEFT JOIN ks ON ks.k = t.k AND w = 2 GROUP')}",
    "SELECT t.k AS g, COUNT(*) FROM t LEFT JOIN ks ON ks.k = t.k AND t.k <> 'a' GROUP BY g",
    "SELECT w AS g, COUNT(*) FROM t JOIN ks ON ks.k = t.k WHERE t.k <> 'a' GROUP BY g",
    "SELECT t.k AS g, COUNT(*) FROM t JOIN s u ON t.id = u.id AND t.k = u.k AND u.n > 0 WHERE u.k <> 'a' GROUP BY g",
    "SELECT g, COUNT(*) FROM (SELECT id, k AS g FROM t WHERE k <> 'a') WHERE g <> 'c' GROUP BY g",
    "SELECT g, COUNT(*) FROM (SELECT id, k AS g, COUNT(*) AS c FROM t WHERE k <> 'B' GROUP BY id, k) WHERE c > 0 GROUP BY g",
    "SELECT u.k AS g, COUNT(*) FROM t LEFT JOIN (SELECT id, k FROM s WHERE k <> 'a') u ON t.id = u.id GROUP BY g",
    "SELECT u.n * u.n AS g, COUNT(*) FROM t LEFT JOIN s u ON t.id = u.id GROUP BY g",
    "SELECT COALESCE(u.p, 'none') AS g, COUNT(*) FROM t LEFT JOIN s u ON t.id = u.id GROUP BY g",
    "SELECT u.g AS g, COUNT(*) FROM t LEFT JOIN (SELECT id, n * n AS g FROM s) u ON t.id = u.id GROUP BY 1",
    "SELECT u.g + 1 AS g, COUNT(*) FROM t LEFT JOIN (SELECT id, n * n AS g FROM s) u ON t.id = u.id GROUP BY 1",
]  # fmt: skip


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[dpsql.Connection, duckdb.DuckDBPyConnection]]:
    """A table with every row that the policy allows, each of somebody else, and one with the rows of a third of them."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (id BIGINT, n INTEGER, m INTEGER, k VARCHAR, p VARCHAR, d DATE)")
    days = [DAYS + dt.timedelta(days=day) for day in range(366)]
    rows = [(*values, days[0]) for values in itertools.product(SMALL, (0, 1, 2, None), FLAGS, ("x", "y"))] + [
        (n, 0, "a", "x", day) for day in days for n in SMALL
    ]
    insert(database, "t", [(number, *row) for number, row in enumerate(rows)])
    database.execute("CREATE TABLE s AS SELECT * FROM t WHERE id % 3 = 0")
    database.execute("CREATE TABLE ks AS SELECT * FROM (VALUES ('a', 1), ('B', 2), ('C', 3)) AS v(k, w)")
    table = {"unit": "id", "rows_per_unit": 1, "columns": COLUMNS}
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 10, "delta": 1e-6},
        "tables": {"t": table, "s": table, "ks": {"public": True}},
    }
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=0.01) as opened:
        yield opened, database


@pytest.mark.parametrize("sql", KEYS)
def test_domains_are_images(full: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], sql: str) -> None:
    """The released groups are exactly those that DuckDB has for all possible rows."""
    connection, plain = full
    (release,) = connection.explain(sql).prepared.releases
    assert release.plan.analysis.domains is not None
    (found,) = release.plan.analysis.domains
    exact = [group for group, *_ in plain.execute(sql).fetchall()]
    assert len(set(found)) == len(found)
    assert set(found) == set(exact)


@pytest.mark.parametrize(
    ("keys", "condition"),
    [
        ("k, n", "(k = 'a' AND n = 1) OR (k = 'B' AND n = 2)"),
        ("n, m", "n > m"),
        ("n, m, k", "n = m AND k <> 'a'"),
        ("p, DATE_TRUNC('month', d)", "p = 'x' OR DATE_TRUNC('month', d) < TIMESTAMP '2024-02-01'"),
    ],
)
@pytest.mark.parametrize("sets", ["{}", "ROLLUP ({})"])
def test_impossible_groups_are_not_shown(
    full: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], keys: str, condition: str, sets: str
) -> None:
    """A condition on several keys limits the groups that they make together."""
    connection, plain = full
    sql = f"SELECT {keys}, COUNT(*) AS number FROM t WHERE {condition} GROUP BY {sets.format(keys)}"
    every = connection.query(sql, epsilon=0.01).rows
    names = {tuple(row[:-1]) for row in plain.execute(sql).fetchall()}
    assert {row[:-1] for row in every} <= names


@pytest.mark.parametrize(
    ("condition", "years"),
    [
        ("born >= DATE '2019-01-05' - INTERVAL 7 DAY", range(2018, 2021)),
        ("born > TIMESTAMP '2019-12-31 12:00:00'", range(2020, 2021)),
        ("born = date_trunc('year', DATE '1950-06-06')", range(1950, 1951)),
        ("YEAR(born) <> 1950 AND born < DATE '1952-01-01'", (*range(1900, 1950), 1951)),
    ],
)
def test_condition_narrows_many_days(condition: str, years: Sequence[int]) -> None:
    """A compared moment narrows a column of more days than are tried one by one."""
    born = {"born": {"type": "date", "bounds": ["1900-01-01", "2020-12-31"], "nullable": False}}
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 1},
        "tables": {"t": {"unit": "row", "columns": born}},
    }
    database = duckdb.connect()
    database.execute("CREATE TABLE t AS SELECT DATE '1980-01-01' AS born")
    sql = f"SELECT YEAR(born) AS y, COUNT(*) FROM t WHERE {condition} GROUP BY y"
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=0.01) as con:
        (release,) = con.explain(sql).prepared.releases
        assert release.plan.analysis.domains == (tuple(years),)


BIG = {
    "kind": {"type": "varchar", "values": [f"value number {place}" for place in range(10_000)]},
    "day": {"type": "date", "bounds": ["1920-01-01", "2025-12-31"], "nullable": False},
    "moment": {"type": "timestamp", "bounds": ["1920-01-01", "2025-12-31"], "nullable": False},
    "number": {"type": "integer", "bounds": [0, 99_998], "nullable": False},
}


@pytest.fixture
def big() -> Iterator[dpsql.Connection]:
    """A table whose keys have many values."""
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 1000, "delta": 1e-6},
        "tables": {"t": {"unit": "row", "columns": BIG}},
    }
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE t AS SELECT 'value number 77' AS kind, DATE '1999-05-05' AS day, TIMESTAMP '1999-05-05' AS moment, 3 AS number"
    )
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=0.01) as opened:
        opened.explain("SELECT COUNT(*) FROM t")
        yield opened


@pytest.mark.parametrize(
    ("key", "condition", "left"),
    [
        ("kind", "LOWER(kind) LIKE '%77'", 100),
        ("kind", "LEVENSHTEIN(kind, 'value number 1234') < 2", 40),
        ("day", "STRFTIME(day, '%Y-%m') = '1999-05'", 31),
        ("YEAR(day)", "DAYNAME(day) = 'Monday' AND day < DATE '1930-01-01'", 10),
        ("number", "CAST(number AS VARCHAR) LIKE '77_'", 10),
        ("number // 10000", "number % 2 = 0", 10),
    ],
)
def test_many_values_are_computed_in_time(big: dpsql.Connection, key: str, condition: str, left: int) -> None:
    """Ten thousand texts, a hundred thousand numbers and the days of a century are computed within a second."""
    start = time.process_time()
    plan = big.explain(f"SELECT {key} AS g, COUNT(*) FROM t WHERE {condition} GROUP BY g").prepared
    assert time.process_time() - start < 1
    (release,) = plan.releases
    assert release.plan.analysis.domains is not None
    assert len(set(release.plan.analysis.domains[0]) - {None}) == left
    assert not release.plan.analysis.undecided_conditions


def test_work_on_constants_is_bounded_for_a_statement(big: dpsql.Connection) -> None:
    """Work beyond what a statement may be planned with is not begun; each part of it counts."""
    parts = [
        f"SELECT number % 10 AS g, COUNT(*) FROM t WHERE number % {by} = 1 GROUP BY g" for by in range(2, 12)
    ]
    start = time.process_time()
    releases = big.explain(" UNION ALL ".join(parts)).prepared.releases
    assert time.process_time() - start < 3
    undecided = [bool(release.plan.analysis.undecided_conditions) for release in releases]
    assert not undecided[0]
    assert undecided[-1]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT kind, COUNT(*) FROM t WHERE JACCARD(REPEAT(kind, 50), 'value number 12') < 0.1 GROUP BY kind LIMIT 3",
        "SELECT YEAR(moment) AS y, COUNT(*) FROM t WHERE DAYNAME(moment) = 'Monday' GROUP BY y",
    ],
)
def test_uncomputed_conditions_print_a_notice(big: dpsql.Connection, sql: str) -> None:
    """Groups that a condition excludes may be shown where it is not computed."""
    (found,) = [text for text in big.query(sql).notices if "excludes" in text]
    assert "was not computed for all values in advance" in found


def test_conditions_on_other_columns_do_not_narrow_a_key(big: dpsql.Connection) -> None:
    """Only conditions on the key are computed; others may be true or not."""
    sql = "SELECT kind, COUNT(*) FROM t WHERE number > 5 AND LOWER(kind) = 'value number 7' GROUP BY kind"
    assert not [text for text in big.query(sql).notices if "excludes" in text]


@pytest.mark.parametrize(
    ("column", "known"),
    [("wide", False), ("free", False), ("wide % 7", True)],
    ids=["many", "unbounded", "few results"],
)
def test_too_many_values_are_not_computed(column: str, known: bool) -> None:
    """Beyond a hundred thousand values a domain is what follows from intervals, as before, or none."""
    columns = {"wide": {"type": "integer", "bounds": [0, 10**6]}, "free": {"type": "integer"}}
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 1, "delta": 1e-6},
        "tables": {"t": {"unit": "row", "columns": columns}},
    }
    table = pa.table({"wide": range(9), "free": range(9)})
    with dpsql.connect({"t": table}, policy=rules, ledger=":memory:", epsilon=0.01) as con:
        (release,) = con.explain(f"SELECT {column} * 2 AS g, COUNT(*) FROM t GROUP BY g").prepared.releases
        assert (release.plan.analysis.domains is not None) == known


@pytest.mark.parametrize("condition", ["n = (SELECT MAX(w) FROM ks)", "n + (SELECT MAX(w) FROM ks) = 3"])
def test_public_subqueries_are_read_in_their_own_database(condition: str) -> None:
    """Values computed from one database's public rows are used for no other, nor after a change."""
    rules: dict[str, Any] = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 100},
        "tables": {
            "t": {"unit": "row", "columns": {"n": {"type": "integer", "bounds": [0, 3], "nullable": False}}},
            "ks": {"public": True},
        },
    }
    for most in (1, 2, 3, 1):
        database = duckdb.connect()
        database.execute(f"CREATE TABLE t AS SELECT 1 AS n; CREATE TABLE ks AS SELECT {most} AS w")
        with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=1) as con:
            explanation = con.explain(f"SELECT n, COUNT(*) FROM t WHERE {condition} GROUP BY n")
        (release,) = explanation.prepared.releases
        assert release.plan.analysis.domains == ((most if "= (" in condition else 3 - most,),)


_LATER = "people p LEFT JOIN (SELECT pid, UPPER(kind) AS k, lvl * 7 AS l FROM visits) d ON d.pid = p.pid"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT d.k, COUNT(*) FROM {_LATER} GROUP BY d.k",
        f"SELECT d.k || 'x' AS g, COUNT(*) FROM {_LATER} GROUP BY g",
        f"SELECT COALESCE(d.k, 'none') AS g, COUNT(*) FROM {_LATER} GROUP BY g",
        f"SELECT d.l IS NULL AS g, COUNT(*) FROM {_LATER} GROUP BY g",
        f"SELECT LENGTH(d.k) AS g, COUNT(*) FROM {_LATER} WHERE d.k IS NULL OR d.k <> 'A' GROUP BY g",
        "SELECT kind, COUNT(*) FROM visits LEFT JOIN ks ON kind = name GROUP BY kind",
        "SELECT UPPER(kind) AS g, COUNT(*) FROM visits LEFT JOIN ks ON UPPER(kind) = UPPER(name) AND w > 0 GROUP BY g",
        "SELECT kind, COUNT(*) FROM visits LEFT JOIN ks ON kind = name WHERE w IS NULL OR w > 1 GROUP BY kind",
    ],
)
def test_outer_join_keeps_null_in_the_domain(sql: str) -> None:
    """Rows without a partner have NULL for its columns, and their own values for those that are compared."""
    kind = {"type": "varchar", "values": ["a", "b"], "nullable": False}
    lvl = {"type": "integer", "bounds": [0, 2], "nullable": False}
    rules: dict[str, Any] = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**30, "delta": 1e-9, "accountant": "basic"},
        "tables": {
            "people": {"unit": "pid", "rows_per_unit": 1},
            "visits": {"unit": "pid", "rows_per_unit": 1, "columns": {"kind": kind, "lvl": lvl}},
            "ks": {"public": True},
        },
    }
    database = duckdb.connect()
    database.execute("CREATE TABLE people AS SELECT i AS pid FROM range(400) AS r(i)")
    database.execute(
        "CREATE TABLE visits AS SELECT i AS pid, ['a', 'b'][1 + i % 2] AS kind, i % 3 AS lvl FROM range(300) AS r(i)"
    )
    database.execute("CREATE TABLE ks AS SELECT 'a' AS name, 2 AS w")
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=10**9) as con:
        assert Counter(con.query(sql).rows) == Counter(database.execute(sql).fetchall())
