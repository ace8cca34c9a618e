"""A table's columns may have any name, those of the columns of emitted statements too."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from worlds import connected

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
