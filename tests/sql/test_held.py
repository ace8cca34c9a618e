"""On an engine that would compute a query anew each time that it is read, what reads private rows is read once, or held."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dpsql.api.connection import Connection
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.errors import QueryRejected
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.statement import ReleaseStatement, emit_release
from tests.sql.fixture_files import Fixture, accepted
from tests.sql.study import prepare

_TABLE = '"spark_catalog"."default".'
_NAMED = re.compile(r'("#[^"]+") AS \(\n')
_CONSTANT = re.compile(r"'(?:[^'\\]|\\.|'')*'")
CLAMPED = (
    "SELECT plan, COUNT(*), SUM(cost) FROM visits GROUP BY plan",
    "SELECT plan, MEDIAN(cost), QUANTILE_DISC(cost, 0.9), AVG(age) FROM visits GROUP BY plan",
    "SELECT SUM(cost), MEDIAN(age) FROM visits",
    "SELECT age, COUNT(DISTINCT plan), SUM(DISTINCT cost), COUNT(*) FROM visits GROUP BY age",
)


def expressions(sql: str) -> Iterator[tuple[str, str]]:
    """The common table expressions of a text without constants: their names and bodies."""
    for found in _NAMED.finditer(sql):
        depth, at = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[at], 0)
            at += 1
        yield found[1], sql[found.end() : at]


def read_again(sql: str) -> set[str]:
    """The common table expressions that read tables, and that are read more than once."""
    sql, bodies = _CONSTANT.sub("''", sql), dict[str, list[str]]()
    for name, body in expressions(sql):
        bodies.setdefault(name, []).append(body)
    reading: set[str] = set()
    while True:
        more = {
            name
            for name, texts in bodies.items()
            if any(_TABLE in text or any(inner in text for inner in reading) for text in texts)
        }
        if more == reading:
            break
        reading = more
    return {name for name in reading if len(re.findall(f"(?:FROM|JOIN) {name}", sql)) > len(bodies[name])}


def statements(connection: Connection, query: str) -> Iterator[ReleaseStatement]:
    for part in prepare(connection, query).releases:
        plan = part.plan
        yield emit_release(
            Compiler(make_spark_dialect()), plan.analysis, plan.quantiles, plan.top_k, plan.clamps
        )


def texts(statement: ReleaseStatement) -> list[str]:
    """All queries of a statement: by itself, and in stages."""
    stages = statement.stages
    staged = [] if stages is None else [*(query for _, query in stages.tables), stages.histograms]
    return [statement.sql, *(query for _, query in statement.held_queries), *staged]


@pytest.mark.parametrize("query", CLAMPED)
def test_no_contributions_are_computed_again(connection: Connection, query: str) -> None:
    """Contributions are computed once in the one statement that measures refinements, and in stages."""
    for statement in statements(connection, query):
        for text in texts(statement):
            assert not read_again(text), text


@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_no_fixture_computes_contributions_again(connection: Connection, fixture: Fixture) -> None:
    """No accepted query computes contributions twice on Spark."""
    if fixture.parameters:
        return
    try:
        found = list(statements(connection, fixture.query))
    except QueryRejected:
        return
    for statement in found:
        for text in texts(statement):
            assert not read_again(text), text


def test_repeated_reads_are_found() -> None:
    """A query of a table that two parts of a statement read, directly or through another, is found."""
    once = f'WITH "#a" AS (\n  SELECT u FROM {_TABLE}"t"\n), "#b" AS (\n  SELECT u FROM "#a"\n) SELECT * FROM "#b"'
    assert read_again(once) == set()
    assert read_again(f'{once} JOIN "#b" USING (u)') == {'"#b"'}
    assert read_again(f'{once} JOIN "#a" USING (u)') == {'"#a"'}
