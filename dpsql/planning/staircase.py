"""Staircase noise in place of geometric noise, for vectors of one component for which it has a smaller variance."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.analysis.release_analysis import Analysis
from dpsql.planning.clamping import Clamp, compute_clamped_unit_change
from dpsql.planning.statistics import StatisticVector
from dpsql.privacy.mechanisms import Mechanism, Staircase

WORTH = 0.99
"""The staircase is used if its standard deviation is less than this part of the geometric one."""
LEAST_LOSS = Fraction(3, 5)
"""Up to this loss of a change no staircase is worth it: the ratio of the standard deviations is above 0.992 for each width."""
_MOST = 12
"""The greatest loss per step of the staircase: at more, the noise would vanish in the rounding to the lattice."""


def calibrate_staircases(
    analysis: Analysis,
    noises: Sequence[Mechanism],
    shares: Sequence[tuple[StatisticVector, Clamp | None, Fraction]],
) -> list[Mechanism] | None:
    """Return the noise of each vector, a staircase where its standard deviation is smaller; None if no vector has one.

    `noises` are the alternatives; `shares` has each vector with its clamp and its loss.

    Claim: the loss of a vector with a staircase is at most its share, as with the alternative.
    Why: one unit causes a number of changes of single components, none larger than the width of a step of the staircase,
    and each costs its part of the share. Vectors of several components have none: the l1 norm bounds their joint change,
    but each component's part of it could cost a whole step.
    Units of several groups have none either: their bound is on the l1 norm of all groups together, which helps geometric
    noise only; a share for the largest change of each group would pay for losses above 12 only. (The count of partition
    selection changes by one lattice step, for which a staircase is geometric noise, so its law is log-concave.)
    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", section V.
    """
    if analysis.bound.groups > 1:
        return None
    found = [_choose_staircase(analysis, noise, *share) for noise, share in zip(noises, shares, strict=True)]
    return found if any(isinstance(noise, Staircase) for noise in found) else None


def _choose_staircase(
    analysis: Analysis, noise: Mechanism, vector: StatisticVector, clamp: Clamp | None, epsilon: Fraction
) -> Mechanism:
    change = compute_clamped_unit_change(vector, clamp, analysis)
    if change is None or epsilon <= LEAST_LOSS * change.count:
        return noise
    found = Staircase.calibrate(change.size, change.count, min(epsilon, Fraction(_MOST * change.count)))
    return found if found.std < WORTH * noise.std else noise
