"""Invariance and exactness over plans and databases that Hypothesis draws from the whole accepted language.

Each plan is asked as a user would write it, on a database and a neighbour of it; nothing but released
values differs. Its exact rows do not depend on the order of the tables' rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.databases import Tables, holding, neighbours
from properties.oracle import Bench, Case, cases
from properties.printing import user_sql
from properties.profiles import DEEP
from properties.replay import Player, assert_neighbours, assert_same
from properties.schema import Rules, policy
from properties.tape import Tape
from speeds import examples
from worlds import close_all, connected

BENCH = Bench()
MODEST = settings(max_examples=examples(examples(60), least=3), derandomize=True, database=None)
"""The same examples in each run."""


@pytest.fixture(scope="module", autouse=True)
def _worlds_end() -> Iterator[None]:
    """The worlds of this file are closed with it."""
    yield
    players.cache_clear()
    close_all()


@cache
def players(rules: Rules) -> tuple[Player, Player]:
    """Two analysts, each with a ledger of their own, over the one database."""
    declared = {**policy(rules), "budget": {"epsilon": 10**7, "delta": 1e-2, "accountant": rules.accountant}}
    ours, theirs = (Player(connected(BENCH.connection, declared)) for _ in range(2))
    return ours, theirs


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Case, Tables]:
    """A case with a neighbour of its database, or the same tables where it has none."""
    case = draw(cases(BENCH).filter(is_written))
    others = list(neighbours(case.database, case.rules))
    return case, draw(st.sampled_from(others)) if others else case.database.tables


def is_written(case: Case) -> bool:
    """Whether the printer has SQL for a case: it has none for windows within a unit, which other tests ask for."""
    try:
        user_sql(case.outer)
    except TypeError:
        return False
    return True


def invariant(drawn: tuple[Case, Tables]) -> None:
    """Plays the case's query on its database and on the neighbour."""
    case, other = drawn
    sql, tape = user_sql(case.outer), Tape(cells=len(other) % 2 == 0)
    replays = []
    for player, tables in zip(players(case.rules), (case.database.tables, other), strict=True):
        with holding(BENCH.connection, tables):
            options: dict[str, Any] = {"epsilon": case.epsilon, "max_groups": case.outer.release.max_groups}
            replays.append(player.play(tape, sql, **options))
    assert_same(replays)
    assert_neighbours(*replays)


def exact_in_any_order(case: Case) -> None:
    """Runs the case's statement over its rows in three orders."""
    tables, statement = case.database.tables, BENCH.prepare(case).statement.sql
    found = []
    for turn in range(3):
        with holding(BENCH.connection, {name: shuffled(tables, name, turn) for name in tables}):
            found.append(sorted(BENCH.backend.run_statement(statement).reveal(), key=repr))
    assert found[0] == found[1] == found[2]


def shuffled(tables: Tables, name: str, turn: int) -> Any:
    """The rows of a table in another order; in their own at turn 0."""
    rows = list(tables[name].rows)
    if turn:
        random.Random(turn).shuffle(rows)
    return tables[name].kept(rows)


@MODEST
@given(pairs())
def test_only_released_values_differ_between_neighbours(drawn: tuple[Case, Tables]) -> None:
    """A drawn query on a drawn database and its neighbour: all that is observed is the same."""
    invariant(drawn)


@MODEST
@given(cases(BENCH))
def test_order_of_rows_changes_no_exact_row(case: Case) -> None:
    """A drawn query reads the same exact rows from the tables in any order."""
    exact_in_any_order(case)


@pytest.mark.deep
def test_only_released_values_differ_in_a_long_search() -> None:
    """The same over new cases in each run."""
    DEEP(given(pairs())(invariant))()


@pytest.mark.deep
def test_order_of_rows_changes_no_exact_row_in_a_long_search() -> None:
    """The same over new cases in each run."""
    DEEP(given(cases(BENCH))(exact_in_any_order))()
