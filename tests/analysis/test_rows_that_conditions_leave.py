"""Conditions on ROW_NUMBER that no row fulfils leave a bound of one row, and the answer of no rows."""

from __future__ import annotations

import pytest
import worlds
from worlds import person

from dpsql.analysis.stability import bound_rows
from dpsql.engine.lookups import PublicLookups

NEVER = ("rn < 0", "rn < 1", "rn = 0", "rn IN (-1, 0)", "rn < 2 AND rn > 4", "-1 > rn", "rn <= 0.5")


@pytest.mark.parametrize("condition", NEVER)
def test_unsatisfiable_condition_is_answered(condition: str) -> None:
    connection = worlds.world(*(person(who) for who in range(1, 20)))
    numbered = "SELECT id, cost, ROW_NUMBER() OVER (PARTITION BY id ORDER BY cost) AS rn FROM people"
    sql = f"SELECT COUNT(*), SUM(rn) FROM ({numbered}) AS t WHERE {condition}"
    (part,) = worlds.prepared(connection, sql).releases
    assert bound_rows(part.release.input, PublicLookups(connection.engine.backend)) == 1
    bound = part.plan.analysis.bound
    assert (bound.rows, bound.groups) == (1, 1)
    assert len(list(connection.query(sql).rows)) == 1
