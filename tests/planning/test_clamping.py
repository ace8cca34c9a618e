"""Learnt clamps: their grid and prior, what they cost, when there are any, and that noise follows the choice."""

from __future__ import annotations

import dataclasses
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import exp
from statistics import NormalDist
from typing import Any

import duckdb
import pytest
from entropy import SeededEntropy
from hypothesis import given
from hypothesis import strategies as st
from statistical.chance import largest_share, least_share

import dpsql
from dpsql.analysis.release_analysis import Lattice
from dpsql.api.connection import Connection
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.postgres.dialect import POSTGRES
from dpsql.engine.intervals.noise_laws import (
    MANY_GROUPS,
    NOTHING,
    compute_allowance,
    predict_noise_half_width,
)
from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import VerificationError
from dpsql.ledger import Budget
from dpsql.ledger.protocol import Account
from dpsql.planning.build_clamps import _compute_default_index
from dpsql.planning.choose import list_needed_statistics
from dpsql.planning.clamp_histogram import ClampHistogram, compute_clamped_moments, select_clamp_points
from dpsql.planning.clamping import OCTAVES, RULE, Amount, Clamp, compute_grid
from dpsql.planning.group_selection import Threshold
from dpsql.planning.layouts import favors_separate_totals, iterate_layouts
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import build_complementary_vector
from dpsql.planning.verify import verify_plan
from dpsql.policy.request.query import Query
from dpsql.privacy.accounting import Composed
from dpsql.privacy.accounting.events import BoundedRange, Pure
from dpsql.privacy.mechanisms import DiscreteGaussian, Exponential, Geometric
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.contribution_bounds import _emit_interval_search, emit_interval_counts

mosts = st.one_of(st.integers(1, 3000), st.integers(1, 2**61))
every_accountant = pytest.mark.parametrize("accountant", ["pure", "zcdp"])
every_relation = pytest.mark.parametrize("neighbors", ["add_remove", "replace"])


def study(rows: int = 40, units: int = 2000, **rules: Any) -> Connection:
    """A thousand times as much is allowed as there is: each unit has up to 5 rows in 3 groups, `y` up to 10."""
    database = duckdb.connect(config={"threads": 1})
    database.execute(
        "CREATE TABLE t AS SELECT u, (u + r) % 3 AS k, (u * 7 + r) % 11 AS y, (u * 7 + r) % 21 - 10 AS z, (u + r) % 20 AS w "
        f"FROM range({units}) a(u), range(5) b(r) WHERE r <= u % 5"
    )
    table = {
        "unit": "u",
        "rows_per_unit": rows,
        "columns": {
            "k": {"type": "integer", "values": [0, 1, 2], "nullable": False},
            "w": {"type": "integer", "values": list(range(20)), "nullable": False},
            "y": {"type": "integer", "bounds": [0, 10_000]},
            "z": {"type": "integer", "bounds": [-10_000, 10_000]},
        },
    }
    budget: dict[str, Any] = {
        "epsilon": rules.pop("budget", 10**30),
        "delta": 0 if rules.get("accountant") == "pure" else 1e-6,
    }
    if "accountant" in rules:
        budget["accountant"] = rules.pop("accountant")
    replays = rules.pop("replays", False)
    policy: Mapping[str, Any] = {
        "version": 1,
        "privacy_unit": "person",
        "budget": budget,
        "neighbors": rules.pop("neighbors", "add_remove"),
        "tables": {"t": table | rules},
    }
    return dpsql.connect(database, policy=policy, ledger=":memory:", replay=replays)


def planned(
    sql: str, epsilon: int | Fraction = 1, delta: Fraction | None = None, **rules: Any
) -> MeasurementPlan:
    """What is measured for a query."""
    with study(**rules) as connection:
        return plan_and_match(connection.engine, Query(sql, epsilon=Fraction(epsilon), delta=delta)).plan


