"""ARG_MAX and ARG_MIN: of one unit's rows whatever their order, and of released groups as brute force finds."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from properties.worlds import DEFAULT, Row, World, policy

from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query

ROWS = [
    DEFAULT._replace(i=i, x=x)
    for i, x in ((0, 1.5), (5, 1.5), (3, 4.0), (2, 9.0), (None, 4.0), (1, None), (4, math.nan), (2, -1.0))
]
DATABASES = [
    "AAB",
    "ABB",
    "A",
    "AB",
    "",
    "NNNAB",
    "NNNNABB",
]
"""The keys of rows, each of a unit of its own; N is none."""


def shown(rows: tuple[Row, ...], function: str) -> int | None:
    """The i of the row that is best by x, clamped to [-1, 4], and of several the best."""
    pairs = [
        (max(-1.0, min(row.x, 4.0)), row.i)
        for row in rows
        if row.x is not None and row.i is not None and not math.isnan(row.x)
    ]
    return (max if function == "ARG_MAX" else min)(pairs)[1] if pairs else None


@pytest.mark.parametrize("function", ["ARG_MAX", "ARG_MIN"])
def test_unit_s_value_depends_on_its_rows_only(function: str) -> None:
    """It depends neither on the order nor on other units; several rows, none or NaN may be best."""
    world = World(policy(rows=3))
    sql = f"SELECT SUM(p), COUNT(p) FROM (SELECT u, {function}(i, x) AS p FROM t GROUP BY u)"
    (release,) = world.prepare(sql).releases
    other = DEFAULT._replace(u=2, i=None)
    for rows in (*itertools.permutations(ROWS, 2), *itertools.permutations(ROWS[:5], 3)):
        world.hold((*rows, other) if len(rows) == 2 else rows)
        ((*_, count, total),) = world.engine.backend.run_statement(release.statement.sql).reveal()
        assert (total if count else None) == shown(rows, function), rows


@pytest.mark.parametrize("beside", ["", ", SUM(n)"], ids=["alone", "beside a sum"])
@pytest.mark.parametrize("function", ["ARG_MAX", "ARG_MIN"])
def test_arg_max_of_released_groups_is_the_best_group(function: str, beside: str) -> None:
    """The best group by count is chosen with hardly any noise, never the rows without a key."""
    world = World({**policy(unit="row"), "budget": {"epsilon": 10**9, "delta": 1e-6}})
    sql = f"SELECT {function}(k, n){beside} FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k)"
    prepared = plan_and_match(world.engine, Query(sql, epsilon=Fraction(10**4)))
    (release,) = prepared.releases
    assert (release.plan.top_k is None) == bool(beside)
    for keys in DATABASES:
        world.hold(tuple(Row(unit, None if key == "N" else key) for unit, key in enumerate(keys)))
        counts = Counter({"A": 0, "B": 0})
        counts.update(keys.replace("N", ""))
        best = (max if function == "ARG_MAX" else min)(counts.values())
        ((key, *_),) = answer_query(world.engine, prepared).rows
        assert key in counts
        assert counts[key] == best
