"""A retail workload: each query is answered, public, or refused with a way round it; answers are DuckDB's but for noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from retail.study import database, policy
from retail.verdicts import DECIDED, EMPTY, GUARANTEED, OPEN, PUBLIC, TABLES, WITHHELD, key, markdown
from retail.workload import STATEMENTS, Statement

import dpsql
from dpsql.api.connection import Connection

PAGE = Path(__file__).parents[2] / "docs" / "measurements" / "retail.md"
EPSILON, DELTA = 10**6, 1e-3
"""So much that noise hardly shows, also where the greatest clamp is chosen, as in one choice of thousands."""
REFUSED = {**GUARANTEED, **OPEN}


@pytest.fixture(scope="module")
def exact() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as opened:
        yield opened


@pytest.fixture(scope="module")
def study(exact: duckdb.DuckDBPyConnection) -> Connection:
    """A connection under the policy."""
    return dpsql.connect(exact, policy=policy(), ledger=":memory:", epsilon=EPSILON, replay=False)


@pytest.mark.parametrize("statement", [each for each in STATEMENTS if key(each) not in REFUSED], ids=str)
def test_answer_matches_duckdb(
    study: Connection, exact: duckdb.DuckDBPyConnection, statement: Statement
) -> None:
    """It has DuckDB's columns, rows and numbers, except for empty or small groups and noisy choices."""
    theirs = exact.execute(statement.sql)
    names, rows = [name.lower() for name, *_ in theirs.description or ()], theirs.fetchall()
    before = len(study.engine.ledger.list_entries())
    ours = study.query(statement.sql, delta=DELTA)
    assert [name.lower() for name in ours.columns] == names
    assert (len(study.engine.ledger.list_entries()) == before) == (key(statement) in PUBLIC)
    if key(statement) in DECIDED:
        return
    if key(statement) not in WITHHELD | EMPTY:
        assert len(ours.rows) == len(rows)
    if key(statement) not in WITHHELD:
        assert [row for row in rows if not any(_near(found, row, rows) for found in ours.rows)] == []
    if key(statement) not in EMPTY:
        assert [found for found in ours.rows if not any(_near(found, row, rows) for row in rows)] == []


def _near(found: Sequence[Any], row: Sequence[Any], rows: Sequence[Sequence[Any]]) -> bool:
    """Whether a row is that of DuckDB's but for noise, which is small beside the largest numbers of a column."""
    return all(_close(*pair, place, rows) for place, pair in enumerate(zip(found, row, strict=True)))


def _close(value: Any, known: Any, place: int, rows: Sequence[Sequence[Any]]) -> bool:
    if not _number(value) or not _number(known):
        return bool(value == known)
    off, most = (
        abs(float(value) - float(known)),
        max(abs(float(row[place])) for row in rows if _number(row[place])),
    )
    return off <= 0.05 * abs(float(known)) or off <= 0.03 * most


def _number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


@pytest.mark.parametrize("statement", [each for each in STATEMENTS if key(each) in REFUSED], ids=str)
def test_refusal_has_a_code_and_a_rewrite(study: Connection, statement: Statement) -> None:
    """Each refusal has a code and an alternative, and is free."""
    before = len(study.engine.ledger.list_entries())
    with pytest.raises(dpsql.QueryRejected) as caught:
        study.query(statement.sql, delta=DELTA)
    assert caught.value.code == REFUSED[key(statement)]
    assert caught.value.hint
    assert len(study.engine.ledger.list_entries()) == before


def test_most_queries_are_answered(exact: duckdb.DuckDBPyConnection) -> None:
    """95% of at least 150 queries are answered, public, or about single customers."""
    assert len(STATEMENTS) >= 150
    assert len(OPEN) <= 0.05 * len(STATEMENTS)
    assert len(exact.execute("SHOW TABLES").fetchall()) == TABLES


def test_page_is_current() -> None:
    """The page is printed by `python -m tests.retail.verdicts > docs/measurements/retail.md`."""
    assert PAGE.read_text(encoding="utf-8") == markdown()
