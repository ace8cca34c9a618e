"""A8, name games: however a name is written, it means the one declared table, or the query is refused."""

from __future__ import annotations

from typing import Any

import pytest
from attacks.naive import Naive
from worlds import (
    COLUMNS,
    NOON,
    Refused,
    assert_within,
    cells,
    connected,
    engine_of,
    joined_by,
    observed,
    person,
    prepared,
    quoted,
    world,
)

import dpsql
from dpsql.api.connection import Connection

SPELLINGS = [
    "(SELECT * FROM people) AS people",
    "(SELECT * FROM PEOPLE) AS regions",
    "(SELECT p.* FROM people AS p) AS people",
    "people",
    "PEOPLE",
    "People",
    '"people"',
    '"PEOPLE"',
    "people AS people",
    "people regions",
    'people "Ä"',
    "main.people",
    '"main"."people"',
    "memory.people",
    "memory.main.people",
]
REFUSED = [
    'SELECT COUNT(*) FROM "main.people"',
    "SELECT COUNT(*) FROM temp.people",
    "SELECT COUNT(*) FROM ''.people",
    "SELECT COUNT(*) FROM 'people'",
    "SELECT COUNT(*) FROM people()",
    "SELECT COUNT(*) FROM ?",
    "SELECT COUNT(*) FROM IDENTIFIER('people')",
    'SELECT COUNT(*) FROM "people "',
    "SELECT COUNT(*) FROM people\u200b",
    "SELECT COUNT(*) FROM ｐｅｏｐｌｅ",
    "SELECT COUNT(*) FROM pеople",
    "WITH people AS (SELECT * FROM regions) SELECT COUNT(age) FROM people",
    "WITH people AS (SELECT * FROM regions) SELECT COUNT(main.people.name) FROM people",
    "WITH people AS (SELECT * FROM people) SELECT COUNT(main.people.age) FROM people",
    "WITH people AS (SELECT 1 AS id), people AS (SELECT * FROM people) SELECT COUNT(*) FROM people",
    "WITH RECURSIVE people AS (SELECT 1 UNION ALL SELECT 1 FROM people) SELECT COUNT(*) FROM people",
    "SELECT COUNT(*) FROM people AS people(age, id)",
    "SELECT COUNT(*) FROM people, regions AS people",
    "SELECT COUNT(*) FROM people JOIN regions AS PEOPLE ON city = name",
    "SELECT COUNT(people.age) FROM people AS p",
    "SELECT COUNT(people.people) FROM people",
    "SELECT COUNT(regions.age) FROM people JOIN regions ON city = name",
    "SELECT COUNT(rowid) FROM people",
    "SELECT COUNT(people.rowid) FROM people",
    "SELECT COUNT(secret) FROM people",
    "SELECT COUNT(*) FROM hidden",
]


@pytest.mark.parametrize("table", ["PEOPLE", "main.people", '"people"', "memory.main.people", "People AS p"])
def test_careless_engine_reads_another_spelling_as_a_public_table(table: str, town: Connection) -> None:
    """The attack works where a name is compared as it is written: the exact count, without noise or charge."""
    naive = Naive(town)
    assert naive.query(f"SELECT COUNT(*) FROM {table}") == [(3,)]
    assert naive.spent == 0
    assert naive.query("SELECT COUNT(*) FROM people") != [(3,)]


@pytest.mark.parametrize("table", SPELLINGS)
def test_every_spelling_names_the_same_table(table: str, town: Connection) -> None:
    """Case, quotes and aliases change nothing: the same rows are read and charged to the same budget."""
    plan = prepared(town, f"SELECT COUNT(*), AVG(age) FROM {table}")
    assert plan.tables == ("people",)
    assert cells(town, plan) == cells(town, prepared(town, "SELECT COUNT(*), AVG(age) FROM people"))


