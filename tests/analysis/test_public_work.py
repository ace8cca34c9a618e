"""What joins of public rows can make is bounded before any of them is made, over whole statements."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.analysis import public_work
from dpsql.analysis.public_work import _PublicWork
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend

POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10, "delta": 1e-6},
    "tables": {
        "visits": {
            "unit": "pid",
            "rows_per_unit": 3,
            "columns": {"lvl": {"type": "integer", "bounds": [0, 5]}},
        },
        "kinds": {"public": True},
        "many": {"public": True},
    },
}
LIMIT = 1_000


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    """Private visits, seven kinds of which two share each key, and 2,000 rows with a unique key."""
    found = duckdb.connect()
    found.execute("CREATE TABLE visits AS SELECT i // 3 AS pid, i % 5 AS lvl FROM range(60) r(i)")
    found.execute("CREATE TABLE kinds AS SELECT i // 2 AS k, i AS n FROM range(7) r(i)")
    found.execute("CREATE TABLE many AS SELECT i AS k, i % 10 AS n FROM range(2000) r(i)")
    return found


@pytest.fixture
def con(database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A connection whose joins of public rows may make a thousand rows."""
    monkeypatch.setattr(public_work, "MOST_PUBLIC_ROWS", LIMIT)
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=1) as opened:
        yield opened


