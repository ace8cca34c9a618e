"""Synthetic tables, streams and copies: no neighbour moves the histogram that the engine reads further than was derived."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from properties.pairs import Case, pairs_of
from properties.worlds import World, policy

from dpsql.backends import Exact
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.release.exact_rows import count_marginals, read_groups
from dpsql.engine.release.noise import _build_histogram
from dpsql.engine.synthetic import prepare_local_table, prepare_stream, prepare_synthetic_table
from dpsql.planning.measurement import SynthesisPlan
from dpsql.policy.request.query import Query
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.stream import WeightsStream
from dpsql.privacy.synthesis.workload import Counts

RULES: list[dict[str, Any]] = [
    {"unit": "row"},
    {"rows": 2},
    {"rows": 2, "groups": 1},
    {"rows": 3, "partition": True},
    {"rows": 2, "neighbors": "replace"},
    {"unit": "row", "neighbors": "replace", "accountant": "pure"},
]
QUERIES = [
    "SELECT k FROM t",
    "SELECT k, x > 1 AS many FROM t WHERE x > 0",
    "SELECT k, n FROM (SELECT u, k, LEAST(COUNT(*), 3) AS n FROM t GROUP BY u, k)",
]


CASES = [
    (sql, rules)
    for sql in QUERIES
    for rules in RULES
    if "GROUP BY u" not in sql or rules.get("unit") != "row"  # a row has no unit to group by
]


def histogram(synthesis: SynthesisPlan, part: PreparedRelease, exact: Exact) -> list[Counts]:
    """What is read for a histogram of all columns."""
    return [_build_histogram(synthesis, read_groups(part.plan, part.statement, exact))]


def tables(synthesis: SynthesisPlan, part: PreparedRelease, exact: Exact) -> list[Counts]:
    """What is read for a tree of pairs."""
    mechanism = synthesis.mechanism
    assert isinstance(mechanism, Mst)
    domains = part.plan.analysis.domains or ()
    return list(count_marginals(mechanism, domains, part.statement, exact).values())


@pytest.mark.parametrize(("method", "read"), [("mwem", histogram), ("mst", tables)], ids=["mwem", "mst"])
@pytest.mark.parametrize(("sql", "rules"), CASES, ids=str)
def test_unit_moves_marginals_as_derived(
    sql: str, rules: dict[str, Any], method: str, read: Callable[..., list[Counts]]
) -> None:
    """The l1 bound holds over all neighbours of tiny tables, for each marginal, and is attained."""
    case = Case(sql, ("k", "x") if "x" in sql else ("k",), rules)
    world = World(policy(**rules))
    user_query = Query(sql, epsilon=Fraction(1), replay=False)
    prepared = prepare_synthetic_table(world.engine, user_query, "marginals(1)", method, None).prepared
    part = prepared.single_release
    synthesis = part.plan.synthesis
    assert synthesis is not None
    worst, seen = 0, {}
    for pair in pairs_of(case, 10):
        for rows in pair:
            if rows not in seen:
                world.hold(rows)
                seen[rows] = read(synthesis, part, world.engine.backend.run_statement(part.statement.sql))
        moved = (int(np.abs(a - b).sum()) for a, b in zip(*(seen[rows] for rows in pair), strict=True))
        worst = max(worst, *moved)
    made = synthesis.mechanism
    assert not isinstance(made, WeightsStream)
    assert worst <= made.l1
    # A unit of one partition has one row of each count, which the derivation does not know.
    assert 2 * worst >= made.l1 or ("partition" in rules and "GROUP BY" in sql)
    if method == "mst":
        return
    for other in (
        prepare_stream(world.engine, user_query, "marginals(1)", 2, 9),
        prepare_local_table(world.engine, user_query),
    ):
        own = other.prepared.single_release
        assert own.plan.synthesis is not None
        assert own.plan.synthesis.mechanism.l1 == made.l1
        assert own.statement.sql == part.statement.sql
