"""The selection of secret keys: how much delta it takes, and for whom."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from worlds import close_all, person, prepared, world

from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.planning.group_selection import Threshold
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric

QUERIES = [
    "SELECT word, COUNT(*) FROM people GROUP BY word",
    "SELECT word, age, AVG(cost), COUNT(DISTINCT id) FROM people GROUP BY word, age",
]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def asked(connection: Connection, sql: str, epsilon: Fraction, delta: Fraction) -> QueryRun:
    """The plan of a query at a price."""
    return plan_and_match(connection.engine, Query(sql, epsilon=epsilon, delta=delta))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("groups", [1, 2, 30])
def test_a_lone_unit_s_keys_together_take_no_more_than_the_delta(groups: int, accountant: str) -> None:
    """Each of its groups is shown by chance, and all these chances add up to delta at most, and not far less."""
    connection = world(
        table={"rows_per_unit": 30, "max_groups": groups},
        budget={"epsilon": 100, "delta": 0.5, "accountant": accountant},
    )
    for sql in QUERIES:
        # Little loss, hence wide noise: the chance hardly changes from one threshold to the next.
        query = asked(connection, sql, Fraction(1, 1000), Fraction(1, 10**8))
        chosen = query.plan.selection
        assert chosen is not None
        block = query.plan.vectors[chosen.vector]
        alone = chosen.threshold - chosen.scale
        shown = Fraction(block.mechanism.bound_sum_tail(len(chosen.components), alone))
        most = query.plan.bound_groups(chosen.vector)  # as is expected, where they are learnt
        assert most == groups or block.clamp is not None
        assert Fraction(9, 10) * chosen.delta <= shown * most <= chosen.delta == Fraction(1, 10**8)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(50)], ids=str)
def test_delta_stays_below_the_loss_of_the_counts(epsilon: Fraction, accountant: str) -> None:
    """However much delta is offered, keys take a quarter of a block's loss of it, in the currency of its noise."""
    connection = world(budget={"epsilon": 100, "delta": Fraction(99, 100), "accountant": accountant})
    for sql in QUERIES:
        plan = asked(connection, sql, epsilon, Fraction(9, 10)).plan
        assert plan.selection is not None
        losses = [Fraction(1), epsilon / len(plan.vectors)]
        losses += [
            block.mechanism.compute_rho(block.sensitivity.l2_squared)
            for block in plan.vectors
            if isinstance(block.mechanism, DiscreteGaussian)
        ]
        assert plan.selection.delta == min(losses) / 4


def test_gaussian_thresholds_take_no_more_delta_than_the_noise_loses() -> None:
    """At a tiny ε the loss of Gaussian noise is about ε²/2, far below ε: the delta is a quarter of that."""
    connection = world(
        table={"rows_per_unit": 30, "max_groups": 30},
        budget={"epsilon": 100, "delta": Fraction(1, 2), "accountant": "zcdp"},
    )
    epsilon = Fraction(1, 1000)
    plan = asked(connection, QUERIES[1], epsilon, Fraction(9, 10)).plan
    noises = [block for block in plan.vectors if isinstance(block.mechanism, DiscreteGaussian)]
    assert noises
    assert plan.selection is not None
    assert all(
        4 * plan.selection.delta <= block.mechanism.compute_rho(block.sensitivity.l2_squared)
        for block in noises
    )
    assert plan.selection.delta < epsilon**2


@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 5)], ids=str)
@pytest.mark.parametrize("noise", [Geometric(Fraction(200)), DiscreteGaussian(Fraction(2000))], ids=str)
def test_threshold_is_as_private_as_its_noise_and_delta(
    noise: Geometric | DiscreteGaussian, delta: Fraction
) -> None:
    """A unit brings one group to a single unit and another to one more: by the exact law of what is shown.

    However small the loss of the noise is beside δ.
    """
    chosen = Threshold(0, (0,), 1, 0, delta, 1).calibrate_to(noise, 2)
    span = 4000
    offsets = np.arange(-span, span + 1)
    if isinstance(noise, Geometric):
        weights = np.exp(-np.abs(offsets) / float(noise.scale))
    else:
        weights = np.exp(-(offsets**2) / (2 * float(noise.variance)))
    law = weights / weights.sum()

    def shown(units: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """How likely each noisy count is that is shown; the last place is for a group that is not."""
        if units < chosen.min_frequency:
            return np.array([*np.zeros(len(law)), 1.0])
        kept = np.where(offsets + units >= chosen.threshold, law, 0.0)
        placed = np.roll(kept, units)
        return np.array([*placed, 1 - placed.sum()])

    others = int(chosen.count) // 2 + 1
    lone, more, less = shown(1), shown(others + 1), shown(others)
    assert 1 - lone[-1] <= float(delta) / 2
    # Given that the lone unit's group is not shown, only the other group tells the neighbours apart.
    hidden = np.abs(np.log(more[more > 1e-9] / less[more > 1e-9]))
    if isinstance(noise, Geometric):
        assert hidden.max() <= 1 / float(noise.scale) + 1e-6
    epsilon = (
        2 / float(noise.scale)
        if isinstance(noise, Geometric)
        else 2 * float(noise.compute_rho(Fraction(2))) ** 0.5
    )
    without, present = np.outer(shown(0), less), np.outer(lone, more)
    # Half a δ is what the lone group may take; Gaussian noise of two groups has a profile of its own besides.
    slack = 0.0 if isinstance(noise, Geometric) else float(Fraction(1, 20))
    for one, other in ((without, present), (present, without)):
        assert np.maximum(one - np.exp(epsilon) * other, 0).sum() <= float(delta) + slack


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_join_makes_no_crowd_of_one_row(join: str) -> None:
    """Where each row is a unit, a row that a public table repeats is still one unit behind its key."""
    setup = ["CREATE TABLE copies AS SELECT 'Bonn' AS place FROM range(300)"]
    connection = world(person(1), unit="row", setup=setup, tables={"copies": {"public": True}})
    sql = f"SELECT word, COUNT(*) FROM people {join} copies ON city = place GROUP BY word"
    query = prepared(connection, sql)
    assert query.plan.analysis.bound.rows == 300
    assert [row[1:3] for row in connection.engine.backend.run_statement(query.statement.sql).reveal()] == [
        (1, 300)
    ]
    assert query.plan.selection is not None
    assert connection.query(sql).rows == ()
