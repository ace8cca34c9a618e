"""A2, low bits of float noise: every noisy value lies on a lattice that is the same for all neighbours.

A float sampler gives itself away: some outputs can come from one neighbour alone. Here noise and
statistic are integers, and the noise does not know the statistic.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from attacks.naive import Naive, distinguishes_worlds
from properties.worlds import Statistics
from worlds import Row, person, prepared, statistics, world

from dpsql.api.connection import Connection
from dpsql.engine.release.exact_release import draw_table, open_exact_release

QUERIES = [
    "SELECT COUNT(*) FROM people",
    "SELECT SUM(cost) FROM people",
    "SELECT SUM(cost * age / 3) FROM people",
    "SELECT AVG(cost), COUNT(*) FROM people",
    "SELECT city, SUM(cost), COUNT(DISTINCT id), AVG(age) FROM people GROUP BY city",
]


def noisy(connection: Connection, sql: str) -> Statistics:
    """The noisy cells of each group, straight from the release."""
    plan = prepared(connection, sql)
    with open_exact_release(
        connection.engine.backend, connection.engine.entropy, plan.single_release
    ) as measured:
        table = draw_table(measured, connection.engine.entropy)
    width = len(plan.statement.keys)
    return dict(zip((row[:width] for row in table.rows), table.components, strict=True))


def minus(ours: Statistics, theirs: Statistics) -> dict[Any, list[int]]:
    """The difference of each cell."""
    return {
        key: [
            a - b
            for block, other in zip(cells, theirs[key], strict=True)
            for a, b in zip(block, other, strict=True)
        ]
        for key, cells in ours.items()
    }


@pytest.mark.parametrize("budget", [{"epsilon": 100}, {"epsilon": 100, "delta": 1e-6}], ids=["pure", "zcdp"])
@pytest.mark.parametrize("sql", QUERIES)
def test_noise_is_an_integer_that_ignores_the_data(sql: str, budget: dict[str, Any], rows: list[Row]) -> None:
    """Neighbours' noisy cells at equal entropy are integers and differ as the exact cells do."""
    ours, theirs = world(*rows, budget=budget), world(*rows, person(99, cost=77.7), budget=budget)
    before, after = noisy(ours, sql), noisy(theirs, sql)
    assert all(type(cell) is int for cells in before.values() for block in cells for cell in block)
    assert minus(before, after) == minus(statistics(ours, sql), statistics(theirs, sql))


@pytest.mark.parametrize("sql", QUERIES[:3])
def test_released_values_lie_on_the_public_lattice(sql: str, rows: list[Row]) -> None:
    """A sum is a multiple of the lattice's step for any rows, though no row's value is."""
    steps = set()
    for extra in ([], [person(99, cost=1 / 3)], [person(99, cost=2**-60)]):
        connection = world(*rows, *extra)
        measures = prepared(connection, sql).plan.analysis.measures
        step = measures[0].lattice.step if measures and measures[0].lattice else Fraction(1)
        steps.add(step)
        for _ in range(4):
            ((value,),) = connection.query(sql, replay=False)
            assert isinstance(value, (int, float))
            assert Fraction(value) % step == 0
    assert len(steps) == 1
    assert Fraction(1 / 3) % steps.pop() != 0


def finer_than_a_sum_with_one(naive: Naive) -> bool:
    """Whether some answer near zero has bits that one plus noise cannot have.

    Floats of at least a half are multiples of 2^-53; so is their difference from one.
    """
    one = [naive.number("SELECT COUNT(*) FROM people WHERE id = 99") for _ in range(100)]
    return any(abs(value) < 0.5 and Fraction(value) % Fraction(1, 2**53) != 0 for value in one)


def test_low_bits_of_float_noise_reveal_a_person(rows: list[Row]) -> None:
    """The attack works on float noise: some answers can come from one of two neighbours alone."""
    assert distinguishes_worlds(finer_than_a_sum_with_one, world(*rows), world(*rows, person(99)))
