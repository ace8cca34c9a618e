"""BEST_EXPERT(loss1, …) OVER (ORDER BY t): the weighted majority over a released or public series of losses."""

from __future__ import annotations

import math

import pytest
from api.test_synthetic import connected

import dpsql

SERIES = (
    "(SELECT ward AS t, AVG(cost) / 100 AS a, COUNT_IF(urgent) / COUNT(*) AS b FROM visits GROUP BY ward)"
)
SWITCHED = "(SELECT i, CASE WHEN i < 300 THEN 0 ELSE 1 END AS a, CASE WHEN i < 300 THEN 1 ELSE 0 END AS b FROM range(400) AS r(i))"


def test_the_best_expert_costs_no_more_than_its_series() -> None:
    """Only the series is charged; the choices replace the losses, and other columns keep their intervals."""
    sql = f"SELECT t, BEST_EXPERT(a, b) OVER (ORDER BY t) AS e, a FROM {SERIES} ORDER BY t DESC"
    with connected(rows=4_000) as con:
        series = con.query(f"SELECT t, a, b FROM {SERIES} ORDER BY t DESC", epsilon=5)
        found = con.query(sql, epsilon=5)
        assert not found.receipt.entries
        assert (found.columns, found.types) == (("t", "e", "a"), ("BIGINT", "BIGINT", "DOUBLE"))
        assert con.plan(sql, epsilon=5).columns == tuple(zip(found.columns, found.types, strict=True))
        assert [(t, a) for t, _, a in found.rows] == [(t, a) for t, a, _ in series.rows]
        assert {e for _, e, _ in found.rows} <= {1, 2}
        assert [row[2] for row in found.intervals()] == [row[1] for row in series.intervals()]
        assert found.bounded_columns == (False, False, True)
        postgres = sql.replace(SERIES, f"{SERIES} AS s").replace(
            "COUNT_IF(urgent) / COUNT(*)", "AVG(cost) / 50"
        )
        assert con.plan(postgres, epsilon=5, dialect="postgres").columns[1] == ("e", "BIGINT")


def test_regret_is_below_the_theorem() -> None:
    """Over 8 runs of 400 rounds, in which the better expert changes, the mean regret is below 2·√(ln(k)/T)."""
    with connected(rows=4) as con:
        total = 0.0
        for _ in range(8):
            rows = con.query(
                f"SELECT i, BEST_EXPERT(a, b, 0.8) OVER (ORDER BY i) AS e FROM {SWITCHED}", epsilon=1
            ).rows
            losses = [((0, 1) if i < 300 else (1, 0)) for i in range(400)]
            total += sum(0.8 if e == 3 else losses[i][e - 1] for i, e in rows) / 400 - 100 / 400  # type: ignore[index, operator]
        assert 0 < total / 8 < 2 * math.sqrt(math.log(3) / 400)


def test_each_round_uses_earlier_losses_only() -> None:
    """Whatever the order of rows: late in the first part the first expert is followed, and the first choice is by chance.

    All 40 first choices are of one expert in one of 2**39 runs.
    """
    with connected(rows=4) as con:
        first, late = set(), 0
        for _ in range(30):
            ((chosen, _),) = con.query(
                "SELECT BEST_EXPERT(a, b) OVER (ORDER BY i) AS e, i FROM (SELECT i, 0 AS a, 1 AS b FROM range(1) AS r(i))",
                epsilon=1,
            ).rows
            first.add(chosen)
        for _ in range(10):
            rows = dict(
                con.query(
                    f"SELECT i, BEST_EXPERT(a, b) OVER (ORDER BY i) AS e FROM {SWITCHED} ORDER BY i DESC",
                    epsilon=1,
                ).rows  # type: ignore[arg-type]
            )
            first.add(rows[0])
            late += sum(rows[i] == 1 for i in range(250, 300))
        assert first == {1, 2}
        assert late > 0.95 * 10 * 50


REFUSED = {
    "SELECT BEST_EXPERT(cost, ward) OVER (ORDER BY ward) FROM visits": "group_by",
    f"SELECT BEST_EXPERT(a, b) FROM {SERIES}": "best_expert",
    f"SELECT BEST_EXPERT(a, CAST(b AS VARCHAR)) OVER (ORDER BY t) FROM {SERIES}": "best_expert",
    f"SELECT BEST_EXPERT(a) OVER (ORDER BY t) FROM {SERIES}": "best_expert",
    f"SELECT BEST_EXPERT(a, b) OVER () FROM {SERIES}": "best_expert",
    f"SELECT 1 + BEST_EXPERT(a, b) OVER (ORDER BY t) FROM {SERIES}": "best_expert",
    f"SELECT BEST_EXPERT(a, b) OVER (ORDER BY t), BEST_EXPERT(b, a) OVER (ORDER BY t) FROM {SERIES}": "best_expert",
    f"SELECT * FROM (SELECT BEST_EXPERT(a, b) OVER (ORDER BY t) FROM {SERIES})": "best_expert",
    f"SELECT BEST_EXPERT(a, b) OVER (ORDER BY t) FROM {SERIES} LIMIT 2": "clause",
    f"SELECT BEST_EXPERT(a, b) OVER (PARTITION BY t ORDER BY t) FROM {SERIES}": "clause",
    f"SELECT BEST_EXPERT(a, b) OVER (ORDER BY t ROWS 3 PRECEDING) FROM {SERIES}": "clause",
    f"SELECT BEST_EXPERT(a, b) OVER (ORDER BY t) AS e FROM {SERIES} ORDER BY e": "ordinal",
    f"SELECT t, BEST_EXPERT(a, b) OVER (ORDER BY t) FROM {SERIES} ORDER BY 2": "ordinal",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_best_expert_is_refused_outside_a_series(sql: str) -> None:
    """It is refused over private rows, in clauses that would read the losses, and with other windows."""
    with connected(rows=4) as con:
        with pytest.raises(dpsql.QueryRejected) as caught:
            con.query(sql, epsilon=1)
        assert caught.value.code == REFUSED[sql]
        assert not con.engine.ledger.list_entries()
