"""A3, float sums: order, threads, rounding and overflow cannot change an exact statistic by a bit."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pytest
from attacks.naive import Naive
from worlds import (
    Declared,
    assert_neighbours_within,
    connected,
    engine_of,
    person,
    prepared,
    spent,
    statistics,
    world,
)

from dpsql.api.connection import Connection

LARGEST = 2**31 - 1
BIG = 2**63 - 1
PRODUCTS: Declared = {
    "id": ("INTEGER", None),
    "a": ("INTEGER", {"type": "integer", "bounds": [-LARGEST, LARGEST]}),
    "b": ("INTEGER", {"type": "integer", "bounds": [-LARGEST, LARGEST]}),
    "big": ("BIGINT", {"type": "integer", "bounds": [-(10**15), 10**15]}),
}
LOAD = """
    CREATE TABLE people AS
    SELECT i % 50_000 AS id, CASE WHEN i % 3 = 0 THEN 'Bonn' ELSE 'Kiel' END AS city,
           CASE i % 3 WHEN 0 THEN 1e16 WHEN 1 THEN 1.0 + i / 7 ELSE -1e16 END AS cost
    FROM range(150_000) AS r(i) ORDER BY {order}
"""
QUERIES = [
    "SELECT SUM(cost), AVG(cost), COUNT(cost) FROM people",
    "SELECT city, SUM(cost / 3), COUNT(DISTINCT id), COUNT(*) FROM people GROUP BY city",
    "SELECT AVG(cost * cost) FROM people WHERE cost / 7 > 0.1",
]


def crowd(order: str, threads: int) -> Connection:
    """150,000 rows, more than one row group, whose float sum depends on their order."""
    database = duckdb.connect(config={"threads": threads})
    database.execute(LOAD.format(order=order))
    columns = {
        "cost": {"type": "double", "bounds": [-(10**16), 10**16]},
        "city": {"type": "varchar", "values": ["Bonn", "Kiel"]},
    }
    people = {"unit": "id", "rows_per_unit": 2, "max_groups": 1, "columns": columns}
    return connected(database, {"budget": {"epsilon": 9, "delta": 1e-6}, "tables": {"people": people}})


def test_threads_and_row_order_do_not_change_exact_cells() -> None:
    """One thread or two, rows in any order: the exact cells are the same bit by bit."""
    crowds = [crowd("i", 1), crowd("i", 2), crowd("hash(i)", 2), crowd("-i", 2)]
    for sql in QUERIES:
        first, *others = (statistics(connection, sql) for connection in crowds)
        assert any(cell for cells in first.values() for block in cells for cell in block)
        assert all(other == first for other in others)


def test_float_sum_depends_on_the_order_of_rows() -> None:
    """The attack works on sums of floats: equal rows in another order have another sum, far beyond the noise."""
    sums = [Naive(crowd(order, 1)).number("SELECT SUM(cost) FROM people") for order in ("i", "hash(i)", "-i")]
    assert max(sums) - min(sums) > 1000


def test_repeated_plan_sends_the_same_statement() -> None:
    """The statement depends neither on the rows nor on the time of the query."""
    ours, theirs = crowd("i", 1), crowd("-i", 2)
    for sql in QUERIES:
        assert prepared(ours, sql).statement == prepared(theirs, sql).statement


@pytest.mark.parametrize(
    ("values", "sql"),
    [
        ({"a": LARGEST, "b": LARGEST}, "SELECT SUM(a * b) FROM people"),
        ({"a": -LARGEST, "b": LARGEST}, "SELECT SUM(a * b), AVG(a * b) FROM people"),
        ({"a": LARGEST, "b": LARGEST}, "SELECT SUM(a + b), SUM(a - b), SUM(-a) FROM people"),
        ({"a": LARGEST, "b": 1}, "SELECT SUM(LEAST(GREATEST(a * b * a, -7), 7)) FROM people"),
        ({"big": BIG}, "SELECT SUM(big) FROM people"),
        ({"big": -BIG - 1}, "SELECT SUM(big), SUM(ABS(big)), AVG(-big) FROM people"),
        ({"big": -BIG - 1}, "SELECT SUM(big * 3) FROM people GROUP BY a > 0"),
        ({"big": BIG}, "SELECT SUM(big * big) FROM people"),
        ({"big": -BIG - 1}, "SELECT AVG(big * big * big), COUNT(*) FROM people"),
    ],
)
def test_integers_neither_wrap_nor_fail(values: dict[str, Any], sql: str) -> None:
    """Products beyond 32 bits, values beyond 64: answered, and a unit moves no cell further than derived."""
    rows = [{"id": who, "a": 1, "b": 2, "big": 3} for who in range(3)]
    extreme = {"id": 9, "a": 0, "b": 0, "big": 0} | values
    before, after = world(*rows, columns=PRODUCTS), world(*rows, extreme, columns=PRODUCTS)
    assert assert_neighbours_within(before, after, sql) > 0 or "big * big" in sql
    assert len(after.query(sql)) >= 1
    assert spent(after) == 1


def test_product_is_exact() -> None:
    """SUM(a * b) of INTEGER columns is exact where 32 bits would wrap or fail."""
    rows = [{"id": who, "a": LARGEST, "b": -LARGEST, "big": 0} for who in range(3)]
    connection = world(*rows, columns=PRODUCTS)
    ((cells,),) = statistics(connection, "SELECT SUM(a * b) FROM people").values()
    (measure,) = prepared(connection, "SELECT SUM(a * b) FROM people").plan.analysis.measures
    assert measure.lattice is not None
    assert abs(cells[0] * measure.lattice.step + 3 * LARGEST**2) <= 3 * measure.lattice.step
    with pytest.raises(duckdb.OutOfRangeException):
        engine_of(connection).execute("SELECT SUM(a * b) FROM people").fetchall()


def test_product_beyond_64_bits_is_not_null() -> None:
    """SUM(big * big) adds products beyond BIGINT, rounded to the nearest step."""
    rows = [{"id": who, "a": 0, "b": 0, "big": 10**15} for who in range(3)]
    connection = world(*rows, columns=PRODUCTS)
    ((cells,),) = statistics(connection, "SELECT SUM(big * big) FROM people").values()
    (measure,) = prepared(connection, "SELECT SUM(big * big) FROM people").plan.analysis.measures
    assert measure.lattice is not None
    assert abs(cells[0] * measure.lattice.step - 3 * 10**30) <= 3 * measure.lattice.step


@pytest.mark.parametrize("sql", ["SELECT SUM(cost) FROM people", "SELECT AVG(free * free) FROM people"])
def test_huge_doubles_are_clamped_before_the_sum(sql: str) -> None:
    """1e308 twice is infinite as a float; each row counts within its bounds."""
    sql = sql.replace("free * free", "LEAST(GREATEST(free * free, 0), 100)")
    huge = {"cost": 1e308, "free": 1e308}
    before = world(person(1, **huge))
    after = world(person(1, **huge), person(2, **huge))
    assert assert_neighbours_within(before, after, sql) > 0
    (naive,) = engine_of(after).execute("SELECT SUM(free * free) FROM people").fetchone() or (0,)
    assert not math.isfinite(naive)


@pytest.mark.parametrize("top", ["1e-300", "1e-310", "5e-324", "1e150"])
def test_tiny_and_huge_lattices_do_not_overflow(top: str) -> None:
    """A bound near the ends of DOUBLE gives an answer, not an OverflowError of Python's."""
    connection = world(person(1, free=float(top)), person(2, free=1e300))
    assert len(connection.query(f"SELECT SUM(LEAST(GREATEST(free, 0), {top})) FROM people")) == 1
