"""A mechanism is one file and one rule of verification: a toy one, which no other file names.

Its law is that of geometric noise plus an independent uniform number.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, ClassVar, Literal

import pytest
from clinic import POLICY, database
from entropy import SeededEntropy
from pydantic import StrictInt

import dpsql
from dpsql.engine.intervals.noise_laws import compute_half_width
from dpsql.engine.release.exact_release import draw_table, open_exact_release
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.replay.reuse import combine_tables, find_coupled_refinement, is_combinable
from dpsql.engine.replay.stored_release import StoredRelease
from dpsql.errors import InternalError, VerificationError
from dpsql.ledger import Budget, open_ledger
from dpsql.planning import verify as verification
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import VectorChange, verify_plan
from dpsql.policy.request.query import Query
from dpsql.privacy.accounting import Pure
from dpsql.privacy.mechanisms import Entropy, Geometric, Mechanism, Sensitivity
from dpsql.privacy.mechanisms.base import (
    RECORDS,
    ComponentChanges,
    ExactText,
    MechanismRecord,
    from_stored_list,
    register_mechanisms,
    to_stored_list,
)


class PlateauRecord(MechanismRecord):
    """A `Plateau` in a stored release."""

    kind: Literal["plateau"] = "plateau"
    scale: ExactText
    reach: StrictInt

    def to_mechanism(self) -> Mechanism:
        """The mechanism with these parameters."""
        return Plateau(self.scale, self.reach)


@dataclasses.dataclass(frozen=True, slots=True)
class Plateau(Mechanism):
    """Geometric noise of this scale plus an independent uniform number from -`reach` to `reach`.

    Claim: its loss for an l1 sensitivity d is d / scale, as that of the geometric noise in it.
    Why: adding an independent number is post-processing.
    """

    tag: ClassVar[str] = "Plateau"
    name: ClassVar[str] = "plateau"
    record_type: ClassVar[type[MechanismRecord]] = PlateauRecord

    scale: Fraction
    reach: int

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Independent draws."""
        sides = 2 * self.reach + 1
        shifts = [int(word) % sides - self.reach for word in entropy.draw_words(size)]
        return [a + b for a, b in zip(Geometric(self.scale).draw(size, entropy), shifts, strict=True)]

    def compute_variance(self) -> float:
        """The sum of both variances."""
        return Geometric(self.scale).compute_variance() + self.reach * (self.reach + 1) / 3

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """The mean over the uniform number, for one term; else that of the worst one."""
        noise = Geometric(self.scale)
        if terms > 1:
            return noise.bound_sum_tail(terms, threshold - terms * self.reach)
        tails = [noise.bound_tail(threshold - shift) for shift in range(-self.reach, self.reach + 1)]
        return min(1.0, math.fsum(tails) / len(tails) * (1 + 1e-12))

    def describe(self) -> str:
        """The law in words."""
        return f"{self.name}, scale {float(self.scale):.6g}, reach {self.reach}"

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> Plateau:
        """The same loss for another sensitivity."""
        return Plateau(self.scale * new.l1 / old.l1, self.reach)

    def to_record(self) -> MechanismRecord:
        """The mechanism as stored releases hold it."""
        return PlateauRecord(scale=self.scale, reach=self.reach)


def _rule(noise: Plateau, change: VectorChange) -> tuple[str, Fraction]:
    return "pure", change.l1 / noise.scale


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two registrations that a mechanism needs, for one test."""
    monkeypatch.setattr("dpsql.privacy.mechanisms.base.RECORDS", dict(RECORDS))
    register_mechanisms(Plateau)
    monkeypatch.setitem(verification.RULES, Plateau, _rule)


def measured(con: dpsql.Connection, sql: str = "SELECT plan, COUNT(*) FROM visits GROUP BY plan") -> Any:
    """A prepared query whose geometric noise has been replaced by the toy's, with its loss."""
    part = plan_and_match(con.engine, Query(sql, epsilon=Fraction(2))).single_release
    vectors = []
    for vector in part.plan.vectors:
        assert isinstance(vector.mechanism, Geometric)
        vectors.append(dataclasses.replace(vector, mechanism=Plateau(vector.mechanism.scale, 3)))
    return dataclasses.replace(part, plan=dataclasses.replace(part.plan, vectors=tuple(vectors)))


@pytest.fixture
def con() -> Any:
    """A connection to the clinic with pure accounting."""
    policy = POLICY | {"budget": {"epsilon": 30, "accountant": "pure"}}
    with dpsql.connect(database(), policy=policy, ledger=":memory:") as connection:
        yield connection


