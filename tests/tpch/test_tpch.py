"""TPC-H's 22 queries as published, under two privacy units: answered, public, or refused for a reason.

What is answered differs from DuckDB's own answer by its noise alone, which falls as epsilon grows; what is public
is that answer; and for what is refused, or shows next to nothing, there is something else to ask.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest
from tpch.accuracy import Comparison, compare, expected
from tpch.study import QUERIES, UNITS, database, policy
from tpch.verdicts import (
    CASES,
    DECIDED,
    DELTA,
    LOSSES,
    PUBLIC,
    REFUSED,
    REWRITES,
    SPARSE,
    keys,
    rewritten_keys,
)

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query

CERTAIN = 1 - 1e-11
"""The confidence of intervals that hold, of all cells of all answers: one query has up to 2,651."""
ANSWERED = [(unit, number) for unit, number in CASES if number not in PUBLIC[unit] | REFUSED[unit].keys()]
DERIVED = [(unit, number) for unit in UNITS for number in (8, 14)]
"""The answers that are quotients of noisy values: their cells have no interval."""
QUOTIENT_LOSSES = (1, 10_000)
"""Losses so far apart that the larger leaves the divisor's noise small beside the divisor, even of Q8's few rows."""


@pytest.fixture(scope="module")
def exact() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as opened:
        yield opened


@pytest.fixture(scope="module")
def studies(exact: duckdb.DuckDBPyConnection) -> dict[str, Connection]:
    """A connection for each privacy unit."""
    return {
        unit: dpsql.connect(exact, policy=policy(unit), ledger=":memory:", epsilon=1, replay=False)
        for unit in UNITS
    }


def plain(value: object) -> object:
    """A number as a float, anything else as it is."""
    return float(value) if isinstance(value, (int, Decimal)) else value


def charged(study: Connection) -> int:
    """How many entries its ledger has."""
    return len(study.engine.ledger.list_entries())


def compare_answers(
    study: Connection,
    exact: duckdb.DuckDBPyConnection,
    sql: str,
    names: tuple[int, ...],
    losses: tuple[int, ...] = LOSSES,
) -> list[Comparison]:
    """A query's answer at each loss beside the exact one; its columns are those of DuckDB."""
    theirs = exact.execute(sql)
    columns, rows = [name for name, *_ in theirs.description or ()], theirs.fetchall()
    found = []
    for epsilon in losses:
        ours = study.query(sql, epsilon=epsilon, delta=DELTA)
        assert [name.lower() for name in ours.columns] == [name.lower() for name in columns]
        found.append(compare(ours, rows, names, CERTAIN))
    return found


def hold(answers: list[Comparison], *, of_the_same_rows: bool = True) -> None:
    """Every number is within its interval of the exact one, and more of them are known better at more loss.

    Where clamps are learnt the interval is about what these let count, and more may count at more loss.
    """
    for answer in answers if of_the_same_rows else ():
        for cell in answer.cells:
            # What a learnt clamp takes away is no noise: all these totals are of values above zero.
            assert cell.ends is None or cell.ends[0] <= cell.exact, cell
            assert cell.ends is None or answer.clamped or cell.exact <= cell.ends[1], cell
    small, large = answers
    scales = {(cell.group, cell.column): cell.scale for cell in small.cells}
    for cell in () if small.clamped or large.clamped else large.cells:
        before = scales.get((cell.group, cell.column))
        assert before is None or cell.scale is None or cell.scale < before


@pytest.mark.parametrize(("unit", "number"), ANSWERED)
def test_answer_is_exact_within_its_noise(
    studies: dict[str, Connection], exact: duckdb.DuckDBPyConnection, unit: str, number: int
) -> None:
    """It has DuckDB's columns and groups, is charged, and DuckDB's numbers are within narrowing intervals."""
    before = charged(studies[unit])
    answers = compare_answers(studies[unit], exact, QUERIES[number], keys(number))
    hold(answers, of_the_same_rows=number not in DECIDED)
    assert number in SPARSE[unit] or _complete(answers, from_bounds=number == 13)
    assert charged(studies[unit]) > before


def _complete(answers: list[Comparison], *, from_bounds: bool) -> bool:
    """Whether all groups are in the answers; of those whose keys follow from bounds, in that with the least noise."""
    return all(answer.both == answer.exact for answer in answers[-1 if from_bounds else 0 :])


@pytest.mark.parametrize(("unit", "number"), ANSWERED)
def test_all_noise_falls_with_a_larger_loss(studies: dict[str, Connection], unit: str, number: int) -> None:
    """Every measurement of an answer, also of one without rows, has less noise at more loss."""
    engine = studies[unit].engine
    small, large = (
        expected(plan_and_match(engine, Query(QUERIES[number], epsilon=Fraction(loss), replay=False)))
        for loss in LOSSES
    )
    assert small
    assert all(large[name] < small[name] for name in small)


@pytest.mark.parametrize(("unit", "number"), DERIVED)
def test_error_of_a_quotient_falls(
    studies: dict[str, Connection], exact: duckdb.DuckDBPyConnection, unit: str, number: int
) -> None:
    """The median error of nine answers is smaller at more loss."""
    errors = [
        [answer.error for answer in runs]
        for runs in zip(
            *(
                compare_answers(studies[unit], exact, QUERIES[number], keys(number), QUOTIENT_LOSSES)
                for _ in range(9)
            ),
            strict=True,
        )
    ]
    small, large = (statistics.median(error for error in found if error is not None) for found in errors)
    assert large < small


@pytest.mark.parametrize(
    ("unit", "number"), [(unit, number) for unit, numbers in PUBLIC.items() for number in numbers]
)
def test_public_query_is_exact_and_free(
    studies: dict[str, Connection], exact: duckdb.DuckDBPyConnection, unit: str, number: int
) -> None:
    """A query on public tables has DuckDB's rows, in its order, and is not charged."""
    before = charged(studies[unit])
    ours = studies[unit].query(QUERIES[number]).rows
    theirs = exact.execute(QUERIES[number]).fetchall()
    assert [[*map(plain, row)] for row in ours] == [pytest.approx([*map(plain, row)]) for row in theirs]
    assert charged(studies[unit]) == before


@pytest.mark.parametrize(
    ("unit", "number"), [(unit, number) for unit, numbers in REFUSED.items() for number in numbers]
)
def test_refusal_has_a_code_and_a_reason(studies: dict[str, Connection], unit: str, number: int) -> None:
    """Each refusal has a code, a reason and an alternative, and is free."""
    before = charged(studies[unit])
    with pytest.raises(dpsql.QueryRejected) as caught:
        studies[unit].query(QUERIES[number])
    assert caught.value.code == REFUSED[unit][number]
    assert caught.value.hint
    assert charged(studies[unit]) == before


@pytest.mark.parametrize(("unit", "number"), REWRITES)
def test_rewrite_of_a_refused_query_is_answered(
    studies: dict[str, Connection], exact: duckdb.DuckDBPyConnection, unit: str, number: int
) -> None:
    """Every group of the rewrite is shown, with numbers that are exact within their noise."""
    answers = compare_answers(studies[unit], exact, REWRITES[unit, number], rewritten_keys(unit, number))
    hold(answers)
    assert _complete(answers, from_bounds="bracket" in REWRITES[unit, number])


def test_each_refused_query_has_a_rewrite() -> None:
    """Each query that shows next to nothing has one, too."""
    poor = {(unit, number) for unit in UNITS for number in REFUSED[unit].keys() | SPARSE[unit]}
    assert set(REWRITES) == poor
