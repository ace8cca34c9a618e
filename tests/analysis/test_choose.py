"""The planner: what it measures, with which noise, and that it shares one price."""

from __future__ import annotations

from fractions import Fraction

import pytest
from laws.worlds import World, policy

import dpsql
from dpsql.analysis.choose import predicted_std
from dpsql.mechanisms import DiscreteGaussian, Geometric


def blocks(sql: str, **rules: object) -> list[str]:
    """The names of the blocks that a query measures."""
    plan = World(policy(**rules)).prepare(sql).plan  # type: ignore[arg-type]
    return [measured.block.name for measured in plan.blocks]


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
        ("AVG(x), AVG(i)", ["partition of x0", "partition of x1"]),
        ("SUM(2), COUNT(*)", None),
    ],
)
def test_what_is_measured(aggregates: str, expected: list[str] | None) -> None:
    """Aggregates of one expression share one block, and so the whole loss."""
    found = blocks(f"SELECT {aggregates} FROM t")
    assert found == expected or (expected is None and len(found) <= 2)


def test_an_average_takes_the_whole_loss() -> None:
    """SUM, AVG and COUNT together have the noise of AVG alone: nothing is split."""
    world = World(policy(accountant="pure"))
    alone = world.prepare("SELECT AVG(x) FROM t").plan
    together = world.prepare("SELECT SUM(x), COUNT(x), AVG(x) FROM t").plan
    assert alone.blocks[0].mechanism == together.blocks[0].mechanism
    assert isinstance(alone.blocks[0].mechanism, Geometric)
    assert alone.blocks[0].mechanism.scale == alone.blocks[0].sensitivity.l1  # ε = 1


def test_the_noise_follows_the_accountant() -> None:
    """A pure ledger takes geometric noise; a zCDP one Gaussian, which has less error at the same price."""
    assert isinstance(
        World(policy(accountant="pure")).prepare("SELECT COUNT(*) FROM t").plan.blocks[0].mechanism, Geometric
    )
    plan = World(policy()).prepare("SELECT COUNT(*) FROM t").plan
    assert isinstance(plan.blocks[0].mechanism, DiscreteGaussian)
    scores = [candidate.score for candidate in plan.candidates]
    assert scores == sorted(scores)
    assert len(scores) > 1


def test_predictions_grow_with_the_bounds() -> None:
    """Narrower bounds give less predicted noise."""
    world = World(policy())
    stds = []
    for where in ("", " WHERE x BETWEEN 0 AND 1"):
        plan = world.prepare(f"SELECT SUM(x) FROM t{where}").plan
        stds.append(predicted_std(plan, plan.analysis.release.aggregations[0]))
    assert stds[1] < stds[0]


def test_delta_is_spent_in_proportion() -> None:
    """A query's share of delta is its share of the loss, so neither runs out first."""
    world = World(policy(domain=False, accountant="pure"))
    price = world.prepare("SELECT k, COUNT(*) FROM t GROUP BY k").price
    assert price.delta == Fraction(1, 10) * Fraction(1, 10**6)


def test_unknown_keys_need_a_delta() -> None:
    """With pure accounting and no delta, keys that are not public are refused with the way out."""
    rules = policy(domain=False, accountant="pure")
    rules["budget"] = {"epsilon": 1}
    with pytest.raises(dpsql.QueryRejected, match="delta") as caught:
        World(rules).prepare("SELECT k, COUNT(*) FROM t GROUP BY k")
    assert caught.value.code == "delta_required"
