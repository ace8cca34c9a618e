"""Columns: a statement names them all, and in the order in which the engine gives them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query

POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 100},
    "tables": {
        "visits": {
            "unit": "person",
            "rows_per_unit": 30,
            "max_groups": 4,
            "columns": {
                "age": {"type": "integer", "bounds": [0, 110]},
                "cost": {"type": "double", "bounds": [0, 1000]},
                "ward": {"type": "varchar", "values": ["a", "b"]},
            },
        }
    },
}
QUERIES = [
    "SELECT COUNT(*) FROM visits",
    "SELECT COUNT(DISTINCT person) FROM visits",
    "SELECT ward, COUNT(*), SUM(cost), AVG(age) FROM visits GROUP BY ward",
    "SELECT age, COUNT(DISTINCT ward), SUM(cost) FROM visits GROUP BY age",
    "SELECT ward, MEDIAN(cost), QUANTILE_CONT(age, 0.9), QUANTILE_DISC(cost, 0.1), COUNT(DISTINCT age) FROM visits GROUP BY ward",
    "SELECT ward FROM visits GROUP BY ward ORDER BY SUM(cost) DESC LIMIT 1",
    "SELECT MIN(cost), MAX(cost) FROM visits",
]


@pytest.mark.parametrize("unit", ["person", "row"])
@pytest.mark.parametrize("sql", QUERIES)
def test_engine_returns_the_named_columns(sql: str, unit: str) -> None:
    """The engine's own names of a statement's columns are those by which its rows are read."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT range // 9 AS person, range % 90 AS age, range % 7 / 2 AS cost, "
        "CASE WHEN range % 2 = 0 THEN 'a' ELSE 'b' END AS ward FROM range(500)"
    )
    visits = dict(POLICY["tables"]["visits"], unit=unit)  # type: ignore[index]
    if unit == "row":
        del visits["rows_per_unit"], visits["max_groups"]
        visits["columns"] = visits["columns"] | {"person": {"type": "integer", "bounds": [0, 100]}}
    with dpsql.connect(database, policy=POLICY | {"tables": {"visits": visits}}, ledger=":memory:") as con:
        for part in plan_and_match(con.engine, Query(sql, epsilon=Fraction(1))).releases:
            relation = database.sql(part.statement.sql)
            assert tuple(relation.columns) == part.statement.columns
            assert len(part.statement.histograms) >= len(part.plan.clamps)
            assert len(part.statement.windows) == len(part.plan.quantiles)


def test_statement_is_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two releases are emitted once for each query; the one that reads an earlier answer once more, though it is looked up, run and stored."""
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE visits AS SELECT range AS person, range AS age, 1.0 AS cost, 'a' AS ward FROM range(99)"
    )
    import dpsql.engine.query_run as module

    texts, emitted = list[str](), module.emit_statement

    def counted(*args: Any, **options: Any) -> object:
        statement = emitted(*args, **options)
        texts.append(statement.sql)
        return statement

    monkeypatch.setattr(module, "emit_statement", counted)
    sql = "SELECT COUNT(*) FROM visits WHERE age > (SELECT AVG(age) FROM visits)"
    with dpsql.connect(database, policy=POLICY | {"data_version": "1"}, ledger=":memory:") as con:
        con.query(sql, epsilon=2)
        con.query(sql, epsilon=2)
    assert len(texts) == 2 * 2 + 1
