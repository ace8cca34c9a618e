"""Many releases of one plan, each with other noise: which keys they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from entropy import SeededEntropy

from dpsql.api.connection import Connection
from dpsql.engine.release.noise import draw_release
from dpsql.engine.replay.replays import plan_and_match
from dpsql.policy.request.query import Query

RUNS = 200
Keys = list[tuple[object, ...]]


def shown(connection: Connection, sql: str, epsilon: Fraction = Fraction(1)) -> Iterator[Keys]:
    """The keys that each of 200 releases shows."""
    plan = plan_and_match(connection.engine, Query(sql, epsilon=epsilon))
    exact = connection.engine.backend.run_statement(plan.statement.sql)
    for seed in range(RUNS):
        table = draw_release(plan.plan, plan.statement, exact, SeededEntropy(seed))
        yield [row[: len(plan.statement.keys)] for row in table.rows]


def without_threshold(connection: Connection, sql: str) -> Keys:
    """The keys of a release in which no noise can hold a group back."""
    plan = plan_and_match(connection.engine, Query(sql))
    assert plan.plan.selection is not None
    selection = replace(plan.plan.selection, threshold=-(10**12))
    exact = connection.engine.backend.run_statement(plan.statement.sql)
    table = draw_release(replace(plan.plan, selection=selection), plan.statement, exact, SeededEntropy(1))
    return [row[: len(plan.statement.keys)] for row in table.rows]
