"""Whatever the text, `parse_statement` and `lower_statement` answer or raise dpsql.Error."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.engine import Engine
from dpsql.engine.plan_completion import finish_statement
from dpsql.engine.query_run import QueryRun
from dpsql.plan.steps import list_releases
from dpsql.sql.lower.from_sources import MAX_JOINED
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.parse import MAX_CHARACTERS, MAX_NESTING, parse_statement
from tests.sql.fixture_files import fixtures
from tests.sql.mutants import mutant
from tests.sql.study import NOON, prepare


@pytest.fixture(scope="module")
def engine(connection: Connection) -> Engine:
    return connection.engine


def survives(engine: Engine, text: str) -> str | None:
    """The code of the refusal, None if there is none. Any error but dpsql.Error escapes."""
    try:
        statement = parse_statement(text)
        finish_statement(
            lower_statement(
                statement, engine.catalog, engine.public_lookups, [5] * statement.parameters, at=NOON
            ),
            engine.public_lookups,
            {},
        )
    except dpsql.Error as error:
        found = error
    else:
        return None
    assert "sqlglot" in text or "sqlglot" not in str(found)
    return found.code


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT COUNT(*) FROM visits WHERE cost >", "something is missing near '>' (line 1, column 40)"),
        ("SELECT SUM() FROM visits GROUP", "something is missing near ')' (line 1, column 12)"),
        ("SELECT a b c FROM visits", "'c' is not expected here (line 1, column 12)"),
        ("SELECT CASE x FROM visits", "expected END after CASE"),
        ("SELECT * FROM visits JOIN", "the query cannot be parsed after 'JOIN'"),
    ],
)
def test_syntax_errors_are_in_plain_words(text: str, words: str) -> None:
    """They name the position, and no word of the parser's own."""
    with pytest.raises(dpsql.QueryRejected) as refused:
        parse_statement(text)
    assert refused.value.code == "syntax"
    assert words in str(refused.value)


@settings(max_examples=examples(300))
@given(st.text() | st.binary().map(lambda octets: octets.decode("utf-8", "surrogateescape")))
def test_any_text_is_read_or_refused(engine: Engine, text: str) -> None:
    """No text at all breaks the reading of queries."""
    survives(engine, text)


_PIECES = sorted({piece for fixture in fixtures() for piece in re.findall(r"\w+|\s+|.", fixture.query)})


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_any_words_after_select_are_read_or_refused(engine: Engine, text: str) -> None:
    """No words of SQL in any order break the reading of queries."""
    survives(engine, f"SELECT {text}")
    survives(engine, f"SELECT COUNT(*) FROM visits WHERE {text}")


@settings(max_examples=examples(1500))
@given(st.integers(0, 2**64))
def test_damaged_fixture_is_answered_or_refused(engine: Engine, seed: int) -> None:
    """A query that was changed in a few places is answered or refused."""
    survives(engine, mutant(seed))


@settings(max_examples=examples(300))
@given(st.sampled_from([fixture.query for fixture in fixtures()]), st.integers(0, 10**6), st.characters())
def test_fixture_with_a_changed_character_is_answered_or_refused(
    engine: Engine, query: str, place: int, character: str
) -> None:
    """A query with a character changed, or cut off, is answered or refused."""
    place %= len(query)
    survives(engine, query[:place] + character + query[place + 1 :])
    survives(engine, query[:place])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(* IN) FROM visits",
        "SELECT COUNT(*) FROM visits WHERE age IN",
        "SELECT COUNT(*) FROM visits WHERE age = : urgent",
        "SELECT COUNT(*) FROM visits WHERE ROUND(. 2.5) = 3",
        "SELECT COUNT(*) FROM visits WHERE CEIL() > 3",
        "SELECT FLOOR() FROM visits",
        "SELECT (: SUM cost) FROM visits",
        "SELECT VAR_MAP(age) FROM visits",
        "SELECT TS_OR_DS_TO_DATE_STR() FROM visits",
        "SELECT DATETIME(age) FROM visits",
        "SELECT COMBINED_PARAMETERIZED_AGG(age, age, age) FROM visits",
        "SELECT DATE() FROM visits",
        "SELECT COUNT(*) FROM visits WHERE age = 3\0",
        "SELECT COUNT(*) FROM visits WHERE age = ²",
        "SELECT COUNT(*) FROM visits LIMIT ٣",
        "\ud800",
        "ſelect count(*) from visits",
        "/* /* */ SELECT COUNT(*) FROM visits",
        "EXPLAIN EXPLAIN SELECT COUNT(*) FROM visits",
        "SELECT MIN(MAKE_TIMESTAMP(4611686018427387904)) FROM visits",
        "SELECT MEDIAN(MAKE_TIMESTAMP(age * 100000000000000000)) FROM visits",
        "SELECT * REPLACE (EXISTS (SELECT 1) AND COUNT(*) > 3 AS n)",
        "SELECT * REPLACE (EXISTS (SELECT age FROM visits) AND COUNT(*) > 3 AS age) FROM visits QUALIFY TRUE",
        "EXPLAIN",
        "",
    ],
)
def test_former_failures_are_answered_or_refused(engine: Engine, text: str) -> None:
    """Texts on which the parser or `lower_statement` failed, or might."""
    survives(engine, text)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("NOT ", ""), ("- ", ""), ("CASE WHEN urgent THEN ", " END"), ("ABS(", ")"), ("", "::INT")],
)
@pytest.mark.parametrize("depth", [10, MAX_NESTING + 1, 1_000, 20_000])
def test_deep_nesting_is_refused(engine: Engine, opening: str, closing: str, depth: int) -> None:
    """Little nesting is read, much is refused, none ends Python's stack."""
    text = f"SELECT COUNT(*) FROM visits WHERE {opening * depth}age{closing * depth} IS NULL"
    answer = survives(engine, text)
    allowed = {None, "type"} if depth <= MAX_NESTING else {None, "type", "too_deep", "too_long"}
    assert answer in (allowed if depth < 1_000 else {"too_deep", "too_long"})


