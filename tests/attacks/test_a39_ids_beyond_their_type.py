"""A39, ids that are not compared exactly: numbers beyond 2^63, keys beyond 2^55 and texts that only read as one number.

Read as BIGINT, an id beyond it is NULL and its person is lost in joins; read as a number, '1' and '01' are one
person, whose rows count for both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pandas as pd
import pytest
from worlds import cells, connected, engine_of, prepared

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.lookups import to_constants
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import PublicSubquery, Values
from dpsql.plan.steps import list_steps

FIRST = 2**64 - 41
PEOPLE = 40
BOTH = [
    "SELECT COUNT(*) FROM people JOIN visits ON people.id = visits.id",
    "SELECT COUNT(*) FROM people JOIN visits USING (id)",
    "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM visits WHERE visits.id = people.id)",
    "SELECT COUNT(*) FROM people WHERE id IN (SELECT id FROM visits)",
    "SELECT COUNT(*) FROM people a JOIN people b ON a.id = b.id",
    "SELECT COUNT(*) FROM (SELECT id FROM people INTERSECT SELECT id FROM visits) AS both_",
]


def clinic(opened: Any, **columns: Any) -> Connection:
    """A connection to people and their visits, whose ids are declared as said, or not at all."""
    rules = {"unit": "id", "rows_per_unit": 1, "columns": columns}
    tables = {"people": rules, "visits": rules}
    return connected(opened, {"budget": {"epsilon": 100, "delta": 1e-6}, "tables": tables})


def database(kind: str, first: int = FIRST) -> duckdb.DuckDBPyConnection:
    """Two tables with the same ids of a type."""
    opened = duckdb.connect(config={"threads": 1})
    for table in ("people", "visits"):
        opened.execute(
            f"CREATE TABLE {table} AS SELECT CAST({first}::HUGEINT + i AS {kind}) AS id FROM range({PEOPLE}) AS r(i)"
        )
    return opened


@pytest.mark.parametrize("kind", ["UBIGINT", "HUGEINT", "UHUGEINT", "VARCHAR"])
@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "varchar"])
def test_ids_beyond_bigint_are_matched(kind: str, declared: bool) -> None:
    """Joins, matching and set operations find each of forty people, once."""
    connection = clinic(database(kind), **({"id": {"type": "varchar"}} if declared else {}))
    for sql in BOTH:
        assert cells(connection, prepared(connection, sql)) == {(): ((PEOPLE,),)}, sql


@pytest.mark.parametrize(
    ("kind", "read_as"),
    [
        *(("UBIGINT", read_as) for read_as in ("integer", "double")),
        *(("HUGEINT", read_as) for read_as in ("integer", "double")),
        ("BIGINT", "double"),
    ],
)
def test_id_beyond_its_declared_type_is_refused(kind: str, read_as: str) -> None:
    """It is refused at connect, with the type that fits."""
    with pytest.raises(dpsql.PolicyError) as caught:
        clinic(database(kind, 2**60), id={"type": read_as})
    assert caught.value.code == "unit_type"
    assert "declare it" in (caught.value.hint or "")


COLLATED = {
    "NOCASE": "CREATE TABLE people AS SELECT 'a' COLLATE NOCASE AS id",
    "a declared one": "CREATE TABLE people (id VARCHAR COLLATE NOACCENT.NOCASE)",
    "of a view": "CREATE TABLE stored (id VARCHAR COLLATE NOCASE); CREATE VIEW people AS SELECT id FROM stored",
    "of a field": "CREATE TABLE stored (id VARCHAR COLLATE NOCASE); CREATE TABLE people AS SELECT {'id': id} AS who FROM stored",
}


@pytest.mark.parametrize("made", COLLATED.values(), ids=COLLATED)
@pytest.mark.parametrize("declared", [False, True], ids=["undeclared", "varchar"])
def test_ids_under_a_collation_are_refused(made: str, declared: bool) -> None:
    """'a1' and 'A1' of such a column are one person to the schema, and two to dpsql."""
    unit = "who.id" if "who" in made else "id"
    columns = {unit: {"type": "varchar"}} if declared else {}
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(made)
    rules = {"unit": unit, "rows_per_unit": 1, "columns": columns}
    with pytest.raises(dpsql.PolicyError) as caught:
        connected(opened, {"budget": {"epsilon": 100}, "tables": {"people": rules}})
    assert caught.value.code == "unit_type"
    assert "collation" in str(caught.value)
    assert "LOWER" in (caught.value.hint or "")


@pytest.mark.parametrize("kind", ["link", "links", "referenced"])
def test_text_link_under_a_collation_is_refused(kind: str) -> None:
    """The collation may be on either side."""
    ours, theirs = ("", "COLLATE NOCASE") if kind == "referenced" else ("COLLATE NOCASE", "")
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        f"CREATE TABLE people (id INTEGER, code VARCHAR {theirs}); CREATE TABLE visits (id INTEGER, code VARCHAR {ours})"
    )
    link = {"column": "code", "references": "people.code"}
    visits = {"unit": "id", "links": [link]} if kind == "links" else {"link": link}
    people = {"unit": "id", "rows_per_unit": 1, "columns": {"code": {"type": "varchar"}}}
    tables = {"people": people, "visits": {**visits, "rows_per_unit": 1}}
    with pytest.raises(dpsql.PolicyError) as caught:
        connected(opened, {"budget": {"epsilon": 100}, "tables": tables})
    assert caught.value.code == "unit_type"
    assert "collation" in str(caught.value)


@pytest.mark.parametrize("kind", ["VARCHAR", 'VARCHAR COLLATE "binary"'])
def test_byte_ids_are_read_with_collated_values(kind: str) -> None:
    """Values are compared by their bytes, as the reference says, listed ones too."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        f"CREATE TABLE people (id {kind}, name VARCHAR COLLATE NOCASE, word VARCHAR COLLATE NOCASE)"
    )
    opened.execute("INSERT INTO people VALUES ('a', 'x', 'x'), ('A', 'X', 'X')")
    columns = {"name": {"type": "varchar", "values": ["x", "X"]}, "word": {"type": "varchar"}}
    rules = {"unit": "id", "rows_per_unit": 1, "columns": columns}
    connection = connected(opened, {"budget": {"epsilon": 100}, "tables": {"people": rules}})
    found = cells(connection, prepared(connection, "SELECT name, COUNT(*) FROM people GROUP BY name"))
    assert found == {("x",): ((1,),), ("X",): ((1,),), (None,): ((0,),)}


