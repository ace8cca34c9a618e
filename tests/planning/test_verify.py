"""The second derivation of the loss: it agrees with the first, and refuses a plan with too little noise."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from properties.test_sensitivity import CASES, Case
from properties.worlds import World, derived, policy

from dpsql.errors import VerificationError
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import Component
from dpsql.planning.verify import verify_plan
from dpsql.planning.verify_norms import derive_norms
from dpsql.privacy.accounting import BoundedRange, Composed, Gaussian, Pure, Selection
from dpsql.privacy.mechanisms import (
    DiscreteGaussian,
    Exponential,
    Geometric,
    LInfinityMechanism,
    Mechanism,
    PartitionSelection,
    Sensitivity,
)

SQL = "SELECT k, COUNT(*), AVG(x), COUNT(DISTINCT s) FROM t GROUP BY k"
TOGETHER = "SELECT k, AVG(i), AVG(x), COUNT(DISTINCT u) FROM t GROUP BY k"
"""What a pure ledger's planner measures in one block, by a cube."""


def plan(sql: str = SQL, **rules: object) -> MeasurementPlan:
    """A measured plan over the tiny schema."""
    return World(policy(**rules)).prepare(sql).plan  # type: ignore[arg-type]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_derivations_agree(case: Case) -> None:
    """The extreme rows attain the closed form where nothing is replaced, and never pass it."""
    measured = World(policy(**case.rules)).prepare(case.sql, case.max_groups).plan
    for block in measured.vectors:
        found, known = derive_norms(block.vector, measured.analysis), derived([block])[0]
        assert all(norm <= most for norm, most in zip(found, known, strict=True))
        if case.rules.get("neighbors") != "replace":
            assert found == known


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("block", range(2))
def test_less_noise_is_refused(accountant: str, neighbors: str, block: int) -> None:
    """Half the noise on any block that the loss calls for does not pass."""
    measured = plan(accountant=accountant, neighbors=neighbors)
    verify_plan(measured)
    blocks = list(measured.vectors)
    less: Mechanism
    match blocks[block].mechanism:
        case Geometric(scale=scale):
            less = Geometric(scale * Fraction(1, 2))
        case DiscreteGaussian(variance=variance):
            less = DiscreteGaussian(variance * Fraction(1, 4))
        case _:
            raise AssertionError
    blocks[block] = dataclasses.replace(blocks[block], mechanism=less)
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(measured, vectors=tuple(blocks)))


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
def test_tosses_for_keys_are_charged(neighbors: str) -> None:
    """A sharper toss, a larger δ, a lower minimum or a smaller charge does not pass, nor what any less would serve."""
    measured = plan(
        "SELECT k FROM t GROUP BY k", domain=False, accountant="pure", neighbors=neighbors, min_frequency=3
    )
    verify_plan(measured)
    chosen = measured.selection
    assert isinstance(chosen, OptimalPartitionSelection)
    assert chosen.groups == 2 * (2 if neighbors == "replace" else 1)
    rule = chosen.mechanism
    more = Fraction(1_000_001, 1_000_000)
    for wrong in (
        dataclasses.replace(chosen, mechanism=PartitionSelection(rule.epsilon * more, rule.delta)),
        dataclasses.replace(chosen, mechanism=PartitionSelection(rule.epsilon, rule.delta * more)),
        dataclasses.replace(chosen, min_frequency=2),
    ):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, selection=wrong))
    event = measured.event
    assert event == Composed((Pure(Fraction(1)), Selection(chosen.delta)))
    for cheap in (
        Pure(Fraction(1)),
        Selection(chosen.delta),
        Composed((Pure(Fraction(1, 2)), event.events[1])),
    ):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, event=cheap))


