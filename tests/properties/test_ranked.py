"""Values in order of size: what the statement gives of them, and how far one unit moves their penalties."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from properties.pairs import Case, pairs_of
from properties.worlds import DEFAULT, Row, World, moved, policy

from dpsql.engine.query_run import QueryRun
from dpsql.engine.release.exact_rows import read_groups
from dpsql.engine.replay.replays import plan_and_match
from dpsql.planning.quantiles import QuantileSelection, RankWindow
from dpsql.policy.request.query import Query

SHAPES = [
    "SELECT k, MEDIAN(x) AS m FROM t GROUP BY k",
    "SELECT QUANTILE_CONT(i, 0.9), MIN(i), MAX(i) FROM t",
    "SELECT k, QUANTILE_DISC(d, 0.25), COUNT(*) FROM t WHERE i >= 0 GROUP BY k",
    "SELECT MAX(d) FILTER (WHERE x > 0), COUNT(DISTINCT s) FROM t",
    "SELECT MEDIAN(i), DP_INTERVAL_LOW(MEDIAN(i)), DP_INTERVAL_LOW(MAX(i)) FROM t",
]
RULES = [
    {"unit": "row"},
    {"rows": 1},
    {"rows": 2},
    {"rows": 2, "groups": 1},
    {"rows": 2, "neighbors": "replace"},
    {"unit": "row", "neighbors": "replace", "accountant": "pure"},
]


def case(sql: str, rules: dict[str, object]) -> Case:
    """A query with the columns that matter to it."""
    columns = tuple(name for name in ("k", "x", "i", "d") if name in sql.replace("MIN(i)", "i"))
    return Case(sql, columns[:2], rules)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("sql", SHAPES)
def test_unit_moves_penalty_differences_as_derived(sql: str, rules: dict[str, object]) -> None:
    """Neighbours' differences change by no more than is charged, and at worst by at least half of that."""
    asked = case(sql, rules)
    world = World(policy(**asked.rules))
    prepared = world.prepare(sql)
    (release,) = prepared.releases
    worst = [0] * len(release.plan.quantiles)
    for before, after in pairs_of(asked, 60):
        old, new = world.statistics(prepared, before), world.statistics(prepared, after)
        for place in range(len(worst)):
            worst[place] = max(worst[place], moved(old, new, release.plan, place))
    times = release.plan.analysis.bound.rows * (2 if rules.get("neighbors") == "replace" else 1)
    for most, ranked in zip(worst, release.plan.quantiles, strict=True):
        derived = QuantileSelection.compute_step_range(ranked.rank) * times
        assert most <= derived
        assert 4 * most >= derived, (most, derived)


def asked_of(world: World, sql: str, epsilon: Fraction) -> QueryRun:
    """A query that is asked at a loss."""
    return plan_and_match(world.engine, Query(sql, epsilon=epsilon))


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(300)], ids=str)
@pytest.mark.parametrize("unit", ["row", "u"])
@pytest.mark.parametrize("share", ["0", "0.01", "0.5", "0.9", "1"])
@pytest.mark.parametrize("end", ["", "DP_INTERVAL_LOW", "DP_INTERVAL_HIGH"])
def test_windows_hold_all_near_points(unit: str, epsilon: Fraction, share: str, end: str) -> None:
    """Each point's penalty follows from the window alone, however few of the values it holds."""
    rules = policy(unit=unit, rows=1)
    world = World({**rules, "max_epsilon": 1000, "budget": {**rules["budget"], "epsilon": 10**6}})
    chance = random.Random(f"{unit}{share}")
    rows = [
        Row(number, chance.choice("AAB"), i=chance.choice((0, 2, 2, 2, None, 7, chance.randrange(6))))
        for number in range(700)
    ]
    world.hold(rows)
    prepared = asked_of(world, f"SELECT k, {end}(QUANTILE_DISC(i, {share})) FROM t GROUP BY k", epsilon)
    (release,) = prepared.releases
    (ranked,) = release.plan.quantiles
    assert bool(ranked.interval_end) == bool(end)
    groups = list(
        read_groups(
            release.plan,
            release.statement,
            world.engine.backend.run_statement(release.statement.sql),
        )
    )
    assert [group.keys for group in groups] == [("A",), ("B",), (None,)]
    for group in groups[:2]:
        values = sorted(min(5, row.i) for row in rows if row.k == group.keys[0] and row.i is not None)
        (window,) = group.windows
        assert window.count == len(values)
        regions = ranked.list_regions(window)
        for point in range(6):
            below, through = sum(v < point for v in values), sum(v <= point for v in values)
            offset = ranked.compute_offset(len(values))
            above = 0 if (end, point) == ("DP_INTERVAL_LOW", 0) else ranked.steps_per_row * below - offset
            under = 0 if (end, point) == ("DP_INTERVAL_HIGH", 5) else offset - ranked.steps_per_row * through
            exact = max(0, above, under)
            (found,) = (penalty for start, size, penalty in regions if start <= point < start + size)
            assert found == min(ranked.cutoff, exact)


