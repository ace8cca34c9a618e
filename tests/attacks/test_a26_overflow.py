"""A26, overflow of arithmetic that the engine's SQL does itself: extremes that a query makes of one row.

A CASE gives one person's row a value at the end of its type. Were a distance, a bin, a product or a cast of the
emitted statement to leave 64 bits there, the error would say whether that row is in the table, at any ε.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from worlds import observed, person, world

from dpsql.api.connection import Connection
from dpsql.errors import BackendError
from dpsql.sql.compile import quantile_windows

AGGREGATES = (
    "MEDIAN({0})", "MIN({0})", "MAX({0})", "QUANTILE_DISC({0}, 0.3)", "QUANTILE_CONT({0}, [0.1, 0.9])", "SUM({0})",
    "AVG({0})", "VAR_POP({0})", "STDDEV_SAMP({0})", "CORR({0}, age)", "COUNT(DISTINCT {0})", "HISTOGRAM({0}, [0])",
    "COUNT_IF({0} * 3 > 5)",
)  # fmt: skip
EXTREMES = (
    ("9223372036854775807", "-9223372036854775807"),
    ("4611686018427387904", "-4611686018427387904"),
    ("1e308", "-1e308"),
    ("CAST('Infinity' AS DOUBLE)", "0.5"),
    ("DATE '9999-12-31'", "DATE '0001-01-01'"),
    ("TIMESTAMP '9999-12-31 23:59:59.999999'", "TIMESTAMP '0001-01-01'"),
    ("CAST('infinity' AS DATE)", "CAST('-infinity' AS DATE)"),
)
"""What stands in the row that is asked about, and what in all others."""
EPSILON = {"epsilon": 1e-6}


def people(cost: float) -> Connection:
    """Twenty people of two rows each, of whom number 17 has paid so much."""
    rows = [
        person(who, cost=cost if who == 17 else 10.0, age=20 + who) for who in range(20) for _ in range(2)
    ]
    return world(*rows)


@pytest.fixture(scope="module")
def worlds() -> tuple[Connection, Connection]:
    """Neighbours that differ in what one person has paid."""
    return people(90.0), people(5.0)


def build_query(aggregate: str, extreme: tuple[str, str], by: str = "") -> str:
    """Whether person 17 has paid more than 50, as a question about extremes."""
    made = f"CASE WHEN id = 17 AND cost > 50 THEN {extreme[0]} ELSE {extreme[1]} END"
    return f"SELECT {aggregate.format(made)} AS v FROM people{by}"


@pytest.mark.parametrize("by", ["", " GROUP BY city"])
@pytest.mark.parametrize("extreme", EXTREMES, ids=lambda pair: pair[0])
def test_no_extreme_makes_a_statement_fail(
    extreme: tuple[str, str], by: str, worlds: tuple[Connection, Connection]
) -> None:
    """Every aggregate of a CASE between the ends of its type: the same outcome of both neighbours, and no failure."""
    for aggregate in AGGREGATES:
        ours, theirs = (
            observed(world, build_query(aggregate, extreme, by), **EPSILON)[0] for world in worlds
        )
        failed = [
            found.error for found in (ours, theirs) if found.error and found.error[0] != "QueryRejected"
        ]
        assert not failed, (aggregate, failed)
        assert (ours.error, ours.columns, ours.types) == (theirs.error, theirs.columns, theirs.types), (
            aggregate
        )


def test_distance_in_64_bits_reveals_a_row(worlds: tuple[Connection, Connection]) -> None:
    """The attack works where the least point is first subtracted in 64 bits: an exact yes or no at ε = 10⁻⁶."""
    sql = build_query("MEDIAN({0})", EXTREMES[0])
    outcomes: list[Any] = []
    with mock.patch.object(
        quantile_windows, "_emit_bin", lambda _, at, width: f"(({at} + {2**62}) >> {width})"
    ):
        for connection in worlds:
            try:
                connection.query(sql, replay=False, **EPSILON)
            except BackendError:
                outcomes.append("failed")
            else:
                outcomes.append("answered")
    assert outcomes == ["failed", "answered"]
