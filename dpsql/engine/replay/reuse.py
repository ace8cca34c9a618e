"""Answer a plan from stored releases: coverage, combination, refinement."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpsql.analysis.release_analysis import Analysis
from dpsql.engine.release.released_table import ReleasedTable, build_released_table
from dpsql.engine.replay.stored_release import StoredRelease, compute_digest, make_corruption_error
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.steps import KnownValues, find_sampling_rate, substitute_subqueries
from dpsql.plan.text import compute_equality_text
from dpsql.planning.choose import get_statistic, list_needed_statistics
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.planning.statistics import Component, Statistic, StatisticVector
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.events import Charge, Event, Gaussian, Pure
from dpsql.privacy.mechanisms import (
    CombinedNoise,
    DiscreteGaussian,
    Entropy,
    Geometric,
    Mechanism,
    Refinement,
    Sensitivity,
)

# Coverage: answer a plan from a stored release that measured the same statistics and more.


_ANY = Geometric(Fraction(1))
"""A placeholder for the noise of a vector, until a stored release gives it."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The vectors that all releases with the digest `statistic` measure; `estimated_statistics` are the statistics they estimate, by digest.

    Claim: a stored release that measured all statistics of a plan, over the same rows and keys, answers the plan for free.
    Why: the answer is a function of released values. The rows, keys, bounds and neighboring relation have equal digests, and so has
    each statistic: its moment, its expression over these rows, and the lattice of a total.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """

    statistic: str
    vectors: tuple[VectorMeasurement, ...]
    estimated_statistics: tuple[Mapping[str, tuple[Fraction, ...]], ...]

    @classmethod
    def from_plan(cls, statistic: str, plan: MeasurementPlan, values: KnownValues) -> Coverage | None:
        """Return the coverage of a plan; None if its groups, components or clamps were chosen privately, and of what is synthetic."""
        if plan.selection is not None or plan.top_k is not None or plan.quantiles or plan.clamps:
            return None
        if plan.synthesis is not None:
            return None
        analysis = substitute_subqueries(plan.analysis, values)
        served = tuple(
            {
                _compute_statistic_digest(analysis, found): weights
                for found, weights in measurement.vector.estimates
            }
            for measurement in plan.vectors
        )
        return cls(statistic, plan.vectors, served)

    def find_covered_plan(self, plan: MeasurementPlan, values: KnownValues) -> MeasurementPlan | None:
        """Return the plan with these vectors in place of its own; None if they do not estimate all its statistics."""
        analysis = substitute_subqueries(plan.analysis, values)
        names = {
            _compute_statistic_digest(analysis, statistic): statistic
            for statistic in list_needed_statistics(analysis)
        }
        vectors = []
        for measurement, served in zip(self.vectors, self.estimated_statistics, strict=True):
            estimates = tuple((names[name], weights) for name, weights in served.items() if name in names)
            vectors.append(replace(measurement, vector=replace(measurement.vector, estimates=estimates)))
        found = replace(plan, vectors=tuple(vectors), clamps=())
        return (
            found
            if plan.selection is None
            and not plan.quantiles
            and plan.top_k is None
            and _covers_aggregates(found)
            else None
        )

    def to_text(self) -> str:
        """Return the coverage as canonical JSON."""
        record = {
            "statistic": self.statistic,
            "blocks": [
                _to_record(*pair) for pair in zip(self.vectors, self.estimated_statistics, strict=True)
            ],
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Coverage:
        """Parse the result of `text`. Raises IntegrityError (`ledger_corrupt`) for any other text."""
        try:
            record = json.loads(text)
            pairs = [_parse_block(vector) for vector in record["blocks"]]
            return cls(
                str(record["statistic"]),
                tuple(vector for vector, _ in pairs),
                tuple(served for _, served in pairs),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError):
            raise make_corruption_error() from None


def _compute_statistic_digest(analysis: Analysis, statistic: Statistic) -> str:
    """Return the digest of a statistic, whatever else is measured."""
    moment, index = statistic
    word = moment.tag.lower()
    if index is None:
        return word
    measure = analysis.measures[index]
    lattice = measure.lattice if moment.is_sum_of_values else None
    return f"{word} {compute_digest(compute_equality_text((analysis.release.input, measure.expr, lattice)))}"


def _covers_aggregates(plan: MeasurementPlan) -> bool:
    """Return whether each aggregate has a vector, and a mean has one vector for both of its moments, so that their noise is known."""
    try:
        for item in plan.analysis.release.aggregations:
            entry = AGGREGATES[item.function]
            sources = {
                plan.get_estimator(get_statistic(plan.analysis, item, moment))[0] for moment in entry.moments
            }
            if len(sources) > 1:
                return False
    except LookupError:
        return False
    return bool(plan.analysis.release.aggregations)


def _to_record(measurement: VectorMeasurement, served: Mapping[str, tuple[Fraction, ...]]) -> dict[str, Any]:
    vector, sensitivity = measurement.vector, measurement.sensitivity
    return {
        "name": vector.name,
        "cells": [component.name for component in vector.components],
        "extents": vector.extents,
        "norms": [str(norm) for norm in (sensitivity.l1, sensitivity.l2_squared, sensitivity.linf)],
        "serves": {name: [str(weight) for weight in weights] for name, weights in served.items()},
    }


def _parse_block(record: dict[str, Any]) -> tuple[VectorMeasurement, dict[str, tuple[Fraction, ...]]]:
    """Return a vector without exact combinations, which is only read, and the statistics that it estimates."""
    components = tuple(Component(str(name), ()) for name in record["cells"])
    extents = tuple(int(extent) for extent in record["extents"])
    vector = StatisticVector(str(record["name"]), components, (), 0, None, nonnegative=False, extents=extents)
    served = {str(name): tuple(map(Fraction, weights)) for name, weights in record["serves"].items()}
    if any(len(weights) != len(components) for weights in served.values()):
        raise ValueError(record)
    return VectorMeasurement(vector, Sensitivity(*map(Fraction, record["norms"])), _ANY), served


# Combine independent releases of one statistic: each component is their mean, weighted by inverse variance.


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
    """Return the table of the weighted means of `tables`, which are independent, combinable releases of one statistic.

    Claim: it costs no privacy loss, and its variance is at most that of the most accurate release, up to a thousandth.
    Why: it is a function of released values and of the public laws of their noise. The mean of independent values with weights
    proportional to 1/variance has the least variance; weights are rounded to multiples of 1/65,536, which adds less than a
    thousandth. Of a chain of refinements only the last is used: earlier ones are the same values with more noise.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing); Cochran 1937, "Problems arising in the analysis of a series of
    similar experiments" (weights).
    """
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

    It is the smallest positive number if it is too small for a float, as for a very large loss.
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


# Refinement: a stored release is requested again with less noise, and only the difference is charged.


_MOST_PARTS = 32
_AS_ACCURATE = 0.999
"""The least precision of both releases combined, relative to one release at the whole loss."""


@dataclass(frozen=True, slots=True)
class CoupledRefinement:
    """The smaller noise of each vector, drawn given the first release; `event` is the difference, which is charged.

    It is for accountants that bound the loss of each outcome (`pure`, `basic`).

    Claim: under `pure` and `basic`, charging ε2 - ε1 for a refinement to ε2 of a release that was charged ε1 keeps the budget, for
    adaptive queries and refinements, if each release is refined at most once, and the data are those of its first release.
    Why: the density of all answers is a product, of each answer's given those before it. Let X be the exact components, p1 and p2
    the laws of both noises and r that of their difference. The first answer y1 contributes p1(y1 - X), and its refinement y2 given
    y1 contributes p2(y2 - X)·r(y1 - y2) / p1(y1 - X), for the same X: together p2(y2 - X)·r(y1 - y2), whatever was asked between
    them, and r does not depend on the data. On a neighbor their product changes by a factor of at most e^ε2, all other factors by
    what they were charged. So on each path the loss is at most the sum of all charges, which the filter bounds. A second refinement
    of y1 would divide by p1(y1 - X) once more, which is why there is none; a chain goes on from its end.
    Source: Koufogiannis, Han, Pappas 2016, section 4 (gradual release); Rogers, Roth, Ullman, Vadhan 2016, section 3 (losses of
    paths).
    """

    event: Pure
    laws: tuple[Refinement, ...]

    def refine_components(
        self, vector: int, exact: Sequence[int], before: Sequence[int], entropy: Entropy
    ) -> list[int]:
        """Return the refined components of a vector, from the exact and the released ones."""
        noise = [old - true for old, true in zip(before, exact, strict=True)]
        drawn = self.laws[vector].refine(noise, entropy)
        return [true + new for true, new in zip(exact, drawn, strict=True)]


@dataclass(frozen=True, slots=True)
class IndependentTopUp:
    """A second release, `plan`, with independent noise, to be combined with the first; its event is charged.

    It is for accountants that do not bound the loss of each outcome (as zCDP): the difference is charged, which is plain
    composition. If the first noise was Gaussian, both combined are as accurate as one release at the whole loss.
    """

    event: Gaussian
    plan: MeasurementPlan


def find_independent_top_up(
    plan: MeasurementPlan, before: StoredRelease, charge_functions: Sequence[Callable[[Event], Charge]]
) -> IndependentTopUp | None:
    """Return the second release, charged the difference for each table; None if the combination would be less accurate.

    `charge_functions` are the cost functions of the tables that are read. Keys are public, and components have independent noise.
    """
    if not is_combinable(plan) or not plan.vectors or plan.event is None:
        return None
    parts = [part for noise in before.noise for _, part in noise.summands]
    if not all(part.independent for part in parts) or len(parts) > _MOST_PARTS * len(plan.vectors):
        return None
    left = [(cost, cost(plan.event).loss - cost(before.event).loss) for cost in charge_functions]
    if min(units for _, units in left) <= 0:
        return None
    rho = min(search_largest_epsilon(cost, units, Gaussian) for cost, units in left)
    if not rho:
        return None
    share, vectors = rho / len(plan.vectors), []
    for measurement, old in zip(plan.vectors, before.noise, strict=True):
        noise = DiscreteGaussian.calibrate(measurement.sensitivity.l2_squared, share)
        if not can_combine_noises([old, noise]):
            return None
        precision = 1 / compute_noise_variance(old) + 1 / compute_noise_variance(noise)
        if precision * measurement.mechanism.compute_variance() < _AS_ACCURATE:
            return None
        vectors.append(replace(measurement, mechanism=noise))
    return IndependentTopUp(Gaussian(rho), replace(plan, vectors=tuple(vectors), event=Gaussian(rho)))


def find_coupled_refinement(plan: MeasurementPlan, before: StoredRelease) -> CoupledRefinement | None:
    """Return the coupled refinement of a stored release of the same statistic to a plan; None if there is none.

    Its keys are public, and each mechanism states how its noise is drawn given the old one (`Mechanism.find_refinement`).
    """
    if (
        plan.selection is not None
        or plan.quantiles
        or plan.top_k is not None
        or plan.clamps
        or not plan.vectors
    ):
        return None
    if not isinstance(plan.event, Pure) or not isinstance(before.event, Pure):
        return None
    laws = []
    for measurement, old in zip(plan.vectors, before.noise, strict=True):
        law = old.find_refinement(measurement.mechanism)
        if law is None:
            return None
        laws.append(law)
    if plan.event.epsilon <= before.event.epsilon:
        return None
    return CoupledRefinement(Pure(plan.event.epsilon - before.event.epsilon), tuple(laws))
