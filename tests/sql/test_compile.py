"""What the emitted statement settles in the engine, where another wall stands behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pytest
from worlds import COLUMNS, Declared, Row, cells, close_all, engine_of, person, prepared, statistics, world

from dpsql.api.connection import Connection


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def sent(connection: Connection, sql: str) -> Sequence[tuple[Any, ...]]:
    """The rows that the engine sends towards the noise."""
    return connection.engine.backend.run_statement(prepared(connection, sql).statement.sql).reveal()


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("declared", [False, True], ids=["unknown", "declared"])
def test_group_of_too_few_units_does_not_leave_the_engine(unit: str, *, declared: bool) -> None:
    """Below the least frequency, in units and not in rows, a group is not even among the exact rows."""
    kept = {"type": "varchar", **({"values": ["crowd", "alone"]} if declared else {})}
    rows = [person(who, word="crowd") for who in range(5)]
    rows += [person(9 + who % 4, word="alone") for who in range(8 if unit == "id" else 4)]
    columns = COLUMNS | {"word": ("VARCHAR", kept)}
    connection = world(*rows, columns=columns, unit=unit, table={"min_frequency": 5})
    found = sent(connection, "SELECT word, COUNT(*), SUM(age) FROM people GROUP BY word")
    assert [row[0] for row in found] == ["crowd"]


@pytest.mark.parametrize("unit", ["id", "row"])
def test_excluded_key_appears_in_no_combination(unit: str) -> None:
    """Rows without a key that excludes NULL are dropped in every grouping."""
    declared = {"type": "varchar", "values": ["Bonn", "Kiel"], "nullable": False}
    columns = COLUMNS | {"city": ("VARCHAR", declared)}
    rows: list[Row] = [person(who, city=city) for who, city in enumerate(["Bonn", None, "Ulm"])]
    connection = world(*rows, columns=columns, unit=unit)
    found = cells(
        connection, prepared(connection, "SELECT city, word, COUNT(*) FROM people GROUP BY city, word")
    )
    assert list(found) == [("Bonn", "a")]


def test_texts_are_compared_by_their_bytes() -> None:
    """Under a collation, which would be refused before a charge, keys that a query makes are not run together."""
    rows = [person(1, member=True), person(2, member=False), person(3, member=False)]
    connection = world(*rows)
    engine_of(connection).execute("SET default_collation = 'nocase'")
    sql = "SELECT CASE WHEN member THEN 'A' ELSE 'a' END AS k, COUNT(*) FROM people GROUP BY k"
    assert statistics(connection, sql) == {("A",): ((1,),), ("a",): ((2,),)}


def test_rows_whose_texts_have_several_collations_are_units() -> None:
    """A function of texts under different collations cannot be bound: ids of rows are of all columns."""
    texts = {"values": ["a", "b"], "type": "varchar"}
    columns: Declared = {
        "one": ("VARCHAR COLLATE NOCASE", texts),
        "other": ("VARCHAR COLLATE NOACCENT", texts),
    }
    rows = ({"one": "a", "other": "b"}, {"one": "A", "other": "b"}, {"one": "a", "other": None})
    connection = world(*rows, columns=columns, unit="row")
    sql = "SELECT COUNT(*) FROM people JOIN (VALUES ('a'), ('a')) AS twice (x) ON one = x"
    assert statistics(connection, sql) == {(): ((4,),)}


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize(("engine", "far"), [("HUGEINT", 2**100), ("HUGEINT", -(2**100)), ("UBIGINT", 2**63)])
def test_value_too_large_for_its_type_is_clamped(engine: str, far: int, unit: str) -> None:
    """A number beyond 64 bits counts as the nearer bound, as any other beyond the bounds does."""
    columns: Declared = {"id": ("INTEGER", None), "n": (engine, {"type": "integer", "bounds": [2, 5]})}
    connection = world({"id": 1, "n": far}, columns=columns, unit=unit)
    ((total,), *_) = statistics(connection, "SELECT SUM(n) FROM people").values()
    assert total == ((5,) if far > 0 else (2,))


@pytest.mark.parametrize("unit", ["id", "row"])
def test_groups_come_in_the_order_of_their_keys(unit: str) -> None:
    """Secret keys come sorted, NULL last, for any order of rows: the order reveals nothing."""
    words = [f"{number:03}" for number in range(300)] + [None]
    for ordered in (words, words[::-1]):
        connection = world(*(person(who, word=word) for who, word in enumerate(ordered)), unit=unit)
        found = sent(connection, "SELECT word, COUNT(*) FROM people GROUP BY word")
        assert [row[0] for row in found] == words


@pytest.mark.parametrize("many", [3, 200])
def test_length_of_a_list_does_not_change_constants(many: int) -> None:
    """A long VALUES list is written in another way than a short one, and holds the same rows."""
    odd = ["1e300, 'it''s'", "-1e-1, NULL", "5e-324, 'ä, [b]'"]
    rows = [
        f"({place}, {odd[place % 3]}, DATE '2024-01-0{1 + place % 3}', {place % 2 == 1})"
        for place in range(many)
    ]
    sql = f"SELECT * FROM (VALUES {', '.join(rows)}, (NULL, NULL, 'last', NULL, NULL)) AS v(i, x, s, d, b)"
    found = world(person(1)).query(sql).rows
    with duckdb.connect() as plain:
        expected = plain.execute(sql).fetchall()
    assert sorted(found, key=str) == sorted(expected, key=str)