@pytest.mark.parametrize(
    "sql",
    [
        "WITH people AS (SELECT * FROM people) SELECT COUNT(*), AVG(age) FROM people",
        "WITH People AS (SELECT * FROM PEOPLE) SELECT COUNT(*), AVG(age) FROM people",
        "WITH p AS (SELECT * FROM people), regions AS (SELECT * FROM p) SELECT COUNT(*), AVG(age) FROM regions",
        "WITH people AS (WITH people AS (SELECT * FROM people) SELECT * FROM people) SELECT COUNT(*), AVG(age) FROM people",
        "WITH regions AS (SELECT * FROM people), people AS (SELECT * FROM regions) SELECT COUNT(*), AVG(age) FROM people",
        "WITH people AS (SELECT 1 AS age) SELECT COUNT(*), AVG(age) FROM main.people",
    ],
)
def test_common_table_of_the_name_is_what_its_query_reads(sql: str, town: Connection) -> None:
    """Rows of the private table stay private under its own name and under the public one's, and are charged."""
    plan = prepared(town, sql)
    assert plan.tables == ("people",)
    assert cells(town, plan) == cells(town, prepared(town, "SELECT COUNT(*), AVG(age) FROM people"))


def test_common_table_of_a_private_name_may_be_public(town: Connection) -> None:
    """Where a query reads public rows only, the name of a private table reads nothing of it, and costs nothing."""
    for sql in (
        "WITH people AS (SELECT * FROM regions) SELECT COUNT(*) FROM people",
        "WITH people(id) AS (SELECT 1) SELECT COUNT(DISTINCT id) FROM people",
    ):
        assert prepared(town, sql).tables == ()


def test_qualified_column_is_the_same_column(town: Connection) -> None:
    """A column with its schema before it is read and charged as without."""
    plan = prepared(town, "SELECT COUNT(main.people.age) FROM people")
    assert plan.tables == ("people",)
    assert cells(town, plan) == cells(town, prepared(town, "SELECT COUNT(age) FROM people"))


def test_parameter_names_no_table(town: Connection) -> None:
    """A parameter is a value, by name as by position."""
    with pytest.raises(dpsql.Error):
        town.explain("SELECT COUNT(*) FROM $people", {"people": "people"})


@pytest.mark.parametrize("sql", REFUSED)
def test_other_names_are_refused(sql: str, refused: Refused) -> None:
    """Schemas, catalogues, look-alikes, shadows and undeclared names: refused, nothing charged."""
    refused(sql, *(["people"] if "?" in sql else []))


def test_alias_that_names_another_table_changes_nothing(town: Connection) -> None:
    """The private table called by the public one's name stays private, and keeps its budget."""
    sql = "SELECT people.rank, COUNT(*) FROM people AS regions JOIN regions AS people ON regions.city = people.name GROUP BY 1"
    plan = prepared(town, sql)
    assert plan.tables == ("people",)
    assert {len(cell) for cell in cells(town, plan).values()} == {len(plan.plan.vectors)}


def test_undeclared_and_missing_tables_are_indistinguishable() -> None:
    """The refusal of a name is the same whether or not the database has a table of that name."""
    ours, theirs = world(person(1)), world(person(1))
    engine_of(theirs).execute("CREATE TABLE hidden AS SELECT 42 AS answer; CREATE VIEW nobody AS SELECT 1")
    for name in ("hidden", "nobody", "Hidden"):
        assert observed(ours, f"SELECT COUNT(*) FROM {name}") == observed(
            theirs, f"SELECT COUNT(*) FROM {name}"
        )


@pytest.mark.parametrize(
    "shadow",
    [
        "CREATE SCHEMA other; CREATE TABLE other.people (id INTEGER); SET schema = 'other'",
        "CREATE TEMP TABLE people (id INTEGER)",
        "CREATE TEMP VIEW people AS SELECT 1 AS id, 2 AS age",
    ],
    ids=["schema", "temporary table", "temporary view"],
)
def test_checked_table_is_the_table_read(shadow: str) -> None:
    """Two tables of one name in the owner's connection are refused, or the checked one is read."""
    database = engine_of(world(person(1), person(2)))
    database.execute(shadow)
    rules = {"unit": "row", "columns": {"age": COLUMNS["age"][1]}}
    try:
        connection = connected(database, {"budget": {"epsilon": 9}, "tables": {"people": rules}})
    except dpsql.PolicyError:
        return
    assert cells(connection, prepared(connection, "SELECT COUNT(age) FROM people")) == {(): ((2,),)}


