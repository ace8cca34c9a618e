"""Whose rows are joined, matched and put together: those of one privacy unit, whatever their ids look like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from worlds import Declared, close_all, prepared, spent, statistics, world

import dpsql
from dpsql.api.connection import Connection

COLUMNS: Declared = {
    "id": ("BIGINT", {"type": "integer", "bounds": [0, 5]}),
    "kind": ("VARCHAR", {"type": "varchar", "values": ["x"]}),
}
TABLES: Mapping[str, Any] = {
    "visits": {
        "unit": "id",
        "rows_per_unit": 4,
        "columns": {"id": {"type": "integer", "bounds": [0, 5]}, "visit": {"type": "integer"}},
    },
    "doses": {
        "link": {"column": "visit", "references": "visits.visit"},
        "rows_per_unit": 4,
        "columns": {"visit": {"type": "integer"}, "size": {"type": "integer", "bounds": [0, 9]}},
    },
    "tests": {
        "link": {"column": "visit", "references": "visits.visit"},
        "rows_per_unit": 4,
        "columns": {"visit": {"type": "integer"}},
    },
}
SETUP = [
    # Ids 6 to 8 are read as 5, and so is the person 5's own.
    "CREATE TABLE visits AS SELECT * FROM (VALUES (6, 10), (6, 11), (7, 12), (8, 13), (1, 14)) AS v(id, visit)",
    "CREATE TABLE doses AS SELECT * FROM (VALUES (10, 1), (10, 2), (12, 3), (14, 4), (99, 5)) AS d(visit, size)",
    "CREATE TABLE tests AS SELECT * FROM (VALUES (10), (12), (12), (6), (7)) AS t(visit)",
]


@pytest.fixture
def ward() -> Iterator[Connection]:
    """People with ids beyond the bounds of their column, their visits, and what was done on these."""
    rows = [{"id": who, "kind": "x"} for who in (5, 6, 7, 7, 1)]
    yield world(*rows, columns=COLUMNS, setup=SETUP, tables=dict(TABLES))
    close_all()


def counted(connection: Connection, sql: str) -> int:
    """The exact number of rows that count, before any noise."""
    ((blocks),) = statistics(connection, sql).values()
    return blocks[0][0]


@pytest.mark.parametrize(
    ("relation", "rows"),
    [
        ("visits", 5),
        # 6 has two visits, 7 is there twice with one, 1 has one; nobody else has both.
        ("people AS p JOIN visits AS v ON p.id = v.id", 2 + 2 + 1),
        ("people AS p LEFT JOIN visits AS v ON p.id = v.id", 1 + 2 + 2 + 1),
        ("visits AS v JOIN visits AS w ON v.id = w.id", 4 + 1 + 1 + 1),
        ("people WHERE id IN (SELECT id FROM visits)", 1 + 2 + 1),
        ("people AS p WHERE EXISTS (SELECT 1 FROM visits AS v WHERE v.id = p.id)", 1 + 2 + 1),
        ("people AS p WHERE NOT EXISTS (SELECT 1 FROM visits AS v WHERE v.id = p.id)", 1),
        ("visits WHERE id NOT IN (SELECT id FROM people)", 1),
        ("(SELECT id, kind FROM people INTERSECT SELECT id, 'x' FROM visits) AS same", 3),
        ("(SELECT id FROM people EXCEPT SELECT id FROM visits) AS never", 1),
        ("(SELECT id FROM people UNION SELECT id FROM visits) AS ever", 5),
        ("(SELECT DISTINCT id FROM people) AS once", 4),
        ("(SELECT id, COUNT(*) AS n FROM people GROUP BY id) AS each", 4),
    ],
)
def test_units_with_similar_ids_stay_distinct(relation: str, rows: int, ward: Connection) -> None:
    """A clamped id is one value for many people; their rows do not meet."""
    assert counted(ward, f"SELECT COUNT(*) FROM {relation}") == rows


@pytest.mark.parametrize(
    ("relation", "rows"),
    [
        ("doses", 4),  # of visit 99 nobody knows whose it is
        ("doses WHERE size > 2", 2),
        ("visits AS v JOIN doses AS d ON v.visit = d.visit", 4),
        ("doses AS d JOIN tests AS t ON d.visit = t.visit", 2 + 2),
        ("doses AS d JOIN doses AS e ON d.visit = e.visit", 4 + 1 + 1),
        ("doses WHERE visit IN (SELECT visit FROM tests)", 3),
        ("tests", 3),  # visits 6 and 7 are not there, though people of these ids are
    ],
)
def test_linked_row_belongs_to_the_unit_of_its_link(relation: str, rows: int, ward: Connection) -> None:
    """Rows are found through the key that they refer to, and rows that refer to nothing are nobody's."""
    assert counted(ward, f"SELECT COUNT(*) FROM {relation}") == rows


@pytest.mark.parametrize(
    "relation",
    [
        "visits AS v JOIN doses AS d ON v.id = d.visit",  # an id of a person and one of a visit
        "people AS p JOIN tests AS t ON p.id = t.visit",
        "people AS p JOIN visits AS v ON p.id = v.visit",
        "doses AS d JOIN people AS p ON d.visit = p.id",
        "people AS p JOIN visits AS v ON p.id < v.id",
        "people AS p JOIN visits AS v ON p.id + 0 = v.id + 0",
        "people AS p, visits AS v",
        "people WHERE id IN (SELECT visit FROM tests)",
        "people AS p WHERE EXISTS (SELECT 1 FROM tests AS t WHERE t.visit = p.id)",
        "people WHERE EXISTS (SELECT 1 FROM visits)",
        "people AS p WHERE NOT EXISTS (SELECT 1 FROM visits AS v WHERE v.visit = p.id)",
    ],
)
def test_ids_of_different_tables_do_not_match(relation: str, ward: Connection) -> None:
    """Numbers that are equal by chance join no rows: refused, nothing charged."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(ward, f"SELECT COUNT(*) FROM {relation}")
    assert caught.value.code in ("private_join", "join")
    assert spent(ward) == 0


@pytest.mark.parametrize("tables", ["people AS p JOIN visits AS v", "visits AS v JOIN people AS p"])
def test_strictest_rules_of_the_tables_hold(tables: str) -> None:
    """Rows of two tables are released by the greatest least frequency and the least limit of groups."""
    rules = {"max_groups": 3, "min_frequency": 2}
    visits = TABLES["visits"] | {"max_groups": 2, "min_frequency": 7}
    connection = world(
        columns=COLUMNS, setup=SETUP, table={"rows_per_unit": 9, **rules}, tables={"visits": visits}
    )
    sql = f"SELECT visit, COUNT(*) FROM {tables} ON p.id = v.id GROUP BY visit"
    bound = prepared(connection, sql).plan.analysis.bound
    assert (bound.groups, bound.limits_groups, bound.min_frequency) == (2, True, 7)
    close_all()
