"""A10, presence of a row: how many rows an answer has, and which keys, is settled before data is read."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import COLUMNS, Row, engine_of, hold, person, prepared, spent, world

NOBODY = [
    "SELECT COUNT(*) FROM people",
    "SELECT SUM(cost) FROM people",
    "SELECT AVG(cost), COUNT(*) FROM people",
    "SELECT COUNT(DISTINCT id), COUNT(cost) FROM people WHERE age > 200",
    "SELECT AVG(age) FROM people WHERE FALSE",
    "SELECT SUM(LEAST(GREATEST(rank, 0), 9)) + 1 FROM people JOIN regions ON city = name WHERE rank < 0",
    "SELECT COUNT(*) FROM people LEFT JOIN regions ON city = name WHERE name = 'nowhere'",
]
DOMAINS = {
    "SELECT city, COUNT(*) FROM people GROUP BY city": 2,
    "SELECT member, city, AVG(cost) FROM people GROUP BY member, city": 4,
    "SELECT age > 40, SUM(cost) FROM people GROUP BY 1": 2,
    "SELECT CASE WHEN cost > 50 THEN 'high' ELSE 'low' END AS level, COUNT(*) FROM people GROUP BY level": 2,
    "SELECT DATE_TRUNC('month', day), COUNT(DISTINCT id) FROM people GROUP BY 1": 12,
    "SELECT EXTRACT(isodow FROM seen), COUNT(*) FROM people WHERE cost > 99 GROUP BY 1": 7,
    "SELECT ROUND(cost), COUNT(*) FROM people GROUP BY 1": 106,
    "SELECT city FROM people GROUP BY city": 2,
}


@pytest.mark.parametrize("unit", ["id", "row"])
def test_ungrouped_aggregate_has_one_row(unit: str) -> None:
    """It has one row and one charge over no rows, no filtered rows and one unit."""
    connection = world(unit=unit)
    for rows in ([], [person(1)], [person(None)]):
        hold(connection, rows)
        for sql in NOBODY:
            before = spent(connection)
            asked = sql.replace("COUNT(DISTINCT id)", "COUNT(*)") if unit == "row" else sql
            assert len(connection.query(asked, replay=False)) == 1
            assert spent(connection) == before + 1


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize(("sql", "groups"), DOMAINS.items())
def test_public_keys_are_all_shown_in_a_fixed_order(
    sql: str, groups: int, unit: str, rows: list[Row]
) -> None:
    """No units, one unit and many give the same public keys in the same order.

    A group of NULL is shown, or not, by its noisy count alone: see `test_null_groups`.
    """
    sql = sql.replace("COUNT(DISTINCT id)", "COUNT(*)") if unit == "row" else sql
    connection = world(unit=unit)
    width = len(prepared(connection, sql).outer.release.keys)
    seen = []
    for people in ([], [person(1)], [*reversed(rows), person(99, city="Ulm")]):
        hold(connection, people)
        found = [row[:width] for row in connection.query(sql, replay=False)]
        seen.append([keys for keys in found if None not in keys])
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == groups


def test_not_null_key_has_no_null_group() -> None:
    """Rows without the key of nullable: false are dropped, and no group of NULL appears."""
    columns = COLUMNS | {
        "city": ("VARCHAR", {"type": "varchar", "values": ["Bonn", "Kiel"], "nullable": False})
    }
    for rows in ([person(1)], [person(1), person(2, city=None), person(3, city="Ulm")]):
        result = world(*rows, columns=columns).query("SELECT city, COUNT(*) FROM people GROUP BY city")
        assert [row[0] for row in result] == ["Bonn", "Kiel"]


def test_naive_query_reveals_presence() -> None:
    """The attack works on the engine itself: over nobody the sum is NULL and the groups are gone."""
    empty, one = engine_of(world()), engine_of(world(person(1)))
    total, grouped = "SELECT SUM(cost) FROM people", "SELECT city, COUNT(*) FROM people GROUP BY city"
    assert empty.execute(total).fetchall() == [(None,)]
    assert one.execute(total).fetchall() == [(10.0,)]
    assert (empty.execute(grouped).fetchall(), one.execute(grouped).fetchall()) == ([], [("Bonn", 1)])


@pytest.mark.parametrize(
    ("kind", "said", "null"),
    [
        ("BOOLEAN NOT NULL", {}, False),
        ("BOOLEAN NOT NULL", {"nullable": True}, True),
        ("BOOLEAN CHECK (MEMBER IS NOT NULL)", {}, False),
        ("BOOLEAN CHECK (member IS NOT NULL OR member IS NULL)", {}, True),
        ("BOOLEAN", {}, True),
        ("BOOLEAN", {"nullable": False}, False),
    ],
)
def test_schema_not_null_column_has_no_null_group(kind: str, said: dict[str, bool], null: bool) -> None:
    """A column that is NOT NULL, by itself or by a CHECK, has no group of NULL in any world."""
    found = world(columns=COLUMNS | {"member": (kind, {"type": "boolean", **said})})
    part = prepared(found, "SELECT member, COUNT(*) FROM people GROUP BY member").single_release
    assert part.plan.analysis.domains == ((False, True, None) if null else (False, True),)


@pytest.mark.parametrize(
    ("kind", "rules", "column", "value"),
    [
        ("VARCHAR NOT NULL", {"type": "varchar", "values": ["Bonn", "Kiel"]}, "city", "Ulm"),
        ("DOUBLE NOT NULL", {"type": "double", "bounds": [0, 100]}, "cost", "nan"),
        ("HUGEINT NOT NULL", {"type": "integer"}, "age", 2**100),
    ],
)
def test_value_read_as_null_is_counted_under_not_null(
    kind: str, rules: dict[str, Any], column: str, value: object
) -> None:
    """Unlisted, NaN and too large values have their rows in COUNT(*)."""
    rows = [person(number, **{column: value}) for number in range(1, 60)]
    found = world(*rows, columns=COLUMNS | {column: (kind, rules)}, budget={"epsilon": 10**7, "delta": 1e-6})
    for sql, expected in (
        ("SELECT COUNT(*), COUNT({}) FROM people", 59),
        ("SELECT COUNT(*) FROM people GROUP BY {}", 59),
    ):
        numbers = [row[0] for row in found.query(sql.format(column), epsilon=10**4)]
        assert max(numbers) == expected
