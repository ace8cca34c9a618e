"""Public keys under conditions on other engines: the groups that DuckDB computes in advance are those that the engine has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from engines.loading import database, grant, load
from postgres import Server

import dpsql
from dpsql.api.connection import Connection

KINDS = ["a", "B", "abc", "Née", "ΣΑΣ", "x_y", " a "]
COLUMNS: dict[str, Any] = {
    "kind": {"type": "varchar", "values": KINDS},
    "n": {"type": "integer", "bounds": [0, 6], "nullable": False},
    "day": {"type": "date", "bounds": ["2023-01-01", "2024-12-31"], "nullable": False},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "row",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {"t": {"unit": "id", "rows_per_unit": 1, "columns": COLUMNS}},
}
CONDITIONS = [
    ("kind", "LOWER(kind) = 'σασ'"),
    ("kind", "UPPER(LEFT(kind, 1)) = 'A'"),
    ("kind", "kind ILIKE 'N_E'"),
    ("kind", "kind || 'x' > 'a'"),
    ("kind", "LENGTH(kind) = 3 AND kind <> 'x_y'"),
    ("kind", "REGEXP_MATCHES(kind, 'a|B')"),
    ("kind", "TRIM(kind) = 'a'"),
    ("kind", "(CASE kind WHEN 'a' THEN 1 ELSE n END = 1 AND id > 3) OR kind IS NULL"),
    ("LOWER(kind)", "kind NOT LIKE '%a%'"),
    ("LENGTH(kind)", "kind > 'a'"),
    ("day", "CAST(day AS VARCHAR) LIKE '2024-02-%'"),
    ("STRFTIME(day, '%Y-%m')", "EXTRACT(year FROM day) = 2024"),
    ("MONTHNAME(day)", "DATE_TRUNC('quarter', day) = DATE '2023-04-01'"),
    ("CAST(n AS VARCHAR)", "CAST(n AS VARCHAR) < '4'"),
]


@pytest.fixture(scope="module")
def opened(server: Server) -> Iterator[tuple[Connection, duckdb.DuckDBPyConnection]]:
    """PostgreSQL with every combination of a kind and a number, and of a day, each in one row; and DuckDB with the same."""
    plain = duckdb.connect()
    plain.execute("CREATE TABLE t (id BIGINT, kind VARCHAR, n BIGINT, day DATE)")
    plain.execute(
        "INSERT INTO t SELECT ROW_NUMBER() OVER (), k, n, DATE '2023-01-01' + CAST(d AS INTEGER) "
        "FROM UNNEST(?) AS a(k), RANGE(7) AS b(n), RANGE(731) AS c(d) WHERE d % 7 = n",
        [[*KINDS, None]],
    )
    with database(server, "public_keys") as (url, owner):
        load(plain, owner)
        grant(owner)
        with dpsql.connect(url, policy=POLICY, ledger=":memory:", epsilon=10**6) as con:
            yield con, plain


@pytest.mark.parametrize(("key", "condition"), CONDITIONS)
def test_groups_match_the_engine(
    opened: tuple[Connection, duckdb.DuckDBPyConnection], key: str, condition: str
) -> None:
    """No group is empty, and none is missing: PostgreSQL finds each of them, and the rows that DuckDB has in it."""
    con, plain = opened
    sql = f"SELECT {key} AS g, COUNT(*) AS c FROM t WHERE {condition} GROUP BY {key}"
    (release,) = con.explain(sql).prepared.releases
    exact = plain.execute(sql).fetchall()
    assert release.plan.analysis.domains is not None
    assert set(release.plan.analysis.domains[0]) == {group for group, _ in exact}
    assert sorted(con.query(sql).rows, key=str) == sorted(exact, key=str)


def test_last_digits_follow_the_engine(opened: tuple[Connection, duckdb.DuckDBPyConnection]) -> None:
    """Functions of a mathematical library are not folded: all values stay, and a notice says so."""
    con, _ = opened
    found = con.query("SELECT kind, COUNT(*) FROM t WHERE EXP(LENGTH(kind)) > 20 GROUP BY kind")
    assert {kind for kind, _ in found.rows} >= set(KINDS)
    assert [text for text in found.notices if "excludes" in text]
