"""Keys that are grouped by their place in a domain give the groups that their values give."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from worlds import Declared, Row, cells, close_all, prepared, world

from dpsql.plan.types import Value

ENGINE: dict[str, tuple[str, list[Value], list[Any]]] = {
    # engine type: the policy's, the domain, what is stored
    "VARCHAR": ("varchar", ["a", "", "é", "it's"], ["a", "a", "", "é", "e", "A", "it's", "zzz", None]),
    "VARCHAR COLLATE NOCASE": ("varchar", ["a", "b"], ["a", "A", "b", "B", None]),
    "INTEGER": ("integer", [5, -1, 0], [5, 5, -1, 0, 7, None]),
    "BIGINT": ("integer", [*range(100)], [5, 5, 99, 100, -1, None]),  # longer than what is looked up
    "HUGEINT": ("integer", [1, 2], [1, 2**100, -(2**100), 2, None]),
    "DATE": ("date", [dt.date(2020, 1, 1)], ["2020-01-01", "2020-01-02", "infinity", None]),
    "DOUBLE": ("double", [0.0, 1.5], [0.0, -0.0, 1.5, "nan", "inf", 2.0, None]),
    "BOOLEAN": ("boolean", [True], [True, False, None]),
}


@pytest.fixture(autouse=True)
def _worlds_end() -> Any:
    """Worlds are closed with their test."""
    yield
    close_all()


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("engine", ENGINE)
def test_groups_are_those_of_the_values(engine: str, unit: str) -> None:
    """Each value of the domain counts its own rows; all others, and NULL, count as NULL."""
    kind, domain, stored = ENGINE[engine]
    columns: Declared = {"id": ("INTEGER", None), "k": (engine, {"type": kind, "values": domain})}
    rows: list[Row] = [{"id": who, "k": value} for who, value in enumerate(stored)]
    connection = world(*rows, columns=columns, unit=unit)
    found = cells(connection, prepared(connection, "SELECT k, COUNT(*) FROM people GROUP BY k"))
    counted = {key: blocks[0][0] for (key,), blocks in found.items() if blocks[0][0]}
    truth: Counter[Value] = Counter()
    for value in stored:
        read = dt.date.fromisoformat(value) if kind == "date" and value and value[0].isdigit() else value
        truth[read if read in domain else None] += 1
    if engine.endswith("NOCASE"):  # texts are what they are, whatever the collation
        assert counted == {("a"): 1, "b": 1, None: 3}
    else:
        assert counted == dict(truth)


def test_missing_partner_is_a_null_key() -> None:
    """A row without a partner in a LEFT JOIN and a partner outside the domain are both in the group NULL."""
    rows: list[Row] = [{"id": who, "k": key} for who, key in enumerate("abc")]
    columns: Declared = {"id": ("INTEGER", None), "k": ("VARCHAR", {"type": "varchar"})}
    public = {
        "public": True,
        "columns": {"k": {"type": "varchar"}, "size": {"type": "varchar", "values": ["S"]}},
    }
    connection = world(
        *rows,
        columns=columns,
        tables={"sizes": public},
        setup=["CREATE TABLE sizes AS SELECT * FROM (VALUES ('a', 'S'), ('b', 'XL')) AS v(k, size)"],
    )
    sql = "SELECT size, COUNT(*) FROM people LEFT JOIN sizes ON people.k = sizes.k GROUP BY size"
    found = cells(connection, prepared(connection, sql))
    assert {key: blocks[0][0] for (key,), blocks in found.items()} == {"S": 1, None: 2}


def test_ranks_prefer_no_key() -> None:
    """Which of a unit's groups count is spread evenly over the keys: χ² of 2,000 units over four."""
    keys, units = ["a", "b", "c", "d"], 2_000
    columns: Declared = {"id": ("INTEGER", None), "k": ("VARCHAR", {"type": "varchar", "values": keys})}
    rows: list[Row] = [{"id": who, "k": key} for who in range(units) for key in keys]
    connection = world(*rows, columns=columns, table={"rows_per_unit": 4, "max_groups": 1})
    found = cells(connection, prepared(connection, "SELECT k, COUNT(DISTINCT id) FROM people GROUP BY k"))
    counts = [blocks[0][0] for (key,), blocks in found.items() if key is not None]
    assert sum(counts) == units
    expected = units / len(keys)
    # The engine's hash is fixed, so the sum is too; at random it would pass 40 once in 10^8 times.
    assert sum((count - expected) ** 2 / expected for count in counts) < 40
