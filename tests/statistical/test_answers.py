"""Released answers against the law that EXPLAIN announces: the noise that is proved is the noise that is added.

The entropy is the operating system's. A sound engine fails one of these tests with probability 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from statistical.chance import FALSE_ALARM, largest_share, least_share
from statistical.test_samplers import (
    gaussian_p_value,
    geometric_p_value,
    staircase_p_value,
)

import dpsql
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, Staircase

GROUPS = 1000
QUERIES = 10


def connection(accountant: str, rows: int = 1) -> dpsql.Connection:
    """A table of a thousand groups with `rows` rows of one unit in each."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE t AS SELECT g * {rows} + r AS u, g, 0.25 AS x, r % 5 AS y FROM range({GROUPS}) a(g), range({rows}) b(r)"
    )
    columns = {
        "g": {"type": "integer", "bounds": [0, GROUPS - 1], "nullable": False},
        "x": {"type": "double", "bounds": [0, 1]},
        "y": {"type": "integer", "bounds": [-3, 20]},
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 100_000, "delta": 1e-6, "accountant": accountant},
        "tables": {"t": {"unit": "row", "columns": columns}},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1, replay=False)


@pytest.mark.parametrize("scale", [0.5, 1.0])
@pytest.mark.parametrize(
    ("accountant", "p_value"),
    [
        ("pure", lambda mechanism, noise: geometric_p_value(mechanism.scale, noise)),
        ("zcdp", lambda mechanism, noise: gaussian_p_value(Fraction(mechanism.std), noise)),
    ],
)
def test_count_noise_follows_its_law(
    accountant: str, p_value: Callable[[Geometric | DiscreteGaussian, np.ndarray], float], scale: float
) -> None:
    """COUNT less the true count is a sample of exactly the announced law; of a narrower law it is not."""
    sql = "SELECT g, COUNT(*) FROM t GROUP BY g"
    with connection(accountant, rows=20) as con:
        (measured,) = con.explain(sql, epsilon=0.25).prepared.plan.vectors
        counts = [row[1] for _ in range(QUERIES) for row in con.query(sql, epsilon=0.25).rows]
    noise = np.array(counts, dtype=np.int64) - 20
    if scale < 1:
        noise = np.array(np.trunc(noise * scale), dtype=np.int64)
        assert p_value(measured.mechanism, noise) < FALSE_ALARM
    else:
        assert p_value(measured.mechanism, noise) > FALSE_ALARM


@pytest.mark.parametrize("epsilon", [3, 2])
def test_staircase_noise_follows_its_law(epsilon: int) -> None:
    """SUM less the true sum has the announced law, and of another loss it has not; both kinds of ends hold it."""
    sql = "SELECT g, SUM(y), DP_INTERVAL_LOW(SUM(y)), DP_INTERVAL_HIGH(SUM(y)) FROM t GROUP BY g"
    with connection("pure", rows=20) as con:
        plan = con.explain(sql, epsilon=epsilon).prepared.plan
        results = [con.query(sql, epsilon=epsilon) for _ in range(QUERIES)]
        (said,) = {str(each["noise"]) for result in results for each in result.receipt.mechanisms}
    (measured,) = plan.vectors
    stairs = measured.mechanism
    assert isinstance(stairs, Staircase)
    assert said == stairs.describe()
    (measure,) = plan.analysis.measures
    assert measure.lattice is not None
    step = measure.lattice.step
    rows = [row for result in results for row in result.rows]
    noise = np.array([(row[1] - 40) / step for row in rows], dtype=np.int64)
    p_values = [
        staircase_p_value(loss, stairs.width, stairs.inner, noise) for loss in (stairs.loss, stairs.loss / 2)
    ]
    assert p_values[0] > FALSE_ALARM > p_values[1]
    inside = [row[2] <= 40 <= row[3] for row in rows]
    assert inside == [
        low <= 40 <= high for result in results for _, (low, high), *_ in result.intervals(0.95)
    ]
    exact = 1 - 2 * stairs.bound_tail(stairs.compute_half_width(0.95) + 1)
    assert abs(sum(inside) / len(inside) - exact) < 6.5 * math.sqrt(exact * (1 - exact) / len(inside))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    "aggregate",
    [
        "COUNT(*)",
        "SUM(x)",
        "AVG(x)",
        "COUNT(*), COUNT(x), SUM(x), AVG(x)",
        "AVG(x), AVG(y), COUNT(*)",
        "SUM(x), SUM(y), COUNT(*)",
    ],
)
def test_intervals_cover_the_exact_value(accountant: str, aggregate: str) -> None:
    """95% intervals hold the exact value in at least 95% of the cells, within sampling error."""
    exact = {
        "COUNT(*)": 400.0,
        "COUNT(x)": 400.0,
        "SUM(x)": 100.0,
        "AVG(x)": 0.25,
        "AVG(y)": 2.0,
        "SUM(y)": 800.0,
    }
    wanted = [exact[name] for name in aggregate.split(", ")]
    covered = np.zeros(len(wanted))
    cells = 0
    with connection(accountant, rows=400) as con:
        for _ in range(3):
            result = con.query(f"SELECT {aggregate} FROM t GROUP BY g", epsilon=0.5)
            for ends in result.intervals(0.95):
                cells += 1
                for index, value in enumerate(wanted):
                    low, high = ends[index] or (math.inf, -math.inf)
                    covered[index] += low <= value <= high
    assert (covered / cells >= least_share(cells, 0.95)).all()
    assert (covered / cells <= largest_share(cells, 0.97)).all(), "far wider than needed"
