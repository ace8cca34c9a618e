"""Calls that a translation writes several times, nested in one another, are refused soon; ORDER BY names the items of SELECT first."""

from __future__ import annotations

import contextlib
import time

import pytest

import dpsql
from dpsql.api.connection import Connection


@pytest.mark.parametrize(
    ("dialect", "opened", "closed"),
    [
        ("spark", "PRINTF('%05d', LENGTH(", "))"),
        ("snowflake", "DIV0(", ", 2)"),
        ("snowflake", "DIV0NULL(2, ", ")"),
        ("snowflake", "ZEROIFNULL(", ")"),
        ("snowflake", "SORT_ARRAY([1], ", ")"),
    ],
)
def test_nested_copies_are_bounded(connection: Connection, dialect: str, opened: str, closed: str) -> None:
    """Twenty calls within one another would be a million copies."""
    start = time.process_time()
    with contextlib.suppress(dpsql.QueryRejected):
        connection.plan(
            f"SELECT COUNT(*) FROM visits WHERE {opened * 20}age{closed * 20} = 1", dialect=dialect
        )
    assert time.process_time() - start < 2


def test_a_percentage_is_of_the_order_of_the_items(connection: Connection) -> None:
    """An alias takes precedence over a column of its name, and a number of an item means the item."""
    for order in ("i", "1"):
        rows = connection.query(f"SELECT -i AS i FROM range(10) AS t(i) ORDER BY {order} LIMIT 30%").rows
        assert [tuple(row) for row in rows] == [(-9,), (-8,), (-7,)]
    with pytest.raises(dpsql.QueryRejected, match="cannot compute with an item"):
        connection.query("SELECT -i AS i FROM range(10) AS t(i) ORDER BY i + 1 LIMIT 30%")
