"""Set operations of tables whose rows are units: a unit is a row of one table, and has no more rows than its side gives it.

Claim: a row that is added to, removed from or swapped in either table moves an answer by what is derived for one row of one
side, and both tables are charged.
Why: each table is read once, so that a row is on one side; rows of two tables never have one identifier.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 and Theorem 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest
from filling import insert
from worlds import assert_within, cells, close_all, connected, engine_of, prepared

import dpsql
from dpsql.api.connection import Connection

UNION = "(SELECT k, x FROM a UNION ALL SELECT k, x FROM b)"
QUERIES = (
    f"SELECT COUNT(*) FROM {UNION}",
    f"SELECT k, COUNT(*), SUM(x), AVG(x) FROM {UNION} GROUP BY k",
    f"SELECT COUNT(DISTINCT x) FROM {UNION}",
    "SELECT k, COUNT(*) FROM (SELECT k, x FROM a UNION SELECT k, x FROM b WHERE x > 1) GROUP BY k",
    "SELECT COUNT(*) FROM (SELECT x FROM a INTERSECT SELECT x FROM b)",
    "SELECT COUNT(*) FROM (SELECT x FROM a EXCEPT SELECT x FROM b)",
    f"SELECT n, COUNT(*), SUM(x) FROM {UNION} AS t JOIN p ON t.x >= p.n GROUP BY n",
    "SELECT COUNT(*) FROM (SELECT a.x FROM a JOIN p ON a.x = p.n UNION ALL SELECT x + 1 FROM b) WHERE x > 1",
    "SELECT COUNT(*), SUM(x) FROM (SELECT x FROM a UNION ALL SELECT x FROM b UNION ALL SELECT x FROM c)",
    "SELECT s, COUNT(*) FROM (SELECT 'a' AS s, x FROM a UNION ALL (SELECT 'b', x FROM b UNION ALL SELECT 'b', x FROM c)) GROUP BY s",
)
OF_ALL_ROWS = (QUERIES[0], QUERIES[9])
"""Those that count the rows of each table, whatever they hold: a row in another's place changes nothing."""
ROWS = tuple(itertools.product((None, "u"), (None, 1, 2, 9)))
OTHERS = {"a": (("u", 1), ("v", 2)), "b": (("u", 1), (None, None)), "c": ()}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Worlds end with their test."""
    yield
    close_all()


def world(neighbors: str = "add_remove", **tables: Any) -> Connection:
    """Three tables whose rows are units, a table of people, and a public one in which 1 occurs twice."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute("CREATE TABLE p (n INTEGER); INSERT INTO p VALUES (1), (1), (2)")
    opened.execute("CREATE TABLE people (id INTEGER, x INTEGER)")
    table = {
        "unit": "row",
        "columns": {"k": {"type": "text", "values": ["u", "v"]}, "x": {"type": "int", "bounds": [0, 4]}},
    }
    for name in "abc":
        opened.execute(f"CREATE TABLE {name} (k VARCHAR, x INTEGER)")
    declared: dict[str, Any] = {name: dict(table) for name in "abc"}
    declared |= {
        "p": {"public": True},
        "people": {"unit": "id", "rows_per_unit": 1, "columns": {"x": {"type": "int"}}},
    }
    found = connected(
        opened, {"neighbors": neighbors, "budget": {"epsilon": 10**7, "delta": 1e-6}, "tables": declared}
    )
    hold(found, tables or OTHERS)
    return found


def hold(connection: Connection, tables: Any) -> None:
    """Makes these the rows of the tables."""
    for name, rows in tables.items():
        engine_of(connection).execute(f"DELETE FROM {name}")
        if rows:
            insert(engine_of(connection), name, list(rows))


def neighbours(neighbors: str) -> Iterator[dict[str, Sequence[Any]]]:
    """The tables with one row more in one of them, or with one row in another's place."""
    for name, rows in OTHERS.items():
        for row in ROWS:
            if neighbors == "add_remove":
                yield {**OTHERS, name: (*rows, row)}
            elif rows:
                yield {**OTHERS, name: (*rows[1:], row)}


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("sql", QUERIES)
def test_no_row_of_a_union_moves_an_answer_beyond_its_sensitivity(sql: str, neighbors: str) -> None:
    """No row does, even with an equal row in the other table; some row attains the bound."""
    connection = world(neighbors)
    plan = prepared(connection, sql)
    old, most = cells(connection, plan), 0
    for tables in neighbours(neighbors):
        hold(connection, tables)
        most = max(most, assert_within(plan, old, cells(connection, plan)))
    assert most > 0 or (neighbors == "replace" and sql in OF_ALL_ROWS)
    assert {bill.table for bill in plan.table_charges} == {name for name in "abc" if f"FROM {name}" in sql}


@pytest.mark.parametrize("sql", QUERIES)
def test_all_rows_of_a_union_count_as_in_duckdb(sql: str) -> None:
    """Equal rows of two tables are two units, also where a join repeats rows and they are counted by unit."""
    tables = {"a": ROWS[:-1] + ROWS[4:-1], "b": ROWS[:-1], "c": ROWS[4:-1]}
    tables = {name: [("v", 2), *(row for row in rows if row[1] != 9)] for name, rows in tables.items()}
    connection = world(**tables)
    found = connection.query(sql, epsilon=10**5)
    expected = engine_of(connection).execute(sql).fetchall()
    assert sorted(found.rows, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM (SELECT x FROM a UNION ALL SELECT x FROM a)",
        "SELECT COUNT(*) FROM (SELECT x FROM a UNION ALL SELECT x FROM b UNION ALL SELECT x FROM A)",
        "SELECT COUNT(*) FROM (SELECT x FROM a UNION ALL SELECT x FROM people)",
        "SELECT COUNT(*) FROM (SELECT x FROM people UNION SELECT x FROM a)",
        "SELECT k, COUNT(*) FROM (SELECT k, x FROM a UNION ALL SELECT k, x FROM b) GROUP BY ALL HAVING COUNT(*) = (SELECT x FROM b)",
    ],
)
def test_row_is_on_one_side_and_unit_of_one_kind(sql: str) -> None:
    """A table on both sides has each of its rows twice; people and rows are not added up."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(world(), sql)
    assert caught.value.code in ("set_operation", "subquery")
