"""What learnt clamps cut off, as far as intervals allow for it.

Claim: it costs no privacy loss.
Why: it is a function of the chosen clamps and of the number of released groups.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from dpsql.aggregates import AGGREGATES, Moment
from dpsql.analysis.lattice import Lattice
from dpsql.plan.nodes import Aggregation
from dpsql.planning.choose import statistic_of
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan

Allowance = tuple[float, float]
"""How far the value without noise and clamp may be below and above that without noise."""
NOTHING = (0.0, 0.0)
MANY_GROUPS = 64
"""Divided among more groups, it is less than a twentieth of the noise, and is left out."""


def allowance(plan: MeasurementPlan, item: Aggregation, groups: int, confidence: float) -> Allowance:
    """The allowance for an aggregate in each group of a release with this number of groups, in the value's own units.

    What all units contribute beyond the clamp is divided among the groups. Means have none here: a clamp on the rows of a
    unit leaves each unit its mean, and for a mean whose total and count are measured apart see `allowances`.
    """
    if AGGREGATES[item.function].ratio:
        return NOTHING
    return allowances(plan, item, groups, confidence)[0]


def allowances(
    plan: MeasurementPlan, item: Aggregation, groups: int, confidence: float
) -> tuple[Allowance, ...]:
    """The allowance for each moment of an aggregate; nothing for those of a mean from one vector, and of quantiles."""
    moments = AGGREGATES[item.function].moments
    if item.rank is not None or not plan.clamps or groups > MANY_GROUPS:
        return (NOTHING,) * len(moments)
    places = [plan.source(statistic_of(plan.analysis, item, moment))[0] for moment in moments]
    if len(moments) > 1 and len(set(places)) == 1:
        return (NOTHING,) * len(moments)
    index = plan.analysis.measure(item)
    lattice = None if index is None else plan.analysis.measures[index].lattice
    found = []
    for moment, place in zip(moments, places, strict=True):
        clamp = plan.vectors[place].clamp
        whole = (
            NOTHING
            if clamp is None
            else _of_all(plan.clamps[clamp], lattice if moment is Moment.TOTAL else None, confidence)
        )
        below, above = whole
        found.append((below / max(1, groups), above / max(1, groups)))
    return tuple(found)


def _of_all(clamp: Clamp, lattice: Lattice | None, confidence: float) -> Allowance:
    """The allowance for all groups together: of rows, or of a total of values of a lattice."""
    beyond = dict(zip(clamp.sides, clamp.overlooked(confidence), strict=True))
    if lattice is None:
        return 0.0, beyond[1]
    step = float(lattice.step)
    if clamp.total is not None:
        return beyond.get(-1, 0.0) * step, beyond.get(1, 0.0) * step
    return beyond[1] * max(0, -lattice.low) * step, beyond[1] * max(0, lattice.high) * step


def clamp_of(plan: MeasurementPlan, item: Aggregation) -> Clamp | None:
    """The learnt clamp of an aggregate that is no mean or quantile; None if it has none."""
    entry = AGGREGATES[item.function]
    if entry.ratio or item.rank is not None or not plan.clamps:
        return None
    vector, _ = plan.source(statistic_of(plan.analysis, item, entry.moments[0]))
    place = plan.vectors[vector].clamp
    return None if place is None else plan.clamps[place]
