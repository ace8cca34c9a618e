"""The intervals of a count that decided whether its group is shown, and of what shares its cells, hold among such groups.

The entropy is the operating system's. A sound engine fails one of these tests with probability 1e-6 or less.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import duckdb
import pytest
from statistical.chance import least_share

import dpsql
from dpsql.engine.intervals.noise_laws import compute_half_width

CONFIDENCE = 0.95
GROUPS = 10_000
EPSILON = 0.5
PARTS = (0.7, 1.0, 1.5)
"""Counts, as parts of the threshold."""
QUERIES = {
    "units": ("u", "COUNT(DISTINCT u)"),
    "rows": ("row", "COUNT(*)"),
    "rows beside a mean": ("row", "COUNT(*), AVG(x)"),
}


def connection(
    accountant: str, unit: str, sizes: list[int], groups: int = GROUPS, rows: int = 1
) -> dpsql.Connection:
    """Groups whose keys are secret, of these sizes in turn; each row is of a unit of its own, which may have more."""
    data = duckdb.connect()
    data.execute(
        f"CREATE TABLE t AS SELECT g * 10000 + unnest(range(size)) AS u, size || ' in ' || g AS k, 0.25 AS x "
        f"FROM (SELECT g, {sizes}[1 + g % {len(sizes)}] AS size FROM range({groups}) a(g))"
    )
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 20, "delta": 0.01, "accountant": accountant},
        "tables": {
            "t": {
                "unit": unit,
                "columns": {"k": {"type": "varchar"}, "x": {"type": "double", "bounds": [0, 1]}},
                **({} if unit == "row" else {"rows_per_unit": rows, "max_groups": 1}),
            }
        },
    }
    return dpsql.connect(data, policy=policy, ledger=":memory:")


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(("unit", "aggregates"), QUERIES.values(), ids=QUERIES)
def test_intervals_of_shown_counts_hold(unit: str, aggregates: str, accountant: str) -> None:
    """They hold for shown groups of any size; an interval without the threshold misses small ones.

    A count that is smaller than the threshold by more than that interval's half width is shown only if it is missed.
    """
    sql = f"SELECT k, {aggregates} FROM t GROUP BY k"
    with connection(accountant, unit, [1]) as con:
        plan = con.explain(sql, epsilon=EPSILON).prepared.plan
    assert plan.selection is not None
    block, scale = plan.vectors[plan.selection.vector], plan.selection.scale
    plain = compute_half_width(
        block.mechanism, [Fraction(1, scale)] * len(block.vector.components), CONFIDENCE
    )
    small = math.ceil(plan.selection.count - plain) - 1
    sizes = [math.ceil(part * plan.selection.count) for part in PARTS]
    covered: dict[int, list[bool]] = defaultdict(list)
    missed = []
    with connection(accountant, unit, [small] * 2 + sizes) as con:
        result = con.query(sql, epsilon=EPSILON)
    for (key, value, *_), (_, ends, *_) in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
        size = int(str(key).partition(" in ")[0])
        assert ends is not None
        assert isinstance(value, int)
        assert ends[0] - 0.5 <= value <= ends[1] + 0.5
        covered[size].append(ends[0] <= size <= ends[1])
        missed += [abs(value - size) > plain] * (size == small)
    assert sorted(covered) == sorted([small, *sizes])
    for found in covered.values():
        assert sum(found) / len(found) >= least_share(len(found), CONFIDENCE - 0.01)
    assert all(missed)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    ("unit", "rows"), [("row", 1), ("u", 4)], ids=["rows are units", "rows beside units"]
)
def test_intervals_of_values_with_the_count_s_cells_hold(unit: str, rows: int, accountant: str) -> None:
    """A sum, a mean and a ratio whose noise is that of the count hold too, however small the groups.

    So does a count of rows in the cells by which units are counted.
    """
    sql = "SELECT k, COUNT(*), SUM(x), AVG(x), SUM(x) / COUNT(*) AS mean FROM t GROUP BY k"
    with connection(accountant, unit, [1], rows=rows) as con:
        plan = con.explain(sql, epsilon=EPSILON).prepared.plan
    assert plan.selection is not None
    assert all(measured.vector.padded for measured in plan.vectors) == (rows > 1)
    sizes = [math.ceil(part * plan.selection.count) for part in (0.5, 0.7)]
    covered: dict[str, list[bool]] = defaultdict(list)
    with connection(accountant, unit, sizes, rows=rows) as con:
        result = con.query(sql, epsilon=EPSILON)
    for (key, *_), (_, *found) in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
        size = int(str(key).partition(" in ")[0])
        for name, exact, ends in zip(result.columns[1:], (size, 0.25 * size, 0.25, 0.25), found, strict=True):
            if ends is not None:
                covered[name].append(ends[0] - 1e-9 <= exact <= ends[1] + 1e-9)
    assert len(covered) == 4
    for kept in covered.values():
        assert sum(kept) / len(kept) >= least_share(len(kept), CONFIDENCE - 0.01)