@given(mosts)
def test_a_grid_has_four_points_to_a_doubling(most: int) -> None:
    """Up to the most, from a part of it that is public, each at most 2^(1/4) of the one before, rounded up."""
    points = compute_grid(most)
    assert points[0] == max(1, most >> OCTAVES)
    assert points[-1] == most
    assert all(low < high for low, high in itertools.pairwise(points))
    assert all((high - 1) ** 4 <= 2 * (low + 1) ** 4 for low, high in itertools.pairwise(points))
    assert len(points) <= 4 * (OCTAVES + 1) + 2


@given(mosts)
def test_points_weigh_by_their_inverse_to_a_power(most: int) -> None:
    """As whole numbers, of which the least is large enough for the ratios of all."""
    for power in (1, RULE.exponent):
        clamp = Clamp(Amount.TOTAL, (0,), (1,), compute_grid(most), Exponential(Fraction(1)), power)
        for point, weight in zip(clamp.grid, clamp.weights, strict=True):
            assert weight >= 2**10
            assert weight * point**power <= 2**10 * most**power < (weight + 1) * point**power


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    "sql",
    ["SELECT SUM(y) FROM t", "SELECT w, SUM(y) FROM t GROUP BY w", "SELECT w, SUM(z) FROM t GROUP BY w"],
)
def test_the_expected_noise_is_that_of_a_choice_by_the_prior_weights(accountant: str, sql: str) -> None:
    """By the exact law of the choice where many units contribute a known amount: the mean square, rounded up to a point."""
    (clamp,) = planned(sql, accountant=accountant, epsilon=4).clamps
    last = len(clamp.grid) - 1
    for place in {0, last // 2, last - 3, last}:
        penalties = clamp.compute_penalties([10**9] * (place + 1) + [0] * (last + 1 - place))
        odds = [
            weight * Fraction(exp(-float(clamp.mechanism.rate) * (penalty - min(penalties))))
            for weight, penalty in zip(clamp.weights, penalties, strict=True)
        ]
        square = sum(odd * point**2 for odd, point in zip(odds, clamp.grid, strict=True)) / sum(odds)
        found = _compute_default_index(clamp, Fraction(clamp.grid[place]))
        assert clamp.grid[found] ** 2 >= square
        assert found == 0 or clamp.grid[found - 1] ** 2 < square


@pytest.mark.parametrize(
    ("sql", "learnt"),
    [
        ("SELECT COUNT(*) FROM t", 0),
        ("SELECT COUNT(*) FROM t WHERE y > 3", 1),
        ("SELECT AVG(y) FROM t", 0),
        ("SELECT k, AVG(y) FROM t GROUP BY k", 0),
        ("SELECT w, AVG(y) FROM t GROUP BY w", 2),
    ],
)
def test_clamps_are_selected_where_the_expected_choice_is_worth_its_price(sql: str, learnt: int) -> None:
    """Not of all rows that an owner declares, nor of one mean, where the choice of few groups falls high."""
    assert len(planned(sql, accountant="pure").clamps) == learnt


@given(mosts, st.data())
def test_the_engine_finds_the_least_point_that_is_no_less(most: int, data: st.DataObject) -> None:
    """By whole numbers alone: just below, at and just above each point."""
    points = compute_grid(most)
    point = data.draw(st.sampled_from(points))
    amounts = [amount for amount in (0, point - 1, point, point + 1) if amount <= most]
    texts = ", ".join(_emit_interval_search(f"{amount}::HUGEINT", points) for amount in amounts)
    (found,) = duckdb.sql(f"SELECT {texts}").fetchall()
    assert found == tuple(next(at for at, one in enumerate(points) if amount <= one) for amount in amounts)


@given(st.lists(st.integers(0, 9) | st.integers(0, 2**62) | st.integers(0, 2**120), min_size=1, max_size=9))
def test_rows_are_counted_by_interval(points: list[int]) -> None:
    """By HISTOGRAM as by groups: points may be equal, zero or of more than 64 bits, and contributions none, or beyond the last."""
    points = sorted(points)
    clamp = Clamp(Amount.TOTAL, (0,), (1,), tuple(points), Exponential(Fraction(1)))
    amounts = [-(2**90), *(point + step for point in points for step in (-1, 0, 1))]
    last = len(points) - 1
    expected = Counter(-1 if amount <= 0 else min(bisect_left(points, amount), last) for amount in amounts)
    rows = f"(SELECT UNNEST([{', '.join(map(str, amounts))}]::HUGEINT[]) AS v)"
    for dialect in (DUCKDB, POSTGRES):  # what PostgreSQL is asked for, DuckDB understands
        sql, empty = (
            emit_interval_counts(Compiler(dialect), "v", clamp, source)
            for source in (rows, f"{rows} WHERE v IS NULL")
        )
        counts = Counter[int]()
        for place, units in duckdb.sql(f"SELECT {sql}").fetchall():
            counts[place] += units
        assert +counts == expected
        assert not any(units for _, units in duckdb.sql(f"SELECT {empty}").fetchall())


def test_all_groups_take_part_in_the_choice() -> None:
    """Where the choice is sharp nothing is cut off, in whichever group it is."""
    clamp = Clamp(Amount.TOTAL, (0,), (1,), compute_grid(1000), Exponential(Fraction(10**6)))
    small, large = (
        ClampHistogram.from_packed([[0, 5, 5, 5]]),
        ClampHistogram.from_packed([[0, 1, 1, 1], [20, 2, 60, 2]]),
    )
    for groups in ([(small,), (large,)], [(large,), (small,)]):
        (chosen,) = select_clamp_points((clamp,), groups, SeededEntropy(1))
        assert chosen.chosen[0] >= 20
        assert compute_clamped_moments((chosen,), (large,)) == {
            next(iter(compute_clamped_moments((chosen,), (small,)))): 61
        }
    nobody = select_clamp_points((clamp,), [], SeededEntropy(1))
    assert nobody[0].points[0] <= 1000


@every_accountant
@every_relation
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(y) FROM t",
        "SELECT k, SUM(z), COUNT(*), AVG(y) FROM t WHERE y > 3 GROUP BY k",
        "SELECT w, COUNT(DISTINCT u), SUM(z) FROM t GROUP BY w",
    ],
)
def test_choices_and_noise_cost_the_requested_loss(accountant: str, neighbors: str, sql: str) -> None:
    """Together they cost no more than a release at the loss, and the choices cost a part of it."""
    plan = planned(sql, accountant=accountant, neighbors=neighbors)
    assert plan.clamps
    assert isinstance(plan.event, Composed)
    account = Account.from_budget(Budget(accountant, Fraction(10**6), Fraction(1, 10**6)))
    cost = account.accountant.compute_charge
    assert cost(plan.event).loss <= cost(Pure(Fraction(1))).loss
    assert {clamp.exponent for clamp in plan.clamps} == {RULE.exponent}
    ranges = [event.epsilon for event in plan.event.events if isinstance(event, BoundedRange)]
    assert ranges == [clamp.compute_range(plan.analysis) for clamp in plan.clamps]
    assert 10 * cost(plan.event).loss >= 9 * cost(Pure(Fraction(1))).loss


