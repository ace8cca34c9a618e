"""A12, fan-out by equality: keys that differ in the public table but equal one private key are all counted.

Conversion, clamping and collation make unequal public values equal; the bound must know how many.
"""

from __future__ import annotations

from typing import Any

import pytest
from worlds import Declared, Row, assert_within, cells, joined_by, prepared, world

MANY = 300
CASES: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    # name: private type, its policy type, the private value, the public table's query, its declaration
    "whole and real": (
        "DOUBLE",
        "double",
        "4611686018427387904",
        f"CAST(2 AS BIGINT) ** 62 + i FROM range({MANY})",
        {},
    ),
    "BIGINT ids": (
        "DOUBLE",
        "double",
        "4611686018427387904",
        f"4611686018427387904 + i FROM range({MANY})",
        {},
    ),
    "decimals": (
        "DOUBLE",
        "double",
        "1e23",
        f"CAST(100000000000000000000000 AS DECIMAL(38, 0)) + i FROM range({MANY})",
        {},
    ),
    "clamped": ("INTEGER", "integer", "5", f"i FROM range({MANY})", {"type": "integer", "bounds": [0, 5]}),
    "nanoseconds": ("TIMESTAMP", "timestamp", "1970-01-01", f"make_timestamp_ns(i) FROM range({MANY})", {}),
    "collated": (
        "VARCHAR COLLATE NOCASE",
        "varchar",
        "aa",
        "unnest(['aa', 'aA', 'Aa', 'AA']) FROM range(1)",
        {},
    ),
    "collated there": (
        "VARCHAR",
        "varchar",
        "aa",
        "unnest(['aa', 'aA', 'Aa']) COLLATE NOCASE FROM range(1)",
        {},
    ),
    "signed zero": ("DOUBLE", "double", "0.0", "unnest([0.0, -0.0]::DOUBLE[]) FROM range(1)", {}),
    "day and moment": (
        "DATE",
        "date",
        "2020-01-01",
        "TIMESTAMP '2020-01-01' + INTERVAL (i) HOUR FROM range(24)",
        {},
    ),
}


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("case", CASES)
def test_equal_keys_count_as_the_join_compares(case: str, unit: str) -> None:
    """One unit moves a count after the join by no more than derived, however its key matches."""
    engine, kind, value, public, rules = CASES[case]
    columns: Declared = {"id": ("INTEGER", None), "k": (engine, {"type": kind})}
    declared = {"public": True, **({"columns": {"key": rules}} if rules else {})}
    setup = [f"CREATE TABLE places AS SELECT {public.replace(' FROM', ' AS key FROM', 1)} AS r(i)"]
    nobody: list[Row] = [{"id": 1, "k": None}, {"id": 2, "k": None}]
    connection = world(*nobody, columns=columns, unit=unit, setup=setup, tables={"places": declared})
    for join in ("JOIN", "LEFT JOIN"):
        plan = prepared(connection, f"SELECT COUNT(*) FROM people AS p {join} places AS q ON p.k = q.key")
        before = cells(connection, plan)
        with joined_by(connection, [{"id": 9, "k": value}], columns):
            assert assert_within(plan, before, cells(connection, plan)) >= 1
