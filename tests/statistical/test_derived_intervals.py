"""Intervals of what is computed of several released rows or tables hold; what noise chooses has none, and a notice says so.

The entropy is the operating system's. A sound engine fails one of these tests with probability 1e-6 or less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from statistical.chance import least_share

import dpsql
from dpsql.engine.intervals import derived_values

RUNS = 20
BY_KIND = "(SELECT kind, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY kind)"
STEADY = {
    "a share of the total": f"SELECT kind, 100 * n / SUM(n) OVER () AS y FROM {BY_KIND}",
    "a share in a descending order": f"SELECT kind, n / SUM(n) OVER () AS y FROM {BY_KIND} ORDER BY y DESC",
    "growth": f"SELECT kind, n / LAG(n) OVER (ORDER BY kind) - 1 AS y FROM {BY_KIND}",
    "a difference": f"SELECT kind, n - LAG(n) OVER (ORDER BY kind) AS y FROM {BY_KIND}",
    "a running total": f"SELECT kind, SUM(s) OVER (ORDER BY kind) AS y FROM {BY_KIND}",
    "a share of a part": f"SELECT kind, s / SUM(s) OVER (PARTITION BY kind % 2) AS y FROM {BY_KIND}",
    "a rounded share": f"SELECT kind, ROUND(100 * n / SUM(n) OVER (), 1) AS y FROM {BY_KIND}",
    "a standardized rate": f"SELECT SUM(weight * s) / SUM(weight * n) AS y FROM {BY_KIND} JOIN w USING (kind)",
    "groups of groups": f"SELECT kind % 2 AS half, AVG(n) AS y FROM {BY_KIND} GROUP BY half",
    "two releases": f"SELECT a.kind, b.n / a.n AS y FROM {BY_KIND} a JOIN (SELECT kind, COUNT(*) AS n FROM t WHERE x > 4 GROUP BY kind) b ON a.kind = b.kind",
    "secret keys": "SELECT name, n / SUM(n) OVER () AS y FROM (SELECT name, COUNT(*) AS n FROM t GROUP BY name)",
    "rows that noise cuts": f"SELECT kind, n / SUM(n) OVER () AS y FROM {BY_KIND} ORDER BY n DESC LIMIT 3",
}
CHOSEN = {
    "the greatest": f"SELECT MAX(n) AS y FROM {BY_KIND}",
    "a part of the greatest": f"SELECT kind, n / MAX(n) OVER () AS y FROM {BY_KIND}",
    "a total in noisy order": f"SELECT kind, SUM(n) OVER (ORDER BY n DESC) AS y FROM {BY_KIND}",
    "a rank": f"SELECT kind, RANK() OVER (ORDER BY n) AS y FROM {BY_KIND}",
    "a share of chosen rows": f"SELECT kind, n / SUM(n) OVER () AS y FROM {BY_KIND} WHERE n > 10",
    "a sum of chosen rows": f"SELECT SUM(n) AS y FROM {BY_KIND} WHERE n > 10",
    "a sum of the greatest": f"SELECT SUM(n) AS y FROM (SELECT n FROM {BY_KIND} ORDER BY n DESC LIMIT 3)",
    "a choice": f"SELECT SUM(GREATEST(n, 200)) AS y FROM {BY_KIND}",
    "a word for a count": f"SELECT kind, CASE WHEN n > 200 THEN 'many' ELSE 'few' END AS y FROM {BY_KIND}",
    "a comparison": f"SELECT kind, n > 200 AS y FROM {BY_KIND}",
    "a text": f"SELECT kind, n || ' persons' AS y FROM {BY_KIND}",
}


def policy(accountant: str, **rules: object) -> dict[str, Any]:
    """One row a person, and what else is said of the table."""
    columns = {
        "kind": {"type": "integer", "values": [*range(8)], "nullable": False},
        "name": {"type": "varchar"},
        "x": {"type": "double", "bounds": [0, 8]},
    }
    return {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**6, "delta": 1e-3, "accountant": accountant},
        "tables": {
            "t": {"unit": "u", "rows_per_unit": 1, "columns": columns, **rules},
            "w": {"public": True},
        },
    }


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """Eight kinds of different sizes, their names, and a public weight of each."""
    with duckdb.connect() as data:
        data.execute(
            "CREATE TABLE t AS SELECT i AS u, k AS kind, 'kind ' || k AS name, (i % 8) * 1e0 AS x "
            "FROM (SELECT g * 1000 + unnest(range(100 + 30 * g)) AS i, g AS k FROM range(8) a(g))"
        )
        data.execute("CREATE TABLE w AS SELECT i AS kind, 1 + i / 4 AS weight FROM range(8) a(i)")
        with dpsql.connect(
            data, policy=policy(request.param), ledger=":memory:", replay=False, epsilon=1
        ) as found:
            found.truth = data  # type: ignore[attr-defined]
            yield found


@pytest.mark.parametrize("sql", STEADY.values(), ids=STEADY)
def test_derived_intervals_hold(con: dpsql.Connection, sql: str) -> None:
    """They hold as often as stated, in all rows."""
    exact: duckdb.DuckDBPyConnection = con.truth  # type: ignore[attr-defined]
    whole = sql.split(" ORDER BY n DESC", maxsplit=1)[0]
    truth = {row[:-1]: row[-1] for row in exact.execute(whole).fetchall()}
    covered: list[float] = []
    for _ in range(RUNS):
        result = con.query(sql, delta=1e-6)
        shares = []
        for row, ends in zip(result.rows, result.intervals(), strict=True):
            if truth[row[:-1]] is not None:
                assert ends[-1] is not None
                low, high = ends[-1]
                assert low - 1e-9 <= float(row[-1]) <= high + 1e-9
                shares.append(low - 1e-9 <= truth[row[:-1]] <= high + 1e-9)
        covered.append(sum(shares) / len(shares))
    assert sum(covered) / RUNS >= least_share(RUNS, 0.94)


@pytest.mark.parametrize("sql", CHOSEN.values(), ids=CHOSEN)
def test_value_chosen_by_noise_has_no_interval_and_a_notice(con: dpsql.Connection, sql: str) -> None:
    """A greatest value, a rank, and an expression that reads rows by noisy values have no interval."""
    result = con.query(sql)
    assert all(ends[-1] is None for ends in result.intervals())
    assert any(notice.startswith("y has noise, and no interval is known") for notice in result.notices)


def test_divisor_that_may_be_zero_gives_an_open_interval(con: dpsql.Connection) -> None:
    """The interval has no end where noise may turn the sign of a total.

    The total of nobody is noise alone: an interval is closed only where it lies more than two standard deviations
    from zero, which twenty answers do together with a probability below 1e-20.
    """
    sql = "SELECT kind, n / SUM(n) OVER () AS y FROM (SELECT kind, COUNT(*) AS n FROM t WHERE x > 7 GROUP BY kind)"
    ends = (ends[1] for _ in range(RUNS) for ends in con.query(sql, epsilon="0.05").intervals())
    assert any(found is not None and found[1] - found[0] == float("inf") for found in ends)


def test_simulation_is_free_and_reproducible(con: dpsql.Connection) -> None:
    """The draws are a fixed public stream."""
    result = con.query(STEADY["a share of the total"])
    spent = str(con.budget())
    assert result.intervals() == result.intervals()
    assert result.intervals(0.5) != result.intervals()
    assert str(con.budget()) == spent


@pytest.mark.parametrize("digits", [0, -3])
def test_rounded_constant_has_a_point_interval(con: dpsql.Connection, digits: int) -> None:
    """A rounded share that no noise changes has an interval without width, and is not left without one."""
    sql = f"SELECT kind, ROUND(n / SUM(n) OVER (), {digits}) AS y FROM {BY_KIND}"
    result = con.query(sql, epsilon=1000)
    assert [ends[-1] for ends in result.intervals()] == [(0.0, 0.0)] * 8
    assert result.notices == ()


def test_many_groups_are_not_simulated(con: dpsql.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer draws are made of many groups, and none of more; a notice says then that there is no interval."""
    sql = STEADY["a share of the total"]
    for most, known in ((10**4, True), (1000, False)):
        monkeypatch.setattr(derived_values, "MOST_CELLS", most)
        result = con.query(sql)
        assert all((ends[-1] is not None) is known for ends in result.intervals())
        assert any(notice.startswith("y has noise") for notice in result.notices) is not known


def test_table_without_rows_is_simulated(con: dpsql.Connection) -> None:
    """Values computed of no groups have no interval, and reading it raises nothing."""
    sql = "SELECT kind, (SELECT COUNT(*) FROM t WHERE t.kind = w.kind AND x > 9) AS y FROM w"
    data: duckdb.DuckDBPyConnection = con.truth  # type: ignore[attr-defined]
    with dpsql.connect(
        data, policy=policy("zcdp", min_frequency=3), ledger=":memory:", epsilon=100
    ) as withheld:
        assert {ends[-1] for ends in withheld.query(sql).intervals()} == {None}
