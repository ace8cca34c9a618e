"""Coverage: answer a plan from a stored release that measured the same statistics and more.

Claim: a stored release that measured all statistics of a plan, over the same rows and keys, answers the plan for free.
Why: the answer is a function of released values. The rows, keys, bounds and neighboring relation have equal digests, and
so has each statistic: its moment, its expression over these rows, and the lattice of a total.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dpsql.analysis.release_analysis import Analysis
from dpsql.engine.replay.fingerprint import compute_digest
from dpsql.engine.replay.stored_release import make_corruption_error
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.dependencies import KnownValues, substitute_subqueries
from dpsql.plan.equality import compute_equality_text
from dpsql.planning.choose import get_statistic, list_needed_statistics
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.planning.statistics import Component, Statistic, StatisticVector
from dpsql.privacy.mechanisms import Geometric, Sensitivity

_ANY = Geometric(Fraction(1))
"""A placeholder for the noise of a vector, until a stored release gives it."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The vectors that all releases with the digest `statistic` measure; `estimated_statistics` are the statistics they estimate, by digest."""

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