def frames(*ids: Any) -> dict[str, pd.DataFrame]:
    """Two frames of objects with these ids."""
    return {name: pd.DataFrame({"id": pd.Series(ids, dtype=object)}) for name in ("people", "visits")}


@pytest.mark.parametrize(
    ("read_as", "units"), [("integer", 3), ("varchar", 9)], ids=["as numbers", "as texts"]
)
def test_spellings_of_one_number_are_distinct_text_ids(read_as: str, units: int) -> None:
    """Numeric ids have one spelling of each number; text ids keep all spellings distinct."""
    ids = [1, "01", "1.0", " 1", "+1", "1.4", 2, "-0", -3]
    connection = clinic(frames(*ids), id={"type": read_as})
    counted = prepared(connection, "SELECT COUNT(DISTINCT id) FROM people")
    assert cells(connection, counted) == {(): ((units,),)}
    for sql in BOTH:
        assert cells(connection, prepared(connection, sql)) == {(): ((units,),)}, sql


@pytest.mark.parametrize("read_as", ["double", "date", "timestamp", "boolean"])
def test_objects_are_no_ids_of_another_type(read_as: str) -> None:
    """Many texts are one number, day or truth value."""
    with pytest.raises(dpsql.PolicyError) as caught:
        clinic(frames("1", "01"), id={"type": read_as})
    assert caught.value.code == "unit_type"


