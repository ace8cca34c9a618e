"""Intervals of counts in groups that passed the threshold of partition selection, beside sums of the law itself."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.engine.intervals.post_selection import PostSelection
from dpsql.privacy.mechanisms import DiscreteGaussian, Geometric, Mechanism

LAWS: dict[str, Mechanism] = {
    "geometric": Geometric.calibrate(Fraction(1), Fraction(1)),
    "geometric of a huge loss": Geometric.calibrate(Fraction(1), Fraction(20_000)),
    "gaussian": DiscreteGaussian(Fraction(9)),
    "gaussian of a huge loss": DiscreteGaussian(Fraction(1, 30_000)),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("noisy", [2, 3, 9, 275])
def test_count_far_above_the_threshold_has_the_interval_of_its_noise(name: str, noisy: int) -> None:
    """However small the tails are that the interval compares: noise that is always 0 leaves the count, and its threshold."""
    low, high = PostSelection(LAWS[name], 1, 1, 2, 1, noisy).compute_interval(0.95)
    assert low <= noisy <= high
    if "huge" in name:
        assert (low, high) == (1 if noisy == 2 else noisy, noisy)
    elif noisy == 275:
        assert noisy - low <= 7
        assert high - noisy <= 7


@pytest.mark.parametrize("name", ["geometric", "gaussian"])
def test_conditional_tail_follows_the_noise_law(name: str) -> None:
    """P(S >= noisy - n) / P(S >= threshold - n), by tails of the law, for all n."""
    law = LAWS[name]
    for units in range(1, 40):
        selection = PostSelection(law, 1, 1, 12, 1, 20)
        tails = [
            law.bound_tail(at) if at >= 1 else 1 - law.bound_tail(1 - at) for at in (20 - units, 12 - units)
        ]
        assert selection.compute_upper_tail(units) == pytest.approx(tails[0] / tails[1], rel=1e-9)
