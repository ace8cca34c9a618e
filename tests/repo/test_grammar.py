"""grammars/query.lark describes what is accepted: neither more nor less."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.sql.parse.parse import parse_statement
from tests.sql.codes import FORM, MEANING, SIZE
from tests.sql.fixture_files import Fixture, accepted, refused
from tests.sql.mutants import mutant
from tests.sql.sentences import grammar, in_grammar, sentence, sentences
from tests.sql.study import prepare, study

FORGIVEN = {
    "an unreserved keyword as an alias": r"\b(NULLS|MAP|INTERVAL|CUBE|ROLLUP|IF)\b|\bAS VALUES\b",
    "a sign before a star, or before LIMIT's number": r"[+] ?\*|\b(LIMIT|OFFSET) [+]",
    "IF without ELSE, IFNULL of one or many": r"\b(IF|IFNULL) ?\(",
    "ALL before the argument of any function": r"\w ?\( ?ALL\b",
    "a comma after the last table, key or sort": r",\s*(WHERE|GROUP|HAVING|WINDOW|QUALIFY|ORDER|LIMIT|OFFSET|UNION|EXCEPT|INTERSECT|\)|;|$)",
    "a comma after the last output where FROM comes first": r"^(EXPLAIN )?FROM\b.*SELECT\b.*, ",
    "a part or unit of time in other quotes, or in none": r"\b(EXTRACT|DATE_?TRUNC) ?\(",
    "any length of text, or none": r"\b(VARCHAR|CHAR|TEXT|STRING|BPCHAR) ?\(",
    "a name after the * of a common table expression that nothing reads": r"\bSELECT \* (?!FROM\b)\w+",
    "comments within comments": r"/\*.*/\*",
}
"""What dpsql takes besides the grammar, because its parser does and the meaning is clear."""


_GENERATE = settings(phases=[Phase.explicit, Phase.generate], derandomize=True, database=None)
"""The same examples in each run, and no search for the shortest that fails: they are short."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with study() as opened:
        yield opened


def verdict(connection: Connection, query: str) -> str | None:
    """The code of the refusal, or None for a query that would be answered."""
    try:
        prepare(connection, query, [5] * query.count("?"))
    except dpsql.Error as error:
        return error.code
    return None


def test_grammar_is_lalr() -> None:
    """Lark takes the grammar as LALR(1), and every rule of it is reachable from the start."""
    parser = grammar()
    used = {part.name for rule in parser.rules for part in rule.expansion} | {"start"}
    assert {rule.origin.name for rule in parser.rules} <= used


@settings(_GENERATE, max_examples=examples(1000))
@given(sentences())
def test_every_sentence_is_answered_or_refused_for_its_meaning(connection: Connection, query: str) -> None:
    """A sentence of the grammar is never refused for its form, and nothing else than a refusal comes up."""
    assert in_grammar(query), query
    assert verdict(connection, query) in {None, *MEANING, *SIZE}, query


def test_sentences_are_of_many_kinds(connection: Connection) -> None:
    """The sentences of the test above are worth their name: some are answered, few are alike."""
    count = examples(1500, least=250)
    queries = {sentence(seed) for seed in range(count)}
    verdicts = Counter(verdict(connection, query) for query in queries)
    assert len(queries) > 0.85 * count
    assert verdicts[None] >= count / 150
    assert len(verdicts) >= 10
    # CASE is one of some hundred operands: it takes more sentences, which cost less than their verdicts.
    queries |= {sentence(seed) for seed in range(1500, 3000)}
    words = Counter(word.upper() for query in queries for word in set(query.split()))
    for word in ("JOIN", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "BETWEEN", "IN", "CASE", "DISTINCT"):
        assert words[word] >= 3, word


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_accepted_fixtures_are_sentences(fixture: Fixture) -> None:
    """Every accepted fixture is in the grammar."""
    assert in_grammar(fixture.query)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fixture", [item for item in refused() if item.field("code") in FORM], ids=str)
def test_fixtures_refused_for_their_form_are_no_sentences(fixture: Fixture) -> None:
    """No fixture that is refused for its form is in the grammar."""
    assert not in_grammar(fixture.query)


@settings(_GENERATE, max_examples=examples(2000))
@given(st.integers(0, 2**64))
def test_accepted_query_is_a_sentence(connection: Connection, seed: int) -> None:
    """Accepted queries near the fixtures are in the grammar, except for a few spellings."""
    query = mutant(seed)
    if verdict(connection, query) is None and not in_grammar(query):
        assert any(re.search(pattern, query, re.IGNORECASE) for pattern in FORGIVEN.values()), query


@settings(_GENERATE, max_examples=examples(2000))
@given(st.integers(0, 2**64))
def test_accepted_query_is_valid_in_duckdb(connection: Connection, seed: int) -> None:
    """DuckDB's own parser reads any accepted query, except for the clause that DuckDB does not have.

    An answer never rests on a guess at the form.
    """
    query = mutant(seed)
    if verdict(connection, query) is None:
        assert _read_by_duckdb(parse_statement(query).text), query


def _read_by_duckdb(query: str) -> bool:
    try:
        return len(duckdb.extract_statements(query)) == 1
    except duckdb.Error:
        return False