@every_accountant
@every_relation
@pytest.mark.parametrize(
    ("sql", "groups"),
    [
        ("SELECT w, SUM(z) FROM t GROUP BY w", 9),
        ("SELECT k, COUNT(*), AVG(y) FROM t WHERE y > 3 GROUP BY k", 2),
        ("SELECT w, COUNT(DISTINCT u) FROM t GROUP BY w", 9),
    ],
)
def test_verification_refuses_sharper_choices_and_less_noise(
    accountant: str, neighbors: str, sql: str, groups: int
) -> None:
    """A sharper choice, less noise, or either left out of the charge does not pass."""
    plan = planned(sql, accountant=accountant, neighbors=neighbors, max_groups=groups)
    verify_plan(plan)
    assert isinstance(plan.event, Composed)
    (clamp, *rest) = plan.clamps
    sharper = dataclasses.replace(
        clamp, mechanism=Exponential(clamp.mechanism.rate * Fraction(1_000_001, 1_000_000))
    )
    uncharged = [event for event in plan.event.events if not isinstance(event, BoundedRange)]
    place = next(at for at, block in enumerate(plan.vectors) if block.clamp == 0)
    block = plan.vectors[place]
    match block.mechanism:
        case Geometric(scale=scale):
            less: Geometric | DiscreteGaussian = Geometric(scale * Fraction(99, 100))
        case DiscreteGaussian(variance=variance):
            less = DiscreteGaussian(variance * Fraction(99, 100))
        case _:
            raise AssertionError
    blocks = list(plan.vectors)
    blocks[place] = dataclasses.replace(block, mechanism=less)
    for wrong in (
        dataclasses.replace(plan, clamps=(sharper, *rest)),
        dataclasses.replace(plan, event=Composed(tuple(uncharged))),
        dataclasses.replace(plan, vectors=tuple(blocks)),
    ):
        with pytest.raises(VerificationError):
            verify_plan(wrong)


