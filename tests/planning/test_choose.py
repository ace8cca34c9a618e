"""The planner: what it measures, with which noise, and that it shares one price."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from properties.worlds import World, policy

import dpsql
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.planning.choose import compute_mean_log_error, compute_predicted_std, get_statistic
from dpsql.planning.clamping import RULE
from dpsql.planning.group_selection import OptimalPartitionSelection, Threshold
from dpsql.privacy.accounting import Composed, Pure, Selection
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, PartitionSelection, SystemEntropy
from tests.entropy import ScriptedEntropy


def blocks(sql: str, **rules: object) -> list[str]:
    """The names of the blocks that a query measures."""
    plan = World(policy(**rules)).prepare(sql).plan  # type: ignore[arg-type]
    return [measured.vector.name for measured in plan.vectors]


@pytest.mark.parametrize(
    ("aggregates", "expected"),
    [
        ("COUNT(*)", ["rows"]),
        ("COUNT(x)", ["count of x0"]),
        ("SUM(x)", ["total of x0"]),
        ("AVG(x)", ["partition of x0"]),
        ("SUM(x), AVG(x), COUNT(x)", ["partition of x0"]),
        ("SUM(x), AVG(x), COUNT(*)", ["partition of x0"]),
        ("COUNT(x), COUNT(*)", ["presence of x0"]),
        ("SUM(x), SUM(x), COUNT(*), COUNT(*)", None),
        ("COUNT(DISTINCT u)", ["units"]),
        ("AVG(x), COUNT(DISTINCT s)", ["partition of x0", "values of x1"]),
        ("SUM(x), SUM(i)", ["joint: rows, x0 beside rows, x1 beside rows"]),
        ("VAR_POP(x)", ["joint: count of x0, x0 about its middle, x1 about its middle"]),
        ("SUM(2), COUNT(*)", None),
    ],
)
def test_aggregates_of_one_expression_share_a_vector(aggregates: str, expected: list[str] | None) -> None:
    """Aggregates of one expression share one block, and so the whole loss."""
    found = blocks(f"SELECT {aggregates} FROM t")
    assert found == expected or (expected is None and len(found) <= 2)


@pytest.mark.parametrize(
    ("aggregates", "expected"),
    [
        (
            "SUM(i), SUM(x), COUNT(DISTINCT s)",
            ["joint: rows, x0 beside rows, x1 beside rows", "values of x2"],
        ),
        ("SUM(x - 1.5), SUM(i - 2.5)", ["joint: total of x0, total of x1"]),
    ],
)
def test_joint_vectors_measure_sums_about_their_middle(aggregates: str, expected: list[str]) -> None:
    """Sums are taken about their middle if that is another place than zero; values are counted apart."""
    assert blocks(f"SELECT {aggregates} FROM t", accountant="pure") == expected


@pytest.mark.parametrize(
    ("sql", "groups", "expected"),
    [
        ("SELECT COUNT(DISTINCT u), COUNT(*) FROM t", None, ["rows, and units"]),
        ("SELECT k, COUNT(*) FROM t GROUP BY k", 2, ["rows, and units"]),
        ("SELECT k, COUNT(*), SUM(x) FROM t GROUP BY k", 1, ["partition of x0, and units"]),
        ("SELECT k, COUNT(*), AVG(i), COUNT(x) FROM t GROUP BY k", 1, None),
        ("SELECT k, COUNT(*) FROM t GROUP BY k", 5, ["joint: rows, units"]),
    ],
)
def test_rows_that_units_have_less_count_the_units(
    sql: str, groups: int | None, expected: list[str] | None
) -> None:
    """In one group, or few, what decides which of them are shown takes nothing of the loss of the counts of rows."""
    plan = World(policy(rows=5, groups=groups, domain=False, accountant="pure")).prepare(sql).plan
    names = [measured.vector.name for measured in plan.vectors]
    if expected is None:
        assert all(len(measured.vector.components) > 1 for measured in plan.vectors)
        return
    assert names == expected
    for measured in plan.vectors:
        if measured.vector.padded:
            assert isinstance(measured.mechanism, Geometric)
            assert measured.mechanism.scale == measured.vector.padded * (groups or 1)


@pytest.mark.parametrize(
    ("aggregates", "rows", "expected"),
    [
        ("COUNT(*), COUNT(x)", 2, "count of x0"),
        ("COUNT(*), COUNT(x), COUNT(i)", 2, "joint: rows"),
        ("COUNT(*), AVG(x)", 2, "partition of x0"),
        ("COUNT(*), COUNT(DISTINCT u)", 1, "rows"),
        ("AVG(x), COUNT(DISTINCT u), COUNT(*)", 1, "partition of x0"),
        ("AVG(x), AVG(i), COUNT(*)", 2, "joint: rows, x0 about its middle, x1 about its middle"),
    ],
)
def test_statistics_that_follow_from_others_are_not_measured(
    aggregates: str, rows: int, expected: str
) -> None:
    """Values that are never NULL are as many as the rows, and so are the units where each has one row."""
    rules = policy(rows=rows, accountant="pure")
    for column in ("x", "i"):
        rules["tables"]["t"]["columns"][column]["nullable"] = False
    (block,) = World(rules).prepare(f"SELECT {aggregates} FROM t").plan.vectors
    assert block.vector.name == expected
    assert not any("NULL" in cell.name for cell in block.vector.components)


def test_arguments_that_are_null_together_are_counted_once() -> None:
    """The moments of a correlation share the rows that have both values."""
    plan = World(policy(accountant="pure")).prepare("SELECT CORR(x, i) FROM t").plan
    (block,) = plan.vectors
    names = [cell.name for cell in block.vector.components]
    assert [name for name in names if name.startswith("count")] == ["count of x0"]
    assert len(names) == 6


@pytest.mark.parametrize(
    ("aggregates", "pure", "zcdp"),
    [
        ("SUM(x), SUM(i)", 1.5, 1.1),
        ("COUNT(*), SUM(x), SUM(i)", 1.5, 1.1),
        ("AVG(x), AVG(i)", 1.25, 1.0),
        ("VAR_POP(x)", 1.5, 1.15),
        ("CORR(x, i)", 2.0, 1.2),
    ],
)
def test_measured_together_is_measured_better(aggregates: str, pure: float, zcdp: float) -> None:
    """The predicted error is below that of the best plan with a block for each argument, by this factor at least."""
    for accountant, factor in (("pure", pure), ("zcdp", zcdp)):
        plan = World(policy(accountant=accountant)).prepare(f"SELECT {aggregates} FROM t").plan
        joint, apart = (
            min(item.score for item in plan.candidates if ("joint" in item.name) is together)
            for together in (True, False)
        )
        assert math.exp(apart - joint) >= factor * (1 - 1e-9) - 2e-3 * (factor == 1)
        assert plan.candidates[0].score == min(joint, apart)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("aggregates", ["SUM(x), SUM(i), COUNT(*)", "VAR_POP(x)"])
def test_predictions_are_those_of_the_joint_noise(aggregates: str, accountant: str) -> None:
    """Over 4,000 draws of the noise of all cells, each sum strays as far as was predicted."""
    plan = World(policy(accountant=accountant)).prepare(f"SELECT {aggregates} FROM t").plan
    (block,) = plan.vectors
    draws = np.array(block.mechanism.draw(4000 * len(block.vector.components), SystemEntropy()), dtype=float)
    draws = draws.reshape(4000, -1)
    for item in plan.analysis.release.aggregations:
        entry = AGGREGATES[item.function]
        weights = [
            np.array(plan.get_estimator(get_statistic(plan.analysis, item, moment))[1], dtype=float)
            for moment in entry.moments
        ]
        measure = plan.analysis.find_measure_index(item)
        lattice = None if measure is None else plan.analysis.measures[measure].lattice
        about = weights[0] - (
            0 if len(weights) < 2 or lattice is None else (lattice.low + lattice.high) / 2 * weights[1]
        )
        step = 1.0 if lattice is None or entry.moments[0] is not Moment.TOTAL else float(lattice.step)
        assert (draws @ about * step).std() == pytest.approx(compute_predicted_std(plan, item), rel=0.12)


def test_an_average_takes_the_whole_loss() -> None:
    """SUM, AVG and COUNT together have the noise of AVG alone: nothing is split."""
    world = World(policy(accountant="pure"))
    alone = world.prepare("SELECT AVG(x) FROM t").plan
    together = world.prepare("SELECT SUM(x), COUNT(x), AVG(x) FROM t").plan
    assert alone.vectors[0].mechanism == together.vectors[0].mechanism
    assert isinstance(alone.vectors[0].mechanism, Geometric)
    assert alone.vectors[0].mechanism.scale == alone.vectors[0].sensitivity.l1  # ε = 1


def test_the_noise_follows_the_accountant() -> None:
    """A pure ledger takes geometric noise; a zCDP one Gaussian, which has less error at the same price."""
    assert isinstance(
        World(policy(accountant="pure")).prepare("SELECT COUNT(*) FROM t").plan.vectors[0].mechanism,
        Geometric,
    )
    plan = World(policy()).prepare("SELECT COUNT(*) FROM t").plan
    assert isinstance(plan.vectors[0].mechanism, DiscreteGaussian)
    scores = [candidate.score for candidate in plan.candidates]
    assert scores == sorted(scores)
    assert len(scores) > 1


def test_predictions_grow_with_the_bounds() -> None:
    """Narrower bounds give less predicted noise."""
    world = World(policy())
    stds = []
    for where in ("", " WHERE x BETWEEN 0 AND 1"):
        plan = world.prepare(f"SELECT SUM(x) FROM t{where}").plan
        stds.append(compute_predicted_std(plan, plan.analysis.release.aggregations[0]))
    assert stds[1] < stds[0]


@pytest.mark.parametrize("rows", [2, 40])
def test_candidates_are_compared_with_the_clamping_error(rows: int) -> None:
    """The score is the noise where no clamp is learnt, and above it by the tolerated part where one is."""
    plan = World(policy(rows=rows)).prepare("SELECT k, SUM(x) FROM t WHERE u > 0 GROUP BY k").plan
    noise = compute_predicted_std(plan, plan.analysis.release.aggregations[0])
    cut = math.hypot(1, RULE.tolerance) if plan.clamps else 1
    assert bool(plan.clamps) == (rows == 40)
    assert compute_mean_log_error(plan) == pytest.approx(math.log(noise * cut))


@pytest.mark.parametrize(
    "aggregates",
    [
        "SUM(i), SUM(2 * i), SUM(3 * i), COUNT(*)",
        "SUM(2 * i), AVG(i), COUNT(*)",
        "AVG(x), SUM(2 * x), AVG(2 * x), COUNT(*)",
        "AVG(i), SUM(i), AVG(3 * i), COUNT(x), COUNT(*)",
    ],
)
@pytest.mark.parametrize("rows", [2, 40])
def test_trying_one_of_equal_carriers_misses_no_plan(
    aggregates: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan is missed where one measure alone of those that are alike is tried as the carrier of COUNT(*)."""
    sql = f"SELECT {aggregates} FROM t WHERE u > 0"
    least = compute_mean_log_error(World(policy(rows=rows)).prepare(sql).plan)
    monkeypatch.setattr("dpsql.planning.layouts._compute_carrier_key", lambda _, __, index, *___: index)
    assert least == pytest.approx(
        compute_mean_log_error(World(policy(rows=rows)).prepare(sql).plan), abs=1e-3
    )


