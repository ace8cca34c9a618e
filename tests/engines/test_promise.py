"""One policy and five queries mean the same of Parquet files, of PostgreSQL and of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from engines import sparks
from engines.loading import database, grant, load
from postgres import Server

import dpsql

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "customer",
    "database": "shop",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "orders": {
            "unit": "customer",
            "rows_per_unit": 25,
            "columns": {
                "price": {"type": "numeric(10,2)", "bounds": [0, 100]},
                "weight": {"type": "double", "bounds": [0, 2]},
                "store": {"type": "integer", "values": [0, 1, 2, 3, 4]},
                "day": {"type": "date", "bounds": ["2026-01-01", "2026-12-31"]},
                "note": {"type": "varchar"},
            },
        },
        "stores": {"public": True, "columns": {"store": {"type": "integer"}, "city": {"type": "varchar"}}},
    },
}
QUERIES = [
    "SELECT COUNT(*) AS n, SUM(price) AS total, AVG(price * 2) AS mean, SUM(weight) AS weight FROM orders",
    "SELECT city, COUNT(*) AS n, SUM(price) AS total FROM orders JOIN stores USING (store) GROUP BY city ORDER BY total DESC",
    "SELECT EXTRACT(month FROM day) AS month, COUNT(DISTINCT customer) AS buyers FROM orders GROUP BY month",
    "SELECT note, COUNT(*) AS n FROM orders WHERE price BETWEEN 10 AND 60 OR note LIKE '%é%' GROUP BY note HAVING COUNT(*) > 5",
    "SELECT AVG(most) AS most FROM (SELECT customer, MAX(price) AS most FROM orders GROUP BY customer) AS t",
]


@pytest.fixture
def shop(tmp_path: Path) -> tuple[duckdb.DuckDBPyConnection, Path]:
    """A database with orders and stores, and a folder with them in Parquet files."""
    source = duckdb.connect()
    source.execute(
        "CREATE TABLE orders AS SELECT CAST(i % 400 AS BIGINT) AS customer, "
        "CASE WHEN i % 17 = 3 THEN NULL ELSE CAST(i % 9000 / 100 AS DECIMAL(10, 2)) END AS price, "
        "CAST(i % 7 AS DOUBLE) / 3 AS weight, CAST(i % 5 AS INTEGER) AS store, DATE '2026-01-01' + CAST(i % 360 AS INTEGER) AS day, "
        "['new', 'café', NULL, 'old'][i % 4 + 1] AS note FROM range(9000) AS t(i)"
    )
    source.execute(
        "CREATE TABLE stores AS SELECT CAST(i AS INTEGER) AS store, 'city ' || i % 2 AS city FROM range(5) AS t(i)"
    )
    folder = tmp_path / "shop"
    folder.mkdir()
    for table in ("orders", "stores"):
        source.table(table).write_parquet(str(folder / f"{table}.parquet"))
    return source, folder


def mean_the_same(folder: Path, elsewhere: Mapping[str, Any]) -> None:
    """Side by side, without noise: the rows, the columns and their types, the price of each, and intervals.

    `elsewhere` has what connections to other engines take, by the engines' names.
    """
    options: dict[str, Any] = {"policy": POLICY, "ledger": ":memory:", "epsilon": 10**15}
    with ExitStack() as opened:
        files = opened.enter_context(dpsql.connect(str(folder), **options))
        others = {
            engine: opened.enter_context(dpsql.connect(database, **options))
            for engine, database in elsewhere.items()
        }
        for sql in QUERIES:
            ours = files.query(sql)
            assert ours.receipt.versions.keys() == {"duckdb", "dpsql", "sqlglot"}
            for engine, tables in others.items():
                theirs = tables.query(sql)
                assert (theirs.columns, theirs.types, theirs.rows) == (ours.columns, ours.types, ours.rows), (
                    engine,
                    sql,
                )
                assert theirs.receipt.loss == ours.receipt.loss
                assert theirs.intervals(0.95) == ours.intervals(0.95)
                assert theirs.receipt.versions.keys() == {engine, "dpsql", "sqlglot"}


@contextmanager
def on_postgres(server: Server, source: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """The URL of a database with the tables of `source`."""
    with database(server, "shop") as (url, owner):
        load(source, owner)
        grant(owner)
        yield url


def test_five_queries_agree_on_two_engines(
    server: Server, shop: tuple[duckdb.DuckDBPyConnection, Path]
) -> None:
    """Parquet files and PostgreSQL give the same answers."""
    source, folder = shop
    with on_postgres(server, source) as url:
        mean_the_same(folder, {"postgresql": url})


SYNTHETIC = "SELECT store, EXTRACT(quarter FROM day) AS quarter FROM orders"


def numbers_of(source: duckdb.DuckDBPyConnection) -> dict[tuple[Any, ...], int]:
    """The exact numbers of rows of the columns of `SYNTHETIC`."""
    counted = source.execute("SELECT store, quarter(day), COUNT(*) FROM orders GROUP BY ALL").fetchall()
    return {(store, quarter): number for store, quarter, number in counted}


def made_of(con: dpsql.Connection, exact: dict[tuple[Any, ...], int], **options: Any) -> None:
    """A synthetic table at a large loss has nearly these numbers of rows."""
    found = {tuple(key): number for *key, number in con.synthetic(SYNTHETIC, **options).cells}
    assert sum(abs(found.get(key, 0) - number) for key, number in exact.items()) <= 20


def test_synthetic_tables_and_regressions_are_exact_on_postgresql(server: Server) -> None:
    """At a large loss a synthetic table, a stream, a randomized copy and a regression are exact."""
    source = duckdb.connect()
    source.execute(
        "CREATE TABLE orders AS SELECT CAST(i % 400 AS BIGINT) AS customer, CAST(i % 90 AS DECIMAL(10, 2)) AS price, 1e0 AS weight, "
        "CAST(i % 5 AS INTEGER) AS store, DATE '2026-01-01' + CAST(i % 360 AS INTEGER) AS day, 'x' AS note FROM range(2000) AS t(i)"
    )
    source.execute(
        "CREATE TABLE stores AS SELECT CAST(i AS INTEGER) AS store, 'c' AS city FROM range(5) AS t(i)"
    )
    with (
        on_postgres(server, source) as url,
        dpsql.connect(url, policy=POLICY, ledger=":memory:", epsilon=10**6) as con,
    ):
        exact = numbers_of(source)
        made_of(con, exact, rounds=1)
        made_of(con, exact, method="mst")
        stream = con.stream(SYNTHETIC)
        assert abs(stream.count("store = 1").value - 400) <= 5
        copy = con.randomize(SYNTHETIC)
        assert abs(len(copy) - 2_000) <= 2
        fit = con.regress("price", {"d": "EXTRACT(day FROM day)"}, source="orders")
        assert fit.columns == ("intercept", "d")
        (truth,) = source.execute(
            "SELECT regr_intercept(price, day(day)), regr_slope(price, day(day)) FROM orders"
        ).fetchall()
        assert all(abs(a - b) < 0.01 for a, b in zip(fit.rows[0], truth, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_five_queries_agree_on_three_engines(
    server: Server, spark: Any, shop: tuple[duckdb.DuckDBPyConnection, Path], tmp_path: Path
) -> None:
    """Parquet files, PostgreSQL and Spark give the same answers, open at once."""
    source, folder = shop
    sparks.load(source, spark, tmp_path / "spark", "shop")
    spark.catalog.setCurrentDatabase("shop")
    with on_postgres(server, source) as url:
        mean_the_same(folder, {"postgresql": url, "spark": spark})
    with dpsql.connect(spark, policy=POLICY, ledger=":memory:", epsilon=10**6) as con:
        made_of(con, numbers_of(source), method="mst")
