"""The selection of secret keys: how much delta it takes, and for whom."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from worlds import close_all, person, prepared, world

from dpsql.connection import Connection
from dpsql.engine import Asked, Prepared

QUERIES = [
    "SELECT word, COUNT(*) FROM people GROUP BY word",
    "SELECT word, age, AVG(cost), COUNT(DISTINCT id) FROM people GROUP BY word, age",
]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def asked(connection: Connection, sql: str, epsilon: Fraction, delta: Fraction) -> Prepared:
    """The plan of a query at a price."""
    return connection.engine.prepare(Asked(sql, epsilon=epsilon, delta=delta))


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
        query = asked(connection, sql, Fraction(1, 1000), Fraction(1, 10**6))
        chosen = query.plan.selection
        assert chosen is not None
        block = query.plan.blocks[chosen.block]
        alone = chosen.threshold - chosen.scale
        shown = Fraction(block.mechanism.sum_tail_up(len(chosen.cells), alone))
        most = query.plan.groups(chosen.block)  # as is expected, where they are learnt
        assert most == groups or block.clamp is not None
        assert Fraction(9, 10) * chosen.delta <= shown * most <= chosen.delta == Fraction(1, 10**6)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(50)], ids=str)
def test_delta_stays_below_the_loss_of_the_counts(epsilon: Fraction, accountant: str) -> None:
    """However much delta is offered, keys take a quarter of a block's loss of it, and a quarter at most."""
    connection = world(budget={"epsilon": 100, "delta": Fraction(99, 100), "accountant": accountant})
    for sql in QUERIES:
        plan = asked(connection, sql, epsilon, Fraction(9, 10)).plan
        assert plan.selection is not None
        assert plan.selection.delta == min(epsilon / len(plan.blocks) / 4, Fraction(1, 4))


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_a_join_makes_no_crowd_of_one_row(join: str) -> None:
    """Where each row is a unit, a row that a public table repeats is still one unit behind its key."""
    setup = ["CREATE TABLE copies AS SELECT 'Bonn' AS place FROM range(300)"]
    connection = world(person(1), unit="row", setup=setup, tables={"copies": {"public": True}})
    sql = f"SELECT word, COUNT(*) FROM people {join} copies ON city = place GROUP BY word"
    query = prepared(connection, sql)
    assert query.plan.analysis.bound.rows == 300
    assert [row[1:3] for row in connection.engine.backend.run(query.statement.sql).reveal()] == [(1, 300)]
    assert query.plan.selection is not None
    assert connection.query(sql).rows == ()
