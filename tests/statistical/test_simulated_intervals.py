"""Intervals of what is computed of several aggregates hold the exact value as often as they say.

A table of a thousand equal groups gives a thousand runs with each query. The entropy is the operating system's;
a sound engine fails one of these tests with probability 1e-6 or less.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from statistical.chance import least_share

import dpsql
from dpsql.results.rendering import Ends

GROUPS, ROWS = 1000, 200
CONFIDENCE = 0.95

SHAPES = {
    "a ratio of sums": "SUM(x) / SUM(y)",
    "a difference": "SUM(x) - SUM(y)",
    "a sum of three": "SUM(x) + 2 * SUM(y) - COUNT(z)",
    "a product": "SUM(x) * COUNT(*)",
    "a mean times a count": "AVG(x) * COUNT(*)",
    "a deviation": "STDDEV(x)",
    "a deviation of nothing": "STDDEV_POP(z)",
    "a correlation": "CORR(x, y)",
    "no correlation": "REGR_R2(x, w)",
    "a slope": "REGR_SLOPE(y, x)",
    "a turning point": "ABS(SUM(x) - 94.9375)",
    "a choice": "CASE WHEN SUM(x) > SUM(y) THEN SUM(x) ELSE SUM(y) END",
    "the largest of four": "GREATEST(SUM(x), SUM(1 - x) - 10.125, SUM(y) - 0.34375, SUM(w) + 8.9375)",
}
LOSSES = {"little noise": 4, "much noise": 0.25}


def database(groups: int) -> duckdb.DuckDBPyConnection:
    """Equal groups: x and y rise together, w does not vary with x, z is one value."""
    made = duckdb.connect()
    made.execute(
        f"""CREATE TABLE t AS SELECT g * {ROWS} + r AS u, g, (r % 64) / 64 AS x,
                (r % 64) / 128 + (r * 11 % 32) / 64 AS y, (r // 64 % 2) * 0.5 + 0.25 AS w, 0.25 AS z
            FROM range({groups}) a(g), range({ROWS}) b(r) WHERE r < {ROWS}"""
    )
    return made


@pytest.fixture(params=["pure", "zcdp"])
def accountant(request: pytest.FixtureRequest) -> str:
    """Geometric noise, and Gaussian."""
    return str(request.param)


def test_hard_expressions_are_at_their_turning_points() -> None:
    """The exact value lies where the expression turns, and all that it chooses among is equal."""
    (choice,) = (shape for shape in SHAPES.values() if shape.startswith("GREATEST"))
    parts = choice.removeprefix("GREATEST(").removesuffix(")")
    row = database(1).execute(f"SELECT {SHAPES['a turning point']}, {parts} FROM t").fetchone()
    assert row is not None
    assert (row[0], set(row[1:])) == (0, {row[1]})


def runs(
    accountant: str, shape: str, epsilon: float, queries: int, groups: int
) -> Iterator[tuple[float, Ends, float]]:
    """The released value, its interval and the exact value, group by group."""
    data = database(groups)
    columns = {name: {"type": "double", "bounds": [0, 1]} for name in "xywz"}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 100_000, "delta": 1e-6, "accountant": accountant},
        "tables": {
            "t": {
                "unit": "row",
                "columns": columns | {"g": {"type": "integer", "bounds": [0, groups - 1], "nullable": False}},
            }
        },
    }
    (exact,) = data.execute(f"SELECT {shape} FROM t WHERE g = 0").fetchone() or (0.0,)
    with dpsql.connect(data, policy=policy, ledger=":memory:", replay=False) as con:
        for _ in range(queries):
            result = con.query(f"SELECT {shape} FROM t GROUP BY g", epsilon=epsilon)
            for (value,), (ends,) in zip(result.rows, result.intervals(CONFIDENCE), strict=True):
                if isinstance(value, (int, float)):
                    yield value, ends, exact


def coverage(found: Iterator[tuple[float, Ends, float]]) -> tuple[float, int]:
    """The share of intervals that hold the exact value, to rounding, and how many there are."""
    covered = []
    for value, ends, exact in found:
        assert ends is not None
        low, high = ends
        assert low <= value <= high
        near = 1e-9 * max(1.0, abs(exact))
        covered.append(low - near <= exact <= high + near)
    return float(np.mean(covered)), len(covered)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_simulated_intervals_hold(accountant: str, shape: str) -> None:
    """They hold in 800 runs each, within sampling error, where noise and values are of one size."""
    found, size = coverage(runs(accountant, shape, 1, 1, 800))
    assert found >= least_share(size, CONFIDENCE - 0.01)


@pytest.mark.deep
@pytest.mark.parametrize("epsilon", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_simulated_intervals_hold_in_many_runs(accountant: str, shape: str, epsilon: float) -> None:
    """They hold in 5,000 runs each, where the noise is a small and a large part of the values."""
    found, size = coverage(runs(accountant, shape, epsilon, 5, GROUPS))
    print(f"{accountant} {shape} at {epsilon}: {found:.4f} of {size}")
    assert found >= least_share(size, CONFIDENCE - 0.01)


@pytest.mark.parametrize("shape", ["SUM(x) - SUM(y)", "SUM(x) / SUM(y)"])
def test_simulated_intervals_are_not_too_wide(accountant: str, shape: str) -> None:
    """An interval half as wide would hold the exact value too seldom, where noise is small."""
    covered = [
        abs(value - exact) <= (ends[1] - ends[0]) / 4
        for value, ends, exact in runs(accountant, shape, 4, 1, 300)
        if ends is not None
    ]
    assert np.mean(covered) < 0.9
