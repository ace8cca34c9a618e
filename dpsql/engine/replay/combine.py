"""Combine independent releases of one statistic: each component is their mean, weighted by inverse variance.

Claim: it costs no privacy loss, and its variance is at most that of the most accurate release, up to a thousandth.
Why: it is a function of released values and of the public laws of their noise. The mean of independent values with
weights proportional to 1/variance has the least variance; weights are rounded to multiples of 1/65,536, which adds less
than a thousandth. Of a chain of refinements only the last is used: earlier ones are the same values with more noise.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Cochran 1937, "Problems arising in the analysis of a series
of similar experiments" (weights).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dpsql.engine.released_table import ReleasedTable, build_released_table
from dpsql.plan.sampling import find_sampling_rate
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import CombinedNoise, Mechanism

_WEIGHTS = 2**16
_LEAST = 1e-300
_FINEST = 2**400
"""A step has fewer subdivisions than this: the square of more would overflow a float."""


def is_combinable(plan: MeasurementPlan) -> bool:
    """Return whether releases of a plan have the same groups and components, each with noise of its own."""
    alone = plan.selection is None and not plan.quantiles and plan.top_k is None
    alone = alone and not plan.clamps and plan.synthesis is None
    alone = (
        alone and find_sampling_rate(plan.analysis.release.input) is None
    )  # samples differ in what is noised
    return alone and all(measurement.mechanism.independent for measurement in plan.vectors)


def combine_tables(tables: Sequence[ReleasedTable]) -> ReleasedTable:
    """Return the table of the weighted means of `tables`, which are independent, combinable releases of one statistic."""
    first, *more = tables
    if not more:
        return first
    plan, columns = combine_plans([table.plan for table in tables]), []
    for place in range(len(first.plan.vectors)):
        weights = _compute_weights([table.plan.vectors[place].mechanism for table in tables])
        rows = zip(*(table.components for table in tables), strict=True)
        columns.append(
            [
                tuple(
                    sum(weight * component for weight, component in zip(weights, components, strict=True))
                    for components in zip(*(row[place] for row in group), strict=True)
                )
                for group in rows
            ]
        )
    keys = [row[: len(plan.analysis.release.keys)] for row in first.rows]
    return build_released_table(plan, keys, list(zip(*columns, strict=True)) if columns else first.components)


def combine_plans(plans: Sequence[MeasurementPlan]) -> MeasurementPlan:
    """Return the plan of several independent releases that are combined: the first plan, with the noise of the means."""
    first, vectors = plans[0], []
    for place, measurement in enumerate(first.vectors):
        noises = [plan.vectors[place].mechanism for plan in plans]
        law = CombinedNoise(
            tuple(
                (weight * each, part)
                for weight, noise in zip(_compute_weights(noises), noises, strict=True)
                for each, part in noise.summands
            )
        )
        vectors.append(
            measurement.with_finer_lattice(law, law.subdivisions // measurement.mechanism.subdivisions)
        )
    return replace(first, vectors=tuple(vectors))


def compute_noise_variance(noise: Mechanism) -> float:
    """Return the variance of a noisy value, in squared steps of the lattice that it was released on; above zero.

    If it is too small for a float, as for a very large loss, a least positive number.
    """
    return max(noise.compute_variance() / float(noise.subdivisions) ** 2, _LEAST)


def can_combine_noises(noises: Sequence[Mechanism]) -> bool:
    """Return whether values with these noises can be put together: their mean lies on a lattice that is not too fine."""
    return math.lcm(*(noise.subdivisions for noise in noises)) * len(noises) * _WEIGHTS < _FINEST


def list_compatible_indices(plans: Sequence[MeasurementPlan]) -> list[int]:
    """Return the indices of the plans that can be combined: all, or compatible ones with the least noise."""
    noises = [[measurement.mechanism for measurement in plan.vectors] for plan in plans]
    chosen: list[int] = []
    for at in sorted(range(len(plans)), key=lambda at: math.fsum(map(compute_noise_variance, noises[at]))):
        together = [noises[each] for each in (*chosen, at)]
        if not chosen or all(map(can_combine_noises, zip(*together, strict=True))):
            chosen.append(at)
    return sorted(chosen)


def _compute_weights(noises: Sequence[Mechanism]) -> list[int]:
    """Return the weight of each release's components in the mean; each may lie on a lattice of its own."""
    common = math.lcm(*(noise.subdivisions for noise in noises))
    precisions = [1 / compute_noise_variance(noise) for noise in noises]
    top = max(precisions)
    return [
        max(1, round(_WEIGHTS * precision / top)) * (common // noise.subdivisions)
        for noise, precision in zip(noises, precisions, strict=True)
    ]
