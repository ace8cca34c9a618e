"""No value of one person stops a query: not at the ends of any type, in any function or aggregate, below any join.

Each statement is asked with that person and without, at a loss without noise and at the least one, where released
values are enormous. It ends alike, in an answer or in a refusal that came before any charge.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from differential.extremes import LEAST_LOSS, failure, statements
from differential.regressions import FAILURES
from differential.search import loss_of, small_failure
from differential.world import WHO, World, open_world

Worlds = tuple[World, World]


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """One database with the person whose values are extreme, and one without."""
    with open_world() as ours, open_world(without=[WHO]) as other:
        yield ours, other


def holds(worlds: Worlds, seed: int, number: int) -> None:
    """None of so many statements fails."""
    for place, sql in enumerate(statements(seed, number)):
        found = failure(worlds, sql, loss_of(place))
        assert found is None, f"seed {seed}: {small_failure(worlds, found, loss_of(place))}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(4))
def test_nothing_fails(worlds: Worlds, seed: int) -> None:
    """The same statements in each run."""
    holds(worlds, seed, 50)


@pytest.mark.deep
def test_nothing_else_fails(worlds: Worlds) -> None:
    """2,000 statements that nobody has tried."""
    holds(worlds, random.SystemRandom().randrange(10**9), 2_000)


@pytest.mark.parametrize("sql", FAILURES.values(), ids=FAILURES.keys())
def test_what_has_failed(worlds: Worlds, sql: str) -> None:
    """What the engine once failed at ends well."""
    for epsilon in (None, LEAST_LOSS):
        assert (found := failure(worlds, sql, epsilon)) is None, str(found)
