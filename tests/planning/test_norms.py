"""The second derivation stands alone: it tries every kind of row, and doubts each norm for itself."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from properties.worlds import World, policy

from dpsql.analysis.release_analysis import Analysis
from dpsql.errors import VerificationError
from dpsql.plan.aggregates import Moment
from dpsql.planning.clamping import Amount, Clamp
from dpsql.planning.statistics import ROWS, Component, StatisticVector
from dpsql.planning.verify import verify_plan
from dpsql.planning.verify_norms import derive_norms
from dpsql.privacy.mechanisms import Exponential, Sensitivity

PRESENT = (Moment.COUNT, 0)


@pytest.mark.parametrize(
    ("combination", "share"),
    [
        (((ROWS, 5), (PRESENT, -5)), 5),  # a row without the argument
        (((PRESENT, 3),), 3),  # a row with it
        (((ROWS, 2),), 2),  # any row
    ],
)
@pytest.mark.parametrize("rows", [1, 4])
def test_each_kind_of_row_is_tried(
    combination: tuple[tuple[tuple[Moment, int | None], int], ...], share: int, rows: int
) -> None:
    """A cell that only one kind of row reaches is as large as that row makes it, whatever its block says."""
    analysis = World(policy(rows=rows)).prepare("SELECT COUNT(x), COUNT(*) FROM t").plan.analysis
    block = StatisticVector("lopsided", (Component("one", combination),), (), 1, None, nonnegative=True)
    assert derive_norms(block, analysis) == (share * rows, (share * rows) ** 2, share * rows)


@pytest.mark.parametrize(
    "wrong", [Sensitivity(Fraction(3, 2), Fraction(2)), Sensitivity(Fraction(2), Fraction(1))]
)
def test_either_norm_that_is_too_small_is_refused(wrong: Sensitivity) -> None:
    """A sensitivity is announced in both norms, so neither may be below the truth, whichever the noise is for."""
    plan = World(policy()).prepare("SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k").plan
    (block,) = plan.vectors
    assert block.sensitivity == Sensitivity(Fraction(2), Fraction(2))
    verify_plan(plan)
    with pytest.raises(VerificationError, match="sensitivity"):
        verify_plan(dataclasses.replace(plan, vectors=(dataclasses.replace(block, sensitivity=wrong),)))


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
@pytest.mark.parametrize(("most", "top"), [(1, 1), (5, 1), (6, 2), (7, 3), (20, 20), (20, 7)])
def test_groups_are_added_up_as_if_one_by_one(groups: int, most: int, top: int) -> None:
    """The sums over groups are those of a list of them: full ones first, then what is left."""
    analysis = _in_groups(groups, most)
    listed, left = list[int](), most
    while left and len(listed) < groups:
        listed.append(min(top, left))
        left -= listed[-1]
    clamp = Clamp(Amount.ROWS, (None,), (1,), (top, most), Exponential(Fraction(1)), chosen=(0,))
    count = StatisticVector("rows", (Component("rows", ((ROWS, 1),)),), (), 1, 1, nonnegative=True)
    l1, l2_squared = sum(listed), sum(each**2 for each in listed)
    assert derive_norms(count, analysis, clamp) == (l1, l2_squared, l1)


def test_very_many_groups_take_no_longer() -> None:
    """As many groups as a unit may have are never listed."""
    most = 2**30
    clamp = Clamp(Amount.ROWS, (None,), (1,), (1, most), Exponential(Fraction(1)), chosen=(0,))
    count = StatisticVector("rows", (Component("rows", ((ROWS, 1),)),), (), 1, 1, nonnegative=True)
    assert derive_norms(count, _in_groups(most, most), clamp) == (most, most, most)


def _in_groups(groups: int, rows: int) -> Analysis:
    """What is known of a count by a key, for units with so many rows in so many groups."""
    analysis = World(policy(rows=4)).prepare("SELECT k, COUNT(*) FROM t GROUP BY k").plan.analysis
    bound = dataclasses.replace(analysis.bound, groups=groups, rows=rows)
    return dataclasses.replace(analysis, bound=bound)