def lossy(plan: MeasurementPlan, part: Fraction) -> MeasurementPlan:
    """The plan with that part of the noise."""
    vectors = [
        dataclasses.replace(
            vector,
            mechanism=Plateau(vector.mechanism.scale * part, 3),  # type: ignore[attr-defined]
        )
        for vector in plan.vectors
    ]
    return dataclasses.replace(plan, vectors=tuple(vectors))


def test_verification_refuses_a_mechanism_without_a_rule(con: dpsql.Connection) -> None:
    """A mechanism that states its own loss is not believed."""
    with pytest.raises(VerificationError, match="no rule for plateau noise"):
        verify_plan(measured(con).plan)


@pytest.mark.usefixtures("registered")
def test_verification_enforces_the_rule_of_a_mechanism(con: dpsql.Connection) -> None:
    """Enough noise passes, any less does not."""
    plan = measured(con).plan
    verify_plan(plan)
    with pytest.raises(VerificationError):
        verify_plan(lossy(plan, Fraction(999_999, 1_000_000)))


@pytest.mark.usefixtures("registered")
def test_a_new_mechanism_is_charged_its_loss(con: dpsql.Connection) -> None:
    """The event of its loss is what the planner charged, and a ledger takes it."""
    plan = measured(con).plan
    (vector,) = plan.vectors
    event = Pure(vector.sensitivity.l1 / vector.mechanism.scale)
    assert event == plan.event
    budget = Budget("pure", Fraction(5), Fraction(0))
    ledger = open_ledger(":memory:", {"visits": budget})
    (entry,) = ledger.charge({"visits": event}, analyst="ana", query="q")
    ledger.close()
    assert entry.event == event


@pytest.mark.usefixtures("registered")
def test_release_of_a_mechanism_is_stored_and_read_back(con: dpsql.Connection) -> None:
    """Keys, cells and noise are the same, and so is the text."""
    part = measured(con)
    with open_exact_release(con.engine.backend, con.engine.entropy, part) as rows:
        table = draw_table(rows, con.engine.entropy)
    text = StoredRelease.from_table(table, part.plan.event, "source").to_text()
    read = StoredRelease.parse(text)
    assert read.to_table(part.plan) == table
    assert read.to_text() == text


@pytest.mark.usefixtures("registered")
def test_releases_of_a_mechanism_are_combined_and_not_refined(con: dpsql.Connection) -> None:
    """Its draws are independent, so that a mean has less noise; it states no coupling."""
    part = measured(con)
    with open_exact_release(con.engine.backend, con.engine.entropy, part) as rows:
        table = draw_table(rows, con.engine.entropy)
    assert is_combinable(part.plan)
    mean = combine_tables([table, table]).plan.vectors[0].mechanism
    assert mean.std / mean.subdivisions == pytest.approx(part.plan.vectors[0].mechanism.std / math.sqrt(2))
    assert from_stored_list(to_stored_list(mean)) == mean
    before = StoredRelease.from_table(table, part.plan.event, "source")
    assert find_coupled_refinement(lossy(part.plan, Fraction(1, 2)), before) is None


def test_intervals_follow_its_law() -> None:
    """By its tail for one draw, and by that of Laplace noise of its variance for a sum."""
    noise, draws = Plateau(Fraction(4), 5), 50_000
    drawn = noise.draw(2 * draws, SeededEntropy(7))
    for weights in ((1,), (1, 1)):
        half = compute_half_width(noise, [Fraction(weight) for weight in weights], 0.95)
        terms = len(weights)
        sums = [sum(drawn[terms * at : terms * (at + 1)]) for at in range(draws)]
        share = sum(abs(each) <= half for each in sums) / draws
        assert 0.95 - 6 * math.sqrt(0.05 * 0.95 / draws) < share < 0.99


def test_a_new_mechanism_is_rescaled_to_a_selected_clamp() -> None:
    """The same loss for another sensitivity."""
    old, new = Sensitivity(Fraction(4), Fraction(16)), Sensitivity(Fraction(10), Fraction(100))
    noise = Plateau(Fraction(8), 2)
    assert new.l1 / noise.rescale_to_sensitivity(old, new, None).scale == old.l1 / noise.scale


def test_an_unregistered_mechanism_is_not_stored() -> None:
    """Neither written nor read; nor may two mechanisms have one word."""
    with pytest.raises(InternalError, match="not registered"):
        to_stored_list(Plateau(Fraction(1), 1))
    with pytest.raises(ValueError, match="plateau"):
        from_stored_list(["plateau", "1", 1])

    class Other(PlateauRecord):
        kind: Literal["geometric"] = "geometric"  # type: ignore[assignment]

    class Rival(Geometric):
        record_type: ClassVar[type[MechanismRecord]] = Other

    with pytest.raises(InternalError, match="two mechanisms"):
        register_mechanisms(Rival)
