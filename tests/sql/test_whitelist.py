"""`lower_statement` is closed: what is not modelled is refused, whatever a new release of the parser adds."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import duckdb
import pytest
from speeds import thinned
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.engine import Engine
from dpsql.errors import QueryRejected
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.dialect import parse_tokens
from dpsql.sql.parse.parse import Statement, parse_statement
from dpsql.sql.parse.tokens import read_tokens
from tests.sql.fixture_files import Fixture, accepted
from tests.sql.study import NOON, clinic, prepare

_ARGUMENTS = ("age", "note", "day", "'year', day", "age, age", "note, 1", "day, 'year'", "urgent, age, 0")

_REWRITTEN = (
    "SELECT COUNT(*) FROM visits v LEFT JOIN LATERAL (SELECT v.age + 1 AS a) AS x(b) ON true WHERE x.b > 30",
    "SELECT AVG(n) FROM visits v, LATERAL (SELECT COUNT(*) AS n FROM visits w WHERE w.patient_id = v.patient_id) x",
    "(SELECT 1 AS a, 2 AS b) UNION ALL BY NAME (SELECT 3 AS b, 4 AS a)",
    "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY 2 LIMIT 40%",
)
"""Statements that are rewritten as soon as they are parsed."""


@pytest.fixture(scope="module")
def engine(connection: Connection) -> Engine:
    return connection.engine


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_unknown_argument_of_any_node_is_refused(engine: Engine, fixture: Fixture) -> None:
    """An argument that `lower_statement` does not name is refused, wherever in the tree it stands, but where nothing reads it."""
    statement = parse_statement(fixture.query)
    lower_statement(statement, engine.catalog, engine.public_lookups, fixture.parameters, at=NOON)
    for node in list(statement.query.walk(prune=_is_unread)):
        if _is_unread(node):
            continue
        node.set("not_modelled", True)  # not in `args`, whose change leaves the hash of the tree as it was
        assert _refused(statement, engine, fixture), f"{node!r} took an argument that is not modelled"
        node.set("not_modelled", None)


@pytest.mark.parametrize("query", _REWRITTEN)
def test_unknown_argument_of_rewritten_nodes_is_refused(
    engine: Engine, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument of a node that is rewritten before `lower_statement` is refused, too."""
    fixture = Fixture("whitelist", query, query, ())
    count = sum(1 for tree in parse_tokens(read_tokens(query), query) if tree for _ in tree.walk())
    assert not _refused(parse_statement(query), engine, fixture)
    for place in range(count):
        changed = list[exp.Expr]()

        def parse_changed(*given: Any, place: int = place, changed: list[exp.Expr] = changed) -> Any:
            trees = parse_tokens(*given)
            node = next(
                itertools.islice((node for tree in trees if tree for node in tree.walk()), place, None)
            )
            node.set("not_modelled", True)
            changed.append(node)
            return trees

        monkeypatch.setattr("dpsql.sql.parse.parse.parse_tokens", parse_changed)
        try:
            refused = _refused(parse_statement(query), engine, fixture)
        except QueryRejected:
            refused = True
        assert changed
        assert refused, f"{changed[0]!r} took an argument that is not modelled"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_unknown_node_is_refused(engine: Engine, fixture: Fixture) -> None:
    """An expression of a kind that `lower_statement` does not name is refused, wherever it stands."""
    for index in range(sum(1 for _ in parse_statement(fixture.query).query.walk())):
        statement = parse_statement(fixture.query)
        node = next(itertools.islice(statement.query.walk(), index, None))
        if isinstance(node, exp.Condition) and not isinstance(node, (exp.Column, exp.Star)):
            node.replace(exp.Anonymous(this="unheard_of", expressions=[exp.Literal.number(1)]))
            assert _refused(statement, engine, fixture), f"{node!r} could be something else"


def test_function_that_duckdb_lacks_is_refused(connection: Connection) -> None:
    """Of the names of any dialect that the parser knows, only DuckDB's are answered."""
    with clinic() as plain:
        for name, arguments in thinned(
            list(itertools.product(sorted(DuckDB.Parser.FUNCTIONS), _ARGUMENTS)), 7
        ):
            query = f"SELECT COUNT({name}({arguments})) FROM visits"
            if _accepted(connection, query):
                assert _understood(plain, query), query


def test_refusals_log_nothing(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """A refused function is not written out by the parser's generator, which logs what it cannot say."""
    with caplog.at_level(logging.DEBUG):
        for query in ("SELECT ARRAY_REMOVE_AT(age, age) FROM visits", "SELECT DATETIME(age) FROM visits"):
            assert not _accepted(connection, query)
    assert not caplog.records


def _is_unread(node: exp.Expr) -> bool:
    """Whether a node is a common table expression that no FROM names."""
    read = {table.name for table in node.root().find_all(exp.Table)}
    return isinstance(node, exp.CTE) and node.alias not in read


def _refused(statement: Statement, engine: Engine, fixture: Fixture) -> bool:
    try:
        lower_statement(statement, engine.catalog, engine.public_lookups, fixture.parameters, at=NOON)
    except QueryRejected:
        return True
    return False


def _accepted(connection: Connection, query: str) -> bool:
    try:
        prepare(connection, query)
    except dpsql.Error:
        return False
    return True


def _understood(plain: duckdb.DuckDBPyConnection, query: str) -> bool:
    try:
        plain.execute(f"EXPLAIN {query}")
    except duckdb.Error:
        return False
    return True
