"""A41: texts that grow through columns.

A text of one person that grows through derived tables until the engine fails says by the failure alone, exactly and at any
price, whether the person has such a row. So does a stored text that is long by itself.
"""

from __future__ import annotations

from unittest import mock

import pytest
from worlds import Declared, spent, world

import dpsql
from dpsql.analysis import text_bounds
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import dialect as duckdb_columns
from dpsql.engine import plan_completion
from dpsql.errors import BackendError
from dpsql.sql.lower import function_calls

COLUMNS: Declared = {
    "id": ("INTEGER", {"type": "integer"}),
    "cost": ("DOUBLE", {"type": "double", "bounds": [0, 100]}),
    "note": ("VARCHAR", {"type": "varchar"}),
    "raw": ("BLOB", {"type": "blob"}),
}
SECRET = "CASE WHEN id = 17 AND cost > 50 THEN 'x' ELSE '' END"
STEPS = ("REPEAT(s, 100)", f"REPLACE(s, 'x', '{'x' * 900}')", f"REGEXP_REPLACE(s, 'x', '{'x' * 500}', 'g')")
CARRIERS = {
    "derived table": "SELECT id, {step} AS s FROM {before}",
    "aggregate": "SELECT id, MAX({step}) AS s FROM {before} GROUP BY id",
    "window": "SELECT id, FIRST_VALUE({step}) OVER (PARTITION BY id ORDER BY s) AS s FROM {before}",
    "union": "SELECT id, s FROM {before} UNION ALL SELECT id, {step} FROM {before}",
}


def people(cost: float, note: str = "n") -> Connection:
    """Twenty people, of whom one has this cost and this note."""
    rows = [
        {"id": place, "cost": cost if place == 17 else 10, "note": note if place == 17 else "n"}
        for place in range(20)
    ]
    return world(*rows, columns=COLUMNS)


def outcome(connection: Connection, sql: str) -> str:
    """What an analyst sees: an answer, or the code of an error."""
    try:
        connection.query(sql, epsilon=1e-6)
    except dpsql.Error as error:
        return error.code
    return "answered"


def growing(step: str, carrier: str = "derived table", times: int = 5) -> str:
    """A count behind a text that grows so many times."""
    parts = [f"t0 AS (SELECT id, {SECRET} AS s FROM people)"]
    parts += [
        f"t{n + 1}(id, s) AS ({CARRIERS[carrier].format(step=step, before=f't{n}')})" for n in range(times)
    ]
    return f"WITH {', '.join(parts)} SELECT COUNT(*) FROM t{times} WHERE s > 'a'"


def test_careless_engine_reveals_a_row() -> None:
    """The attack works where nothing bounds the texts of a chain: the query fails for one person's row."""
    with (
        mock.patch.object(plan_completion, "require_bounded_texts", return_value=None),
        mock.patch.object(text_bounds, "MOST_MADE", 2**40),
    ):
        assert outcome(people(10), growing(STEPS[0])) == "answered"
        with pytest.raises(BackendError):
            people(60).query(growing(STEPS[0]), epsilon=1e-6)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step[:14])
def test_growth_through_columns_is_refused(step: str, carrier: str) -> None:
    """The refusal precedes the charge, and has the same words whatever the rows are."""
    sql = growing(step, carrier)
    for cost in (10, 60):
        connection = people(cost)
        assert outcome(connection, sql) == "too_long"
        assert not spent(connection)


def test_moderate_growth_is_answered() -> None:
    """Cleaning, padding and joining of texts, also of stored ones of any length."""
    connection = people(60)
    for sql in (
        growing("s || 'abc'", times=4),
        growing("REPEAT(s, 5)", times=4),
        "SELECT COUNT(*) FROM people WHERE LOWER(note) || ' ' || UPPER(note) LIKE '%n%'",
        r"SELECT COUNT(*) FROM people WHERE REGEXP_REPLACE(REPLACE(LOWER(note), ',', ' '), '\s+', ' ', 'g') = 'n'",
        "SELECT COUNT(*) FROM people WHERE LPAD(note, 900, 'ab') > 'a'",
        "SELECT COUNT(*) FROM people WHERE REPEAT(LEFT(note, 100), 100) > 'a'",
    ):
        assert outcome(connection, sql) == "answered", sql


LONG = "SELECT COUNT(*) FROM people WHERE {} > 'a'"


@pytest.mark.parametrize(
    "expression", ["REPEAT(note, 10)", "note || note", "CAST(raw AS VARCHAR)", "UPPER(note)"]
)
def test_long_stored_text_changes_no_outcome(expression: str) -> None:
    """Stored texts and blobs of more than a mebibyte are read as NULL, so that nothing made of them fails."""
    connection = people(10, "x" * 45_000_000)
    assert outcome(connection, LONG.format(expression)) == "answered"
    assert outcome(people(10), LONG.format("REPEAT(note, 100)")) == "too_long"


def test_unbounded_read_of_long_texts_fails() -> None:
    """A value made of one person's long text is longer than the engine allows."""
    connection = people(10, "x" * 45_000_000)
    with (
        mock.patch.object(plan_completion, "require_bounded_texts", return_value=None),
        mock.patch.object(function_calls, "require_bounded_text", return_value=None),
        mock.patch.object(duckdb_columns, "_emit_length_limit", lambda read, _: read),
        pytest.raises(BackendError),
    ):
        connection.query(LONG.format("REPEAT(note, 100)"), epsilon=1e-6)
