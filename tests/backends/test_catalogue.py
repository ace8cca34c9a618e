"""DuckDB's whole catalogue against the whitelist: of all its names, those that were reviewed are accepted.

Claim: every function, operator, macro, aggregate, window, table function, pragma, setting and keyword of
the DuckDB that is installed is refused in a query, but for the names in tests/fixtures/duckdb_functions.yaml
with the meanings that stand there. A name that a new release brings along is tried like all others.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import duckdb
import pytest
import yaml

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import Call, Expr, walk
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.nodes import Filter, Release
from tests.sql.study import prepare, study

REVIEWED = Path(__file__).parents[1] / "fixtures" / "duckdb_functions.yaml"
SCALARS = [
    *(
        f"SELECT COUNT({{}}({arguments})) FROM visits"
        for arguments in (
            *("", "age", "cost", "note", "day", "urgent"),
            *("age, cost", "cost, 1", "note, 1", "'day', seen", "'year', day"),
            *("note, 1, 2", "urgent, age, 1", "note, 'a', 'b'"),
            *("age, cost, 1, 2", "note, 'a', 1, 2"),
        )
    ),
    "SELECT {}(COUNT(*)) FROM visits",
    "SELECT {}(SUM(cost), 1) FROM visits",
]
"""Calls over private rows, with none to four arguments of each type, and over released values."""
SHORT = ["SELECT COUNT({}(LEFT(note, 30))) FROM visits"]
"""A call for functions whose work on a whole text is too much."""
AGGREGATED = [
    f"SELECT {{}}({arguments}) FROM visits"
    for arguments in ("", "*", "cost", "note", "DISTINCT patient_id", "age, cost", "age, 0.5", "age, 0.5, 2")
]
AGGREGATED.append("SELECT {}(cost) FILTER (WHERE urgent) FROM visits")
OPERATORS = [
    f"SELECT COUNT({operands}) FROM visits"
    for operands in ("age {} cost", "note {} 'a'", "urgent {} urgent", "{} age", "{} urgent", "age {}")
]
ALONE = "SELECT {0}, COUNT(*) FROM visits GROUP BY ALL"
"""A name that stands alone: that of a column, or CURRENT_DATE, which SQL writes without parentheses."""
NEVER = [
    'SELECT COUNT("{0}"(age)) FROM visits',
    "SELECT COUNT(main.{0}(age)) FROM visits",
    "SELECT {0}(cost) OVER () FROM visits",
    "SELECT {0}(cost ORDER BY age) FROM visits",
    "SELECT COUNT(*) FROM {0}",
    "SELECT COUNT(*) FROM {0}()",
    "SELECT COUNT(*) FROM {0}('visits')",
    "SELECT COUNT(*) FROM visits JOIN {0}(age) AS f ON TRUE",
]
"""Forms in which no name is accepted."""
METHODS = [f"SELECT COUNT({column}.{{0}}()) FROM visits" for column in ("age", "note")]
"""Calls after a dot."""
SETS = ["except", "intersect", "union"]
STATEMENTS = [
    "{}",
    "{} visits",
    "{} TABLE visits",
    "{} (SELECT COUNT(*) FROM visits)",
    "{} x AS SELECT COUNT(*) FROM visits",
    "{}; SELECT COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits; {}",
    "SELECT COUNT(*) FROM visits {} SELECT COUNT(*) FROM visits",
]
SETTINGS = [
    "SET {} = 'x'",
    "SET GLOBAL {} TO 'x'",
    "SET VARIABLE {} = 'x'",
    "RESET {}",
    "PRAGMA {}",
    "PRAGMA {} = 'x'",
    "PRAGMA {}('x')",
    "CALL {}('x')",
    "SHOW {}",
    "SELECT COUNT(current_setting('{}')) FROM visits",
    "SELECT current_setting('{}'), COUNT(*) FROM visits",
]


SHARES = 16
shared = pytest.mark.parametrize("share", range(SHARES))
"""So many tests share the names of the catalogue."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with study() as opened:
        yield opened


@cache
def names(sql: str) -> tuple[str, ...]:
    """The names that a query over DuckDB's own catalogue gives."""
    with duckdb.connect() as plain:
        return tuple(sorted({name for (name,) in plain.execute(sql).fetchall()}))


def functions() -> tuple[str, ...]:
    return names("SELECT function_name FROM duckdb_functions()")


def keywords() -> tuple[str, ...]:
    return names("SELECT keyword_name FROM duckdb_keywords()")


def written_as_calls() -> list[str]:
    return [name for name in functions() if re.fullmatch(r"\w+", name)]


def found(connection: Connection, words: Iterable[str], forms: Iterable[str]) -> dict[str, set[str]]:
    """Of `words`, those that are accepted in one of the forms, each with the entries that it means."""
    meanings: dict[str, set[str]] = {}
    for word, form in itertools.product(words, forms):
        entries = meaning(connection, form.format(word))
        if entries is not None:
            meanings.setdefault(word, set()).update(entries)
    return meanings


