"""What chosen clamps cut off, as far as intervals allow for it.

Claim: it costs no privacy loss.
Why: it is a function of the chosen clamps and of released values.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.analysis.lattice import Lattice
from dpsql.engine.released_table import ReleasedTable, estimate_moments
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.nodes import Aggregation
from dpsql.planning.choose import get_statistic
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan

Allowance = tuple[float, float]
"""How far the value without noise and clamp may be below and above that without noise."""
Allowances = NDArray[np.float64]
"""As `Allowance`, for many groups: the shape is (groups, 2)."""
NOTHING = (0.0, 0.0)
MANY_GROUPS = 64
"""Divided evenly among more groups, what is overlooked is less than a twentieth of the noise, and is left out."""
SPREAD = 1.5
"""What units lose in all their few groups, in parts of what they have beyond the clamp: more than one for l2 norms.
Measured on amounts of real units, where it was 1.1 to 1.7."""

WITHIN = 0.5
"""The part of what is tolerated in a group of average size that needs no allowance: it is a fifth of the noise."""


def compute_allowance(plan: MeasurementPlan, item: Aggregation, groups: int, confidence: float) -> Allowance:
    """Return the allowance for an aggregate in a group of a release with this number of equal groups, in the value's own units.

    What all units contribute beyond the clamp is divided among the groups. Means have none here: a clamp on the rows of a
    unit leaves each unit its mean, and for a mean whose total and count are measured apart see `compute_allowances`.
    """
    clamp, (moment, *more) = find_clamp(plan, item), AGGREGATES[item.function].moments
    if clamp is None or more or groups > MANY_GROUPS:
        return NOTHING
    below, above = _convert_to_value_units(
        clamp, _find_lattice(plan, item, moment), clamp.estimate_overlooked_amounts(confidence)
    )
    return below / max(1, groups), above / max(1, groups)


def compute_allowances(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, rows: Sequence[int], confidence: float
) -> tuple[Allowances, ...]:
    """Return the allowance for each moment of an aggregate in these rows of a released table.

    There is none for a mean from one vector, for a quantile, and where no clamp is chosen.

    Claim: it is what as many units as are tolerated and overlooked lose there, whichever loses more: units with few groups
    each, less the part `WITHIN` of what is tolerated in a group of average size; or, under an l2 norm, units that are spread
    over the groups as all units together are, less what falls on a group of average size.
    Why: what units lose falls on the groups in proportion to what they have there, so the largest group loses most. The
    noise is the same in all groups, and the clamp was chosen for those of average size. See `_compute_spread` for the second.
    """
    moments = AGGREGATES[item.function].moments
    nothing = (np.zeros((len(rows), 2)),) * len(moments)
    if item.rank is not None or not plan.clamps:
        return nothing
    places = [plan.get_estimator(get_statistic(plan.analysis, item, moment))[0] for moment in moments]
    if len(moments) > 1 and len(set(places)) == 1:
        return nothing
    found = []
    for moment, place in zip(moments, places, strict=True):
        clamp = plan.vectors[place].clamp
        if clamp is None:
            found.append(nothing[0])
            continue
        lattice, shares = _find_lattice(plan, item, moment), _compute_group_shares(plan, table, item, moment)
        most = plan.analysis.bound.groups
        found.append(
            _compute_group_allowances(plan.clamps[clamp], lattice, shares, most, confidence)[list(rows)]
        )
    return tuple(found)


def _compute_group_allowances(
    clamp: Clamp, lattice: Lattice | None, shares: NDArray[np.float64], most: int, confidence: float
) -> Allowances:
    """Return the allowances for a moment in all groups, each with such a share; a unit is in `most` groups at most."""
    groups = max(1, len(shares))
    overlooked = np.array(
        _convert_to_value_units(clamp, lattice, clamp.estimate_overlooked_amounts(confidence))
    )
    even = 1 / groups if groups <= MANY_GROUPS else 0.0
    found = np.outer(np.maximum(shares, even), overlooked)
    if clamp.min_support and groups > 1:
        of_few = np.array(
            _convert_to_value_units(clamp, lattice, clamp.estimate_clipped_amounts(clamp.tolerated_units))
        )
        of_many = np.zeros(2)
        if clamp.euclidean:
            spread = _compute_spread(shares, most)
            of_many += _convert_to_value_units(
                clamp, lattice, clamp.estimate_clipped_amounts(spread * clamp.tolerated_units, spread)
            )
        found += np.maximum(
            np.outer(np.maximum(0, SPREAD * shares - WITHIN / groups), of_few),
            np.outer(np.maximum(0, shares - 1 / groups), of_many),
        )
    return found


def _compute_spread(shares: NDArray[np.float64], most: int) -> float:
    """Return how many times its l2 norm a unit contributes to all groups, if it is spread over them as all units are.

    Claim: a unit with the norm r loses `spread` times r - R in all groups under a clamp at R, of which each group bears its
    share. No unit with `most` groups has a larger ratio than the root of `most`.
    Why: with the shares s of the groups it contributes r·s/‖s‖ to them, whose sum is r/‖s‖, and is scaled by R/r.
    Source: the inequality of Cauchy and Schwarz.
    """
    norm = float(np.linalg.norm(shares))
    return max(1.0, min(1 / norm, math.sqrt(most))) if norm else 1.0


def _compute_group_shares(
    plan: MeasurementPlan, table: ReleasedTable, item: Aggregation, moment: Moment
) -> NDArray[np.float64]:
    """Return the part of each group in all that is released of a moment."""
    values, divisor = estimate_moments(plan, item, moment, table.components)
    sizes = np.array([each / divisor for each in values], dtype=np.float64)
    together = abs(float(sizes.sum()))
    sizes = np.maximum(0, sizes) if together == sizes.sum() else np.abs(sizes)
    whole = max(together, float(sizes.max(initial=0.0)))
    found: NDArray[np.float64] = sizes / whole if whole else sizes
    return found


def _find_lattice(plan: MeasurementPlan, item: Aggregation, moment: Moment) -> Lattice | None:
    """Return the lattice of the values of a total; None for what is counted."""
    index = plan.analysis.find_measure_index(item)
    return None if index is None or moment is not Moment.TOTAL else plan.analysis.measures[index].lattice


def _convert_to_value_units(clamp: Clamp, lattice: Lattice | None, beyond: Sequence[float]) -> Allowance:
    """Return what is beyond the point of each side, of rows, or of a total of values of a lattice, in the value's own units."""
    by_side = dict(zip(clamp.sides, beyond, strict=True))
    if lattice is None:
        return 0.0, by_side[1]
    step = float(lattice.step)
    if clamp.total is not None:
        return by_side.get(-1, 0.0) * step, by_side.get(1, 0.0) * step
    return by_side[1] * max(0, -lattice.low) * step, by_side[1] * max(0, lattice.high) * step


def find_clamp(plan: MeasurementPlan, item: Aggregation) -> Clamp | None:
    """Return the chosen clamp of an aggregate other than a mean or a quantile; None if it has none."""
    entry = AGGREGATES[item.function]
    if entry.ratio or item.rank is not None or not plan.clamps:
        return None
    vector, _ = plan.get_estimator(get_statistic(plan.analysis, item, entry.moments[0]))
    place = plan.vectors[vector].clamp
    return None if place is None else plan.clamps[place]
