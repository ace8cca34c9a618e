"""The columns of emitted statements say what they hold, and a table's columns may have their names."""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pytest
from worlds import connected, prepared

from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.postgres.dialect import POSTGRES
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.statement import emit_release

_NAMES = ("unit_id", "group_key_1", "value_1", "unit_rows", "counted_rows", "group_rank")
_QUERIES = (
    "SELECT COUNT(*), SUM({value}) FROM t",
    "SELECT {key}, COUNT(*), SUM({value}), COUNT(DISTINCT {value}) FROM t GROUP BY {key}",
    "SELECT {key}, MEDIAN({value}), MAX({value}) FROM t WHERE {other} > 1 GROUP BY {key}",
    "SELECT AVG({value}) FROM (SELECT {unit}, MAX({value}) AS {value} FROM t GROUP BY {unit}) AS s",
    "SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.{unit} = b.{unit} WHERE a.{other} < b.{other}",
)


def _answers(names: tuple[str, ...]) -> list[list[Any]]:
    """The answers at so large an epsilon that they are exact, with the columns of the table under these names."""
    unit, key, value, other = names
    database = duckdb.connect()
    database.execute(
        f'CREATE TABLE t AS SELECT i // 3 AS "{unit}", [\'a\', \'b\'][1 + i % 2] AS "{key}", i % 7 AS "{value}", i % 5 AS "{other}" '
        "FROM range(60) AS r(i)"
    )
    columns = {
        key: {"type": "varchar", "values": ["a", "b"]},
        value: {"type": "integer", "bounds": [0, 6]},
        other: {"type": "integer", "bounds": [0, 4]},
    }
    policy = {
        "version": 1,
        "budget": {"epsilon": 10**30},
        "tables": {"t": {"unit": unit, "rows_per_unit": 3, "columns": columns}},
    }
    connection = connected(database, policy)
    asked = [sql.format(unit=unit, key=key, value=value, other=other) for sql in _QUERIES]
    return [sorted(connection.query(sql, epsilon=10**14).rows, key=str) for sql in asked]


@pytest.mark.parametrize("first", range(len(_NAMES)))
def test_columns_may_have_the_names_of_a_statement(first: int) -> None:
    """Answers are the same whatever a table's columns are called."""
    names = tuple(_NAMES[(first + place) % len(_NAMES)] for place in range(4))
    assert _answers(names) == _answers(("person", "town", "size", "age"))


_SHAPES = (
    "SELECT COUNT(*), SUM(size), AVG(age) FROM t",
    "SELECT town, COUNT(*), COUNT(DISTINCT size), SUM(DISTINCT age), MEDIAN(size) FROM t GROUP BY town",
    "SELECT age, SUM(size) FROM t GROUP BY age",
    "SELECT town FROM t GROUP BY town ORDER BY COUNT(*) DESC LIMIT 1",
    "SELECT COUNT(*) FROM t JOIN (VALUES ('a', 1), ('b', 2)) AS v(name, number) ON town = name",
)


@pytest.mark.parametrize("sql", _SHAPES)
@pytest.mark.parametrize(
    "dialect", [DUCKDB, POSTGRES, make_spark_dialect()], ids=["duckdb", "postgres", "spark"]
)
def test_columns_have_names_that_say_what_they_hold(dialect: Dialect, sql: str) -> None:
    """No column or source of a statement is called by a letter."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (person BIGINT, town VARCHAR, size BIGINT, age BIGINT)")
    columns = {
        "town": {"type": "varchar"},
        "size": {"type": "integer", "bounds": [0, 10**6]},
        "age": {"type": "integer", "bounds": [0, 10**6]},
    }
    policy = {
        "version": 1,
        "budget": {"epsilon": 10, "delta": 1e-6},
        "tables": {"t": {"unit": "person", "rows_per_unit": 1000, "columns": columns}},
    }
    plan = prepared(connected(database, policy), sql).plan
    found = emit_release(Compiler(dialect), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)
    texts = [found.sql, *(query for _, query in found.held_queries)]
    if found.stages is not None:
        texts += [found.stages.histograms, *(query for _, query in found.stages.tables)]
    assert [name for text in texts for name in re.findall(r"\bAS ([a-z]\d*)\b", text)] == []
