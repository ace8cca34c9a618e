"""Refusals say in the user's own words what is wrong, and what to write instead."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.connection import Connection
from dpsql.engine.pipeline import PreparedQuery
from dpsql.request.query import Query
from tests.sql.fixture_files import refused
from tests.sql.hints import hints
from tests.sql.rewrites import REWRITES, Rewrite
from tests.sql.study import NO_NOISE, NOON, prepare

WORDS = {
    "SELECT cost FROM visits": ("row by row", "AVG(cost)"),
    "SELECT plan, COUNT(*) FROM visits": ("plan is neither in GROUP BY", "COUNT(plan)"),
    "SELECT patient_id FROM visits WHERE cost > 900": ("row by row", "COUNT(DISTINCT patient_id)"),
    "SELECT patient_id, COUNT(*) FROM visits": ("patient_id is neither", "COUNT(DISTINCT patient_id)"),
    "SELECT note[1] FROM visits": ("[ has no meaning here", "SUBSTRING(s, start, length)"),
    "SELECT REGR_COUNT(cost, age) FROM visits": ("REGR_COUNT is not supported", "COUNT(*) FILTER"),
    "SELECT MODE(note) FROM visits": ("among public values", "ORDER BY COUNT(*) DESC LIMIT 1"),
    "SELECT plan, MODE(region) FROM visits GROUP BY plan": (
        "MODE is not supported with GROUP BY",
        "GROUP BY k, x",
    ),
    "SELECT ARG_MAX(plan, cost) FROM visits": (
        "would release one row's value",
        "ORDER BY SUM(x) DESC LIMIT 1",
    ),
    "SELECT STRING_AGG(plan) FROM visits": (
        "would release the value of each row",
        "SELECT x, COUNT(*) … GROUP BY x",
    ),
    "SELECT PRODUCT(age) FROM visits": ("one row decides how large a product is", "GEOMEAN(x)"),
    "SELECT bit_or(age) FROM visits": ("one row decides a bit", "COUNT_IF((x & 4) = 4)"),
    "SELECT HISTOGRAM(cost) FROM visits": (
        "public values of which none",
        "list the bins, HISTOGRAM(x, [10, 20])",
    ),
    "SELECT note, HISTOGRAM(cost, [9]) FROM visits GROUP BY note": (
        "and public groups",
        "GROUP BY k, bin",
    ),
    "SELECT COUNT(note COLLATE NOCASE) FROM visits": ("compared by their bytes", "LOWER(s)"),
    "SELECT note.upper(), COUNT(*) FROM visits GROUP BY 1": ("called after a dot", "UPPER(s)"),
    "SELECT SUM(COLUMNS(['cost'])) FROM visits": ("it stands for several columns", "name each column"),
    "SELECT COUNT(*) FROM visits WHERE list_contains(note, 'x')": ("are read as rows", "UNNEST(t.list)"),
    "SELECT COUNT(*) FROM visits WHERE note LIKE ANY ('a%', 'b%')": ("stands after =", "LIKE 'a%' OR"),
    "SELECT HISTOGRAM(age, [0, 9223372036854775807]) FROM visits": ("below the greatest", "last end"),
    "SELECT SUM(weight * 2 + 1) FROM visits": ("((weight * 2) + 1) has no bounds", "LEAST"),
}


UNREACHED = frozenset(
    {
        "send each SELECT as its own query",
        "aggregate it: MIN(x)",
        "compare with one value: x > (SELECT MAX(y) FROM …)",
        "name the field of a STRUCT: (s).field",
        "move it to WHERE",
        "leave out EXCLUDE, or use DuckDB",
        "write QUANTILE_DISC or MEDIAN, or use DuckDB; the reference of engines lists the supported quantiles",
    }
)
"""Hints of refusals that stand behind others, or are another engine's: no statement to DuckDB is known that reaches them."""
CALLS = frozenset(
    {
        "WHERE x > :low",
        "con.synthetic('SELECT age, plan FROM visits WHERE cost > 10', epsilon=1)",
        "SELECT age, FLOOR(cost / 10) AS cost FROM …",
        "SELECT plan, COUNT(*) AS n, AVG(age) AS age FROM r WHERE smoker GROUP BY plan ORDER BY n DESC",
        "DROP TABLE s",
        "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)",
        "CREATE SYNTHETIC TABLE s AS SELECT plan, ward FROM visits WITH (epsilon = 1)",
        "… = FALSE",
        "only CREATE SYNTHETIC TABLE and CREATE LOCAL TABLE are supported, in Python and in the shell; the owner makes all other tables",
        "DROP TABLE only drops tables of a connection, in Python and in the shell; the owner drops all others",
        "list the values in the policy, or group them: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        "con.synthetic(…, method='mst'), fewer columns, or groups of values: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
    }
)
"""Hints to a call with parameters, to statements about tables of a session, or of another method, which have tests of their own in tests/api."""


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
    database.execute("CREATE TABLE t (id BIGINT, seen TIMETZ)")
    table = {"unit": "id", "rows_per_unit": 1, "columns": {"seen": {"type": "time"}}}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"t": table}}
    with (
        pytest.raises(dpsql.PolicyError) as caught,
        dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con,
    ):
        con.explain("SELECT COUNT(*) FROM t")
    assert caught.value.code == "column_type"
    assert "a view that casts it to TIME" in str(caught.value.hint)
    database.execute("CREATE VIEW v AS SELECT id, CAST(seen AS TIME) AS seen FROM t")
    policy["tables"] = {"v": table}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as con:
        con.explain("SELECT COUNT(*) FROM v")