def meaning(connection: Connection, query: str) -> set[str] | None:
    """The registry entries that a query uses, None if it is refused. Any error but dpsql's own escapes."""
    try:
        plan = prepare(connection, query)
    except dpsql.Error:
        return None
    releases = [part.release for part in plan.releases]
    exprs = [item.expr for item in plan.outer.outputs]
    exprs += [expr for release in releases for expr in _read(release)]
    entries = {part.function.name for expr in exprs for part in walk(expr) if isinstance(part, Call)}
    return entries | {item.function for release in releases for item in release.aggregations}


def _read(release: Release) -> Iterator[Expr]:
    relation = release.input
    while isinstance(relation, Filter):
        yield relation.predicate
        relation = relation.input
    yield from (item.argument for item in release.aggregations if item.argument is not None)


def reviewed(section: str) -> Mapping[str, list[str]]:
    """What was reviewed: the accepted names, each with the registry entries that it may mean."""
    sections: dict[str, dict[str, list[str]]] = yaml.safe_load(REVIEWED.read_text(encoding="utf-8"))
    return sections[section]


def share_of(words: Iterable[str], share: int) -> set[str]:
    """The words of one test; the same in each run."""
    return {word for word in words if zlib.crc32(word.encode()) % SHARES == share}


def reviewed_of(section: str, share: int) -> dict[str, list[str]]:
    """What was reviewed of the words of one test."""
    known = reviewed(section)
    return {word: list(known[word]) for word in known if word in share_of(known, share)}


def less(meanings: Mapping[str, set[str]], *entries: str) -> dict[str, list[str]]:
    """Meanings without the entries that the form itself uses."""
    return {name: sorted(found - set(entries)) for name, found in meanings.items()}


def test_catalogue_is_complete() -> None:
    """All names of DuckDB are tried, and the reviewed ones are in dpsql's registries."""
    assert len(functions()) > 900
    assert len(keywords()) > 400
    for section in ("scalars", "aggregates", "operators"):
        entries = set().union(*reviewed(section).values())
        assert entries <= FUNCTIONS.keys() | AGGREGATES.keys()


@pytest.mark.sampled(SHARES)
@shared
def test_only_reviewed_scalar_functions_are_accepted(connection: Connection, share: int) -> None:
    """Functions, macros, table functions, windows, pragmas and keywords but DISTINCT, called with 0 to 4 arguments."""
    words = share_of({*written_as_calls(), *keywords()}, share)
    known = less(found(connection, words - {"distinct"}, SCALARS), "count", "count_rows", "sum")
    known |= less(found(connection, words - known.keys() - {"distinct"}, SHORT), "count", "left")
    assert known == reviewed_of("scalars", share)


@pytest.mark.sampled(SHARES)
@shared
def test_only_reviewed_aggregates_are_accepted(connection: Connection, share: int) -> None:
    """Every name is tried as an aggregate of private numbers, texts, units and pairs."""
    words = share_of(written_as_calls(), share)
    assert less(found(connection, words, AGGREGATED), "case") == reviewed_of("aggregates", share)


def test_only_reviewed_operators_are_accepted(connection: Connection) -> None:
    """Every name that is written between, before or after operands."""
    symbols = [name for name in functions() if not re.fullmatch(r"\w+", name)]
    assert len(symbols) > 30
    assert less(found(connection, symbols, OPERATORS), "count") == reviewed("operators")


@pytest.mark.sampled(SHARES)
@shared
def test_names_are_refused_in_other_places(connection: Connection, share: int) -> None:
    """Names as tables, windows, quoted, with a schema or with ORDER BY are refused; after a dot, those of functions of rows are not."""
    visits = connection.engine.catalog.find_table("visits")
    assert visits is not None
    words = share_of(written_as_calls(), share)
    assert found(connection, words, [ALONE]).keys() <= {*visits.columns, "current_date"}
    assert found(connection, words, NEVER).keys() == set()
    assert found(connection, words, METHODS).keys() <= found(connection, words, [*SCALARS, *SHORT]).keys()


def test_settings_and_pragmas_are_refused(connection: Connection) -> None:
    """Each of DuckDB's settings and pragmas, read or written through a query: refused."""
    words = {
        *names("SELECT name FROM duckdb_settings()"),
        *names("SELECT function_name FROM duckdb_functions() WHERE function_type IN ('pragma', 'table')"),
    }
    assert len(words) > 200
    assert not found(connection, words, SETTINGS)


def test_only_select_statements_are_accepted(connection: Connection) -> None:
    """Statements that begin with any of DuckDB's keywords: refused, unless they are a SELECT or put two together."""
    assert found(connection, keywords(), STATEMENTS).keys() == {"from", "select", *SETS}
    assert found(connection, keywords(), ["{} SELECT COUNT(*) FROM visits"]).keys() == {"explain"}
    assert found(connection, keywords(), ["{} COUNT(*) FROM visits"]).keys() == {"select"}
