"""Which vectors have staircase noise in place of geometric: those of one component, where it is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.analysis.analyse import Analysis
from dpsql.mechanisms import Mechanism, Staircase
from dpsql.planning.clamping import Clamp, clamped_unit_change
from dpsql.planning.statistics import StatisticVector

_WORTH = 0.99
"""Noise that is no less than this part of the geometric is not worth its stairs."""
_MOST = 12
"""The loss of a stair from which on there is noise enough: less would vanish in the rounding to the lattice."""


def staircases(
    analysis: Analysis,
    noises: Sequence[Mechanism],
    shares: Sequence[tuple[StatisticVector, Clamp | None, Fraction]],
) -> list[Mechanism] | None:
    """The noise of each vector, a staircase where that strays less; None where it does nowhere.

    `noises` are what there is else, `shares` the losses that vectors have, with their clamps.

    Claim: a vector loses at most its share by a staircase, as by what there is else.
    Why: what a unit changes is a number of moves of one component, none longer than a stair, and each costs its part
    of the share. Cells that share what a row moves them by have none: there the l1 norm bounds what moves, but
    each component's part of it might cost a whole stair.
    Units of several groups have none either: there the l1 norm of all groups together is bounded, which helps
    geometric noise alone; a share for each group's longest move would be worth it for losses above 12 only. (The
    count that decides which groups are shown moves by one step, where a staircase is geometric noise; so the
    intervals of these have a law that is log-concave.)
    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", section V.
    """
    found = [
        _staircase_if_better(analysis, noise, *share) for noise, share in zip(noises, shares, strict=True)
    ]
    return found if any(isinstance(noise, Staircase) for noise in found) else None


def _staircase_if_better(
    analysis: Analysis, noise: Mechanism, vector: StatisticVector, clamp: Clamp | None, epsilon: Fraction
) -> Mechanism:
    moved = clamped_unit_change(vector, clamp, analysis)
    if moved is None or analysis.bound.groups > 1:
        return noise
    found = Staircase.calibrate(moved.size, moved.count, min(epsilon, Fraction(_MOST * moved.count)))
    return found if found.std < _WORTH * noise.std else noise
