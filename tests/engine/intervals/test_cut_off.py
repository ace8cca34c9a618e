"""What intervals of groups allow for, against what units lose that are spread over them as all units are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.engine.intervals.noise_laws import _compute_group_allowances
from dpsql.planning.clamping import Amount, Clamp, compute_grid
from dpsql.privacy.mechanisms import Exponential

GROUPS, MOST = 50, 4000


def power_law(power: float) -> NDArray[np.float64]:
    """Return shares of groups each of which is smaller than the one before."""
    sizes: NDArray[np.float64] = np.arange(1, GROUPS + 1, dtype=np.float64) ** -power
    return sizes / float(sizes.sum())


def allowed(
    shares: NDArray[np.float64], point: int, *, most: int = MOST, euclidean: bool = True
) -> NDArray[np.float64]:
    """Return the upper allowances of the groups under a clamp on rows at a point, where 40 units are tolerated."""
    points = compute_grid(MOST)
    clamp = Clamp(
        Amount.ROWS,
        (None,),
        (1,),
        points,
        Exponential(Fraction(10**9)),
        chosen=(points.index(point),),
        across_groups=True,
        euclidean=euclidean,
        tolerance=Fraction(16, 25),
        released_groups=GROUPS,
        min_support=1,
    )
    assert clamp.tolerated_units == 40
    return _compute_group_allowances(clamp, None, shares, most, 0.95)[:, 1]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("rows", [0.3, 0.6, 1.0])
def test_allowance_covers_the_loss_of_tolerated_units(power: float, rows: float) -> None:
    """Beyond what falls on a group of average size; units have up to twice the norm of the clamp, or all rows that they may."""
    shares = power_law(power)
    unit = rows * MOST * shares
    norm = float(np.linalg.norm(unit))
    for point in (each for each in compute_grid(MOST) if norm / 2 <= each < norm):
        lost = 40 * unit * (1 - point / norm)
        assert (allowed(shares, point) >= lost - lost.mean() - 1e-6).all()


def test_impossible_loss_needs_no_allowance() -> None:
    """Where all rows that a unit may have do not reach the clamp, its groups are few, or the clamp is on the sum."""
    shares = power_law(1)
    greatest = MOST * float(np.linalg.norm(shares))
    points = compute_grid(MOST)
    low, high = max(p for p in points if p < greatest / 3), min(p for p in points if p > greatest)
    of_few = allowed(shares, low, most=1)
    assert allowed(shares, low)[0] > 1.5 * of_few[0]
    assert allowed(shares, high) == pytest.approx(allowed(shares, high, most=1))
    assert allowed(shares, low, euclidean=False) == pytest.approx(of_few)
