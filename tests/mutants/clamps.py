"""Faults of learnt clamps: their grid and prior, what the engine counts, what is charged, and the noise that follows."""

from __future__ import annotations

from .fault import Fault

_COMPUTED = "tests/laws/test_clamps.py::test_what_is_clamped_is_what_plain_python_computes[0]"
_REFUSED = "tests/analysis/test_clamps.py::test_verification_refuses_what_is_sharper_or_less_noisy"

FAULTS = (
    Fault(
        "rung-off-by-one",
        "sql/clamped.py",
        'f"CASE WHEN {amount} <= {low[-1]} THEN',
        'f"CASE WHEN {amount} < {low[-1]} THEN',
        "what is exactly a point is counted as more",
        "tests/analysis/test_clamps.py::test_the_engine_finds_the_least_point_that_is_no_less",
    ),
    Fault(
        "one-side-of-a-total-alone",
        "sql/clamped.py",
        "'-' * (ladder.sign < 0)",
        "'-' * (ladder.sign < -1)",
        "what is below zero is counted as what is above",
        "tests/analysis/test_clamps.py::test_noise_follows_the_choice",
    ),
    Fault(
        "small-groups-left-out-of-the-choice",
        "release.py",
        "learnt(plan.clamps, [group.rungs for group in groups], entropy)",
        "learnt(plan.clamps, [group.rungs for group in groups if group.moments[UNITS] > 4], entropy)",
        "a unit that makes a group large enough moves all that its other units have",
        "tests/analysis/test_clamps.py::test_what_is_in_a_small_group_alone_decides_all_the_same",
    ),
    Fault(
        "one-group-decides",
        "analysis/clamps.py",
        "[group[side] for group in groups]",
        "[group[side] for group in groups[:1]]",
        "the clamp is chosen by what units have in the first group",
        "tests/analysis/test_clamps.py::test_all_groups_take_part_in_the_choice",
    ),
    Fault(
        "clamp-not-times-groups",
        "analysis/clamps.py",
        "l1 = min(analysis.bound.groups * top, clamp.most * unit)",
        "l1 = min(top, clamp.most * unit)",
        "a unit is taken to be in one group alone",
        "tests/laws/test_clamps.py::test_no_neighbour_moves_what_is_clamped_further_than_derived[SELECT SUM(x) FROM t GROUP BY k []]",
    ),
    Fault(
        "choice-sharper-by-groups",
        "analysis/clamps.py",
        "return analysis.bound.groups * (2 if analysis.replace else 1)",
        "return 2 if analysis.replace else 1",
        "a unit in several groups moves penalties further than is charged",
        _REFUSED,
    ),
    Fault(
        "replaced-units-choose-as-added-ones",
        "analysis/clamps.py",
        "return analysis.bound.groups * (2 if analysis.replace else 1)",
        "return analysis.bound.groups",
        "a unit that takes another's place moves penalties twice as far as is charged",
        _REFUSED,
    ),
    Fault(
        "choice-free-of-charge",
        "analysis/choose.py",
        "choices = tuple(BoundedRange(clamp.range(analysis)) for clamp in clamps)",
        "choices = ()",
        "clamps are chosen and not charged",
        _REFUSED,
    ),
    Fault(
        "noise-costs-the-whole-share",
        "analysis/choose.py",
        "share - spent for place",
        "share for place",
        "the choice comes on top of what was asked for",
        "tests/analysis/test_clamps.py::test_choices_and_noise_cost_what_was_asked",
    ),
    Fault(
        "prior-of-another-power",
        "analysis/clamps.py",
        "self.most**EXPONENT // point**EXPONENT",
        "self.most**2 // point**2",
        "points weigh otherwise than was tried out",
        "tests/analysis/test_clamps.py::test_points_weigh_by_their_inverse_to_the_third_power",
    ),
    Fault(
        "beyond-the-clamp-counts-nothing",
        "analysis/clamps.py",
        "amount = part.upto(index, 2) + point * part.beyond(index, 1)",
        "amount = part.upto(index, 2)",
        "units with more than the clamp do not count at all",
        _COMPUTED,
    ),
    Fault(
        "noise-as-was-expected",
        "analysis/choose.py",
        "measured if measured.clamp is None else measured.at(clamps[measured.clamp], self.analysis)",
        "measured",
        "the noise is for the clamp that was expected, not for the one that was chosen",
        "tests/analysis/test_clamps.py::test_noise_follows_the_choice",
    ),
    Fault(
        "verification-passes-sharp-choices",
        "analysis/verify.py",
        "chosen += sum((_sharpness(clamp, plan.analysis) for clamp in plan.clamps), start=Fraction(0))",
        "chosen += 0",
        "a choice of a clamp that is sharper than is charged passes",
        _REFUSED,
    ),
)
