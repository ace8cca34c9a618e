"""EXISTS and IN as values of a row depend on that row's unit and on public rows: nobody moves more than was derived.

Claim: of a statement with marks, SEMI and ANTI JOIN, a unit that comes or goes moves each cell by at most its sensitivity.
Why: brute force. Each unit of a crowd, with rows, NULLs and duplicates of its own, is taken away in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from worlds import Row, assert_within, cells, hold, person, prepared, world

MARKS = (
    "EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.age > p.age - 0 AND q.age = p.age)",
    "EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.city = 'Kiel') OR age > 40",
    "NOT (EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.city = 'Kiel') OR age > 40)",
    "id NOT IN (SELECT id FROM people WHERE age > 40) OR city = 'Kiel'",
    "age IN (SELECT q.age FROM people q WHERE q.id = p.id AND q.city <> p.city) OR age > 40",
    "city NOT IN (SELECT name FROM regions WHERE rank > 1) OR age > 40",
    "(id, city) NOT IN (SELECT id, city FROM people WHERE age > 40)",
    "EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.cost > p.cost) OR age > 40",
    "NOT (EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.age < p.age AND q.city <> p.city) OR city = 'Kiel')",
    "age NOT IN (SELECT q.age FROM people q WHERE q.id = p.id AND q.cost > p.cost) OR city = 'Kiel'",
    "age > 40 OR EXISTS (SELECT 1 FROM regions WHERE rank * 20 < p.age)",
    "age >= ALL (SELECT q.age FROM people q WHERE q.id = p.id AND q.city IS NOT NULL)",
    "cost < ANY (SELECT q.cost FROM people q WHERE q.id = p.id AND q.age IS DISTINCT FROM p.age) OR age > 40",
    "cost > (SELECT AVG(q.cost) FROM people q WHERE q.id = p.id AND (q.age > p.age OR p.age IS NULL))",
    "CASE WHEN EXISTS (SELECT 1 FROM regions WHERE name = city) THEN age > 30 ELSE age < 30 END",
)
JOINS = (
    "SELECT COUNT(*), SUM(cost) FROM people p SEMI JOIN people q ON q.id = p.id AND q.age > 40",
    "SELECT COUNT(*), SUM(cost) FROM people p ANTI JOIN people q ON q.id = p.id AND q.city = 'Kiel'",
    "SELECT city, COUNT(*), SUM(cost) FROM people ANTI JOIN regions ON name = city AND rank > 1 GROUP BY city",
    "SELECT SUM(CASE WHEN EXISTS (SELECT 1 FROM people q WHERE q.id = p.id AND q.age > 40) THEN cost ELSE 0 END) FROM people p",
)
CROWD = tuple(
    person(
        who, city=("Bonn", "Kiel", None)[who % 3], age=(25, 35, 45, None)[(who + again) % 4], cost=who * 9 - 5
    )
    for who in range(8)
    for again in range(1 + who % 2)
)
STATEMENTS = (*(f"SELECT COUNT(*), SUM(cost) FROM people p WHERE {mark}" for mark in MARKS), *JOINS)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_no_unit_moves_a_statistic_beyond_its_bound(sql: str) -> None:
    """No removed or lone unit moves a cell beyond its bound."""
    connection = world(*CROWD)
    plan = prepared(connection, sql)
    every = cells(connection, plan)
    for rows in _without_one(CROWD):
        hold(connection, rows)
        assert_within(plan, every, cells(connection, plan))
    hold(connection, ())
    nobody = cells(connection, plan)
    for who in range(8):
        hold(connection, [row for row in CROWD if row["id"] == who])
        assert_within(plan, nobody, cells(connection, plan))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_crowds_without_shared_units_add_up(sql: str) -> None:
    """The cells of two crowds that share nobody are those of each, added up."""
    connection = world(*CROWD)
    plan = prepared(connection, sql)
    parts = [[row for row in CROWD if row["id"] % 2 == odd] for odd in (0, 1)]
    found = []
    for rows in (*parts, CROWD):
        hold(connection, rows)
        found.append(cells(connection, plan))
    apart: dict[object, object] = {}
    for key in found[2]:
        apart[key] = tuple(
            tuple(a + b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in zip(found[0][key], found[1][key], strict=True)
        )
    assert apart == dict(found[2])


def _without_one(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row for row in rows if row["id"] != who] for who in sorted({row["id"] for row in rows})]
