"""Staircase noise in plans: where it is taken, that it pays for each move of a cell, and where there is none."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any

import pytest
from planning.test_clamping import planned
from properties.worlds import DEFAULT, Row, World, policy, stairs

from dpsql.engine.replay.replays import plan_and_match
from dpsql.errors import VerificationError
from dpsql.planning.clamping import compute_clamped_unit_change
from dpsql.planning.layouts import LEAST_LOSS, WORTH
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import UnitChange
from dpsql.planning.verify import verify_plan
from dpsql.policy.request.query import Query
from dpsql.privacy.accounting.events import Composed, Event, Pure
from dpsql.privacy.mechanisms import Geometric, Staircase

every_relation = pytest.mark.parametrize("neighbors", ["add_remove", "replace"])


def plan(sql: str, epsilon: float = 3, extra: dict[str, Any] | None = None, **rules: Any) -> MeasurementPlan:
    """A measured plan over the tiny schema, for a ledger that adds losses up."""
    world = World(policy(**({"accountant": "pure"} | rules)) | (extra or {}))
    return plan_and_match(world.engine, Query(sql, epsilon=Fraction(epsilon))).plan


def kinds(measured: MeasurementPlan) -> list[str]:
    return [block.mechanism.name for block in measured.vectors]


def charged(event: Event | None) -> Fraction:
    """The pure losses of an event."""
    match event:
        case Pure(epsilon=epsilon):
            return epsilon
        case Composed(events=events):
            return sum(map(charged, events), start=Fraction(0))
        case _:
            return Fraction(0)


TAKEN = {
    "rows of a person": ("SELECT COUNT(*) FROM t", {}),
    "rows of a person in one group": ("SELECT k, COUNT(*) FROM t GROUP BY k", {"groups": 1}),
    "a sum over rows": ("SELECT SUM(x) FROM t", {"unit": "row"}),
    "a sum in groups of rows": ("SELECT k, SUM(i) FROM t GROUP BY k", {"unit": "row"}),
    "values": ("SELECT COUNT(DISTINCT s) FROM t", {}),
    "a sum of either sign": ("SELECT SUM(x - 1.5) FROM t", {"unit": "row"}),
}


@every_relation
@pytest.mark.parametrize(("sql", "rules"), TAKEN.values(), ids=TAKEN)
def test_staircase_is_chosen_where_a_cell_moves_further_than_a_step(
    sql: str, rules: dict[str, Any], neighbors: str
) -> None:
    """At ε = 3, 8 for one who is replaced in groups; the candidates say how much less it strays."""
    found = plan(sql, epsilon=8 if neighbors == "replace" else 3, neighbors=neighbors, **rules)
    assert kinds(found) == ["staircase"]
    scores = {item.name.partition(":")[0]: item.score for item in found.candidates}
    assert scores["staircase"] < scores["geometric"] - 0.01
    verify_plan(found)


LEFT = {
    "a row more": ("SELECT COUNT(*) FROM t", {"unit": "row"}),
    "people": ("SELECT COUNT(DISTINCT u) FROM t", {}),
    "a mean, whose cells share what a row moves": ("SELECT AVG(x) FROM t", {"unit": "row"}),
    "rows with and without a value": ("SELECT COUNT(x), COUNT(*) FROM t", {"rows": 3}),
    "values in groups, each of a person's in one of its own": (
        "SELECT k, COUNT(DISTINCT s) FROM t GROUP BY k",
        {"rows": 3, "groups": 1},
    ),
    "several groups, whose sum is bounded": (
        "SELECT k, COUNT(*) FROM t GROUP BY k",
        {"rows": 3, "groups": 2},
    ),
}


@pytest.mark.parametrize(("sql", "rules"), LEFT.values(), ids=LEFT)
def test_staircase_is_not_chosen_without_a_long_proved_move(sql: str, rules: dict[str, Any]) -> None:
    """Cells that share what a row moves have none, nor has one that moves by a step."""
    found = plan(sql, **rules)
    assert "staircase" not in kinds(found)


def test_values_in_groups_with_stairs_are_not_verified() -> None:
    """Each value of a person's may lie in a group of its own, and cost a whole stair there."""
    found = plan("SELECT k, COUNT(DISTINCT s) FROM t GROUP BY k", rows=3, groups=1)
    block = dataclasses.replace(found.vectors[0], mechanism=Staircase.calibrate(3, 1, Fraction(3)))
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(found, vectors=(block,)))


