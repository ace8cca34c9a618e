"""UNNEST of a list: a unit has at most as many rows as its rows times the declared elements, and each is its own.

Claim: elements of a list are rows of the unit of the row that holds it, at most `max_elements` of a row.
Why: the scan repeats the rows itself, after it has cut the list; what a unit contributes is bounded after that.
Source: McSherry 2009, "Privacy integrated queries", Theorem 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest
from properties.test_infallible import run
from worlds import assert_within, cells, close_all, connected, engine_of, prepared

import dpsql
from dpsql.api.connection import Connection

LISTS = ("NULL", "[]", "[1]", "[1, 1]", "[1, 2, 3]", "[NULL, 2]", "[9, -9, 5, 1, 2]")
QUERIES = (
    "SELECT COUNT(*) FROM t, UNNEST(t.list) AS u(x)",
    "SELECT SUM(x), AVG(x) FROM t, UNNEST(list) AS u(x)",
    "SELECT x, COUNT(*) FROM t, UNNEST(list) AS u(x) GROUP BY x",
    "SELECT COUNT(DISTINCT x), COUNT(DISTINCT id) FROM t, UNNEST(list) AS u(x)",
    "SELECT COUNT(*) FROM t, UNNEST(list) AS u(x), UNNEST(t.s.other) AS w(y) WHERE y > 0",
    "SELECT k, SUM(x) FROM t, UNNEST(list) AS u(x) GROUP BY k",
    "SELECT SUM(n) FROM (SELECT id, COUNT(*) AS n FROM t, UNNEST(list) AS u(x) GROUP BY id) AS g",
    "SELECT SUM(x) FROM t, UNNEST(list) AS u(x) JOIN v ON v.id = t.id",
    "SELECT COUNT(*), COUNT(x), SUM(x) FROM t LEFT JOIN UNNEST(list) AS u(x) ON TRUE",
    "SELECT x, COUNT(*) FROM t LEFT JOIN UNNEST(list) AS u(x) ON TRUE, UNNEST(t.s.other) AS w(y) GROUP BY x",
    "SELECT COUNT(*) FROM v, UNNEST(v.list) AS u(x)",
    "SELECT COUNT(*) FROM v JOIN t ON v.no = t.no, UNNEST(t.list) AS u(x)",
    "SELECT k, COUNT(x), SUM(x + 1) FROM (SELECT k, UNNEST(list) AS x FROM t WHERE no > 1) GROUP BY k",
    "SELECT COUNT(*) FROM (SELECT UNNEST(list) AS x, UNNEST(list) + 1 AS y FROM t) WHERE y > 1",
)
"""`t` has two rows of a unit, each with at most two elements of `list` and three of `s.other`; `v` is linked to `t`."""


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Worlds end with their test."""
    yield
    close_all()