@pytest.mark.parametrize(
    ("rules", "sql", "expected"),
    [
        ({"rows": 5}, "SELECT SUM(y) FROM t", 1),
        ({"rows": 4}, "SELECT SUM(y) FROM t", 0),
        ({"rows": 1}, "SELECT SUM(y), COUNT(*) FROM t", 0),
        ({"rows": 8}, "SELECT COUNT(*) FROM t", 0),
        ({"rows": 8}, "SELECT COUNT(*) FROM (SELECT u, y FROM t)", 0),
        ({"rows": 8}, "SELECT COUNT(*) FROM t WHERE y > 3", 1),
        ({"rows": 8}, "SELECT COUNT(y) FROM t", 0),
        ({"rows": 8}, "SELECT k, COUNT(*) FROM t GROUP BY k", 0),
        ({"rows": 8}, "SELECT k, COUNT(*) FROM t WHERE y > 3 GROUP BY k", 1),
        ({"rows": 8}, "SELECT COUNT(*) FROM t JOIN (SELECT DISTINCT u, y FROM t) AS d ON t.u = d.u", 1),
        ({"rows": 4}, "SELECT COUNT(*), AVG(y) FROM t WHERE y > 3", 0),
        ({"rows": 7}, "SELECT COUNT(*), AVG(w) FROM t WHERE y > 3", 0),
        ({"rows": 7}, "SELECT COUNT(*), AVG(y) FROM t WHERE y > 3", 1),
        ({"rows": 16}, "SELECT AVG(y) FROM t", 1),
        ({"rows": 8}, "SELECT AVG(w) FROM t WHERE y > 3", 1),
        ({"rows": 8}, "SELECT AVG(y) FROM t WHERE y > 3", 2),
        ({"rows": 8}, "SELECT SUM(y), SUM(z), COUNT(*) FROM t", 2),
        ({"rows": 8}, "SELECT SUM(y), SUM(z), COUNT(*) FROM t WHERE y > 3", 3),
        ({"rows": 40}, "SELECT COUNT(DISTINCT u), COUNT(DISTINCT y) FROM t", 0),
        ({"rows": 8}, "SELECT w, COUNT(DISTINCT u) FROM t GROUP BY w", 1),
        ({"rows": 7}, "SELECT w, COUNT(DISTINCT u) FROM t GROUP BY w", 0),
        ({"rows": 40, "max_groups": 7}, "SELECT w, COUNT(DISTINCT u) FROM t GROUP BY w", 0),
        ({"rows": 40}, "SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k", 0),
    ],
)
def test_clamps_are_selected_where_units_may_have_many_rows(
    rules: dict[str, int], sql: str, expected: int
) -> None:
    """By the query and the policy alone: of sums from 5 rows of a unit, of rows and groups from 8."""
    assert len(planned(sql, **rules).clamps) == expected