@pytest.mark.parametrize(
    ("chain", "times"),
    [(" AND urgent", 299), (" AND age IS NOT NULL", 299), (" OR NOT urgent", 1_000), (" OR age > 3", 1_000)],
)
def test_long_chains_are_not_deep(engine: Engine, chain: str, times: int) -> None:
    """A condition of a thousand parts is answered, or of 300 where each is a condition of its own."""
    assert survives(engine, f"SELECT COUNT(*) FROM visits WHERE urgent{chain * times}") is None


@pytest.mark.parametrize("chain", [" AND urgent", " AND age IS NOT NULL"])
def test_more_conditions_are_too_many(engine: Engine, chain: str) -> None:
    """Each condition of WHERE is looked at next to the others, so their number is bounded."""
    assert survives(engine, f"SELECT COUNT(*) FROM visits WHERE urgent{chain * 300}") == "too_long"


def test_long_lists_are_answered(connection: Connection) -> None:
    """A list of ten thousand constants is answered."""
    values = ", ".join(map(str, range(10_000)))
    prepared = prepare(connection, f"SELECT COUNT(*) FROM visits WHERE age IN ({values})")
    assert isinstance(prepared, QueryRun)
    (row,) = connection.query(prepared.query.sql).rows
    assert row == (327,)


def test_longer_text_than_the_limit_is_refused(engine: Engine) -> None:
    """A text at the limit is read, a longer one is not."""
    query = "SELECT COUNT(*) FROM visits"
    assert survives(engine, query + " " * (MAX_CHARACTERS - len(query))) is None
    assert survives(engine, query + " " * (MAX_CHARACTERS - len(query) + 1)) == "too_long"
    assert survives(engine, "SELECT " + "COUNT(*)," * 20_000 + "1 FROM visits") == "too_long"
    assert survives(engine, "SELECT " + "COUNT(*)," * 200 + "1 FROM visits") is not None


def test_too_many_tables_are_refused(engine: Engine) -> None:
    """As many tables as can be put in order are joined, and one more is not."""

    def joined(tables: int) -> str:
        joins = "".join(f" JOIN regions r{place} ON region = r{place}.id" for place in range(tables - 1))
        return f"SELECT COUNT(*) FROM visits{joins}"

    assert survives(engine, joined(MAX_JOINED)) is None
    assert survives(engine, joined(MAX_JOINED + 1)) == "too_long"


def test_common_table_is_planned_once(engine: Engine) -> None:
    """It is one release however often it is read; but tables that double what they read would make a plan without end."""
    counts = "WITH c AS (SELECT plan, COUNT(*) AS n FROM (SELECT plan FROM visits) GROUP BY plan)"
    often = ", ".join(f"(SELECT SUM(n) FROM c WHERE plan <> '{place}') AS n{place}" for place in range(60))
    outer = lower_statement(
        parse_statement(f"{counts} SELECT {often}"), engine.catalog, engine.public_lookups, at=NOON
    ).outer
    assert len(list_releases(outer)) == 1
    for levels in (9, 12):  # at nine the sources alone are too many, not yet the operations
        doubling = "".join(
            f", c{place + 1} AS (SELECT a.plan, a.n FROM c{place} AS a JOIN c{place} AS b ON a.plan = b.plan)"
            for place in range(levels)
        )
        query = f"{counts}, c0 AS (SELECT * FROM c){doubling} SELECT SUM(n) FROM c{levels}"
        assert survives(engine, query) == "too_long"
