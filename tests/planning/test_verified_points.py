"""Clamps are verified at few points before the charge, and at the chosen point before noise is drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator
from fractions import Fraction

import pytest
from planning.test_clamping import every_accountant, every_relation, planned, study

from dpsql.analysis.release_analysis import Analysis
from dpsql.errors import InternalError, VerificationError
from dpsql.planning import clamping
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import StatisticVector
from dpsql.planning.verify import derive_loss_by_kind, iterate_tried_points, verify_plan
from dpsql.privacy.mechanisms import Sensitivity

QUERIES = (
    "SELECT SUM(z), COUNT(*) FROM t",
    "SELECT k, SUM(z), SUM(y) FROM t GROUP BY k",
    "SELECT k, COUNT(*), AVG(y) FROM t WHERE y > 3 GROUP BY k",
    "SELECT w, COUNT(DISTINCT u), SUM(z) FROM t GROUP BY w",
    "SELECT w, COUNT(*) FROM t WHERE z > 0 GROUP BY w",
)
LOSSES = {"pure": 50, "zcdp": 1}
"""Losses at which clamps are learnt."""
WITHOUT = (QUERIES[1], "pure")
"""Two totals whose clamps do not pay."""


def all_points(clamp: Clamp) -> Iterator[Clamp]:
    """The clamp at each point of its grid; of two sides, beside the same, the least and the greatest of the other."""
    last = len(clamp.grid) - 1
    for place in range(len(clamp.grid)):
        if len(clamp.sides) == 1:
            yield dataclasses.replace(clamp, chosen=(place,))
        else:
            for pair in {(place, other) for other in (place, 0, last)}:
                yield dataclasses.replace(clamp, chosen=pair)
                yield dataclasses.replace(clamp, chosen=pair[::-1])


def at_each_point(plan: MeasurementPlan, place: int) -> Iterator[MeasurementPlan]:
    """The plan with one of its clamps chosen, for each point."""
    for clamp in all_points(plan.clamps[place]):
        yield plan.with_clamps((*plan.clamps[:place], clamp, *plan.clamps[place + 1 :]))


@pytest.mark.parametrize(
    ("sql", "accountant"),
    [(sql, accountant) for sql in QUERIES for accountant in LOSSES if (sql, accountant) != WITHOUT],
)
@every_relation
@pytest.mark.parametrize("groups", [7, 40])
def test_no_point_has_a_larger_loss_than_the_tried_ones(
    sql: str, groups: int, accountant: str, neighbors: str
) -> None:
    """Point by point, for each vector alone: the largest loss is that which verification finds."""
    plan = planned(sql, LOSSES[accountant], accountant=accountant, neighbors=neighbors, max_groups=groups)
    assert plan.clamps
    for measured in plan.vectors:
        if measured.clamp is None:
            continue
        alone = dataclasses.replace(plan, vectors=(measured,), selection=None)
        each = [derive_loss_by_kind(held) for held in at_each_point(alone, measured.clamp)]
        assert derive_loss_by_kind(alone) == {
            kind: max(found[kind] for found in each) for kind in ("pure", "gaussian")
        }


@pytest.mark.parametrize(
    "sql", ["SELECT w + 0, COUNT(DISTINCT u), SUM(z) FROM t WHERE w + 0 > 1 GROUP BY ALL", *QUERIES[1:3]]
)
def test_the_plan_passes_at_each_point(sql: str) -> None:
    """Thresholds of selections included."""
    plan = planned(sql, accountant="zcdp", max_groups=9)
    for place in range(len(plan.clamps)):
        for held in at_each_point(plan, place):
            verify_plan(held)


def half_where(wrong: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the planner derive half the sensitivity of clamps whose larger point is wrong."""
    honest = clamping.compute_clamped_sensitivity

    def derived(vector: StatisticVector, clamp: Clamp, analysis: Analysis) -> Sensitivity:
        found = honest(vector, clamp, analysis)
        if not wrong(max(clamp.points)):
            return found
        return Sensitivity(found.l1 / 2, found.l2_squared / 4, found.linf / 2)

    monkeypatch.setattr(clamping, "compute_clamped_sensitivity", derived)


@every_accountant
@pytest.mark.parametrize("sql", QUERIES[:3])
def test_ends_are_verified_before_the_charge(
    sql: str, accountant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sensitivity that is too small at the greatest point, or at the least, is refused."""
    plan = planned(sql, accountant=accountant)
    verify_plan(plan)
    for clamp in plan.clamps:
        for end in (clamp.grid[0], clamp.upper_limit):
            with monkeypatch.context() as context:
                half_where(end.__eq__, context)
                with pytest.raises(VerificationError, match="sensitivity"):
                    verify_plan(plan)


def untried(clamp: Clamp, tried: Container[int]) -> Clamp:
    """The clamp at a point that is none of these."""
    place = next(at for at, point in enumerate(clamp.grid) if point not in tried)
    return dataclasses.replace(clamp, chosen=(place,) * len(clamp.sides))


@pytest.mark.parametrize(
    ("sql", "accountant"), [(QUERIES[0], "pure"), (QUERIES[0], "zcdp"), (QUERIES[1], "zcdp")]
)
def test_the_chosen_point_is_verified_before_noise_is_drawn(
    sql: str, accountant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a point is chosen that was not tried: a sensitivity that is too small there gives no answer."""
    epsilon = Fraction(LOSSES[accountant])
    clamps = planned(sql, epsilon, accountant=accountant).clamps
    tried = {point for clamp in clamps for at in iterate_tried_points(clamp) for point in at.points}
    with study(accountant=accountant) as connection:
        half_where(lambda point: point not in tried, monkeypatch)
        monkeypatch.setattr(Clamp, "select_points", lambda clamp, *_: untried(clamp, tried))
        connection.explain(sql, epsilon=epsilon)
        monkeypatch.setattr(
            "dpsql.engine.release.noise.draw_noise", lambda *_: pytest.fail("noise was drawn")
        )
        with pytest.raises(InternalError, match="VerificationError"):
            connection.query(sql, epsilon=epsilon)