def test_small_loss_keeps_geometric_noise() -> None:
    """Geometric noise stays below a gain of a hundredth: it is refined and has simpler tails."""
    assert kinds(plan("SELECT SUM(x) FROM t", epsilon=0.5, unit="row")) == ["geometric"]
    assert kinds(plan("SELECT SUM(x) FROM t", epsilon=1, unit="row")) == ["staircase"]


@pytest.mark.parametrize("width", [1, 2, 3, 7, 1000, 10**9])
@pytest.mark.parametrize("loss", [Fraction(1, 1000), Fraction(1, 5), LEAST_LOSS])
def test_no_staircase_is_worth_the_least_loss(width: int, loss: Fraction) -> None:
    """So none is calibrated up to it, of whatever width."""
    least = Staircase.calibrate(width, 1, loss).std
    assert least >= WORTH * Geometric.calibrate(Fraction(width), loss).std


def test_no_loss_leaves_less_noise_than_the_lattice_rounds() -> None:
    """Noise falls as the loss grows, and at any loss is more than a step that values are rounded to."""
    noises = [
        plan("SELECT SUM(x) FROM t", epsilon, {"budget": {"epsilon": 100, "accountant": "pure"}}, unit="row")
        .vectors[0]
        .mechanism
        for epsilon in (3, 9, 12, 30, 100)
    ]
    assert all(more.std >= less.std > 1 for more, less in itertools.pairwise(noises))


def test_a_sum_with_a_count_that_selects_groups_may_have_staircase_noise() -> None:
    """Where a count shows groups by geometric noise, what is measured apart from it may have stairs."""
    found = plan("SELECT s, SUM(x), COUNT(DISTINCT u) FROM t GROUP BY s", epsilon=8, rows=2, groups=1)
    assert found.threshold is not None
    assert isinstance(found.vectors[found.threshold.vector].mechanism, Geometric)
    assert set(kinds(found)) == {"geometric", "staircase"}
    verify_plan(found)


@pytest.mark.parametrize(
    ("version", "accountant", "expected"),
    [("1", "pure", "geometric"), (None, "pure", "staircase"), ("1", "basic", "geometric")],
)
def test_refinable_releases_have_geometric_noise(version: str | None, accountant: str, expected: str) -> None:
    """A coupling is known for that alone: where the policy states its data version, less noise stays for sale."""
    extra = {} if version is None else {"data_version": version}
    assert kinds(plan("SELECT SUM(x) FROM t", extra=extra, unit="row", accountant=accountant)) == [expected]


def test_releases_with_quantiles_may_have_staircase_noise() -> None:
    """Beside a value that is chosen by its rank."""
    found = plan("SELECT SUM(x), MEDIAN(x) FROM t", epsilon=8, extra={"data_version": "1"}, unit="row")
    assert kinds(found) == ["staircase"]


