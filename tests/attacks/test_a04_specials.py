"""A4, NaN, infinities and NULL: in any column, as an id or as a key, they stay within the sensitivity."""

from __future__ import annotations

import math
from typing import Any

import pytest
from worlds import (
    COLUMNS,
    Row,
    assert_within,
    cells,
    engine_of,
    joined_by,
    person,
    prepared,
    statistics,
    world,
)

NUMBERS = ["nan", "inf", "-inf", "-0.0", "1e308", "-1e308", "5e-324", None]
DATES = ["infinity", "-infinity", "0001-01-01", "5881580-07-10", "5877642-06-25 (BC)", None]
MOMENTS = ["infinity", "-infinity", "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00", None]
SPECIALS: dict[str, list[Any]] = {
    "age": [2**31 - 1, -(2**31), None],
    "cost": NUMBERS,
    "free": NUMBERS,
    "day": DATES,
    "seen": MOMENTS,
    "member": [None],
    "city": ["Atlantis", "", None],
    "word": ["nan", "infinity", None],
}
QUERIES = [
    "SELECT SUM(cost), AVG(age), COUNT(*) FROM people",
    "SELECT SUM(age), COUNT(cost), COUNT(day) FROM people",
    "SELECT AVG(LEAST(GREATEST(free - free, 0), 5)), COUNT(free - free) FROM people",
    "SELECT SUM(LEAST(GREATEST(free / cost, -1), 1)) FROM people WHERE free > -1 OR free IS NULL",
    "SELECT SUM(EXTRACT(month FROM seen)), SUM(EXTRACT(year FROM day)) FROM people",
    "SELECT city, AVG(cost), COUNT(age) FROM people GROUP BY city",
    "SELECT member, day < seen, SUM(cost) FROM people GROUP BY 1, 2",
    "SELECT DATE_TRUNC('month', day) AS m, COUNT(*), COUNT(DISTINCT id) FROM people GROUP BY m",
    "SELECT COUNT(CAST(word AS DOUBLE)), SUM(CAST(member AS INTEGER)) FROM people WHERE seen > day",
]


@pytest.mark.parametrize(
    ("sql", "neighbors"),
    [*((sql, "add_remove") for sql in QUERIES), *((sql, "replace") for sql in QUERIES[::3])],
)
def test_special_value_stays_within_sensitivity(sql: str, neighbors: str) -> None:
    """One unit with a special value, twice, moves every block by no more than its sensitivity."""
    connection = world(person(1), person(2, city="Kiel", cost=-5), neighbors=neighbors)
    plan = prepared(connection, sql)
    with joined_by(connection, [person(9)] if neighbors == "replace" else []):
        before = cells(connection, plan)
    for column, values in SPECIALS.items():
        for value in values:
            special = person(9, **{column: value})
            with joined_by(connection, [special, special]):
                assert_within(plan, before, cells(connection, plan))


@pytest.mark.parametrize("max_groups", [None, 1])
@pytest.mark.parametrize("sql", [*QUERIES[:6], "SELECT city, COUNT(DISTINCT id) FROM people GROUP BY city"])
def test_special_ids_have_the_usual_bound(sql: str, max_groups: int | None) -> None:
    """A unit whose id is NaN, infinite or NULL has its bound, and -0.0 is the same unit as 0.0."""
    columns = COLUMNS | {"id": ("DOUBLE", None)}
    connection = world(person(1), person(2, city="Kiel"), columns=columns)
    plan = prepared(connection, sql, max_groups)
    before = cells(connection, plan)
    for value in NUMBERS:
        unit = [person(value, city=city, cost=90) for city in ("Bonn", "Kiel") for _ in range(20)]
        unit += [person("0.0")] if value == "-0.0" else []
        with joined_by(connection, unit, columns):
            moved = assert_within(plan, before, cells(connection, plan))
            assert moved == 0 or value is not None


def test_nan_moves_a_naive_sum() -> None:
    """The attack works on the engine itself: one NaN turns the whole sum into NaN."""
    connection = world(person(1), person(2, cost="nan"))
    assert math.isnan((engine_of(connection).execute("SELECT SUM(cost) FROM people").fetchone() or (0.0,))[0])
    counted = statistics(connection, "SELECT COUNT(cost) FROM people")
    assert counted == statistics(world(person(1)), "SELECT COUNT(cost) FROM people")


def test_special_value_is_never_released(rows: list[Row]) -> None:
    """Answers about columns full of specials are finite numbers or NULL."""
    odd = [person(20 + index, cost=value, free=value) for index, value in enumerate(NUMBERS)]
    connection = world(*rows, *odd)
    for sql in QUERIES[:4]:
        for row in connection.query(sql):
            numbers = [value for value in row if isinstance(value, (int, float))]
            assert all(map(math.isfinite, numbers))