@pytest.mark.whole
@pytest.mark.parametrize("rewrite", REWRITES, ids=str)
def test_a_statement_that_is_refused_can_be_written_otherwise(
    connection: Connection, rewrite: Rewrite
) -> None:
    """The refusal has a hint, and what follows it is answered."""
    assert _hint(connection, rewrite.refused, rewrite.parameters, rewrite.dialect)
    assert _prepared(connection, rewrite.instead, rewrite.parameters, rewrite.dialect)


def test_every_hint_that_quotes_sql_has_a_rewrite(connection: Connection) -> None:
    """Those of the whole source, so that none can be added without a statement that shows that it is true."""
    said = {_hint(connection, each.refused, each.parameters, each.dialect) for each in REWRITES}
    untried = {str(hint) for hint in hints() if hint.quotes and not any(map(hint.says, said))}
    assert untried == UNREACHED | CALLS


def test_a_refusal_names_no_table_of_the_plan(connection: Connection) -> None:
    """Subqueries without a name have one that begins with #, which no user knows."""
    asked = [(each.query, each.parameters) for each in refused() if each.field("code") != "reserved_name"]
    asked += [(each.refused, each.parameters) for each in REWRITES if each.dialect == "duckdb"]
    said = []
    for text, parameters in asked:
        with pytest.raises(dpsql.Error) as caught:
            prepare(connection, text, parameters)
        said.append(f"{caught.value.message} {caught.value.hint}")
    assert [text for text in said if re.search(r"#\d", text)] == []


@pytest.mark.deep
def test_the_source_has_every_hint_of_a_refusal(connection: Connection) -> None:
    """What refused statements say, so that none escapes the search for hints."""
    asked = [(each.query, each.parameters) for each in refused()] + [(text, ()) for text in WORDS]
    found = {_hint(connection, text, parameters) for text, parameters in asked} - {""}
    assert [text for text in found if not any(hint.says(text) for hint in hints())] == []


def _prepared(
    connection: Connection, text: str, parameters: tuple[Any, ...] = (), dialect: str = "duckdb"
) -> PreparedQuery:
    return connection.engine.plan_and_match(
        Query(text, parameters, None, default=Fraction(NO_NOISE), dialect=dialect, time=NOON)
    )


def _hint(
    connection: Connection, text: str, parameters: tuple[Any, ...] = (), dialect: str = "duckdb"
) -> str:
    """The hint of a refusal; empty where it has none."""
    with pytest.raises(dpsql.Error) as caught:
        _prepared(connection, text, parameters, dialect)
    return str(caught.value.hint or "")


@pytest.mark.parametrize(
    "name",
    [
        "any_value",
        "listagg",
        "string_agg",
        "group_concat",
        "first",
        "list",
        "array_agg",
        "arbitrary",
        "entropy",
        "product",
        "bit_xor",
    ],
)
def test_a_refusal_names_what_was_written(connection: Connection, name: str) -> None:
    """Whatever the parser calls it."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepare(connection, f"SELECT {name}(cost) FROM visits")
    assert caught.value.message.lower().startswith(f"{name} ")
