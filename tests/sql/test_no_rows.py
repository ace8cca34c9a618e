"""LIMIT 0 and conditions that are never true: the names and types of columns, free, without a look at private rows."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.plan.nodes import Values
from tests.sql.fixture_files import Fixture, accepted
from tests.sql.study import prepare

WHOLE = [
    item for item in accepted() if "EXPLAIN" not in item.query and "differential" not in item.query.lower()
]
COLUMNS = [("plan", "VARCHAR"), ("cost", "DOUBLE")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT plan, cost FROM visits LIMIT 0",
        "SELECT plan, cost FROM visits WHERE age > 3 AND (region IN (SELECT id FROM regions)) ORDER BY day LIMIT 1 - 1",
        "SELECT plan, cost FROM visits WHERE 1=0",
        "SELECT plan, cost FROM visits WHERE age > 3 AND FALSE",
        "SELECT plan, cost FROM visits WHERE NULL",
        "SELECT * FROM (SELECT plan, cost FROM visits WHERE age > 3) AS q LIMIT 0",
        "SELECT * FROM (SELECT plan, SUM(cost) AS cost FROM visits GROUP BY plan) AS q WHERE FALSE LIMIT 0",
        "SELECT plan, SUM(cost) AS cost FROM visits GROUP BY plan HAVING COUNT(*) > 3 ORDER BY 2 LIMIT 0",
        "SELECT plan, cost FROM visits UNION ALL SELECT plan, cost FROM visits LIMIT 0",
        "SELECT plan, price AS cost FROM plans LIMIT 0",
    ],
)
def test_columns_are_free(connection: Connection, query: str) -> None:
    """No row, no entry, and the plan reads no table, public or private."""
    prepared = connection.plan(query)
    assert isinstance(prepared.outer.source, Values)
    assert (prepared.releases, prepared.columns) == ((), tuple(COLUMNS))
    before = connection.engine.ledger.read_head()
    found = connection.query(query)
    assert list(zip(found.columns, found.types, strict=True)) == COLUMNS
    assert (found.rows, found.receipt.entries) == ((), ())
    assert connection.engine.ledger.read_head() == before


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT ward FROM visits LIMIT 0", "column"),
        ("SELECT plan FROM visits WHERE ward = 3 AND 1=0", "column"),
        ("SELECT plan FROM patients LIMIT 0", "table"),
        ("SELECT random() FROM visits LIMIT 0", "function"),
        ("SELECT plan FROM visits LIMIT 1", "group_by"),
        ("SELECT 1 FROM visits WHERE 1=1", "no_aggregate"),
        ("SELECT 1 FROM visits WHERE age < 0", "no_aggregate"),
        ("SELECT 1 FROM visits WHERE 1=0 OR age > 3", "no_aggregate"),
        ("SELECT COUNT(*) FROM (SELECT plan FROM visits LIMIT 0)", "private_order"),
        ("SELECT plan FROM visits UNION ALL SELECT plan FROM visits LIMIT 1", "no_aggregate"),
        ("SELECT age, LAG(age) OVER (ORDER BY day) FROM visits LIMIT 0", "private_window"),
    ],
)
def test_refusals_hold_for_queries_without_rows(connection: Connection, query: str, code: str) -> None:
    """Unknown names and functions, rows under any other condition, and LIMIT 0 of rows that a query adds up."""
    with pytest.raises(dpsql.Error) as caught:
        connection.query(query)
    assert caught.value.code == code


def test_one_row_of_an_aggregate_is_charged(connection: Connection) -> None:
    """A query without groups has a row under any condition: its value is noise, which costs."""
    prepared = connection.plan("SELECT COUNT(*) FROM visits WHERE 1=0")
    assert len(prepared.releases) == 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fixture", WHOLE, ids=str)
def test_columns_are_those_of_the_query(connection: Connection, fixture: Fixture) -> None:
    """An accepted query in parentheses has the types of its columns, or is refused as a derived table."""
    whole = prepare(connection, fixture.query, fixture.parameters)
    asked = _query_as_a_tool_does(connection, fixture)
    if asked is not None:
        assert not asked.releases
        assert [kind for _, kind in asked.columns] == [kind for _, kind in whole.columns]


def _query_as_a_tool_does(connection: Connection, fixture: Fixture) -> QueryRun | None:
    """The query in parentheses with LIMIT 0; None where it is no derived table."""
    text = f"SELECT * FROM ({fixture.query.strip().rstrip(';')}\n) AS q LIMIT 0"
    try:
        return prepare(connection, text, fixture.parameters)
    except dpsql.Error as refused:
        if refused.code not in {"list", "join", "private_order"}:
            raise
        return None