NAMES = [
    "contribution",
    "excess",
    "ranked",
    "released",
    "u",
    "n",
    "m",
    "total",
    "place",
    "upto",
    "k0",
    "x0",
    "c0",
    "t0",
    "select",
    'a"b',
    "a'b",
    "{0}",
    "a b",
    "ü",
    "row_number",
    "--",
]
"""Names that the written SQL uses itself, and names that break careless quoting."""


@pytest.mark.parametrize("name", NAMES)
def test_names_used_by_emitted_sql_keep_the_bound(name: str) -> None:
    """A table or column named like one in the emitted SQL keeps its unit and its bound."""
    columns = {
        "id": COLUMNS["id"],
        "city": COLUMNS["city"],
        name: ("INTEGER", {"type": "integer", "bounds": [0, 10_000]}),
    }
    people = world(person(1, **{name: 3}), person(2, **{name: 4}, city="Kiel"), columns=columns)
    database, q = engine_of(people), quoted(name)
    database.execute(f"CREATE TABLE {q} AS SELECT * FROM people")
    tables = {
        name: {
            "unit": "id",
            "rows_per_unit": 2,
            "max_groups": 1,
            "columns": {n: dict(r) for n, (_, r) in columns.items() if r},
        }
    }
    connection = connected(database, {"budget": {"epsilon": 9}, "tables": tables})
    many: list[Any] = [
        person(9, **{name: value}, city=city) for value in range(50) for city in ("Bonn", "Kiel")
    ]
    for sql in (
        f"SELECT SUM({q}), COUNT(*) FROM {q}",
        f"SELECT AVG(x0.{q}) FROM {q} AS x0 WHERE x0.{q} >= 0",
        f"SELECT city AS {q}, SUM({q}), COUNT(DISTINCT id) FROM {q} AS u GROUP BY city",
        f"SELECT {q}.city, COUNT(*) FROM {q} AS {q} WHERE {q}.{q} < 9999 GROUP BY {q}.city ORDER BY 1 LIMIT 9",
    ):
        plan = prepared(connection, sql)
        before = cells(connection, plan)
        with joined_by(people, many, columns):
            database.execute(f"INSERT INTO {q} SELECT * FROM people WHERE id = 9")
            assert assert_within(plan, before, cells(connection, plan)) > 0
    assert len(connection.query(sql)) >= 1


@pytest.mark.parametrize("name", ["#unit", "#contribution", "#"])
def test_names_with_the_prefix_of_emitted_sql_are_refused(name: str) -> None:
    """A table or column whose name begins with # would collide with emitted names: a PolicyError."""
    columns = {"id": COLUMNS["id"], name: ("INTEGER", {"type": "integer"})}
    with pytest.raises(dpsql.PolicyError):
        world(columns=columns)
    database = engine_of(world(person(1)))
    database.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM people")
    with pytest.raises(dpsql.PolicyError):
        connected(database, {"budget": {"epsilon": 9}, "tables": {name: {"unit": "row"}}})


@pytest.mark.parametrize("pair", [("straße", "strasse"), ("É", "é"), ("\u212a", "k")], ids=ascii)
def test_names_equal_by_unicode_folding_stay_distinct(pair: tuple[str, str]) -> None:
    """The engine treats such names as different, so the declared one never leads to the other."""
    declared, other = pair
    columns = {
        "id": COLUMNS["id"],
        declared: ("INTEGER", {"type": "integer", "bounds": [0, 9]}),
        other: ("INTEGER", None),
    }
    connection = world({"id": 1, declared: 7, other: 5}, columns=columns)
    assert f'"{declared}"' in prepared(connection, f'SELECT SUM("{declared}") FROM people').statement.sql
    with pytest.raises(dpsql.QueryRejected):
        connection.query(f'SELECT SUM("{other}") FROM people')


def test_clock_is_frozen() -> None:
    """Worlds are comparable because their clocks agree."""
    connection = world(person(1))
    connection.query("SELECT COUNT(*) FROM people")
    assert connection.engine.ledger.list_entries()[0].at == NOON
