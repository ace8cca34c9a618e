"""The noise: clamps are chosen, components get their noise, groups are selected; and a release of each kind."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsql.backends import Exact
from dpsql.engine.release.exact_rows import (
    UnreleasedGroups,
    count_marginals,
    iterate_rows,
    read_groups,
    read_histograms,
    read_scores,
)
from dpsql.engine.release.released_table import Components, Keys, ReleasedTable, build_released_table
from dpsql.errors import InternalError
from dpsql.planning.clamp_histogram import (
    ClampHistogram,
    select_clamp_points,
)
from dpsql.planning.group_selection import Threshold
from dpsql.planning.measurement import MeasurementPlan, SynthesisPlan, VectorMeasurement
from dpsql.planning.verify import verify_plan
from dpsql.privacy.mechanisms import Entropy
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.stream import RunningStream, WeightsStream
from dpsql.privacy.synthesis.workload import Counts
from dpsql.sql.compile.statement import ReleaseStatement

# The noise of groups: the clamps are chosen first, then the components get their noise, and the groups are selected.


def draw_noise(measurement: VectorMeasurement, groups: int, entropy: Entropy) -> list[int]:
    """Return the noise of a vector in this many groups, component by component."""
    return measurement.mechanism.draw(groups * len(measurement.vector.components), entropy)


GroupRows = tuple[ReleaseStatement, Exact]
"""A statement of the groups, and its exact result."""


class ReadGroups(Protocol):
    """A function that reads the groups of a plan whose clamps are chosen so far."""

    def __call__(self, plan: MeasurementPlan, selected: Sequence[Keys] | None = None, /) -> GroupRows:
        """Return all groups; or at least those with the `selected` keys, which are released."""
        ...


@dataclass(frozen=True, slots=True)
class _SelectedGroups:
    """Groups that partition selection returned: their places among all groups, and their keys, which are released."""

    places: list[int]
    keys: list[Keys]


class _ClampSource(Protocol):
    """Exact groups in which clamps are chosen."""

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> UnreleasedGroups:
        """Return the groups, or the selected ones, in which units count up to the points of the clamps that are chosen."""

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        """Return the plan with the `wanted` clamps chosen, by their indices."""


@dataclass(frozen=True, slots=True)
class WholeSource:
    """Groups with the histograms of their clamps."""

    exact_groups: UnreleasedGroups

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> UnreleasedGroups:
        """Return the groups, which are all known."""
        found = self.exact_groups if selected is None else self.exact_groups.select_groups(selected.places)
        return found.with_clamped_moments(plan.clamps)

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        """Choose the `wanted` clamps from the histograms of the groups."""
        histograms = [group.clamp_histograms for group in self.exact_groups]
        return plan.with_clamps(select_clamp_points(plan.clamps, histograms, entropy, wanted))


@dataclass(frozen=True, slots=True)
class StagedSource:
    """The histograms of all clamps over all units; groups are read when their clamps are chosen."""

    histograms: tuple[ClampHistogram, ...]
    read: ReadGroups

    def __repr__(self) -> str:
        return "StagedSource(…)"  # exact values are never displayed

    @classmethod
    def from_histograms(cls, plan: MeasurementPlan, histograms: Exact, read: ReadGroups) -> StagedSource:
        """Return the source from the rows of the query of histograms."""
        return cls(read_histograms(plan, histograms), read)

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> UnreleasedGroups:
        """Read the groups for the clamps that are chosen."""
        statement, exact = self.read(plan, None if selected is None else selected.keys)
        found = read_groups(plan, statement, exact)
        if selected is not None and found.keys != selected.keys:
            found = found.select_groups(selected.places)
            if found.keys != selected.keys:
                raise InternalError("two statements disagree about the groups", code="release")
        return found.with_clamped_moments(plan.clamps)

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        """Choose the `wanted` clamps from the histograms of all units."""
        return plan.with_clamps(select_clamp_points(plan.clamps, [self.histograms], entropy, wanted))


def draw_from_groups(plan: MeasurementPlan, source: _ClampSource, entropy: Entropy) -> ReleasedTable:
    """Return the released table of groups: choose clamps, add noise, select groups if the plan says so, and choose quantiles."""
    optimal = plan.selection
    if isinstance(optimal, Threshold):
        plan, groups, noisy = _draw_selected_groups(plan, source, optimal, entropy)
    else:
        plan, groups, noisy = _draw_noisy_groups(plan, source, range(len(plan.vectors)), entropy)
        if optimal is not None:
            units = enumerate(groups.get_unit_counts(plan))
            selected = [place for place, number in units if optimal.draw_selection(number, entropy)]
            groups, noisy = (
                groups.select_groups(selected),
                [[column[place] for place in selected] for column in noisy],
            )
    components: list[Components] = list(iterate_rows(noisy, len(groups)))
    if plan.quantiles:
        chosen = [
            tuple(
                (part.select_point(each, entropy),) for part, each in zip(plan.quantiles, near, strict=True)
            )
            for near in iterate_rows(groups.windows, len(groups))
        ]
        components = [(*found, *more) for found, more in zip(components, chosen, strict=True)]
    return build_released_table(plan, groups.keys, components)


_Column = list[tuple[int, ...]]
"""The noisy components of a vector, group by group."""


def _draw_noisy_groups(
    plan: MeasurementPlan,
    source: _ClampSource,
    vectors: Sequence[int],
    entropy: Entropy,
    selected: _SelectedGroups | None = None,
) -> tuple[MeasurementPlan, UnreleasedGroups, list[_Column]]:
    """Return the plan with the clamps of these vectors chosen, the groups, or those selected, and their noisy components.

    Claim: no noise is drawn whose loss at the chosen points is above the charge.
    Why: the plan is verified with them before the draw. Whether it passes depends on chosen points alone, which are released.
    Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
    """
    wanted = {plan.vectors[index].clamp for index in vectors}
    unchosen = {place for place, clamp in enumerate(plan.clamps) if place in wanted and not clamp.chosen}
    if unchosen:
        plan = source.select_clamps(plan, unchosen, entropy)
        verify_plan(plan)
    groups = source.read_groups(plan, selected)
    return plan, groups, [_draw_noisy_components(plan.vectors[index], groups, entropy) for index in vectors]


def _draw_selected_groups(
    plan: MeasurementPlan, source: _ClampSource, deciding: Threshold, entropy: Entropy
) -> tuple[MeasurementPlan, UnreleasedGroups, list[_Column]]:
    """Return the same as `_draw_noisy_groups`, for all vectors and the selected groups. The deciding vector comes first.

    Claim: the choice of the other clamps may depend on the number of selected groups, and so may the number of draws.
    Why: the number is released, and a choice has the same loss whichever number of units it tolerates. Noise of groups
    that are not shown is not released.
    Source: Dwork, Roth 2014, Theorem 3.16 (adaptive composition).
    """
    plan, groups, (counts,) = _draw_noisy_groups(plan, source, [deciding.vector], entropy)
    decided = plan.threshold or deciding
    places = [
        place
        for place, (units, count) in enumerate(zip(groups.get_unit_counts(plan), counts, strict=True))
        if _is_selected(decided, units, count)
    ]
    others = [index for index in range(len(plan.vectors)) if index != deciding.vector]
    plan = plan.with_released_groups(len(places))
    if others or plan.quantiles:
        selected = _SelectedGroups(places, [groups.keys[place] for place in places])
        plan, groups, noisy = _draw_noisy_groups(plan, source, others, entropy, selected)
    else:
        groups, noisy = groups.select_groups(places), []
    noisy.insert(deciding.vector, [counts[place] for place in places])
    return plan, groups, noisy


def _is_selected(chosen: Threshold, units: int, components: tuple[int, ...]) -> bool:
    """Return whether a group with this number of units is selected, by the noisy components of the deciding vector."""
    found = sum(components[at] for at in chosen.components)
    return units >= chosen.min_frequency and found >= chosen.threshold


def _draw_noisy_components(
    measurement: VectorMeasurement, groups: UnreleasedGroups, entropy: Entropy
) -> _Column:
    components = measurement.vector.components
    draws, width = draw_noise(measurement, len(groups), entropy), len(components)
    noisy = [
        [
            value + draw
            for value, draw in zip(
                component.compute_exact_series(groups.moments), draws[at::width], strict=True
            )
        ]
        for at, component in enumerate(components)
    ]
    return list(zip(*noisy, strict=True))


# A release of each kind: noisy groups, a top-k selection, synthetic rows, the refinement of an earlier release, a stream.


def draw_release(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> ReleasedTable:
    """Choose the clamps, add the noise, select the groups, and choose the quantiles; or make a top-k selection or synthetic rows.

    Claim: the loss of the released table is at most that of the plan's event.
    Why: the clamps of a vector are chosen before its noise, which is calibrated to them. Each component of each group has
    its own noise, and each quantile its own choice. The groups are all groups of public domains, or those that partition
    selection returns; they are in the order of their keys, or of their choice.
    Source: Dwork, Roth 2014, Theorems 3.6 and 3.16, Proposition 2.1 (post-processing).
    """
    if plan.top_k is not None:
        keys, scores = read_scores(plan.analysis, statement, exact)
        best = [keys[index] for index in plan.top_k.select_groups(scores, entropy)]
        return build_released_table(plan, best, ((),) * len(best))
    if plan.synthesis is not None:
        if isinstance(plan.synthesis.mechanism, Mst):
            return _draw_synthetic_rows(plan, plan.synthesis.mechanism, statement, exact, entropy)
        return _draw_synthetic_histogram(plan, plan.synthesis, read_groups(plan, statement, exact), entropy)
    return draw_from_groups(plan, WholeSource(read_groups(plan, statement, exact)), entropy)


def draw_release_in_stages(
    plan: MeasurementPlan, histograms: Exact, read: ReadGroups, entropy: Entropy
) -> ReleasedTable:
    """Draw a release from the histograms of all clamps; `read` returns the groups of a plan whose clamps are chosen so far.

    Claim: the released table has the same law as that of `draw_release`.
    Why: clamps are chosen from the same numbers of units, and noise is added to the same sums; see
    `dpsql.sql.compile.staged_statement`.
    """
    return draw_from_groups(plan, StagedSource.from_histograms(plan, histograms, read), entropy)


class RefinementLaw(Protocol):
    """A rule that refines released components, vector by vector."""

    def refine_components(
        self, vector: int, exact: Sequence[int], before: Sequence[int], entropy: Entropy
    ) -> list[int]:
        """Return the refined components of a vector in all groups, from the exact and the released ones."""
        ...


def refine_release(
    plan: MeasurementPlan,
    measured: tuple[ReleaseStatement, Exact],
    before: ReleasedTable,
    law: RefinementLaw,
    entropy: Entropy,
) -> ReleasedTable:
    """Return the released table of the same groups with less noise; `measured` are the statement and its exact result.

    Claim: the loss of both tables together is that of the refinement law.
    Why: the exact components are those of the first release, and each is refined independently.
    """
    statement, exact = measured
    groups = read_groups(plan, statement, exact)
    keys = groups.keys
    if keys != [row[: len(statement.keys)] for row in before.rows]:
        raise InternalError("a release is refined for the groups that it has", code="release")
    columns: list[list[tuple[int, ...]]] = []
    for place, part in enumerate(plan.vectors):
        components = part.vector.components
        series = [component.compute_exact_series(groups.moments) for component in components]
        true = [value for values in iterate_rows(series, len(groups)) for value in values]
        old = [component for row in before.components for component in row[place]]
        drawn = iter(law.refine_components(place, true, old, entropy))
        columns.append([tuple(next(drawn) for _ in components) for _ in groups])
    return build_released_table(
        plan, keys, [tuple(column[index] for column in columns) for index in range(len(groups))]
    )


def _draw_synthetic_histogram(
    plan: MeasurementPlan, synthesis: SynthesisPlan, groups: UnreleasedGroups, entropy: Entropy
) -> ReleasedTable:
    """Return the cells of a synthetic histogram that have rows, or one without any, each with the distance of the whole histogram.

    Claim: the loss is that of `synthesis.mechanism` for the sensitivity of its vector.
    Why: only that vector is read from the groups, in the order of the public keys.
    """
    if isinstance(synthesis.mechanism, (WeightsStream, Mst)):
        raise TypeError(
            "a histogram of all columns is read for neither a stream's answer nor a tree of pairs"
        )
    found = synthesis.mechanism.run(_build_histogram(synthesis, groups), entropy)
    rows = found.histogram.ravel().tolist()
    places = [place for place, number in enumerate(rows) if number] or [0]
    components = [((rows[place], found.distance),) for place in places]
    return build_released_table(plan, [groups.keys[place] for place in places], components)


def _draw_synthetic_rows(
    plan: MeasurementPlan, mechanism: Mst, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> ReleasedTable:
    """Return the different rows that a tree of pairs gives, in the order of their values, or one that stands for none.

    Claim: the loss is that of `mechanism` for the sensitivity of the count of rows by all columns.
    Why: only marginals of that count are read.
    """
    domains = plan.analysis.domains or ()
    found = mechanism.run(count_marginals(mechanism, domains, statement, exact), entropy)
    rows, places = np.unique(found.rows, axis=0, return_inverse=True)
    numbers = np.zeros(len(rows), np.int64)
    np.add.at(numbers, places.ravel(), found.numbers)
    keys = [tuple(domain[place] for domain, place in zip(domains, row, strict=True)) for row in rows.tolist()]
    if not keys:
        keys, numbers = [tuple(domain[0] for domain in domains)], np.zeros(1, np.int64)
    components = [((number, found.distance),) for number in numbers.tolist()]
    return build_released_table(plan, keys, components)


def open_stream(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> RunningStream:
    """Return a stream of counts over the exact histogram, which it holds and does not show.

    Claim: the loss of all its answers is that of its mechanism, for the sensitivity of its vector; see `WeightsStream`.
    """
    synthesis = plan.synthesis
    if synthesis is None or not isinstance(synthesis.mechanism, WeightsStream):
        raise TypeError("a stream has a plan of its own")
    groups = read_groups(plan, statement, exact)
    return RunningStream.start_stream(synthesis.mechanism, _build_histogram(synthesis, groups), entropy)


def _build_histogram(synthesis: SynthesisPlan, groups: UnreleasedGroups) -> Counts:
    """Return the exact counts, with an axis for each column."""
    (component,) = synthesis.vector.components
    return np.array(component.compute_exact_series(groups.moments), np.int64).reshape(
        synthesis.mechanism.shape
    )
