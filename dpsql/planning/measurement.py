"""The measurement plan: which statistics are noised by which mechanisms, clamps, partition selection, and the charged event."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.aggregates import Moment
from dpsql.plan.nodes import Aggregation
from dpsql.planning import clamping
from dpsql.planning.clamping import Clamp
from dpsql.planning.group_selection import OptimalPartitionSelection, Threshold, TopKSelection
from dpsql.planning.quantiles import QuantileSelection
from dpsql.planning.statistics import Statistic, StatisticVector
from dpsql.privacy.accounting.events import Event
from dpsql.privacy.mechanisms import Mechanism, Sensitivity
from dpsql.privacy.synthesis.mst import SyntheticMethod
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import WeightsStream


@dataclass(frozen=True, slots=True)
class VectorMeasurement:
    """A statistic vector with its sensitivity and the mechanism that adds noise to each component.

    `clamp` is the index of the plan's clamp that limits its contributions; sensitivity and mechanism are for its points.
    """

    tag: ClassVar[str] = "MeasuredBlock"

    vector: StatisticVector
    sensitivity: Sensitivity
    mechanism: Mechanism
    clamp: int | None = None

    @property
    def source_statistics(self) -> set[Statistic]:
        """Return the exact statistics that its components are computed from."""
        return {statistic for component in self.vector.components for statistic, _ in component.combination}

    def compute_std(self, weights: tuple[Fraction, ...]) -> float:
        """Return the standard deviation of a weighted sum of noisy components, in steps."""
        return self.mechanism.std * math.sqrt(sum(float(weight) ** 2 for weight in weights if weight))

    def with_finer_lattice(self, law: Mechanism, by: int) -> VectorMeasurement:
        """Return the measurement with each lattice step divided in `by`, for values that are computed from released components."""
        old = self.sensitivity
        sensitivity = Sensitivity(old.l1 * by, old.l2_squared * by * by, old.linf * by)
        return VectorMeasurement(self.vector.with_finer_steps(by), sensitivity, law, self.clamp)

    def with_clamp(self, clamp: Clamp, analysis: Analysis) -> VectorMeasurement:
        """Return the vector with the same loss, where its clamp has other points."""
        found = clamping.compute_clamped_sensitivity(self.vector, clamp, analysis)
        # Few mechanisms are scaled by the changes of single components, which take as long to find as all the rest.
        by_change = self.mechanism.scaled_by_changes
        moved = clamping.compute_clamped_unit_change(self.vector, clamp, analysis) if by_change else None
        noise = self.mechanism.rescale_to_sensitivity(self.sensitivity, found, moved)
        return VectorMeasurement(self.vector, found, noise, self.clamp)


@dataclass(frozen=True, slots=True)
class SynthesisPlan:
    """A synthetic histogram in place of a noisy one, or a stream of counts of it: `vector` is the count of rows."""

    tag: ClassVar[str] = "Synthesis"

    vector: StatisticVector
    mechanism: SyntheticMethod | WeightsStream | RandomizedTable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan of the same loss that was considered; `score` is the mean log of its predicted errors."""

    name: str
    score: float


@dataclass(frozen=True)
class MeasurementPlan:
    """All random choices of one release, and the event that is charged for them."""

    analysis: Analysis
    vectors: tuple[VectorMeasurement, ...]
    selection: Threshold | OptimalPartitionSelection | None
    event: Event | None
    candidates: tuple[Candidate, ...] = ()
    quantiles: tuple[QuantileSelection, ...] = ()
    top_k: TopKSelection | None = None
    clamps: tuple[Clamp, ...] = ()
    synthesis: SynthesisPlan | None = None

    def with_clamps(self, clamps: tuple[Clamp, ...]) -> MeasurementPlan:
        """Return the plan with other points of its clamps, and the same losses."""
        vectors = tuple(
            measured if measured.clamp is None else measured.with_clamp(clamps[measured.clamp], self.analysis)
            for measured in self.vectors
        )
        held = replace(self, vectors=vectors, clamps=clamps)
        chosen = self.threshold
        if chosen is None or self.vectors[chosen.vector].clamp is None:
            return held
        return replace(
            held,
            selection=chosen.calibrate_to(vectors[chosen.vector].mechanism, held.bound_groups(chosen.vector)),
        )

    def with_released_groups(self, released: int) -> MeasurementPlan:
        """Return the plan in which partition selection has released this number of groups, for which clamps are chosen.

        The clamp of the count that selects them is chosen before. Without partition selection it is the same plan.
        """
        if self.threshold is None:
            return self
        before = self.vectors[self.threshold.vector].clamp
        clamps = (
            clamp if place == before else replace(clamp, released_groups=max(1, released))
            for place, clamp in enumerate(self.clamps)
        )
        return replace(self, clamps=tuple(clamps))

    def bound_groups(self, vector: int) -> int:
        """Return the bound on the groups of a unit in the statistics of a vector."""
        place = self.vectors[vector].clamp
        return self.analysis.bound.groups if place is None else self.clamps[place].bound_groups(self.analysis)

    @property
    def counted_measures(self) -> set[int]:
        """Return the measures whose values are counted, as a vector reads: each whose rows have a clamp is among them."""
        counts = (
            index
            for part in self.vectors
            for moment, index in part.source_statistics
            if moment is Moment.COUNT
        )
        return {index for index in counts if index is not None}

    @property
    def threshold(self) -> Threshold | None:
        """Return the threshold of partition selection, if a noisy count decides; else None."""
        return self.selection if isinstance(self.selection, Threshold) else None

    def find_quantile_index(self, item: Aggregation) -> int | None:
        """Return the index of an aggregate in `quantiles`; None if it is not a quantile."""
        asked = (self.analysis.find_measure_index(item), item.rank, item.interval_end)
        found = (
            at
            for at, part in enumerate(self.quantiles)
            if (part.measure, part.rank, part.interval_end) == asked
        )
        return next(found, None)

    def get_estimator(self, statistic: Statistic) -> tuple[int, tuple[Fraction, ...]]:
        """Return the index of the vector that estimates a statistic, and the weights of its components."""
        found = self._estimators.get(statistic)
        if found is None:
            raise LookupError(f"no vector serves {statistic}")
        return found

    def is_measured(self, statistic: Statistic) -> bool:
        """Return whether some vector estimates a statistic."""
        return statistic in self._estimators

    @cached_property
    def _estimators(self) -> dict[Statistic, tuple[int, tuple[Fraction, ...]]]:
        """Return the first vector that estimates each statistic."""
        found: dict[Statistic, tuple[int, tuple[Fraction, ...]]] = {}
        for index, measured in enumerate(self.vectors):
            for statistic, weights in measured.vector.estimates:
                found.setdefault(statistic, (index, weights))
        return found

    def is_selection_count(self, vector: int, weights: tuple[Fraction, ...]) -> bool:
        """Return whether a weighted sum of a vector's components is the count that the threshold was compared with."""
        chosen = self.threshold
        if chosen is None or chosen.vector != vector:
            return False
        return weights == tuple(Fraction(at in chosen.components, chosen.scale) for at in range(len(weights)))