A, B = "range(40) AS a(i)", "range(40) AS b(i)"
PRODUCT = f"SELECT a.i AS k, b.i AS x FROM {A}, {B}"
SQUARES = "WITH a AS (SELECT k FROM kinds), b AS (SELECT p.k FROM a AS p, a AS q), c AS (SELECT p.k FROM b AS p, b AS q)"
REFUSED = [
    f"SELECT COUNT(*) FROM {A}, {B}",
    f"SELECT COUNT(*) FROM visits WHERE lvl IN (SELECT COUNT(*) FROM {A}, {B})",
    f"SELECT COUNT(*) FROM visits WHERE lvl > (SELECT COUNT(*) FROM {A}, {B})",
    f"SELECT COUNT(*) FROM visits JOIN ({PRODUCT}) AS q ON lvl = q.k",
    f"SELECT q.x, COUNT(*) FROM visits JOIN ({PRODUCT}) AS q ON lvl = q.k GROUP BY q.x",
    f"SELECT COUNT(*) FROM visits LEFT JOIN (SELECT DISTINCT k FROM ({PRODUCT}) AS p) AS q ON lvl = q.k",
    f"SELECT COUNT(*) FROM visits AS v WHERE EXISTS (SELECT 1 FROM {A}, {B} WHERE a.i = v.lvl)",
    f"SELECT lvl, COUNT(*) FROM visits GROUP BY lvl HAVING COUNT(*) > (SELECT MAX(k) FROM ({PRODUCT}) AS q)",
    f"SELECT lvl, COUNT(*), (SELECT MAX(x) FROM ({PRODUCT}) AS q) AS m FROM visits GROUP BY lvl",
    f"SELECT COUNT(*) FROM {A} JOIN {B} ON a.i < b.i",
    f"SELECT COUNT(*) FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE b.i > a.i)",
    f"SELECT COUNT(*) FROM ({PRODUCT} UNION SELECT k, n FROM kinds) AS q",
    f"SELECT MAX(c) FROM (SELECT a.i, COUNT(*) AS c FROM {A}, {B} GROUP BY a.i) AS q",
    f"SELECT k, x FROM ({PRODUCT}) AS q LIMIT 1",
    f"{SQUARES} SELECT COUNT(*) FROM visits WHERE lvl IN (SELECT k FROM c)",
    "SELECT COUNT(*) FROM kinds AS p JOIN kinds AS q ON p.k = q.k JOIN kinds AS r ON r.k = q.k, many",
    "SELECT COUNT(*) FROM (SELECT lvl, COUNT(*) AS n FROM visits GROUP BY lvl) AS q, many",
    "SELECT p.k FROM (VALUES (1), (2), (3)) AS p(k), many",
]  # fmt: skip
PLANNED = [
    f"SELECT COUNT(*) FROM {A} JOIN {B} ON a.i = b.i",
    f"SELECT COUNT(*) FROM {A} WHERE EXISTS (SELECT 1 FROM {B} WHERE b.i = a.i)",
    f"SELECT COUNT(*) FROM {A} WHERE a.i IN (SELECT n FROM many)",
    "SELECT COUNT(*) FROM many AS p JOIN many AS q USING (k) JOIN many AS r USING (k)",
    "SELECT COUNT(*) FROM visits JOIN many ON lvl = k",
    "SELECT COUNT(*) FROM many AS p LEFT JOIN kinds AS q ON p.n = q.n",
    "SELECT COUNT(*) FROM many, (SELECT COUNT(*) AS c FROM kinds) AS q",
    "WITH r AS (SELECT lvl, COUNT(*) AS n FROM visits GROUP BY lvl) SELECT p.lvl, p.n / q.n AS x FROM r AS p JOIN r AS q USING (lvl)",
    "SELECT COUNT(*) FROM kinds AS p, kinds AS q, kinds AS r",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_products_are_refused_before_they_are_made(
    con: Connection, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joins without equal keys are counted wherever they stand, and no engine makes them."""
    asked: list[str] = []
    for name in ("read_public_rows", "read_public_number"):
        read = getattr(DuckDBBackend, name)

        def note(self: DuckDBBackend, text: str, read: Any = read) -> Any:
            asked.append(text)
            return read(self, text)

        monkeypatch.setattr(DuckDBBackend, name, note)
    with pytest.raises(dpsql.QueryRejected, match="joins of public rows") as caught:
        con.query(sql)
    assert caught.value.code == "fanout"
    assert caught.value.hint
    assert not any(text.count("VALUES") > 1 for text in asked)
    assert con.budget()["visits"].spent.loss == 0


@pytest.mark.parametrize("sql", PLANNED)
def test_joins_on_keys_of_few_rows_are_planned(con: Connection, sql: str) -> None:
    """Large tables are joined on keys that few of their rows share, and small ones without keys."""
    con.explain(sql)


class Chain:
    """Draws a chain of common table expressions over public rows, each with the columns k and n."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tables: list[str] = []

    def source(self) -> str:
        pick = self.rng.choice
        base = (
            "kinds",
            "(SELECT i AS k, i % 3 AS n FROM range(6) AS r(i))",
            "(SELECT p.k, p.n FROM (VALUES (1, 1), (1, 2), (3, 0)) AS p(k, n))",
        )
        return pick(self.tables[-2:]) if self.tables and self.rng.random() < 0.8 else pick(base)

    def query(self) -> str:
        a, b = f"{self.source()} AS a", f"{self.source()} AS b"
        kind = self.rng.choice(("", "LEFT "))
        return self.rng.choice(
            [
                f"SELECT a.k, b.n FROM {a}, {b}",
                f"SELECT a.k, b.n FROM {a} {kind}JOIN {b} ON a.k = b.k",
                f"SELECT a.k, b.k AS n FROM {a} JOIN {b} ON a.k = b.n AND a.n <= b.k",
                f"SELECT a.k, b.k AS n FROM {a} JOIN {b} ON a.n < b.k",
                f"SELECT k, n FROM {a} UNION ALL SELECT n, k FROM {b}",
                f"SELECT DISTINCT k, n FROM {a}",
                f"SELECT k, COUNT(*) AS n FROM {a} GROUP BY k",
                f"SELECT MAX(k) AS k, MIN(n) AS n FROM {a}",
                f"SELECT k + 1 AS k, n FROM {a} WHERE n > 0",
                f"SELECT k, n FROM {a} WHERE EXISTS (SELECT 1 FROM {b} WHERE b.k = a.n)",
                f"SELECT k, n FROM {a} WHERE EXISTS (SELECT 1 FROM {b} WHERE b.k < a.n)",
                f"SELECT k, n FROM {a} WHERE k IN (SELECT n FROM {b})",
            ]
        )

    def statement(self) -> str:
        tables = []
        for place in range(self.rng.randint(1, 6)):
            tables.append(f"c{place} AS ({self.query()})")
            self.tables.append(f"c{place}")
        return f"WITH {', '.join(tables)} SELECT k, n FROM {self.tables[-1]}"


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_chains_are_within_the_bound(
    con: Connection, database: duckdb.DuckDBPyConnection, seed: int
) -> None:
    """What is planned has at most the rows that are counted."""
    sql = Chain(seed).statement()
    with contextlib.suppress(dpsql.QueryRejected):
        run = con.explain(sql).prepared
        ((rows,),) = database.execute(f"SELECT COUNT(*) FROM ({sql}) AS q").fetchall()
        assert rows <= _PublicWork(con.engine.public_lookups).bound_rows(run.outer.source)
        assert rows <= LIMIT