@pytest.mark.parametrize("epsilon", [1, 100])
@pytest.mark.parametrize(("asked", "sign"), [("MIN(-x)", -1), ("MAX(x)", 1), ("QUANTILE_CONT(x, 0.99)", 1)])
def test_values_near_the_ends_stay_among_the_rows(asked: str, sign: int, epsilon: int) -> None:
    """Choices among prices up to 49 within bounds of 0 to 1,000 follow their law."""
    rules = policy(unit="row")
    rules["tables"]["t"]["columns"]["x"]["bounds"] = [0, 1000]
    world = World({**rules, "max_epsilon": 1000, "budget": {**rules["budget"], "epsilon": 10**6}})
    world.hold([DEFAULT._replace(x=0.5 + number % 49) for number in range(900)])
    (release,) = asked_of(world, f"SELECT {asked} FROM t", Fraction(epsilon)).releases
    (ranked,) = release.plan.quantiles
    (group,) = read_groups(
        release.plan, release.statement, world.engine.backend.run_statement(release.statement.sql)
    )
    (window,) = group.windows
    regions = ranked.list_regions(window)
    least = min(penalty for _, _, penalty in regions)
    weights = [
        (
            sign * float(start * ranked.lattice.step),
            size * math.exp(-float(ranked.mechanism.rate) * (penalty - least)),
        )
        for start, size, penalty in regions
    ]
    assert sum(weight for value, weight in weights if value > 48.51) <= 0.01 * sum(
        weight for _, weight in weights
    )


def test_excess_rows_of_a_unit_are_thinned_evenly() -> None:
    """A unit with eight rows, of which two count, counts with its third and its seventh in order of size."""
    world = World(policy(rows=2))
    world.hold([DEFAULT._replace(i=0, x=x) for x in (3.0, 0.5, 1.0, 1.5, 2.0, 2.5, 0.0, 3.5)])
    prepared = world.prepare("SELECT MEDIAN(x) FROM t")
    (release,) = prepared.releases
    (group,) = read_groups(
        release.plan, release.statement, world.engine.backend.run_statement(release.statement.sql)
    )
    (window,) = group.windows
    step = float(release.plan.quantiles[0].lattice.step)
    assert [(point * step, count) for point, count in window.runs] == [(1.0, 1), (3.0, 1)]


def test_ends_among_public_values_include_the_bounds() -> None:
    """Some end holds the quantile for any rows: the bounds are candidates, too."""
    world = World(policy())
    for which, end in (("LOW", -1), ("HIGH", 1)):
        prepared = world.prepare(f"SELECT DP_INTERVAL_{which}(MEDIAN(w)) FROM t JOIN p ON t.k = p.k")
        (chosen,) = [part for part in prepared.single_release.plan.quantiles if part.interval_end == end]
        edge = chosen.lattice.low if end < 0 else chosen.lattice.high
        assert chosen.candidate_points is not None
        assert edge in chosen.candidate_points
        seen = RankWindow(1, 0, ((chosen.candidate_points[1], 1),))
        few = [cost for start, size, cost in chosen.list_regions(seen) if (start, size) == (edge, 1)]
        assert few == [0]
