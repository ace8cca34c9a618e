"""Domains of computed keys: each value is that of some row that the policy allows, and none that a row can have is missing."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
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
            "DATE_TRUNC('month', d)", "d + n", "SQRT(m)", "EXP(n)",
        )
    ),
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n > 0 GROUP')}",
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n IN (-1, 1, 7) GROUP')}",
    f"SELECT n * n AS g, COUNT(*) {OF.replace('GROUP', 'WHERE n * n < 3 GROUP')}",
    f"SELECT COALESCE(m, 9) AS g, COUNT(*) {OF.replace('GROUP', 'WHERE m IS NOT NULL GROUP')}",
    "SELECT g, COUNT(*) FROM (SELECT id, n * n AS g FROM t) GROUP BY g",
    "SELECT g + 1 AS g, COUNT(*) FROM (SELECT id, n * n AS g FROM t WHERE n >= 0) WHERE g > 0 GROUP BY 1",
    "SELECT g, COUNT(*) FROM (SELECT id, n * n AS g, COUNT(*) AS c FROM t GROUP BY id, n * n) GROUP BY g",
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
    table = {"unit": "id", "rows_per_unit": 1, "columns": COLUMNS}
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 10, "delta": 1e-6},
        "tables": {"t": table, "s": table},
    }
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=0.01) as opened:
        yield opened, database


@pytest.mark.parametrize("sql", KEYS)
def test_domains_are_images(full: tuple[dpsql.Connection, duckdb.DuckDBPyConnection], sql: str) -> None:
    """Of all rows that there can be, the groups that DuckDB has are those that are released, and no others."""
    connection, plain = full
    (release,) = connection.explain(sql).prepared.releases
    assert release.plan.analysis.domains is not None
    (found,) = release.plan.analysis.domains
    exact = [group for group, *_ in plain.execute(sql).fetchall()]
    assert len(set(found)) == len(found)
    assert set(found) == set(exact)


@pytest.mark.parametrize(
    ("column", "known"),
    [("wide", False), ("free", False), ("wide % 7", True)],
    ids=["many", "unbounded", "few results"],
)
def test_many_values_are_not_computed(column: str, known: bool) -> None:
    """Beyond ten thousand values a domain is what follows from intervals, as before, or none."""
    columns = {"wide": {"type": "integer", "bounds": [0, 10**6]}, "free": {"type": "integer"}}
    rules = {
        "version": 1,
        "privacy_unit": "row",
        "budget": {"epsilon": 1, "delta": 1e-6},
        "tables": {"t": {"unit": "row", "columns": columns}},
    }
    table = duckdb.sql("SELECT range AS wide, range AS free FROM range(9)").arrow()
    with dpsql.connect({"t": table}, policy=rules, ledger=":memory:", epsilon=0.01) as con:
        (release,) = con.explain(f"SELECT {column} * 2 AS g, COUNT(*) FROM t GROUP BY g").prepared.releases
        assert (release.plan.analysis.domains is not None) == known
