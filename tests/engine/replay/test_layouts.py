"""`best` answers from releases of more than is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.engine.replay.reuse import Coverage
from dpsql.errors import IntegrityError

MORE = "SELECT plan, COUNT(*) AS n, SUM(days) AS s, AVG(days) AS m FROM visits GROUP BY plan"
FEWER = {
    "a count": ("SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan", [1]),
    "a sum": ("SELECT plan, SUM(days) AS total FROM visits GROUP BY plan", [2]),
    "a mean": ("SELECT plan, AVG(days) AS m FROM visits GROUP BY plan", [3]),
    "in another order": (
        "SELECT plan, AVG(v.days) AS m, COUNT(*) AS n FROM visits AS v GROUP BY plan",
        [3, 1],
    ),
    "what is done with it": ("SELECT plan, 2 * COUNT(*) AS n FROM visits GROUP BY plan", None),
}
OTHER = {
    "other rows": "SELECT plan, COUNT(*) FROM visits WHERE days > 1 GROUP BY plan",
    "other groups": "SELECT COUNT(*) FROM visits",
    "another expression": "SELECT plan, SUM(30 - days) FROM visits GROUP BY plan",
    "another lattice": "SELECT plan, SUM(LEAST(days, 9)) FROM visits GROUP BY plan",
    "another statistic": "SELECT plan, COUNT(DISTINCT patient_id) FROM visits GROUP BY plan",
    "more": "SELECT plan, COUNT(*), SUM(cost) FROM visits GROUP BY plan",
    "a value at a rank": "SELECT plan, MEDIAN(days) FROM visits GROUP BY plan",
}


def opened(accountant: str) -> dpsql.Connection:
    """The clinic."""
    budget = {"epsilon": 90, "delta": 1e-6, "accountant": accountant}
    return dpsql.connect(database(), policy=POLICY | {"budget": budget}, ledger=":memory:", epsilon=1)


@pytest.fixture(params=["pure", "zcdp"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """The clinic, of which one question was answered."""
    with opened(request.param) as connection:
        connection.query(MORE)
        yield connection


@pytest.mark.parametrize("name", FEWER)
def test_fewer_aggregates_are_answered_from_a_release_of_more(con: dpsql.Connection, name: str) -> None:
    """The values and intervals that were released of them, free; nothing is read and nothing drawn."""
    sql, places = FEWER[name]
    more, entries = con.query(MORE), con.engine.ledger.list_entries()
    found = con.combine(sql)
    assert con.engine.ledger.list_entries() == entries
    assert (found.receipt.entries, found.receipt.replayed) == ((), (1,))
    if places is None:
        assert [row[1] for row in found.rows] == [2 * row[1] for row in more.rows]  # type: ignore[operator]
        return
    assert [row[1:] for row in found.rows] == [tuple(row[place] for place in places) for row in more.rows]
    for ours, theirs in zip(found.intervals(), more.intervals(), strict=True):
        assert [pytest.approx(theirs[place]) for place in places] == list(ours[1:])


@pytest.mark.parametrize("sql", OTHER.values(), ids=OTHER)
def test_unreleased_aggregate_is_not_combined(con: dpsql.Connection, sql: str) -> None:
    """Other rows, groups, expressions and statistics are not those of the release."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        con.combine(sql)
    assert caught.value.code == "nothing_released"


def test_most_accurate_covering_release_is_used(con: dpsql.Connection) -> None:
    """Of a release of its own and one of more, that with less noise."""
    sql, _ = FEWER["a count"]
    con.query(sql, epsilon=Fraction(1, 50))
    assert con.combine(sql).receipt.replayed == (1,)
    con.query(sql, epsilon=2)
    assert con.combine(sql).receipt.replayed != (1,)


def test_several_covering_releases_are_combined() -> None:
    """Where each cell has noise of its own, twice as much was said of a part as well."""
    with opened("zcdp") as connection:
        first = connection.query(MORE)
        connection.query(MORE, replay=False)
        found = connection.combine(FEWER["a sum"][0])
        assert found.receipt.replayed == (1, 2)
        assert found.scales[0][1] == pytest.approx(first.scales[0][2] / 2**0.5, rel=1e-3)  # type: ignore[operator]


def test_query_for_fewer_aggregates_is_charged(con: dpsql.Connection) -> None:
    """Only `best` answers so: a query asks for a measurement, with its noise."""
    con.query(FEWER["a count"][0])
    assert len(con.engine.ledger.list_entries()) == 2


def test_selected_keys_are_not_answered_from_a_covering_release(con: dpsql.Connection) -> None:
    """Which groups are shown hung on the count with its noise."""
    con.query("SELECT ward, COUNT(*), SUM(days) FROM visits GROUP BY ward")
    with pytest.raises(dpsql.QueryRejected):
        con.combine("SELECT ward, COUNT(*) FROM visits GROUP BY ward")


def test_parts_of_a_total_are_answered_as_released() -> None:
    """What the cells of more than is asked for are is not kept, so that nothing is made to agree."""
    sets = "FROM visits WHERE days IN (0, 1) GROUP BY ROLLUP (days)"
    with opened("pure") as connection:
        connection.query(f"SELECT days, COUNT(*), SUM(days) {sets}")
        best = connection.combine(f"SELECT days, SUM(days) AS s {sets}")
        parts = [
            connection.combine("SELECT days, SUM(days) FROM visits WHERE days IN (0, 1) GROUP BY days").rows
        ]
        assert best.rows[:-1] == parts[0]


def test_selected_keys_have_no_coverage(con: dpsql.Connection) -> None:
    """Nor have values at a rank, the best groups, and cells that were held by clamps which were learnt."""
    for sql in (
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
        "SELECT COUNT(*), MEDIAN(days) FROM visits",
        "SELECT days FROM visits GROUP BY days ORDER BY SUM(cost) DESC LIMIT 2",
    ):
        assert Coverage.from_plan("s", con.explain(sql).prepared.single_release.plan, {}) is None


@pytest.mark.parametrize("text", ["", "[]", '{"statistic":"x"}', '{"statistic":"x","blocks":[{}]}'])
def test_malformed_coverage_is_refused(text: str) -> None:
    """As any text that dpsql did not write."""
    with pytest.raises(IntegrityError):
        Coverage.parse(text)


def test_coverage_survives_serialization(con: dpsql.Connection) -> None:
    """The text of what was read is the text."""
    part: Any = con.explain(MORE).prepared.single_release
    layout = Coverage.from_plan("s", part.plan, {})
    assert layout is not None
    assert Coverage.parse(layout.to_text()).to_text() == layout.to_text()