def test_the_threshold_follows_the_groups_that_are_chosen() -> None:
    """At each point a key of one unit is shown at most with the probability that delta leaves each of its groups."""
    plan = planned("SELECT y, COUNT(DISTINCT u) FROM t GROUP BY y", delta=Fraction(1, 10**9))
    (clamp,) = plan.clamps
    thresholds = []
    for chosen in range(len(clamp.grid)):
        held = plan.with_clamps((dataclasses.replace(clamp, chosen=(chosen,)),))
        assert isinstance(held.selection, Threshold)
        above = held.selection.threshold - held.selection.scale
        leak = held.vectors[held.selection.vector].mechanism.bound_sum_tail(1, above) * clamp.grid[chosen]
        assert leak <= held.selection.delta <= Fraction(1, 10**9)
        thresholds.append(held.selection.threshold)
    assert thresholds == sorted(set(thresholds))
    assert 5 * thresholds[0] < thresholds[-1]


def test_no_clamp_is_selected_for_a_target_error() -> None:
    """An error that is to be kept hangs on nothing that the data decides."""
    with study() as connection:
        explained = connection.explain("SELECT SUM(y) FROM t", target_error=10_000)
        result = connection.query("SELECT SUM(y) FROM t", target_error=10_000)
    assert explained.prepared.plan.clamps == ()
    assert "clamp" not in result.receipt.mechanisms[0]


def test_a_row_that_is_a_unit_has_no_clamp() -> None:
    """What a single row may be is what its column declares."""
    assert planned("SELECT SUM(y), COUNT(*) FROM t", unit="row", rows_per_unit=1).clamps == ()


@every_accountant
@pytest.mark.parametrize("sql", ["SELECT SUM(y) FROM t", "SELECT w, SUM(z) FROM t GROUP BY w"])
def test_noise_follows_the_choice(accountant: str, sql: str) -> None:
    """Scales, intervals and receipt are those of the points that were chosen, far below what was derived."""
    with study(accountant=accountant) as connection:
        # By chance one choice of a hundred is less far below.
        object.__setattr__(connection.engine, "entropy", SeededEntropy(1))
        before = plan_and_match(connection.engine, Query(sql, epsilon=Fraction(16))).plan
        result = connection.query(sql, epsilon=16)
        exact = connection.query(sql, epsilon=10**15)
    *_, measured = before.vectors[:1]
    told = result.receipt.mechanisms[0]["clamp"]
    assert told["chosen"] != "learnt"
    assert max(abs(int(point)) for point in told["chosen"]) < int(told["most"]) / 100
    column = len(exact.columns) - before.analysis.release.aggregations[::-1].__len__()
    for row, (noisy, true) in enumerate(zip(result.rows, exact.rows, strict=True)):
        low, high = result.intervals(0.999999)[row][column] or (0.0, 0.0)
        scale = result.scales[row][column]
        assert scale is not None
        assert scale < measured.mechanism.std / 10
        assert low <= noisy[column] <= high  # type: ignore[operator]
        assert abs(true[column] - noisy[column]) < 12 * (scale or 0) + 0.05 * abs(true[column])  # type: ignore[operator]


@pytest.mark.parametrize("units", [1, 5, 20])
def test_few_units_do_not_lower_a_clamp(units: int) -> None:
    """Where the signal is too weak for a choice, the greatest point is chosen: the interval is wide and true."""
    clamps = planned("SELECT k, SUM(y), COUNT(*) FROM t WHERE y > 3 GROUP BY k").clamps
    assert clamps
    for clamp in clamps:
        usual = clamp.upper_limit // 100  # of each unit
        beyond = [units * (point < usual) for point in (0, *clamp.grid)]
        found = [clamp.select_points([beyond], SeededEntropy(seed)).points[0] for seed in range(200)]
        assert sum(point >= usual for point in found) >= 190