@pytest.mark.parametrize("lift", ["1.0001", "1.5"])
def test_law_less_private_than_stated_is_refused(lift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The law of the tosses is held to its loss, whatever the mechanism says of itself."""
    measured = plan("SELECT DISTINCT k FROM t", domain=False, accountant="pure")
    sharper = PartitionSelection(Fraction(lift) * measured.selection.mechanism.epsilon, Fraction(1, 10**9))  # type: ignore[union-attr]
    law = PartitionSelection.bound_probability
    monkeypatch.setattr(
        PartitionSelection, "bound_probability", lambda _, units, places: law(sharper, units, places)
    )
    with pytest.raises(VerificationError, match="than its loss allows"):
        verify_plan(measured)


def test_values_in_order_are_charged() -> None:
    """Beside noise, too: a sharper choice, or a charge for the noise alone, does not pass."""
    measured = plan("SELECT k, COUNT(*), MEDIAN(x), MAX(i) FROM t GROUP BY k")
    verify_plan(measured)
    assert isinstance(measured.event, Composed)
    noise = [event for event in measured.event.events if not isinstance(event, BoundedRange)]
    assert len(noise) == len(measured.event.events) - 2
    first, *rest = measured.quantiles
    sharper = dataclasses.replace(first, mechanism=Exponential(first.mechanism.rate * Fraction(101, 100)))
    for wrong in ({"event": Composed(tuple(noise))}, {"quantiles": (sharper, *rest)}):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, **wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_the_best_groups_are_charged(accountant: str, neighbors: str) -> None:
    """Each choice at its own sharpness: a sharper one, or one more than is paid for, does not pass."""
    sql = "SELECT k FROM t GROUP BY k ORDER BY SUM(x) DESC LIMIT 2"
    measured = plan(sql, accountant=accountant, neighbors=neighbors)
    verify_plan(measured)
    best, event = measured.top_k, measured.event
    assert best is not None
    assert isinstance(event, Composed)
    sharper = dataclasses.replace(
        best, mechanism=type(best.mechanism)(best.mechanism.rate * Fraction(101, 100))
    )
    for wrong in ({"event": event.events[0]}, {"top_k": sharper}):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, **wrong))  # type: ignore[arg-type]


def test_exactly_enough_noise_is_needed() -> None:
    """With add_remove neighbours the planner wastes nothing: any smaller scale is refused."""
    measured = plan(accountant="pure")
    (first, *rest) = measured.vectors
    assert isinstance(first.mechanism, Geometric)
    less = dataclasses.replace(
        first, mechanism=Geometric(first.mechanism.scale * Fraction(999_999, 1_000_000))
    )
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(measured, vectors=(less, *rest)))


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_cube_has_exactly_enough_noise(neighbors: str, groups: int) -> None:
    """One per cent less on all cells is refused, and so is a cube of other dimensions."""
    measured = plan(TOGETHER, accountant="pure", neighbors=neighbors, rows=3, groups=groups)
    (block,) = measured.vectors
    assert isinstance(block.mechanism, LInfinityMechanism)
    verify_plan(measured)
    scale, dimensions = block.mechanism.scale, block.mechanism.dimensions
    for wrong in (
        LInfinityMechanism(scale * Fraction(99, 100), dimensions),
        LInfinityMechanism(scale, dimensions + 1),
    ):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, vectors=(dataclasses.replace(block, mechanism=wrong),)))


def test_a_cell_that_no_extent_tells_of_is_found() -> None:
    """A joint block's cells are looked at themselves: one multiplied once more, or left out of the norm, is refused."""
    measured = plan(TOGETHER, accountant="pure")
    (block,) = measured.vectors
    for place, cell in enumerate(block.vector.components):
        larger = dataclasses.replace(
            cell, combination=tuple((statistic, 2 * weight) for statistic, weight in cell.combination)
        )
        cells = (*block.vector.components[:place], larger, *block.vector.components[place + 1 :])
        changed = dataclasses.replace(block, vector=dataclasses.replace(block.vector, components=cells))
        with pytest.raises(VerificationError, match="sensitivity"):
            verify_plan(dataclasses.replace(measured, vectors=(changed,)))


def test_a_joint_cell_of_two_arguments_is_refused() -> None:
    """The extremes of arguments are tried one argument at a time, so a cell that mixes two is not accepted."""
    measured = plan(TOGETHER, accountant="pure")
    (block,) = measured.vectors
    mixed = Component(
        "mixed", tuple(part for cell in block.vector.components[:4] for part in cell.combination)
    )
    changed = dataclasses.replace(block, vector=dataclasses.replace(block.vector, components=(mixed,)))
    with pytest.raises(VerificationError, match="mixes"):
        verify_plan(dataclasses.replace(measured, vectors=(changed,)))


@pytest.mark.parametrize("event", [None, Pure(Fraction(1, 2)), Gaussian(Fraction(1, 100))])
def test_a_smaller_charge_is_refused(event: Pure | Gaussian | None) -> None:
    """An event that charges for less than the noise gives away does not pass."""
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(plan(), event=event))


def test_a_sensitivity_that_was_derived_too_small_is_refused() -> None:
    """The extreme rows are compared with what the planner derived."""
    measured = plan()
    small = dataclasses.replace(measured.vectors[0], sensitivity=Sensitivity(Fraction(1), Fraction(1)))
    with pytest.raises(VerificationError, match="sensitivity"):
        verify_plan(dataclasses.replace(measured, vectors=(small, *measured.vectors[1:])))


def test_a_threshold_that_is_too_low_is_refused() -> None:
    """A selection that shows a lone unit's key too often, or none where one is needed, does not pass."""
    measured = plan("SELECT k, COUNT(*), AVG(x), COUNT(DISTINCT u) FROM t GROUP BY k", domain=False)
    chosen = measured.selection
    assert chosen is not None
    verify_plan(measured)
    for wrong in (
        None,
        dataclasses.replace(chosen, threshold=chosen.threshold - 1),
        dataclasses.replace(chosen, vector=0),
        dataclasses.replace(chosen, components=()),
    ):
        with pytest.raises(VerificationError):
            verify_plan(dataclasses.replace(measured, selection=wrong))
    assert isinstance(measured.event, Composed)
    cheap = Composed((measured.event.events[0], Selection(chosen.delta / 1000)))
    with pytest.raises(VerificationError):
        verify_plan(dataclasses.replace(measured, event=cheap))


@pytest.mark.parametrize("end", ["LOW", "HIGH"])
def test_a_sharper_end_is_refused(end: str) -> None:
    """An end is charged as the value is, whichever it is; only beyond the least and the greatest it is the bound."""
    sql = f"SELECT MEDIAN(x), DP_INTERVAL_{end}(MEDIAN(x)) FROM t"
    measured = World(policy(accountant="pure")).prepare(sql).plan
    verify_plan(measured)
    value, chosen = measured.quantiles
    sharper = dataclasses.replace(chosen, mechanism=Exponential(chosen.mechanism.rate * Fraction(101, 100)))
    with pytest.raises(VerificationError, match="quantiles"):
        verify_plan(dataclasses.replace(measured, quantiles=(value, sharper)))
