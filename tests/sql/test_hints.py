"""Refusals say in the user's own words what is wrong, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from sql.study import prepare, study

import dpsql
from dpsql.connection import Connection

WORDS = {
    "SELECT cost FROM visits": ("row by row", "AVG(cost)"),
    "SELECT plan, COUNT(*) FROM visits": ("plan is neither in GROUP BY", "COUNT(plan)"),
    "SELECT patient_id FROM visits WHERE cost > 900": ("row by row", "COUNT(DISTINCT patient_id)"),
    "SELECT patient_id, COUNT(*) FROM visits": ("patient_id is neither", "COUNT(DISTINCT patient_id)"),
    "SELECT MODE(note) FROM visits": ("among values that are public", "ORDER BY COUNT(*) DESC LIMIT 1"),
    "SELECT plan, MODE(region) FROM visits GROUP BY plan": ("MODE is of all rows", "GROUP BY k, x"),
    "SELECT ARG_MAX(plan, cost) FROM visits": ("would show one row's value", "ORDER BY SUM(x) DESC LIMIT 1"),
    "SELECT STRING_AGG(plan) FROM visits": ("is not supported", "SELECT x, COUNT(*) … GROUP BY x"),
    "SELECT HISTOGRAM(cost) FROM visits": ("values, that are public", "name bins, HISTOGRAM(x, [10, 20])"),
    "SELECT note, HISTOGRAM(cost, [9]) FROM visits GROUP BY note": (
        "and so are its groups",
        "GROUP BY k, bin",
    ),
    "SELECT SUM(weight * 2 + 1) FROM visits": ("((weight * 2) + 1) has no bounds", "LEAST"),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with study() as opened:
        yield opened


@pytest.mark.parametrize(("sql", "words"), WORDS.items(), ids=WORDS)
def test_what_is_wrong_and_what_to_write(connection: Connection, sql: str, words: tuple[str, str]) -> None:
    """The message names what was written, the hint something that would pass in its place."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, sql)
    assert words[0] in str(caught.value)
    assert words[1] in str(caught.value.hint)


def test_a_type_that_cannot_be_read_can_be_cast_in_a_view() -> None:
    """A policy cannot declare what the database has there, so the hint does not ask for that."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t (id BIGINT, seen TIMESTAMPTZ)")
    table = {"unit": "id", "rows_per_unit": 1, "columns": {"seen": {"type": "timestamp"}}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"t": table}}
    with (
        pytest.raises(dpsql.PolicyError) as caught,
        dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con,
    ):
        con.explain("SELECT COUNT(*) FROM t")
    assert caught.value.code == "column_type"
    assert "a view that casts it" in str(caught.value.hint)
    database.execute("CREATE VIEW v AS SELECT id, CAST(seen AT TIME ZONE 'UTC' AS TIMESTAMP) AS seen FROM t")
    policy["tables"] = {"v": table}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.explain("SELECT COUNT(*) FROM v")
