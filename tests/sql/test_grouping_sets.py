"""A query with grouping sets is the UNION ALL of one SELECT for each of them.

Claim: both ask for the same releases, each at the same price, and give the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dpsql.api.connection import Connection
from tests.sql.study import prepare, study

AS_UNION = {
    "SELECT plan, COUNT(*) AS n FROM visits GROUP BY ROLLUP(plan)": (
        "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan UNION ALL SELECT NULL, COUNT(*) FROM visits"
    ),
    "SELECT plan, urgent, SUM(cost) AS s FROM visits WHERE age > 30 GROUP BY CUBE(plan, urgent) HAVING SUM(cost) > 9": (
        "SELECT plan, urgent, SUM(cost) AS s FROM visits WHERE age > 30 GROUP BY plan, urgent HAVING SUM(cost) > 9"
        " UNION ALL SELECT plan, NULL, SUM(cost) FROM visits WHERE age > 30 GROUP BY plan HAVING SUM(cost) > 9"
        " UNION ALL SELECT NULL, urgent, SUM(cost) FROM visits WHERE age > 30 GROUP BY urgent HAVING SUM(cost) > 9"
        " UNION ALL SELECT NULL, NULL, SUM(cost) FROM visits WHERE age > 30 HAVING SUM(cost) > 9"
    ),
    "SELECT plan, GROUPING(plan, urgent) AS g, AVG(age) AS a FROM visits GROUP BY GROUPING SETS (urgent, (plan, urgent))": (
        "SELECT NULL AS plan, 2 AS g, AVG(age) AS a FROM visits GROUP BY urgent"
        " UNION ALL SELECT plan, 0, AVG(age) FROM visits GROUP BY plan, urgent"
    ),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    """The study."""
    with study() as opened:
        yield opened


@pytest.mark.parametrize("query", AS_UNION)
def test_grouping_sets_are_the_union_of_their_queries(connection: Connection, query: str) -> None:
    """The same releases at the same prices, nothing more is charged, and the same rows."""
    plans = [prepare(connection, text) for text in (query, AS_UNION[query])]
    ours, theirs = (
        [(part.release, part.loss_share, part.statement) for part in plan.releases] for plan in plans
    )
    assert ours == theirs
    assert plans[0].table_charges == plans[1].table_charges
    rows = [connection.query(text).rows for text in (query, AS_UNION[query])]
    assert rows[0] == rows[1]


def test_repeated_set_is_released_once(connection: Connection) -> None:
    """A repeated grouping set is answered and charged once."""
    twice = "SELECT plan, COUNT(*) FROM visits GROUP BY GROUPING SETS ((plan), (plan))"
    assert len(prepare(connection, twice).releases) == 1
    rows = connection.query(twice).rows
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]