def world(rows: Sequence[tuple[int, str]], **more: Any) -> Connection:
    """People with the lists of these rows; in `v` each row's list once more, which leads to the unit by its number."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        "CREATE TABLE t (no INTEGER, id INTEGER, k VARCHAR, list INTEGER[], s STRUCT(other INTEGER[2]));"
        "CREATE TABLE v (no INTEGER, id INTEGER, list INTEGER[])"
    )
    for number, (who, listed) in enumerate(rows):
        k = "a" if number % 2 else "b"
        opened.execute(f"INSERT INTO t VALUES ({number}, {who}, '{k}', {listed}, {{'other': [1, {number}]}})")
        opened.execute(f"INSERT INTO v VALUES ({number}, {who}, {listed})")
    elements = {"type": "int", "bounds": [-3, 3], "max_elements": 2}
    t = {
        "unit": "id",
        "rows_per_unit": 2,
        "columns": {
            "no": {"type": "int"},
            "k": {"type": "text", "values": ["a", "b"]},
            "list": elements,
            "s.other": {"type": "int", "max_elements": 3},
        },
    }
    link = {"column": "no", "references": "t.no"}
    v = {
        "link": link,
        "rows_per_unit": 2,
        "columns": {"no": {"type": "int"}, "id": {"type": "int"}, "list": elements},
    }
    tables = {"t": {**t, **more}, "v": v}
    return connected(opened, {"budget": {"epsilon": 10**6, "delta": 1e-6}, "tables": tables})


OTHERS = ((7, "[1, 2]"), (8, "[3]"))


@pytest.mark.parametrize("sql", QUERIES)
def test_no_unit_moves_an_answer_of_elements_beyond_its_sensitivity(sql: str) -> None:
    """The bound holds for any lists and rows of a unit that comes or goes."""
    if "JOIN v" in sql:
        with pytest.raises(dpsql.QueryRejected):
            prepared(world(OTHERS), sql)
        sql = sql.replace("v.id = t.id", "v.no = t.no")
    without = world(OTHERS)
    plan = prepared(without, sql)
    old, most = cells(without, plan), 0
    for lists in (*itertools.combinations_with_replacement(LISTS, 2), LISTS[-1:] * 4):
        found = cells(world((*OTHERS, *((1, listed) for listed in lists))), plan)
        most = max(most, assert_within(plan, old, found))
    assert most > 0


def test_declared_number_of_elements_counts() -> None:
    """Two rows with five elements each are four rows that count, where two elements do; the rest is cut."""
    connection = world(((1, LISTS[-1]), (1, LISTS[-1]), (2, "[3]")))
    assert cells(connection, prepared(connection, QUERIES[0])) == {(): ((5,),)}
    plan = prepared(connection, QUERIES[0])
    assert plan.plan.analysis.bound.rows == 4
    assert cells(world(((1, LISTS[-1]),)), plan) == {(): ((2,),)}


@pytest.mark.parametrize("sql", [sql for sql in QUERIES if "JOIN v" not in sql])
def test_no_list_makes_a_statement_fail(sql: str) -> None:
    """Wherever the engine evaluates what is computed of its elements."""
    run(world([(number % 3, listed) for number, listed in enumerate(LISTS)]), sql)


def test_partition_of_a_unit_does_not_depend_on_its_lists() -> None:
    """A unit with rows in two partitions is in none, also where its rows in one of them have no elements."""
    rows = ((1, "[1]"), (1, "[]"), (2, "[1]"))
    connection = world(rows, partition="k")
    for k, count in (("a", 0), ("b", 1)):
        plan = prepared(connection, f"SELECT COUNT(*) FROM t, UNNEST(list) AS u(x) WHERE k = '{k}'")
        assert cells(connection, plan) == {(): ((count,),)}, k


@pytest.mark.parametrize(
    "sql",
    [
        (
            "SELECT COUNT(*) FROM (SELECT x, ROW_NUMBER() OVER (PARTITION BY id ORDER BY x, no) AS r"
            " FROM t, UNNEST(list) AS u(x)) AS q WHERE r = 1 AND x > 0"
        ),
        "SELECT COUNT(*) FROM (SELECT * FROM t, UNNEST(list) AS u(x)) AS q WHERE x > 2",
        "SELECT COUNT(*) FROM (SELECT u.* FROM t, UNNEST(list) AS u(x)) AS q WHERE x > 2",
    ],
)
def test_element_has_the_name_given_to_unnest(sql: str) -> None:
    """Rows with numbers and * keep the name, too."""
    connection = world(((1, "[1]"), (2, "[3]"), (3, "[NULL]")))
    (expected,) = engine_of(connection).execute(sql).fetchone() or ()
    assert cells(connection, prepared(connection, sql)) == {(): ((expected,),)}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t LEFT JOIN UNNEST(list) AS u(x) ON TRUE",
        "SELECT COUNT(x) FROM t LEFT JOIN UNNEST(t.list) AS u(x) ON TRUE WHERE x > 1 OR x IS NULL",
        "SELECT COUNT(*) FROM t LEFT JOIN UNNEST(list) AS u(x) ON TRUE WHERE x IS NULL",
    ],
)
def test_left_join_keeps_rows_without_elements(sql: str) -> None:
    """Once, with NULL for the element, as DuckDB does; of an empty list as of NULL."""
    connection = world([(number, listed) for number, listed in enumerate((*LISTS[:3], LISTS[5]))])
    (expected,) = engine_of(connection).execute(sql).fetchone() or ()
    assert cells(connection, prepared(connection, sql)) == {(): ((expected,),)}


def test_left_join_cuts_long_lists() -> None:
    """Two of five elements count, as declared."""
    connection = world(((1, LISTS[-1]),))
    plan = prepared(connection, "SELECT COUNT(*) FROM t LEFT JOIN UNNEST(list) AS u(x) ON TRUE")
    assert cells(connection, plan) == {(): ((2,),)}


@pytest.mark.parametrize("side", ["RIGHT", "FULL"])
def test_unnest_is_not_repeated_for_rows_of_a_later_join(side: str) -> None:
    """After a comma, DuckDB would keep all rows of the other side for each row of the table."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(world(OTHERS), f"SELECT COUNT(*) FROM t, UNNEST(list) AS u(x) {side} JOIN v ON v.no = t.no")
    assert caught.value.code == "join"


