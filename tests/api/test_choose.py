"""CHOOSE(k, score): the exponential mechanism over what an analyst lists."""

from __future__ import annotations

import pytest
from api.test_synthetic import connected

import dpsql

AUCTION = (
    "SELECT {}(price, revenue) AS price FROM (SELECT c.price, SUM(c.price) AS revenue FROM "
    "(VALUES (20), (50), (70), (99)) AS c(price) JOIN visits AS v ON v.cost >= c.price GROUP BY c.price)"
)


def test_choose_equals_arg_max_and_limit_1() -> None:
    """The same release as ARG_MAX and as ORDER BY … LIMIT 1, of one charge; the answer and EXPLAIN say how good it is."""
    with connected(rows=4_000) as con:
        found = con.query(AUCTION.format("CHOOSE"), epsilon=40)
        assert found.rows == ((50,),)
        (measured,) = found.receipt.mechanisms
        assert "best groups" in measured["statistic"]
        assert "no selected score is more than" in found.notices[0]
        assert "no selected score is more than" in str(con.explain(AUCTION.format("CHOOSE"), epsilon=39))
        assert not con.query(AUCTION.format("ARG_MAX"), epsilon=40).receipt.entries
        other = f"{AUCTION.format('CHOOSE')} AS x"
        assert not con.query(other, epsilon=40, dialect="postgres").receipt.entries
        assert len(con.query(other, epsilon=40, dialect="tsql").rows) == 4  # T-SQL has a CHOOSE of its own
        assert con.query(AUCTION.format("ARG_MIN"), epsilon=40).rows != found.rows


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT CHOOSE(ward, cost) FROM visits", "exact_only"),
        ("SELECT CHOOSE(ward) FROM visits", "syntax"),
        (
            "SELECT CHOOSE(ward, n, 2) FROM (SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward)",
            "aggregate",
        ),
        ("SELECT CHOOSE(ward, cost) OVER () FROM visits", "aggregate"),
        ("SELECT RANDOMIZE(plan) FROM visits", "function"),
    ],
)
def test_choose_over_rows_is_refused(sql: str, code: str) -> None:
    """Over private rows it would release the value of one row."""
    with connected(rows=4) as con:
        with pytest.raises(dpsql.QueryRejected) as caught:
            con.query(sql, epsilon=1)
        assert caught.value.code == code
        assert not con.engine.ledger.list_entries()
