"""What an analyst sees of totals that agree with their parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from clinic import POLICY, database
from entropy import SeededEntropy

import dpsql

ROLLUP = (
    "SELECT plan, days, COUNT(*) AS n, SUM(cost) AS s FROM visits WHERE days IN (0, 1, 2, 3) "
    "GROUP BY ROLLUP (plan, days)"
)
CUBE = "SELECT plan, days, COUNT(*) AS n FROM visits WHERE days IN (0, 1, 2, 3) GROUP BY CUBE (plan, days)"


def opened(accountant: str = "zcdp", **changed: Any) -> dpsql.Connection:
    """The clinic."""
    budget = {"epsilon": 90, "delta": 1e-6, "accountant": accountant}
    visits = POLICY["tables"]["visits"] | changed
    policy = POLICY | {"budget": budget, "tables": POLICY["tables"] | {"visits": visits}}
    return dpsql.connect(database(), policy=policy, ledger=":memory:", epsilon=1)


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """The clinic under either kind of noise."""
    with opened(request.param) as connection:
        yield connection


def test_totals_are_sums(con: dpsql.Connection) -> None:
    """Whole numbers to the last digit and still whole, other numbers but for the last digits of a DOUBLE."""
    for _ in range(5):
        rows = con.query(ROLLUP, replay=False).rows
        for place, exactly in ((2, True), (3, False)):
            (total,) = (row[place] for row in rows if row[0] is None)
            plans = [row[place] for row in rows if row[0] is not None and row[1] is None]
            parts = [row[place] for row in rows if row[1] is not None]
            for found in (sum(plans), sum(parts)):
                assert found == total if exactly else found == pytest.approx(total, rel=1e-12)
        assert all(type(row[2]) is int for row in rows)


def test_every_total_of_a_cube_is_a_sum(con: dpsql.Connection) -> None:
    """By either key, and of all."""
    rows = con.query(CUBE).rows
    cells = {row[:2]: row[2] for row in rows}
    plans, days = ({key[at] for key in cells} - {None} for at in (0, 1))
    for plan in plans:
        assert cells[plan, None] == sum(cells[plan, day] for day in days)
    for day in days:
        assert cells[None, day] == sum(cells[plan, day] for plan in plans)
    assert cells[None, None] == sum(cells[plan, None] for plan in plans)


def test_post_processing_uses_the_adjusted_values(con: dpsql.Connection) -> None:
    """Arithmetic, HAVING, ORDER BY and the ends of intervals use the displayed values."""
    rows = con.query(
        "SELECT plan, COUNT(*) AS n, COUNT(*) + 1 AS more, SUM(cost) / COUNT(*) AS mean, SUM(cost) AS s, "
        "DP_INTERVAL_LOW(COUNT(*)) AS low, DP_INTERVAL_HIGH(COUNT(*)) AS high "
        "FROM visits GROUP BY ROLLUP (plan) HAVING COUNT(*) > 0 ORDER BY n DESC"
    )
    shown = [row[1] for row in rows]
    assert shown == sorted(shown, reverse=True)
    for row, ends in zip(rows.rows, rows.intervals(0.95), strict=True):
        _, n, more, mean, s, low, high = row
        assert more == n + 1
        assert mean == pytest.approx(s / n)
        assert (low, high) == pytest.approx(ends[1])
        assert low <= n <= high


def test_the_displayed_number_is_the_middle_of_its_interval(con: dpsql.Connection) -> None:
    """The interval is a whole number plus or minus the half-width, although the estimate is a fraction."""
    found = con.query(CUBE, epsilon=2)
    for row, ends in zip(found.rows, found.intervals(0.95), strict=True):
        assert ends[2] is not None
        assert (ends[2][0] + ends[2][1]) / 2 == row[2]


def test_explain_predicts_the_half_width(con: dpsql.Connection) -> None:
    """EXPLAIN shows the half-width of the answer, which is smaller than that without groups."""
    told = str(con.explain(ROLLUP))
    assert told.count("then totals are made consistent with their parts by least squares, free") == 3
    wide = con.query(ROLLUP).intervals(0.95)
    halves = [(ends[2][1] - ends[2][0]) / 2 for ends in wide if ends[2]]
    said = [
        float(each.replace(",", ""))
        for each in re.findall(r"COUNT\(\*\): expected 95% half-width ([\d.,]+\d)", told)
    ]
    for half in (halves[0], halves[-1]):
        assert min(abs(half - each) for each in said) < 1  # what rounding to whole numbers adds


def test_the_receipt_has_the_noise_before_adjustment(con: dpsql.Connection) -> None:
    """The receipt describes the noise that was charged, before the adjustment."""
    receipt = con.query(ROLLUP).receipt
    assert receipt.mechanisms == con.explain(ROLLUP).receipt.mechanisms
    assert not any("projected" in str(each) for each in receipt.mechanisms)


def test_stored_releases_are_adjusted_in_the_same_way(con: dpsql.Connection) -> None:
    """A total that is queried without its groups is the released value."""
    first = con.query(ROLLUP)
    entries = len(con.engine.ledger.list_entries())
    again = con.query(ROLLUP + " ORDER BY plan, days")
    assert sorted(map(str, first.rows)) == sorted(map(str, again.rows))
    assert sorted(map(str, con.combine(ROLLUP).rows)) == sorted(map(str, first.rows))
    assert len(con.engine.ledger.list_entries()) == entries


def test_combine_adjusts_the_mean_of_releases(con: dpsql.Connection) -> None:
    """The mean of several answers is adjusted, and has less noise."""
    first, _ = (con.query(CUBE, replay=False) for _ in range(2))
    best = con.combine(CUBE)
    assert best.scales[0][2] == pytest.approx(first.scales[0][2] / 2**0.5, rel=0.01)
    cells = {row[:2]: row[2] for row in best.rows}
    assert cells[None, None] == sum(cells[key] for key in cells if None not in key)


def test_totals_over_different_rows_are_not_adjusted() -> None:
    """If units exceed their declared rows, the sums of groups and the total leave out different rows."""
    with opened("pure", rows_per_unit=1) as connection:
        object.__setattr__(connection.engine, "entropy", SeededEntropy(1))
        sql = "SELECT days, SUM(cost) AS s FROM visits WHERE days < 4 GROUP BY ROLLUP (days)"
        assert "least squares" in str(connection.explain(sql, epsilon=2))
        result = connection.query(sql, epsilon=2)
        alone = connection.query("SELECT SUM(cost) AS s FROM visits WHERE days < 4", epsilon=2, replay=False)
        *_, (_, total) = result.rows
        assert total == pytest.approx(alone.rows[0][0], rel=0.2)
        assert sum(row[1] for row in result.rows[:-1]) < 0.9 * total