@pytest.mark.parametrize("unit", ["row", None], ids=["rows that are units", "public rows"])
def test_lists_of_rows_without_an_id_are_refused(unit: str | None) -> None:
    """Each element would be a unit of its own, or nobody's."""
    opened = duckdb.connect()
    opened.execute("CREATE TABLE t (list INTEGER[])")
    columns = {"list": {"type": "int", "max_elements": 2}}
    table = {"public": True, "columns": columns} if unit is None else {"unit": unit, "columns": columns}
    other = {"unit": "row", "columns": {}}
    opened.execute("CREATE TABLE o (a INTEGER)")
    connection = connected(opened, {"budget": {"epsilon": 1}, "tables": {"t": table, "o": other}})
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(connection, QUERIES[0])
    assert caught.value.code == "join"


@pytest.mark.parametrize(
    ("column", "code"),
    [
        ({"k": {"type": "text", "max_elements": 2}}, "column_type"),
        ({"list": {"type": "int"}}, "column_type"),
        ({"list": {"type": "text", "max_elements": 2}}, "column_type"),
        ({"none": {"type": "int", "max_elements": 2}}, "column_missing"),
    ],
)
def test_list_is_declared_by_its_elements(column: dict[str, Any], code: str) -> None:
    """Their type, and how many of them count; else it is refused at connect."""
    with pytest.raises(dpsql.PolicyError) as caught:
        world(OTHERS, columns=column | {"no": {"type": "int"}})
    assert caught.value.code == code


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), SUM(x) FROM (SELECT UNNEST(list) AS x FROM t WHERE id < 3) AS q",
        "SELECT UNNEST(list) AS x, COUNT(*) FROM t GROUP BY x HAVING COUNT(*) > 0",
        "SELECT COUNT(*) FROM (SELECT *, UNNEST(list) AS x FROM t) AS q WHERE x > 1",
        "SELECT COUNT(*) FROM (SELECT t.id, UNNEST(t.list) AS x FROM t LEFT JOIN v ON v.no = t.no) AS q",
        "SELECT COUNT(*), SUM(x) FROM (SELECT UNNEST([1, 2, 2]) AS x FROM t) AS q",
        "SELECT COUNT(*) FROM (SELECT DISTINCT id, UNNEST(list) AS x FROM t) AS q",
        "SELECT SUM(x) FROM (SELECT UNNEST(list) AS x FROM t UNION ALL SELECT UNNEST(list) FROM v) AS q",
        "SELECT COUNT(*) FROM v WHERE no IN (SELECT no FROM (SELECT no, UNNEST(list) AS x FROM t) WHERE x = 1)",
        "SELECT n, COUNT(*) FROM (SELECT id, COUNT(x) AS n FROM (SELECT id, UNNEST(list) AS x FROM t) GROUP BY id) GROUP BY n HAVING COUNT(*) > 0",
    ],
)
def test_unnest_in_select_matches_duckdb(sql: str) -> None:
    """Lists with NULL, duplicates or no elements are unnested alone and within expressions."""
    lists = ("NULL", "[]", "[1]", "[1, 1]", "[2, NULL]")
    connection = world([(number // 2, listed) for number, listed in enumerate(lists)])
    answer = connection.query(sql, epsilon=10**5)
    assert sorted(answer.rows, key=str) == sorted(engine_of(connection).execute(sql).fetchall(), key=str)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM (SELECT UNNEST(list), UNNEST(s.other) FROM t) AS q", "element by element"),
        ("SELECT COUNT(UNNEST(list)) FROM t", "not allowed in an aggregate"),
        (
            "SELECT COUNT(*) FROM (SELECT UNNEST(list) FROM t WHERE UNNEST(list) > 1) AS q",
            "WHERE cannot read the elements",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT UNNEST(list), ROW_NUMBER() OVER (PARTITION BY id ORDER BY no) FROM t) AS q",
            "reads the rows before",
        ),
        (
            "SELECT COUNT(*) FROM (SELECT UNNEST(list) FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY no) = 1) AS q",
            "reads the rows before",
        ),
    ],
)
def test_unnest_in_select_with_another_meaning_is_refused(sql: str, said: str) -> None:
    """Two lists are put side by side, and windows see the rows before: not as in FROM."""
    with pytest.raises(dpsql.QueryRejected, match=said):
        prepared(world(OTHERS), sql)
