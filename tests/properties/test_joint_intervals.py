"""However the pairs of units and groups are added up, histograms have the same totals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from properties.test_clamps import CASES, ROWS_OF_A_UNIT, Case, learning
from properties.test_stages import MORE, databases
from properties.worlds import World, policy

from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.planning.measurement import MeasurementPlan
from dpsql.sql.compile import joint_intervals
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.statement import ReleaseStatement, emit_release

LIMITS = [(2**99, 2**99), (2**99, 0), (0, 0)]
"""The most joint intervals that pairs are added up by, and that are listed: these alone, then intervals, intervals alone."""
DIALECTS = [DUCKDB, replace(DUCKDB, capabilities=replace(DUCKDB.capabilities, ranks_all_groups=True))]
"""The second knows which group is the first of a unit before it looks which of them count."""


def statements(plan: MeasurementPlan, monkeypatch: pytest.MonkeyPatch) -> list[ReleaseStatement]:
    """The statements of a plan in all ways, each of which is another."""
    found = []
    for joint, listed in LIMITS:
        monkeypatch.setattr(joint_intervals, "MOST_JOINT", joint)
        monkeypatch.setattr(joint_intervals, "MOST_LISTED", listed)
        found += [
            emit_release(Compiler(each), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)
            for each in DIALECTS
        ]
    keys = plan.analysis.release.keys
    ways, orders = len(LIMITS) if plan.analysis.domains is not None or not keys else 1, 2 if keys else 1
    assert len({part.sql for part in found}) == ways * orders
    return found


def added_up(world: World, statement: ReleaseStatement) -> list[dict[str, Any]]:
    """The rows of a statement, with the totals of each interval of its histograms; the units of one are of all groups."""
    rows = [statement.label_row(row) for row in world.engine.backend.run_statement(statement.sql).reveal()]
    units = dict.fromkeys(statement.histograms, 0)
    for row in rows:
        for name in units:
            totals: dict[int, list[int]] = {}
            for interval, *parts, number in row[name] or ():
                before = totals.setdefault(interval, [0] * len(parts))
                totals[interval] = [first + second for first, second in zip(before, parts, strict=True)]
                units[name] += number
            row[name] = totals
    return [*sorted(rows, key=str), units]


@pytest.mark.parametrize("case", [*CASES, *MORE], ids=str)
def test_joint_and_separate_histograms_are_equal(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added up by the intervals of all clamps together first, or by those of each alone."""
    world = World(policy(rows=ROWS_OF_A_UNIT, **case.rules))
    _, plan = learning(world, case.sql, case.scope, together=case.together)
    each = statements(plan, monkeypatch)
    for rows in databases(str(case)):
        world.hold(rows)
        first, *others = (added_up(world, statement) for statement in each)
        assert all(other == first for other in others)