def test_rows_that_are_units_choose_groups_independently() -> None:
    """Each row has one of a public table's ten groups; the choice depends on the row and on no other row."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute("CREATE TABLE people AS SELECT i, 1 AS a, [i] AS list FROM range(1000) AS r(i)")
    opened.execute("CREATE TABLE kinds AS SELECT 1 AS a, i AS kind FROM range(10) AS r(i)")
    values = {"type": "integer", "values": list(range(10)), "nullable": False}
    rules = {"unit": "row", "max_groups": 1, "columns": {"a": {"type": "integer"}}}
    tables = {"people": rules, "kinds": {"public": True, "columns": {"kind": values}}}
    connection = connected(opened, {"budget": {"epsilon": 9}, "tables": tables})
    plan = prepared(connection, "SELECT kind, COUNT(*) FROM people JOIN kinds USING (a) GROUP BY kind")
    before = {group: parts[0][0] for group, parts in cells(connection, plan).items()}
    assert sum(before.values()) == 1000
    assert min(before.get((kind,), 0) for kind in range(10)) > 50
    engine_of(connection).execute("DELETE FROM people WHERE i = 0")
    after = {group: parts[0][0] for group, parts in cells(connection, plan).items()}
    assert sorted(before[group] - after.get(group, 0) for group in before) == [0] * 9 + [1]


FAR = (2**55 + 1, 2**55 + 2, 2**62, 2**62 + 1, -(2**62), -(2**55) - 1, 2**63 - 1, -(2**63) + 1, 7)
"""Wards that stays are in; the people's are these and others near them."""
COUNTED = "(SELECT ward, COUNT(*) AS n FROM stays GROUP BY ward) AS w"
MATCHED = [
    f"SELECT COUNT(*) FROM people JOIN {COUNTED} ON people.ward = w.ward",
    f"SELECT COUNT(*) FROM people JOIN {COUNTED} USING (ward) WHERE n > 10",
    f"SELECT COUNT(*) FROM people LEFT JOIN {COUNTED} ON people.ward = w.ward WHERE w.ward IS NULL",
    f"SELECT COUNT(*) FROM people LEFT JOIN {COUNTED} ON people.ward = w.ward",
    f"SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward FROM {COUNTED})",
    f"SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward FROM {COUNTED} WHERE n > 10)",
    f"SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward - 1 FROM {COUNTED})",
    "SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward - 1 FROM stays GROUP BY ward)",
    f"SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward FROM {COUNTED} ORDER BY ward DESC LIMIT 4)",
    f"SELECT COUNT(*) FROM people WHERE ward = (SELECT ward FROM {COUNTED} ORDER BY ward DESC LIMIT 1)",
    f"SELECT COUNT(*) FROM people WHERE ward = (SELECT MAX(ward) FROM {COUNTED})",
    "SELECT COUNT(*) FROM people WHERE ward IN (SELECT ward // 2 * 2 FROM stays GROUP BY ward)",
    f"SELECT COUNT(*) FROM people WHERE ward NOT IN (SELECT ward FROM {COUNTED} WHERE ward IS NOT NULL)",
    f"SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM {COUNTED} WHERE w.ward = people.ward)",
    f"SELECT COUNT(*) FROM people WHERE NOT EXISTS (SELECT 1 FROM {COUNTED} WHERE w.ward = people.ward)",
    "SELECT COUNT(*) FROM people WHERE (SELECT COUNT(*) FROM stays WHERE stays.ward = people.ward) > 10",
    "SELECT COUNT(*) FROM people WHERE (SELECT COUNT(*) FROM stays WHERE stays.ward = people.ward) = 0",
]


@pytest.fixture(scope="module")
def wards() -> Connection:
    """Thirty stays in each ward with a long number, and a person in each, and in others beside them."""
    opened = duckdb.connect(config={"threads": 1})
    listed = ", ".join(f"({ward})" for ward in FAR)
    opened.execute(
        "CREATE TABLE stays AS SELECT row_number() OVER () AS id, CAST(ward AS BIGINT) AS ward "
        f"FROM (VALUES {listed}) AS v(ward), range(30)"
    )
    beside = [*FAR, 2**55, -(2**55), 2**62 + 2, 2**62 - 1, 2**61, -(2**62) - 1, 0, 2**55 + 3]
    opened.execute(
        "CREATE TABLE people AS SELECT row_number() OVER () AS id, CAST(ward AS BIGINT) AS ward "
        f"FROM (VALUES {', '.join(f'({ward})' for ward in beside)}) AS v(ward)"
    )
    whole = {"type": "integer", "nullable": False}
    tables = {
        "stays": {"unit": "id", "rows_per_unit": 1, "columns": {"ward": whole}},
        "people": {"unit": "row", "columns": {"ward": whole}},
    }
    return connected(opened, {"budget": {"epsilon": 50_000, "delta": 1e-6}, "tables": tables})


@pytest.mark.parametrize("sql", MATCHED)
def test_rows_match_their_released_group(sql: str, wards: Connection) -> None:
    """Rows find the released group of their own 64-bit key, and no other."""
    ((expected,),) = engine_of(wards).execute(sql).fetchall()
    ((count,),) = wards.query(sql, epsilon=900).rows
    assert count == expected


def test_released_keys_stay_distinct(wards: Connection) -> None:
    """Keys enter among private rows unchanged; counts are kept to their interval."""
    (answer,) = (
        step for step in list_steps(prepared(wards, MATCHED[1]).outer) if isinstance(step, PublicSubquery)
    )
    narrow = (
        replace(column, facts=replace(column.facts, interval=Interval(0, 9))) for column in answer.columns
    )
    found = to_constants(replace(answer, columns=tuple(narrow)), [(ward, 2**60) for ward in FAR])
    assert isinstance(found, Values)
    places = [column.name for column in answer.columns]
    assert [row[places.index("ward")] for row in found.rows] == [*FAR]
    assert {row[places.index("n")] for row in found.rows} == {9}


def test_engine_loses_and_merges_ids() -> None:
    """The attack works where ids are read as the numbers that they look like."""
    opened = database("UBIGINT")
    lost = (
        "SELECT COUNT(*) FROM people p JOIN visits v ON TRY_CAST(p.id AS BIGINT) = TRY_CAST(v.id AS BIGINT)"
    )
    assert opened.execute(lost).fetchone() == (0,)
    merged = (
        "SELECT COUNT(DISTINCT TRY_CAST(id AS HUGEINT)) FROM (VALUES ('1'), ('01'), ('1.4'), (' 1')) AS t(id)"
    )
    assert opened.execute(merged).fetchone() == (1,)
