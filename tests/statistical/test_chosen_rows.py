"""Intervals of rows that a query chooses by their noisy values hold among the chosen rows.

The entropy is the operating system's. A sound engine fails one of these tests with probability 1e-6 or less.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from statistical.chance import least_share

import dpsql

GROUPS, SIZE, RUNS = 100, 50, 60
CHOOSING = {
    "the greatest": "SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC LIMIT 2",
    "the least of a ratio": "SELECT k, SUM(x) / COUNT(*) AS n FROM t GROUP BY k ORDER BY n LIMIT 2",
    "HAVING": "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING COUNT(*) > 58",
    "WHERE above": "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) WHERE n < 42",
    "QUALIFY": "SELECT k, COUNT(*) AS n FROM t GROUP BY k QUALIFY RANK() OVER (ORDER BY n DESC) <= 2",
    "an order below the limit": "SELECT * FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY n DESC) LIMIT 2",
    "a rank that is a column": (
        "SELECT k, n FROM (SELECT k, n, ROW_NUMBER() OVER (ORDER BY n DESC) AS r "
        "FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k)) WHERE r < 3"
    ),
    "the value of a subquery": (
        "SELECT k, COUNT(*) AS n FROM t GROUP BY k "
        "HAVING COUNT(*) = (SELECT MAX(n) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k))"
    ),
    "one part of two": (
        "SELECT * FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING n > 58) "
        "UNION ALL SELECT * FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING n < 42)"
    ),
}
BY_KEYS = (
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k ORDER BY k DESC LIMIT 5",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k LIMIT 5 OFFSET 3",
    "SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) WHERE k < 7",
    "SELECT k, COUNT(*) AS n FROM t GROUP BY k QUALIFY ROW_NUMBER() OVER (ORDER BY k) < 9",
)


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """Groups of equal size, whose keys are listed."""
    data = duckdb.connect()
    data.execute(
        f"CREATE TABLE t AS SELECT g * 1000 + unnest(range({SIZE})) AS u, g AS k, 0.5 AS x FROM range({GROUPS}) a(g)"
    )
    columns = {
        "k": {"type": "integer", "values": [*range(GROUPS)], "nullable": False},
        "x": {"type": "double", "bounds": [0, 1]},
    }
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**6, "delta": 1e-6, "accountant": request.param},
        "tables": {"t": {"unit": "u", "rows_per_unit": 1, "columns": columns}},
    }
    epsilon = {"pure": 0.5, "zcdp": 0.2}[request.param]  # about the same noise
    with dpsql.connect(data, policy=policy, ledger=":memory:", replay=False, epsilon=epsilon) as found:
        yield found


@pytest.mark.parametrize("sql", CHOOSING.values(), ids=CHOOSING)
def test_intervals_of_chosen_rows_hold(con: dpsql.Connection, sql: str) -> None:
    """Nearly all chosen rows hold the truth as often as stated, and a notice mentions the choice by noise."""
    truth = 0.5 if "SUM(x)" in sql else SIZE
    covered: list[float] = []
    for _ in range(RUNS):
        result = con.query(sql)
        found = [ends for _, ends in result.intervals()]
        assert all(ends is not None for ends in found)
        if found:
            covered.append(sum(low <= truth <= high for low, high in filter(None, found)) / len(found))
            assert any(notice.startswith("Noisy values selected") for notice in result.notices)
    assert covered
    assert sum(covered) / len(covered) >= least_share(len(covered), 0.94)


def test_choosing_ends_are_as_wide_as_those_of_the_result(con: dpsql.Connection) -> None:
    """Ends in HAVING and in the answer are made for the number of rows that is kept: of a false claim there is few a one."""
    false = 0
    for bound in (SIZE, SIZE - 2, SIZE - 6):
        for _ in range(RUNS // 3):
            result = con.query(
                "SELECT k, COUNT(*) AS n, DP_INTERVAL_LOW(n) AS low, DP_INTERVAL_HIGH(n) AS high "
                f"FROM t GROUP BY k HAVING DP_INTERVAL_LOW(n) >= {bound} ORDER BY n DESC LIMIT 20"
            )
            for row, ends in zip(result.rows, result.intervals(), strict=True):
                assert ends[1] is not None
                assert row[2] <= ends[1][0]
                assert ends[1][1] <= row[3]
            false += bound == SIZE and len(result) > 0
    # Of 20, each with a probability of 1/20 at most: more are false with one of 5e-10. Of ends for one row 18 would be.
    assert false <= 10


def test_ends_of_the_greatest_match_those_of_the_result(con: dpsql.Connection) -> None:
    """Both are equal where the order is by the value, as the number of kept rows is known."""
    result = con.query(
        "SELECT k, COUNT(*) AS n, DP_INTERVAL_LOW(n), DP_INTERVAL_HIGH(n) FROM t GROUP BY k ORDER BY n DESC LIMIT 5"
    )
    for row, ends in zip(result.rows, result.intervals(), strict=True):
        assert row[2:] == ends[1]


@pytest.mark.parametrize("sql", BY_KEYS)
def test_rows_chosen_by_keys_have_the_usual_intervals(con: dpsql.Connection, sql: str) -> None:
    """They are as wide as those of all rows, and no notice mentions noise."""
    few, every = con.query(sql), con.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    widths = {ends[1] - ends[0] for _, ends in few.intervals() if ends}
    assert widths == {ends[1] - ends[0] for _, ends in every.intervals() if ends}
    assert not any(notice.startswith("Noisy values selected") for notice in few.notices)


def test_value_not_used_in_the_choice_has_its_usual_interval(con: dpsql.Connection) -> None:
    """A median next to the choosing count keeps its ends, unless it is NULL; the count has none."""
    sql = "SELECT k, COUNT(*) AS n, MEDIAN(x) AS m, DP_INTERVAL_LOW(m) AS low, DP_INTERVAL_HIGH(m) FROM t GROUP BY k "
    for order, known in (("n", True), ("m", False), ("low", False)):
        result = con.query(f"{sql} ORDER BY {order} LIMIT 3")
        found = [ends[2] is not None for ends in result.intervals()]
        assert found == [known and row[2] is not None for row in result.rows]


def test_choosing_all_or_no_rows_changes_no_interval(con: dpsql.Connection) -> None:
    """A condition that every row meets leaves the intervals as they are; one that none does leaves none."""
    sql = "SELECT k, COUNT(*) AS n FROM t GROUP BY k HAVING n > {}"
    every, none = con.query(sql.format(-(10**6))), con.query(sql.format(10**6))
    usual = con.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k").intervals()[0][1]
    found = every.intervals()[0][1]
    assert found is not None
    assert usual is not None
    assert found[1] - found[0] == usual[1] - usual[0]
    assert none.intervals() == ()
    for result in (every, none):
        assert not any(notice.startswith("Noisy values selected") for notice in result.notices)
