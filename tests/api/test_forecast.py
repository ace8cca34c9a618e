"""A plan's forecast says what the ledger then does, query by query and jointly, and costs nothing itself."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.privacy.accounting.events import NOTHING
from dpsql.results.forecast import Forecast, PlannedAccount

COUNT = "SELECT COUNT(*) AS n FROM visits"
PLAN = (
    f"{COUNT} WHERE cost > 1",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) plan, AVG(cost) FROM visits GROUP BY plan",
    "SELECT ward, SUM(days) FROM visits GROUP BY ward",
)
BUDGETS: tuple[dict[str, Any], ...] = tuple(
    {"epsilon": 12, "delta": 1e-6, "accountant": accountant} for accountant in ("zcdp", "gdp", "basic")
)


@pytest.fixture(params=BUDGETS, ids=lambda budget: budget["accountant"])
def con(request: pytest.FixtureRequest) -> Iterator[dpsql.Connection]:
    """A connection for each accountant that charges what chooses its groups."""
    with dpsql.connect(
        database(), policy=POLICY | {"budget": request.param, "max_epsilon": None}, ledger=":memory:"
    ) as opened:
        yield opened


def test_queries_cost_their_forecast(con: dpsql.Connection) -> None:
    """Run one after the other, the queries spend the forecast of each, and of all together."""
    con.query(COUNT, epsilon=0.3)
    forecast = con.budget(PLAN, epsilon=0.1)
    before = con.budget()["visits"]
    for planned, sql in zip(forecast.queries, PLAN, strict=True):
        assert planned.quote is not None
        spent = con.budget()["visits"].spent
        con.query(sql, epsilon=None if "OPTIONS" in sql else 0.1)
        assert con.budget()["visits"].spent == spent + planned.quote.charge
    assert forecast.accounts == (PlannedAccount(before, con.budget()["visits"]),)
    assert [planned.epsilon for planned in forecast.queries] == [Fraction(1, 10), 1, Fraction(1, 10)]


def test_a_forecast_costs_nothing(con: dpsql.Connection) -> None:
    """However often it is made, the ledger stays as it is."""
    for _ in range(3):
        con.budget(PLAN, epsilon=2)
    assert con.budget()["visits"].spent == NOTHING
    assert con.budget()["visits"].queries == 0


def test_a_query_fits_the_forecast_number_of_times(con: dpsql.Connection) -> None:
    """A query fits exactly that many times into the remaining budget."""
    con.query(COUNT, epsilon=1)
    (planned,) = con.budget(f"{COUNT} WHERE cost < 1", epsilon=1).queries
    assert planned.times is not None
    assert con.budget([f"{COUNT} WHERE cost > {n}" for n in range(planned.times)], epsilon=1).fits
    assert not con.budget([f"{COUNT} WHERE cost > {n}" for n in range(planned.times + 1)], epsilon=1).fits
    for n in range(planned.times):
        con.query(f"{COUNT} WHERE cost > {n}", epsilon=1)
    with pytest.raises(dpsql.BudgetExhausted):
        con.query(f"{COUNT} WHERE cost < 2", epsilon=1)


def test_the_share_is_of_the_whole_budget(con: dpsql.Connection) -> None:
    """The part that a query takes is its loss's, or its δ's where that is the larger part."""
    state = con.budget()["visits"]
    for planned in con.budget(PLAN, epsilon=0.1).queries:
        assert planned.quote is not None
        spend = planned.quote.charge
        loss, delta = Fraction(spend.loss, state.limit.loss), Fraction(spend.delta, state.limit.delta)
        assert planned.share == max(loss, delta)


def test_a_forecast_reads_as_a_table(con: dpsql.Connection) -> None:
    """A line for each query, one for each table."""
    lines = str(
        con.budget(["-- how many?\nSELECT  COUNT(*)\nFROM visits", PLAN[1]], epsilon=0.1)
    ).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[2].split()[1:5] == ["SELECT", "COUNT(*)", "FROM", "visits"]
    assert lines[-1].startswith("visits ")
    assert lines[-1].endswith(" fits")
    assert str(con.budget([])) == "the plan costs nothing"
    assert str(con.budget("SELECT 1", epsilon=1)) == "the plan costs nothing"
    too_much = str(con.budget([COUNT, f"{COUNT} WHERE cost > 1"], epsilon=8))
    assert too_much.endswith(" does not fit")


def test_a_forecast_refuses_invalid_queries(con: dpsql.Connection) -> None:
    """A query in a forecast needs a loss and passes the same checks as any other."""
    with pytest.raises(dpsql.ProgrammingError, match="no privacy loss given"):
        con.budget([COUNT])
    with pytest.raises(dpsql.QueryRejected, match="there is no column nothing"):
        con.budget([COUNT, "SELECT SUM(nothing) FROM visits"], epsilon=1)
    assert isinstance(con.budget([COUNT], epsilon="0.5"), Forecast)


def test_parts_and_analysts_have_their_own_lines() -> None:
    """Two months that do not meet cost a table what one does, and the analyst's own budget is foreseen beside it."""
    visits = POLICY["tables"]["visits"] | {"unit": "row", "partition": "day"}
    visits = {key: value for key, value in visits.items() if key != "rows_per_unit"}
    rules = POLICY | {"tables": {"visits": visits}, "analysts": {"ana": {"epsilon": 8}}}
    months = [f"{COUNT} WHERE day BETWEEN '2024-0{month}-01' AND '2024-0{month}-28'" for month in (1, 3)]
    with dpsql.connect(database(), policy=rules, ledger=":memory:", analyst="ana") as con:
        one, both = con.budget(months[:1], epsilon=1), con.budget(months, epsilon=1)
        assert [account.now.name for account in both.accounts] == ["visits", "visits for ana"]
        assert both.accounts[0].after.spent == one.accounts[0].after.spent
        assert one.accounts[0].share > 0
        for sql in months:
            con.query(sql, epsilon=1)
        assert tuple(con.budget().values()) == tuple(account.after for account in both.accounts)


def test_repeated_queries_are_free_in_a_forecast(con: dpsql.Connection) -> None:
    """A query that was answered before, or is listed twice, costs nothing more."""
    con.query(COUNT, epsilon=1)
    forecast = con.budget([COUNT, PLAN[0], PLAN[0]], epsilon=1)
    assert [planned.quote is None for planned in forecast.queries] == [True, False, True]
    assert [line.split()[-1] for line in str(forecast).splitlines()[2:5]] == ["free", "times", "free"]
    (account,) = forecast.accounts
    con.query(PLAN[0], epsilon=1)
    con.query(PLAN[0], epsilon=1)
    assert con.budget()["visits"] == account.after
    assert not con.budget(COUNT, epsilon=1).accounts
    assert con.budget(COUNT, epsilon=2).accounts
