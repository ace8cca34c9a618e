"""The queries of tests/fixtures/sql: what each means, why it is refused, and what it answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb.versions import supports
from dpsql.engine.query_run import QueryRun
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Expr, WindowCall, walk
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.nodes import Filter, Join, Relation
from dpsql.sql.lower.scalars import _SPECIAL, SHAPES
from dpsql.sql.parse.older_parser import supports as parser_supports
from dpsql.sql.parse.parse import parse_statement
from tests.sql.codes import FORM, MEANING, SIZE, raised
from tests.sql.fixture_files import Fixture, accepted, fixtures, refused
from tests.sql.study import prepare
from tests.sql.summary import summary


@pytest.mark.whole
@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_accepted_query_has_its_meaning(connection: Connection, fixture: Fixture) -> None:
    """An accepted query means what the fixture says."""
    with skipped_where_older():
        assert summary(prepare(connection, fixture.query, fixture.parameters)) == fixture.field("plan")


@pytest.mark.whole
@pytest.mark.parametrize("fixture", refused(), ids=str)
def test_refused_query_has_its_code_and_position(connection: Connection, fixture: Fixture) -> None:
    """A refused query gets the code and the place that the fixture says."""
    with pytest.raises(dpsql.Error) as caught:
        prepare(connection, fixture.query, fixture.parameters)
    position = caught.value.position
    place = None if position is None else f"{position.line}:{position.column}"
    if not parser_supports("positions"):
        place = fixture.field("at")
    assert (caught.value.code, place) == (fixture.field("code"), fixture.field("at"))


@contextmanager
def skipped_where_older() -> Iterator[None]:
    """A query that an older DuckDB or sqlglot does not read, or whose function it lacks, is refused there."""
    try:
        yield
    except dpsql.QueryRejected as error:
        older = not (supports("grammar") and parser_supports("positions"))
        if older and error.code in ("syntax", "engine_function"):
            pytest.skip(str(error))
        raise


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fixture", [item for item in accepted() if "EXPLAIN" not in item.query], ids=str)
def test_answers_match_duckdb(
    connection: Connection, plain: duckdb.DuckDBPyConnection, fixture: Fixture
) -> None:
    """Without noise the answer is DuckDB's, except where a fixture gives the reason for a difference."""
    try:
        theirs = plain.execute(fixture.query, list(fixture.parameters)).fetchall()
    except duckdb.Error:
        theirs = []
    if fixture.field("unlike duckdb") is None:
        with skipped_where_older():
            ours = _answer(connection, fixture)
        assert _alike(ours, theirs, fixture), (ours, theirs)
    else:
        # What is chosen at random near the exact answer is the exact answer now and then.
        assert any(not _alike(_answer(connection, fixture), theirs, fixture) for _ in range(5)), theirs


def _answer(connection: Connection, fixture: Fixture) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.query(fixture.query, fixture.parameters, replay=False).rows]


def _alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]], fixture: Fixture) -> bool:
    if not _ordered(fixture.query):
        ours, theirs = sorted(ours, key=str), sorted(theirs, key=str)
    return len(ours) == len(theirs) and all(map(_equal_rows, ours, theirs))


def _ordered(query: str) -> bool:
    """Whether a query orders its rows, and not only those of its parts or windows."""
    inner = 1
    while inner:
        query, inner = re.subn(r"\([^()]*\)", "", query)
    return "ORDER BY" in query


def _equal_rows(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    return len(ours) == len(theirs) and all(map(_equal, ours, theirs))


def _equal(a: Any, b: Any) -> bool:
    """Equal, and numbers but for the last digits."""
    if isinstance(a, bool) or a is None or b is None or not hasattr(a, "real") or not hasattr(b, "real"):
        return bool(a == b)
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)


def test_every_code_has_a_fixture() -> None:
    """Each code that the source can refuse with is shown, and each belongs to one kind of refusal."""
    shown = {fixture.field("code") for fixture in refused()}
    assert raised() - shown == set()
    assert raised() == FORM | MEANING | SIZE
    assert len(FORM) + len(MEANING) + len(SIZE) == len(raised())


def read_queries() -> Iterator[str]:
    """The accepted queries that the installed parser reads."""
    for fixture in accepted():
        with suppress(*() if parser_supports("positions") else (dpsql.QueryRejected,)):
            parse_statement(fixture.query)
            yield fixture.query


def test_every_shape_has_an_accepted_fixture() -> None:
    """Each kind of tree node that is accepted stands in an accepted fixture."""
    found = {type(node) for query in read_queries() for node in parse_statement(query).query.walk()}
    assert {shape.__name__ for shape in {*SHAPES, *_SPECIAL} - found} == set()


def test_every_function_and_aggregate_has_an_accepted_fixture(connection: Connection) -> None:
    """Each entry of the three registries is used by an accepted fixture."""
    functions, aggregates, windows = set(), set(), set()
    for fixture in accepted():
        with suppress(*() if supports("grammar") else (dpsql.QueryRejected,)):
            prepared = prepare(connection, fixture.query, fixture.parameters)
        functions |= {part.function.name for part in _parts(prepared) if isinstance(part, Call)}
        aggregates |= {item.function for part in prepared.releases for item in part.release.aggregations}
        windows |= {part.function for part in _parts(prepared) if isinstance(part, WindowCall)}
    assert set(FUNCTIONS) - functions == set()
    assert set(AGGREGATES) - aggregates == set()
    assert set(OVER) - windows == set()


def _parts(prepared: QueryRun) -> Iterator[Expr]:
    expressions = [output.expr for output in prepared.outer.outputs]
    for part in prepared.releases:
        expressions += [key.expr for key in part.release.keys]
        expressions += [item.argument for item in part.release.aggregations if item.argument is not None]
        expressions += [*_predicates(part.release.input)]
    for expression in expressions:
        yield from walk(expression)


def _predicates(relation: Relation) -> Iterator[Expr]:
    match relation:
        case Filter(input=source, predicate=predicate):
            yield predicate
            yield from _predicates(source)
        case Join(left=left):
            yield from _predicates(left)


def test_titles_differ() -> None:
    """A title names one fixture of its file."""
    names = [str(fixture) for fixture in fixtures()]
    assert len(set(names)) == len(names)
    assert len(names) >= 120
