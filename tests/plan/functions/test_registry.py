"""What holds of every entry of the registry as it stands: names, templates, examples, documents."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from dpsql.plan.expressions import Call, Expr, Function
from dpsql.plan.functions import BY_UNIT, CALLS, FAMILIES, FUNCTIONS, OVERLOADS, get_overloads
from dpsql.plan.functions.document import list_names, list_signatures, render_markdown
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.lower.function_calls import REFUSED
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.parse import parse_statement

ROOT = Path(__file__).parents[3]


UNFOLDED = {"left_counted"}
"""What takes what is no constant: a call of constants is another entry's."""


@pytest.fixture(scope="module")
def engine() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def lowered(text: str) -> Expr:
    """The expression of a text without columns."""

    def column(node: exp.Column) -> Expr:
        raise AssertionError(f"{node} is no constant")

    statement = parse_statement(f"SELECT {text}")
    return Scalars(statement.source, (), StatementTime(dt.datetime(2026, 4, 1)), column).lower(
        statement.query.expressions[0]
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_example_is_true(engine: duckdb.DuckDBPyConnection, function: Function) -> None:
    """An entry's example gives what it says, in dpsql and in DuckDB alone."""
    text, expected = function.example
    expr = lowered(text)
    if function.name in UNFOLDED:
        assert isinstance(expr, Call)
        expr = Call(function, expr.arguments, expr.type)
    assert any(part is function for part in _entries(expr)), f"{text} is no call of {function.name}"
    for sql in (DUCKDB_COMPILER.emit_expression(expr), text):
        ((shown,),) = engine.execute(f"SELECT CAST(TRY({sql}) AS VARCHAR)").fetchall()
        found = "NULL" if shown is None else shown
        assert found == expected or _number(found) == _number(expected), sql


def _entries(expr: Expr) -> list[Function]:
    from dpsql.plan.expressions import walk

    return [part.function for part in walk(expr) if isinstance(part, Call)]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda entry: entry.name)
def test_argument_is_written_once(function: Function) -> None:
    """A template that wrote an argument twice would double what is nested in it at each level."""
    holes = re.findall(r"\{(\w+)\}", function.sql)
    repeated = {hole for hole in holes if holes.count(hole) > 1}
    assert {int(hole) for hole in repeated} <= function.literals
    assert function.total
    assert function.signature


def test_name_and_key_mean_the_same() -> None:
    """An entry has the name that equals its key, and no two entries share a key."""
    assert len(FUNCTIONS) == sum(map(len, FAMILIES.values()))
    for key, function in FUNCTIONS.items():
        assert function in get_overloads(key)
        assert key not in OVERLOADS or function in OVERLOADS[key], key
    for entries in BY_UNIT.values():
        assert all(get_overloads(entry) for entry in entries.values())


def test_overloads_are_distinguished_by_types() -> None:
    """No entry of a name is hidden by an earlier one: each takes types that none before it takes."""
    for name, entries in OVERLOADS.items():
        for place, function in enumerate(entries):
            before = set().union(*(list_signatures(entry) for entry in entries[:place] if not entry.literals))
            assert set(list_signatures(function)) - before, (name, function.name)


def test_no_function_is_both_registered_and_refused() -> None:
    """No name is both in the registry and refused."""
    assert not set(REFUSED) & (CALLS | set(BY_UNIT))


def test_common_functions_are_registered() -> None:
    """An analyst finds the functions of every day."""
    assert len(list_names()) >= 200
    assert sum(len(list_signatures(function)) for function in FUNCTIONS.values()) >= 400


def test_document_is_current() -> None:
    """docs/reference/functions.md is what `python -m dpsql.plan.functions` writes."""
    assert (ROOT / "docs" / "reference" / "functions.md").read_text(encoding="utf-8") == render_markdown()