@every_accountant
@pytest.mark.parametrize("part", [0.9, 0.4])
@pytest.mark.parametrize("units", [100, 300])
def test_no_clamp_is_below_the_value_of_all_units(accountant: str, units: int, part: float) -> None:
    """Of units that are much alike, a clamp below what each has would cut something off of all of them."""
    sql = "SELECT k, SUM(y), COUNT(*) FROM t WHERE y > 3 GROUP BY k"
    clamps = planned(sql, accountant=accountant, epsilon=Fraction(1, 10)).clamps
    assert clamps
    for clamp in clamps:
        usual = int(part * clamp.upper_limit)
        beyond = [units * (point < usual) for point in (0, *clamp.grid)]
        found = [clamp.select_points([beyond], SeededEntropy(seed)).points[0] for seed in range(200)]
        assert sum(point >= usual for point in found) >= 190


@every_accountant
@pytest.mark.parametrize("units", [3, 40, 5000])
def test_stated_number_of_clamped_units_holds(accountant: str, units: int) -> None:
    """Whatever units have, at the confidence that is named: equal amounts, a long tail, or some that are far larger."""
    (clamp,) = planned("SELECT k, SUM(y) FROM t GROUP BY k", accountant=accountant).clamps
    most = clamp.upper_limit
    for amounts in (
        [most // 1000] * units,
        [most // rank for rank in range(1, units + 1)],
        [most // 10**4] * units + [most] * (units // 20 + 2),
    ):
        beyond = [sum(amount > point for amount in amounts) for point in (0, *clamp.grid)]
        chosen = [clamp.select_points([beyond], SeededEntropy(seed)) for seed in range(100)]
        kept = sum(beyond[1 + each.chosen[0]] <= each.max_n_clipped for each in chosen)
        assert kept >= 88


def test_replayed_release_states_the_same_clamps() -> None:
    """Where groups were selected first, their number is known from the release."""
    sql = "SELECT y, COUNT(DISTINCT u), SUM(y) FROM t GROUP BY y"
    with study(replays=True) as connection:
        first, again = (connection.query(sql, epsilon=4, delta=1e-9) for _ in range(2))
    assert again.receipt.replayed
    assert again.rows == first.rows
    assert again.receipt.mechanisms == first.receipt.mechanisms
    assert any(mechanism["clamp"]["beyond"] > 0 for mechanism in first.receipt.mechanisms)


@every_accountant
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4)], ids=str)
def test_clamps_cut_off_less_than_the_noise(accountant: str, epsilon: Fraction) -> None:
    """Of units whose totals have a long tail: in each group what is lost is less than the noise, but for chance."""
    totals = sorted(int(20 * (5000 / rank) ** 0.5) for rank in range(1, 5001))
    plan = planned("SELECT k, SUM(y) FROM t GROUP BY k", accountant=accountant, epsilon=epsilon)
    (clamp,) = plan.clamps
    beyond = [sum(total > point for total in totals) for point in (0, *clamp.grid)]
    lost = []
    for seed in range(100):
        chosen = clamp.select_points([beyond], SeededEntropy(seed))
        (point,) = chosen.points
        std = plan.with_clamps((chosen,)).vectors[0].compute_std((Fraction(1, clamp.subdivisions),))
        lost.append(sum(max(0, total - point) for total in totals) / 3 / std)
    assert sum(part < 1 for part in lost) >= 90


TAILS: dict[str, Callable[[float], float]] = {
    "uniform": lambda part: 200 * part,
    "lognormal 1": lambda part: 100 * exp(NormalDist().inv_cdf(part)),
    "lognormal 2": lambda part: 100 * exp(2 * NormalDist().inv_cdf(part)),
    "power law of 2": lambda part: 100 * (1 - part) ** (-1 / 2),
    "power law of 1.5": lambda part: 100 * (1 - part) ** (-1 / 1.5),
    "mostly zero": lambda part: 100 * exp(NormalDist().inv_cdf(50 * part - 49)) if part > 0.98 else 0,
}
"""The quantiles of units' totals."""