def test_delta_is_spent_in_proportion() -> None:
    """A query's share of delta is its share of the loss, so neither runs out first."""
    world = World(policy(domain=False, accountant="pure"))
    price = world.prepare("SELECT k, COUNT(*) FROM t GROUP BY k").loss_share
    assert price.delta == Fraction(1, 10) * Fraction(1, 10**6)


def test_unknown_keys_need_a_delta() -> None:
    """With pure accounting and no delta, keys that are not public are refused with the way out."""
    rules = policy(domain=False, accountant="pure")
    rules["budget"] = {"epsilon": 1}
    with pytest.raises(dpsql.QueryRejected, match="delta") as caught:
        World(rules).prepare("SELECT k, COUNT(*) FROM t GROUP BY k")
    assert caught.value.code == "delta_required"


KEYS = "SELECT k FROM t GROUP BY k"


@pytest.mark.parametrize("sql", [KEYS, "SELECT DISTINCT k FROM t", f"{KEYS} ORDER BY k LIMIT 3"])
def test_keys_alone_are_tossed_for_where_noise_is_pure(sql: str) -> None:
    """At equal price a toss shows smaller groups than a geometric count; nothing is noised beside it."""
    plan = World(policy(domain=False, accountant="pure")).prepare(sql).plan
    assert isinstance(plan.selection, OptimalPartitionSelection)
    assert plan.vectors == ()
    names = [candidate.name for candidate in plan.candidates]
    assert names == ["partition selection", "geometric: units"]
    assert plan.candidates[0].score < plan.candidates[1].score


