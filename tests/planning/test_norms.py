"""The second derivation stands alone: it tries every kind of row, and doubts each norm for itself."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
from properties.worlds import World, policy

from dpsql.aggregates import Moment
from dpsql.errors import VerificationError
from dpsql.mechanisms import Sensitivity
from dpsql.planning.statistics import ROWS, Component, StatisticVector
from dpsql.planning.verify import norms, verify

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
    assert norms(block, analysis) == (share * rows, (share * rows) ** 2, share * rows)


@pytest.mark.parametrize(
    "wrong", [Sensitivity(Fraction(3, 2), Fraction(2)), Sensitivity(Fraction(2), Fraction(1))]
)
def test_either_norm_that_is_too_small_is_refused(wrong: Sensitivity) -> None:
    """A sensitivity is announced in both norms, so neither may be below the truth, whichever the noise is for."""
    plan = World(policy()).prepare("SELECT k, COUNT(DISTINCT u) FROM t GROUP BY k").plan
    (block,) = plan.vectors
    assert block.sensitivity == Sensitivity(Fraction(2), Fraction(2))
    verify(plan)
    with pytest.raises(VerificationError, match="sensitivity"):
        verify(dataclasses.replace(plan, vectors=(dataclasses.replace(block, sensitivity=wrong),)))