@every_relation
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("grouped", [True, False])
def test_moves_match_neighbours(neighbors: str, groups: int, grouped: bool) -> None:
    """By brute force over one person's rows: the stairs that all cells move by, whole ones for each, attain the bound."""
    world = World(policy(accountant="pure", rows=3, groups=groups, neighbors=neighbors))
    prepared = world.prepare(f"SELECT SUM(x - 1.5) FROM t{' GROUP BY k' * grouped}")
    (block,) = prepared.plan.vectors
    moved = compute_clamped_unit_change(block.vector, None, prepared.plan.analysis)
    assert isinstance(moved, UnitChange)
    rows = [DEFAULT._replace(k=k, x=x) for k in ("A", "B") for x in (-1.0, 4.0, 1.0)]
    shares = [share for size in range(4) for share in itertools.combinations_with_replacement(rows, size)]
    others: tuple[Row, ...] = (DEFAULT._replace(u=2), DEFAULT._replace(u=3, k="B"))
    found = [world.statistics(prepared, (*share, *others)) for share in shares]
    pairs = [(found[0], one) for one in found]
    if neighbors == "replace":
        pairs = list(itertools.combinations(found, 2))
    for width in (moved.size, moved.size // 2 + 1, moved.size // 3, moved.size * 2):
        worst = max(stairs(*pair, 0, width) for pair in pairs)
        assert worst <= moved.count * -(-moved.size // width)
        # With two keys two groups are all there are to leave and to come to.
        if width == moved.size and (groups == 1 or not grouped or neighbors != "replace"):
            assert worst == moved.count


SIGNED = "SELECT k, SUM(x - 1.5) FROM t GROUP BY k"


@every_relation
@pytest.mark.parametrize("groups", [1, 2])
def test_verification_refuses_a_shorter_or_a_cheaper_stair(neighbors: str, groups: int) -> None:
    """Stairs a step shorter than the move, or a little lower in price than they are steep, do not pass."""
    found = plan(SIGNED, rows=3, groups=groups, neighbors=neighbors)
    (block,) = found.vectors
    moved = compute_clamped_unit_change(block.vector, None, found.analysis)
    assert moved is not None
    honest = Staircase.calibrate(moved.size, moved.count, charged(found.event))
    inner = min(honest.inner, moved.size - 1)
    verify_plan(dataclasses.replace(found, vectors=(dataclasses.replace(block, mechanism=honest),)))
    for wrong in (
        Staircase(honest.loss, moved.size - 1, inner),
        Staircase(honest.loss * Fraction(1_000_001, 1_000_000), moved.size, inner),
    ):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(found, vectors=(dataclasses.replace(block, mechanism=wrong),)))


def test_verification_refuses_stairs_for_cells_that_share_a_move() -> None:
    """However wide: the l1 norm is within a stair, but each cell may cost one."""
    found = plan("SELECT AVG(x) FROM t", unit="row")
    (block,) = found.vectors
    wide = Staircase.calibrate(int(block.sensitivity.l1), 1, Fraction(3))
    with pytest.raises(VerificationError, match="several components"):
        verify_plan(dataclasses.replace(found, vectors=(dataclasses.replace(block, mechanism=wide),)))


@every_relation
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(y) FROM t",
        "SELECT SUM(z) FROM t",
        "SELECT COUNT(*) FROM t WHERE z > -99",
        "SELECT SUM(z), COUNT(*) FROM t",
    ],
)
@pytest.mark.parametrize("grouped", [True, False])
def test_stairs_follow_a_selected_clamp(sql: str, neighbors: str, grouped: bool) -> None:
    """At each point of a clamp they are as wide as a unit's share, at the same loss; a step less is refused."""
    sql = sql.replace("SELECT", "SELECT k,") + " GROUP BY k" if grouped else sql
    plans = (
        planned(sql, loss, accountant="pure", neighbors=neighbors, max_groups=1) for loss in (8, 16, 32, 4)
    )
    found = next(plan for plan in plans if plan.clamps and "staircase" in kinds(plan))  # at one of the losses
    for index in range(len(found.clamps[0].grid)):
        clamps = tuple(
            dataclasses.replace(clamp, chosen=(min(index, len(clamp.grid) - 1),) * len(clamp.sides))
            for clamp in found.clamps
        )
        for before, block in zip(found.vectors, found.with_clamps(clamps).vectors, strict=True):
            if block.clamp is None or not isinstance(block.mechanism, Staircase):
                continue
            assert isinstance(before.mechanism, Staircase)
            moved = compute_clamped_unit_change(block.vector, clamps[block.clamp], found.analysis)
            assert moved is not None
            assert (block.mechanism.width, block.mechanism.loss) == (moved.size, before.mechanism.loss)
            assert moved.size * moved.count == block.sensitivity.l1
    place = kinds(found).index("staircase")
    stair = found.vectors[place].mechanism
    assert isinstance(stair, Staircase)
    steeper = dataclasses.replace(stair, loss=stair.loss * Fraction(1_000_001, 1_000_000))
    blocks = list(found.vectors)
    blocks[place] = dataclasses.replace(blocks[place], mechanism=steeper)
    verify_plan(found)
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(found, vectors=tuple(blocks)))


def test_clamps_in_several_groups_have_geometric_noise() -> None:
    """What a unit has in all groups is bounded, too: at the largest points that is all that it moves."""
    assert "staircase" not in kinds(planned("SELECT k, SUM(y) FROM t GROUP BY k", 30, accountant="pure"))
