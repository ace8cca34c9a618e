"""What was charged is answered: no arithmetic on what was released ends a query, however odd its numbers are."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from clinic import POLICY, database

import dpsql
from dpsql.api.connection import Connection
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.replay.reuse import can_combine_noises, compute_noise_variance, list_compatible_indices
from dpsql.errors import QueryRejected
from dpsql.privacy.mechanisms import CombinedNoise, DiscreteGaussian

COUNT = "SELECT COUNT(*) AS n FROM visits"
LARGE = (
    "SELECT SUM(cost + 1e308) AS s FROM visits",
    "SELECT SUM(-1e308) AS s, COUNT(*) AS n FROM visits",
    "SELECT plan, SUM(cost - 1e308) AS s FROM visits GROUP BY ROLLUP (plan)",
    "SELECT AVG(cost + 1e308) AS a, DP_INTERVAL_LOW(SUM(cost + 1e308)) AS low FROM visits",
    "SELECT SUM(FACTORIAL(GREATEST(days, 9223372036854775807))) AS s FROM visits",
)


def opened(accountant: str, **changed: Any) -> Connection:
    """The clinic with a budget without end."""
    budget = {"epsilon": 10**7, "delta": 1e-6, "accountant": accountant}
    policy = POLICY | {"budget": budget, "data_version": "1", "max_epsilon": None} | changed
    return dpsql.connect(database(), policy=policy, ledger=":memory:", analyst="ana")


@pytest.fixture(params=["pure", "zcdp", "gdp"])
def con(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """That clinic, for each way to refine."""
    with opened(request.param) as connection:
        yield connection


@pytest.mark.parametrize("sql", LARGE)
@pytest.mark.parametrize("epsilon", ["1e-6", "1", "5000"])
def test_sums_beyond_every_float_are_answered(sql: str, epsilon: str) -> None:
    """They are infinite, and have intervals; NULL where there is none."""
    with opened("zcdp") as connection:
        result = connection.query(sql, epsilon=epsilon)
        assert len(result.rows) >= 1
        assert result.intervals()
        assert str(result)
        assert result.receipt.entries


def test_a_refinement_at_any_loss_is_answered(con: Connection) -> None:
    """Noise whose variance no float tells from zero is refined, or asked for anew, and put together."""
    sql = "SELECT plan, COUNT(*) AS n, AVG(cost) AS a FROM visits GROUP BY plan"
    for epsilon in (1, 100, 2000, 3000, 100_000, 1_000_000):
        for query in (COUNT, sql):
            result = con.query(query, epsilon=epsilon)
            assert result.intervals()
            assert con.combine(query).intervals()
    assert con.query(COUNT, epsilon=1_000_000).rows == ((800,),)


def test_noise_is_combined_on_lattices_within_float_range() -> None:
    """Repeated refinement makes a lattice finer; too fine lattices are not combined."""
    noise = DiscreteGaussian(Fraction(100))
    fine = CombinedNoise(((3**250, noise), (1, noise)))
    coarse = CombinedNoise(((2, noise), (1, noise)))
    assert compute_noise_variance(coarse) == pytest.approx(500 / 9)
    assert math.isfinite(compute_noise_variance(fine))
    assert can_combine_noises([coarse, noise])
    assert not can_combine_noises([fine, CombinedNoise(((5**160, noise), (2, noise)))])
    assert compute_noise_variance(DiscreteGaussian(Fraction(1, 2**40))) > 0
    with opened("zcdp") as connection:
        plan = plan_and_match(
            connection.engine, connection._queries.build_query(COUNT, (), {"epsilon": 1})
        ).plan
    assert list_compatible_indices([plan, plan, plan]) == [0, 1, 2]


def test_a_long_chain_of_refinements_is_answered() -> None:
    """Each divides the lattice further; where that is too fine a release is made for itself."""
    with opened("zcdp") as connection:
        for number in range(40):
            result = connection.query(COUNT, epsilon=Fraction(1, 10) * (1 + Fraction(number, 5)))
            assert result.intervals()
        assert connection.combine(COUNT).intervals()


def test_bins_must_have_the_type_of_their_column() -> None:
    """A timestamp among numbers is refused before any charge."""
    with opened("zcdp") as connection:
        for end in ("TIMESTAMP '2024-01-01 00:00:00'", "DATE '2024-01-01'"):
            with pytest.raises(QueryRejected):
                connection.query(f"SELECT HISTOGRAM(cost, [0, {end}]) FROM visits", epsilon=1)
        assert connection.budget()["visits"].queries == 0


def test_days_beyond_pythons_calendar_are_texts() -> None:
    """Arrow's columns of days do not take those."""
    with opened("zcdp") as connection:
        result = connection.query("SELECT COUNT(*) + DATE '9999-12-31' AS d FROM visits", epsilon=1)
        assert isinstance(result.rows[0][0], str)
        with pytest.raises(dpsql.DataError):
            result.to_arrow_table()


def test_budget_figures_are_short_and_exact() -> None:
    """They are shown in six digits, what remains rounded down and what is spent rounded up."""
    with opened("zcdp", budget={"epsilon": 3, "delta": 1e-7, "accountant": "zcdp"}) as connection:
        connection.query(COUNT, epsilon=Fraction(1, 3))
        state = connection.budget()["visits"]
    shown, spent = str(state.remaining_epsilon), f"{state.spent_epsilon}"
    assert len(shown) <= 8 >= len(spent)
    assert Fraction(shown) <= state.remaining_epsilon < Fraction(shown) + Fraction(1, 10**5)
    assert Fraction(spent) >= state.spent_epsilon
    assert type(state.remaining_epsilon + 0) is Fraction
    assert isinstance(repr(state), str)
    for other in (copy.deepcopy(state.spent_epsilon), pickle.loads(pickle.dumps(state.spent_epsilon))):
        assert (other, str(other)) == (state.spent_epsilon, spent)
