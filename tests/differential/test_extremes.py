"""No value of one person stops a query: not at the ends of any type, in any function or aggregate, below any join.

Each statement is asked with that person and without, at a loss without noise and at the least one, where released
values are enormous. It ends alike, in an answer or in a refusal that came before any charge.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest import mock

import pytest
from differential.extremes import LEAST_LOSS, failure, statements
from differential.regressions import FAILURES
from differential.search import loss_of, small_failure
from differential.world import WHO, World, open_world
from speeds import examples
from worlds import before_filters, of_all_rows, written_by

from dpsql.engine import lookups
from dpsql.plan.expressions import Call, Column, Literal
from dpsql.sql.compile import quantile_windows
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

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


@pytest.mark.parametrize("seed", range(4))
def test_fixed_statements_do_not_fail(worlds: Worlds, seed: int) -> None:
    """The same statements in each run."""
    holds(worlds, seed, examples(50))


@pytest.mark.deep
@pytest.mark.timeout(0)  # hours on a busy machine
def test_random_statements_do_not_fail(worlds: Worlds) -> None:
    """2,000 new statements do not fail."""
    holds(worlds, random.SystemRandom().randrange(10**9), 2_000)


@pytest.mark.parametrize("sql", FAILURES.values(), ids=FAILURES.keys())
def test_former_failures_are_answered(worlds: Worlds, sql: str) -> None:
    """Statements on which the engine once failed end well."""
    for epsilon in (None, LEAST_LOSS):
        assert (found := failure(worlds, sql, epsilon)) is None, str(found)


_TEMPLATE = DUCKDB_COMPILER._get_template


def _product(call: Call) -> str:
    """Products of 64 bits, also of rows that are dropped, and all else as it is."""
    written = of_all_rows(call)
    return written if written == "TRUE" or call.function.name == "multiply" else _TEMPLATE(call)


@pytest.mark.parametrize("sql", FAILURES.values(), ids=FAILURES.keys())
def test_rows_excluded_by_a_condition_cause_no_failure(sql: str) -> None:
    """An engine may compute before it filters, though DuckDB 2.0.1 does not."""
    patch = written_by(before_filters(_TEMPLATE))
    with open_world() as ours, open_world(without=[WHO]) as other, patch:
        assert (found := failure((ours, other), sql, None)) is None, str(found)


def _of_what_is_clamped(call: Call) -> str:
    """Arithmetic of 64 bits on stored and released values: these are within their intervals where the latter are clamped."""
    return call.function.sql if _clamped(call) else _TEMPLATE(call)


def _clamped(call: Call) -> bool:
    return all(
        isinstance(part, Literal)
        or (isinstance(part, Call) and _clamped(part))
        or (isinstance(part, Column) and (part.facts.is_stored or part.name == "m"))
        for part in call.arguments
    )


OLD_DEFECTS: dict[str, Callable[[], list[object]]] = {
    "arithmetic that an interval made legal": lambda: [written_by(of_all_rows)],
    "products of 64 bits": lambda: [written_by(_product)],
    "distances of 64 bits": lambda: [
        mock.patch.object(
            quantile_windows, "_emit_bin", lambda _, at, width: f"(({at} + {2**62}) >> {width})"
        )
    ],
    "released values of any size": lambda: [
        written_by(_of_what_is_clamped),
        mock.patch.object(
            lookups, "_clip_value", lambda value, _: 10**17 if isinstance(value, int) else value
        ),
    ],
}
"""What was wrong once, and what it was wrong together with."""


@pytest.mark.parametrize("defect", OLD_DEFECTS)
def test_search_finds_a_planted_failure(defect: str) -> None:
    """A statement of each run fails, or ends in another way, for one person's values."""
    with ExitStack() as stack:
        worlds = stack.enter_context(open_world()), stack.enter_context(open_world(without=[WHO]))
        for patch in OLD_DEFECTS[defect]():
            stack.enter_context(patch)  # type: ignore[arg-type]
        drawn = enumerate(statements(0, 100))
        assert any(failure(worlds, sql, loss_of(place)) is not None for place, sql in drawn)


@pytest.mark.deep
def test_search_needs_an_unclamped_released_value() -> None:
    """Arithmetic of 64 bits on stored and released values alone fails nowhere while these are within their intervals."""
    with open_world() as ours, open_world(without=[WHO]) as other:
        patch = written_by(_of_what_is_clamped)
        with patch:
            for place, sql in enumerate(statements(0, 60)):
                assert failure((ours, other), sql, loss_of(place)) is None, sql