@every_accountant
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 5), Fraction(1), Fraction(4)], ids=str)
@pytest.mark.parametrize("law", TAILS)
def test_interval_of_a_single_total_covers_the_clamped_part(
    accountant: str, epsilon: Fraction, law: str
) -> None:
    """However long the tail of the units' totals is, of which the bounds allow a thousand times as much."""
    plan = planned("SELECT SUM(y) FROM t", accountant=accountant, epsilon=epsilon)
    (clamp,), (item,) = plan.clamps, plan.analysis.release.aggregations
    totals = [min(clamp.upper_limit, int(TAILS[law]((rank + 0.5) / 3000))) for rank in range(3000)]
    beyond = [sum(total > point for total in totals) for point in (0, *clamp.grid)]
    counted = [sum(min(total, point) for total in totals) for point in clamp.grid]
    entropy, runs, held, far = SeededEntropy(1), 100, 0, 0
    for _ in range(runs):
        chosen = clamp.select_points([beyond], entropy)
        noised = plan.with_clamps((chosen,))
        (noise,) = noised.vectors[0].mechanism.draw(1, entropy)
        missing = sum(totals) - counted[chosen.chosen[0]] - noise / clamp.subdivisions
        half = predict_noise_half_width(noised, item, 0.95) or 0.0
        below, above = compute_allowance(noised, item, 1, 0.95)
        held += -half - below <= missing <= half + above
        far += abs(missing) > 3 * (half + (below + above) / 2)
    assert held >= least_share(runs, 0.92) * runs
    assert far <= largest_share(runs, 0.01) * runs


@every_accountant
def test_intervals_are_wider_to_the_side_to_which_clamps_cut(accountant: str) -> None:
    """Of a total above it, of its negative below; of a sum of releases as of its parts; the same in SQL."""
    sql = "SELECT SUM(y), -SUM(y), SUM(y) + COUNT(DISTINCT u), DP_INTERVAL_HIGH(SUM(y)) FROM t"
    with study(accountant=accountant) as connection:
        # By chance one choice of ten thousand is so high that nearly nothing can be cut off.
        object.__setattr__(connection.engine, "entropy", SeededEntropy(1))
        answer = connection.query(sql, epsilon=4)
    value, negative, several, end = map(float, answer.rows[0])
    one, mirrored, simulated, _ = answer.intervals()[0]
    assert one
    assert mirrored == (-one[1], -one[0])
    assert negative == -value
    assert end == one[1]
    noise, above = value - one[0], one[1] - value
    assert above > 1.3 * noise
    assert simulated
    assert several - simulated[0] == pytest.approx(noise, rel=0.2)
    assert simulated[1] - several == pytest.approx(above, rel=0.2)


@pytest.mark.parametrize(
    ("bounds", "apart"),
    [
        ((-120, 1440), True),
        ((0, 5000), True),
        ((1, 900), True),
        ((0, 10), False),
        ((1900, 2013), False),
        ((-10_000, 10_000), True),
    ],
)
def test_total_is_measured_separately_where_values_may_be_far_below_their_bounds(
    bounds: tuple[int, int], *, apart: bool
) -> None:
    """Not where an offset is most of the values, and not of few whole numbers."""
    assert favors_separate_totals(Lattice(0, *bounds)) is apart


@pytest.mark.parametrize(
    ("sql", "apart"),
    [
        ("SELECT AVG(y) FROM t", {"total of x0"}),
        ("SELECT STDDEV(y) FROM t", set()),
        ("SELECT COVAR_POP(y, z), AVG(y + z) FROM t", {"total of x3"}),
    ],
)
def test_subtracted_means_are_not_measured_separately(sql: str, apart: set[str]) -> None:
    """What two clamps cut off moves a quotient by a part of itself, and a variance by many times that part."""
    analysis = planned(sql).analysis
    found = {
        vector.name
        for vectors in iterate_layouts(analysis, list_needed_statistics(analysis), separate_totals=True)
        for vector in vectors
    }
    assert {name for name in found if name.startswith("total")} == apart