def test_keys_alone_are_counted_where_gaussian_noise_is_charged() -> None:
    """A Gaussian count that is not released shows smaller groups at the same ρ than any toss of that ε."""
    plan = World(policy(domain=False)).prepare(KEYS).plan
    assert isinstance(plan.selection, Threshold)
    names = [candidate.name for candidate in plan.candidates]
    assert names == ["discrete gaussian: units", "partition selection", "geometric: units"]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_groups_of_a_unit_share_loss_and_delta(neighbors: str, most: int) -> None:
    """Each toss has an equal part of ε and of δ; a unit that is replaced leaves as many groups as it enters."""
    plan = (
        World(policy(domain=False, accountant="pure", neighbors=neighbors, rows=3)).prepare(KEYS, most).plan
    )
    chosen, changed = plan.selection, most * (2 if neighbors == "replace" else 1)
    assert isinstance(chosen, OptimalPartitionSelection)
    assert chosen.groups == changed
    assert chosen.mechanism == PartitionSelection(Fraction(1, changed), chosen.delta / changed)
    assert plan.event == Composed((Pure(Fraction(1)), Selection(chosen.delta)))


def test_a_minimum_of_units_moves_the_tosses() -> None:
    """Below it a group is never shown; at it as often as one of a single unit without it."""
    chosen = World(policy(domain=False, accountant="pure", min_frequency=10)).prepare(KEYS).plan.selection
    assert isinstance(chosen, OptimalPartitionSelection)
    assert not any(chosen.draw_selection(units, ScriptedEntropy([0])) for units in range(10))
    assert chosen.draw_selection(10, ScriptedEntropy([0]))
    assert chosen.median_units == chosen.mechanism.compute_median_units() + 9


def test_a_threshold_on_a_released_count_takes_no_loss() -> None:
    """Where a count is released anyway, its threshold takes no loss of its own."""
    plan = World(policy(domain=False, accountant="pure")).prepare("SELECT k, COUNT(*) FROM t GROUP BY k").plan
    assert isinstance(plan.selection, Threshold)
