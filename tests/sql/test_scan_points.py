"""Lattice points that are computed where a table is read: DuckDB adds them up before it joins, and the sums are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest

import dpsql

RULES = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10, "delta": 1e-6, "accountant": "zcdp"},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {"id": {"type": "integer"}, "town": {"type": "integer", "bounds": [0, 9]}},
        },
        "visits": {
            "unit": "person",
            "rows_per_unit": 100,
            "columns": {"person": {"type": "integer"}, "cost": {"type": "double", "bounds": [-5, 70]}},
        },
        "towns": {"public": True},
    },
}
JOINS = {
    "a unit's row": "SELECT town, SUM(cost) FROM people JOIN visits ON id = person GROUP BY town",
    "and public rows": "SELECT name, SUM(cost) FROM people JOIN visits ON id = person JOIN towns ON town = number GROUP BY name",
    "some without a row": "SELECT town, SUM(cost), COUNT(cost) FROM visits LEFT JOIN people ON person = id GROUP BY town",
}


DATABASES = {
    "unique keys": ("range", "range"),
    "NULL and doubles among keys": ("NULLIF(range, 7)", "range // 2"),
}
"""The ids of people and the numbers of towns."""


@contextmanager
def database(keys: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Many visits of few people and of nobody; with NULL, NaN and infinity as values."""
    ids, numbers = DATABASES[keys]
    with duckdb.connect() as made:
        made.execute(
            f"CREATE TABLE people AS SELECT {ids} AS id, range % 10 AS town FROM range(1, 2001);"
            f"CREATE TABLE towns AS SELECT {numbers} AS number, 't' || range % 5 AS name FROM range(10);"
            "CREATE TABLE visits AS SELECT NULLIF(range % 2500, 3) AS person, CASE WHEN range % 17 = 0 THEN NULL"
            " WHEN range % 19 = 0 THEN 'NaN' WHEN range % 23 = 0 THEN '-Infinity' ELSE range % 1009 / 7.0 END AS cost"
            " FROM range(200000)"
        )
        yield made


def emitted(engine: duckdb.DuckDBPyConnection, sql: str) -> str:
    """The statement of a query."""
    with dpsql.connect(engine, policy=RULES, ledger=":memory:") as con:
        return str(con.explain(sql, epsilon=1).prepared.releases[0].statement.sql)


def test_sums_are_made_before_a_join() -> None:
    """As DuckDB does it for columns of one table: it was so for no product."""
    with database("unique keys") as engine:
        statement = emitted(engine, JOINS["and public rows"])
        assert "EXPORT_STATE" in str(engine.execute(f"EXPLAIN {statement}").fetchall())


@pytest.mark.parametrize("keys", DATABASES)
@pytest.mark.parametrize("sql", JOINS.values(), ids=JOINS)
def test_they_are_the_same_as_after_the_join(sql: str, keys: str) -> None:
    """By the engine's own optimiser, and without what moves a sum below a join."""
    with database(keys) as engine:
        statement = emitted(engine, sql)
        other = engine.cursor()
        before = in_order(other.execute(statement).fetchall())
        other.execute("SET disabled_optimizers = 'partial_aggregate_pushdown'")
        assert "EXPORT_STATE" not in str(other.execute(f"EXPLAIN {statement}").fetchall())
        assert in_order(other.execute(statement).fetchall()) == before


def in_order(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows, and the intervals of their histograms, in the order of their texts: the statement has none."""
    return sorted(
        ([sorted(value) if isinstance(value, list) else value for value in row] for row in rows), key=str
    )