def test_two_clamps_on_one_total_are_refused() -> None:
    """A vector that reads a total by the clamp on rows, beside a clamp on this total."""
    plan = planned("SELECT k, AVG(y) FROM t WHERE y > 3 GROUP BY k")
    place = next(at for at, measured in enumerate(plan.vectors) if measured.vector.name == "count of x0")
    measured = plan.vectors[place]
    lattice = plan.analysis.measures[0].lattice
    assert lattice
    partition = build_complementary_vector(0, lattice, with_rows=False)
    wrong = dataclasses.replace(measured, vector=partition).with_clamp(
        plan.clamps[measured.clamp or 0], plan.analysis
    )
    vectors = (*plan.vectors[:place], wrong, *plan.vectors[place + 1 :])
    with pytest.raises(VerificationError, match="two clamps"):
        verify_plan(dataclasses.replace(plan, vectors=vectors))


def test_an_allowance_is_divided_among_few_groups() -> None:
    """Each has its part, many none; a clamp that cuts nothing off has none, nor has one of the rule before."""
    plan = planned("SELECT SUM(y) FROM t")
    (clamp,), (item,) = plan.clamps, plan.analysis.release.aggregations
    below, above = compute_allowance(plan, item, 1, 0.95)
    assert below == 0
    assert above > 0
    assert compute_allowance(plan, item, 4, 0.95) == (0, above / 4)
    assert compute_allowance(plan, item, MANY_GROUPS + 1, 0.95) == NOTHING
    greatest = dataclasses.replace(clamp, chosen=(len(clamp.grid) - 1,))
    assert compute_allowance(plan.with_clamps((greatest,)), item, 1, 0.95) == NOTHING
    former = dataclasses.replace(clamp, min_support=0)
    assert compute_allowance(plan.with_clamps((former,)), item, 1, 0.95) == NOTHING


def test_a_group_too_small_to_be_shown_takes_part() -> None:
    """Whether it is shown may hang on one unit, which must not move what all of its others have."""
    with study(units=10, min_frequency=10**6, max_groups=3, budget=100) as connection:
        prepared = plan_and_match(
            connection.engine, Query("SELECT k, SUM(y) FROM t GROUP BY k", epsilon=Fraction(1))
        )
        rows = connection.engine.backend.run_statement(prepared.statement.sql).reveal()
        assert prepared.plan.clamps
        assert sum(units for row in rows for *_, units in row[-1]) == 10
        assert connection.query("SELECT k, SUM(y) FROM t GROUP BY k", epsilon=1).rows == ()


def test_units_of_hidden_groups_decide_on_clamps_too() -> None:
    """The only large amounts are in a group that is not shown: nothing of them is cut off."""
    sql = "SELECT k, SUM(CASE WHEN k = 1 THEN y * 10000 ELSE y END) FROM t WHERE k <> 1 OR u < 3 GROUP BY k"
    with study(rows=5, units=100, min_frequency=5, max_groups=3) as connection:
        results = [connection.query(sql, epsilon=10**9, delta=1e-9) for _ in range(10)]
    for result in results:
        assert {key for key, _ in result.rows} == {0, 2}
        (point,) = result.receipt.mechanisms[0]["clamp"]["chosen"]
        assert int(point) >= 70_000


@every_accountant
def test_explain_distinguishes_derived_and_selected_clamps(accountant: str) -> None:
    """Before the release: the bound, the number of points, and that the error is what is expected."""
    with study(accountant=accountant) as connection:
        total, rows = (
            str(connection.explain(f"SELECT {aggregate} FROM t WHERE k < 9", epsilon=1))
            for aggregate in ("SUM(y)", "COUNT(*)")
        )
    assert (
        "total of x0 of a unit in a group: at most 400,000, derived from rows and bounds; chosen privately"
        in total
    )
    assert "rows of a unit in a group: at most 40, declared or derived; chosen privately" in rows
    assert "if the clamp is as expected" in total
    assert "if the clamp is as expected" in rows
