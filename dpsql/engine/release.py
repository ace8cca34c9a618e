"""The release: add noise to exact statistics. This is the only module that reads the values of `Exact`.

Everything after `draw_release` is post-processing of released values.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dpsql.analysis.domains import Domain, list_combinations
from dpsql.analysis.release_analysis import Analysis
from dpsql.backends import Exact
from dpsql.engine.released_table import Components, Keys, ReleasedTable, build_released_table
from dpsql.errors import InternalError
from dpsql.planning.clamp_histogram import (
    ClampedSum,
    ClampedSums,
    ClampHistogram,
    Packed,
    PackedHistograms,
    compute_clamped_series,
    list_clamp_targets,
    select_clamp_points,
)
from dpsql.planning.clamping import Clamp
from dpsql.planning.group_selection import Threshold
from dpsql.planning.measurement import MeasurementPlan, SynthesisPlan, VectorMeasurement
from dpsql.planning.quantiles import RankWindow
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.planning.verify import verify_plan
from dpsql.privacy.mechanisms import Entropy
from dpsql.privacy.synthesis.mst import Mst, list_read_marginals
from dpsql.privacy.synthesis.stream import RunningStream, WeightsStream
from dpsql.privacy.synthesis.workload import Counts, Marginal
from dpsql.sql.compile.statement import ReleaseStatement
from dpsql.sql.compile.top_k_scores import SCORE


def draw_release(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> ReleasedTable:
    """Choose the clamps, adds the noise, selects the groups, and chooses the quantiles; or makes a top-k selection.

    Claim: the loss of the released table is at most that of the plan's event.
    Why: the clamps of a vector are chosen before its noise, which is calibrated to them. Each component of each group has
    its own noise, and each quantile its own choice. The groups are all groups of public domains, or those that partition
    selection returns; they are in the order of their keys, or of their choice.
    Source: Dwork, Roth 2014, Theorems 3.6 and 3.16, Proposition 2.1 (post-processing).
    """
    if plan.top_k is not None:
        keys, scores = _read_scores(plan.analysis, statement, exact.reveal())
        best = [keys[index] for index in plan.top_k.select_groups(scores, entropy)]
        return build_released_table(plan, best, ((),) * len(best))
    if plan.synthesis is not None:
        if isinstance(plan.synthesis.mechanism, Mst):
            return _draw_synthetic_rows(plan, plan.synthesis.mechanism, statement, exact, entropy)
        return _draw_synthetic_histogram(
            plan, plan.synthesis, _read_groups(plan, statement, exact.reveal()), entropy
        )
    return _draw_from_groups(plan, _WholeSource(_read_groups(plan, statement, exact.reveal())), entropy)


def draw_release_in_stages(
    plan: MeasurementPlan, histograms: Exact, read: ReadGroups, entropy: Entropy
) -> ReleasedTable:
    """Draw a release from the histograms of all clamps; `read` returns the groups of a plan whose clamps are chosen so far.

    Claim: the released table has the law of that of `draw_release`.
    Why: clamps are chosen from the same numbers of units, and noise is added to the same sums; see `sql.emit.stages`.
    """
    return _draw_from_groups(plan, _StagedSource.from_histograms(plan, histograms, read), entropy)


def _draw_from_groups(plan: MeasurementPlan, source: _ClampSource, entropy: Entropy) -> ReleasedTable:
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
    components: list[Components] = list(_iterate_rows(noisy, len(groups)))
    if plan.quantiles:
        chosen = [
            tuple(
                (part.select_point(each, entropy),) for part, each in zip(plan.quantiles, near, strict=True)
            )
            for near in _iterate_rows(groups.windows, len(groups))
        ]
        components = [(*found, *more) for found, more in zip(components, chosen, strict=True)]
    return build_released_table(plan, groups.keys, components)


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
    groups = _read_groups(plan, statement, exact.reveal())
    keys = groups.keys
    if keys != [row[: len(statement.keys)] for row in before.rows]:
        raise InternalError("a release is refined for the groups that it has", code="release")
    columns: list[list[tuple[int, ...]]] = []
    for place, part in enumerate(plan.vectors):
        components = part.vector.components
        series = [component.compute_exact_series(groups.moments) for component in components]
        true = [value for values in _iterate_rows(series, len(groups)) for value in values]
        old = [component for row in before.components for component in row[place]]
        drawn = iter(law.refine_components(place, true, old, entropy))
        columns.append([tuple(next(drawn) for _ in components) for _ in groups])
    return build_released_table(
        plan, keys, [tuple(column[index] for column in columns) for index in range(len(groups))]
    )


def _draw_synthetic_histogram(
    plan: MeasurementPlan, synthesis: SynthesisPlan, groups: _Groups, entropy: Entropy
) -> ReleasedTable:
    """Return the cells of a synthetic histogram that have rows, or one without any, each with the distance of the whole histogram.

    Claim: the loss is that of `synthesis.mechanism` for the sensitivity of its vector.
    Why: what is read of the groups is that vector, in the order of the public keys.
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
    Why: what is read of the sets of keys are marginals of that count.
    """
    domains = plan.analysis.domains or ()
    found = mechanism.run(_count_marginals(mechanism, domains, statement, exact.reveal()), entropy)
    rows, places = np.unique(found.rows, axis=0, return_inverse=True)
    numbers = np.zeros(len(rows), np.int64)
    np.add.at(numbers, places.ravel(), found.numbers)
    keys = [tuple(domain[place] for domain, place in zip(domains, row, strict=True)) for row in rows.tolist()]
    if not keys:
        keys, numbers = [tuple(domain[0] for domain in domains)], np.zeros(1, np.int64)
    components = [((number, found.distance),) for number in numbers.tolist()]
    return build_released_table(plan, keys, components)


def _count_marginals(
    mechanism: Mst, domains: Sequence[Domain], statement: ReleaseStatement, rows: Sequence[tuple[Any, ...]]
) -> dict[Marginal, Counts]:
    """Return the exact tables of the sets of keys; what is no public value is not counted, as in any release."""
    width = len(domains)
    parts = list_read_marginals(width, mechanism.workload)
    tables = {part: np.zeros([len(domains[axis]) for axis in part], np.int64) for part in parts}
    places = [{value: place for place, value in enumerate(domain)} for domain in domains]
    at = {sum(1 << axis for axis in range(width) if axis not in part): part for part in parts}
    number, left_out = (statement.columns.index(name) for name in (*statement.moments, statement.left_out))
    for row in rows:
        part = at[row[left_out]]
        cell = tuple(places[axis].get(row[axis], -1) for axis in part)
        if -1 not in cell:
            tables[part][cell] += _to_whole(row[number])
    return tables


def open_stream(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> RunningStream:
    """Return a stream of counts over the exact histogram, which it holds and does not show.

    Claim: the loss of all its answers is that of its mechanism, for the sensitivity of its vector; see `WeightsStream`.
    """
    synthesis = plan.synthesis
    if synthesis is None or not isinstance(synthesis.mechanism, WeightsStream):
        raise TypeError("a stream has a plan of its own")
    groups = _read_groups(plan, statement, exact.reveal())
    return RunningStream.start_stream(synthesis.mechanism, _build_histogram(synthesis, groups), entropy)


def _build_histogram(synthesis: SynthesisPlan, groups: _Groups) -> Counts:
    """Return the exact counts, with an axis for each column."""
    (component,) = synthesis.vector.components
    return np.array(component.compute_exact_series(groups.moments), np.int64).reshape(
        synthesis.mechanism.shape
    )


def _read_scores(
    analysis: Analysis, statement: ReleaseStatement, rows: Sequence[tuple[Any, ...]]
) -> tuple[tuple[Keys, ...], list[int]]:
    """Return all groups of the public keys, in order, and their scores: 0 for a group without rows."""
    if analysis.domains is None:
        raise TypeError("the best are chosen among groups that are known")
    named = map(statement.label_row, rows)
    found = {_get_keys(statement, row): _to_whole(row[SCORE]) for row in named}
    known = tuple(list_combinations(analysis.domains))
    return known, [found.get(keys, 0) for keys in known]


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with its exact moments, its clamp histograms, and the window of values around each quantile."""

    keys: Keys
    moments: Mapping[Statistic, int]
    clamp_histograms: tuple[ClampHistogram, ...]
    windows: tuple[RankWindow, ...]

    def __repr__(self) -> str:
        return "_Group(…)"  # exact values are never displayed


@dataclass(frozen=True, slots=True)
class _Groups:
    """Groups, column by column: their keys, exact moments, packed clamp histograms by target, and windows by quantile.

    Once clamps are chosen there may be the clamped sums that the engine computed, in place of histograms.
    """

    keys: list[Keys]
    moments: Mapping[Statistic, Sequence[int]]
    histograms: tuple[Sequence[Packed], ...]
    clamped_sums: Mapping[ClampedSum, Sequence[int | None]]
    windows: tuple[Sequence[RankWindow], ...]

    def __repr__(self) -> str:
        return "_Groups(…)"  # exact values are never displayed

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[_Group]:
        for place, keys in enumerate(self.keys):
            moments = {statistic: series[place] for statistic, series in self.moments.items()}
            histograms = tuple(ClampHistogram.from_packed(series[place]) for series in self.histograms)
            yield _Group(keys, moments, histograms, tuple(series[place] for series in self.windows))

    def select_groups(self, places: Sequence[int]) -> _Groups:
        """Return the groups in these places."""

        def select_places(series: Sequence[Any]) -> list[Any]:
            return [series[place] for place in places]

        moments = {statistic: select_places(series) for statistic, series in self.moments.items()}
        sums = {part: select_places(series) for part, series in self.clamped_sums.items()}
        histograms, windows = (
            tuple(map(select_places, self.histograms)),
            tuple(map(select_places, self.windows)),
        )
        return _Groups(select_places(self.keys), moments, histograms, sums, windows)

    def get_unit_counts(self, plan: MeasurementPlan) -> Sequence[int]:
        """Return the exact numbers of units."""
        return self.moments[UNITS if plan.analysis.bound.per_unit else ROWS]

    def with_clamped_moments(self, clamps: Sequence[Clamp]) -> _Groups:
        """Return the groups in which units count up to the chosen points."""
        if not clamps:
            return self
        totals = ClampedSums(self.clamped_sums) if self.clamped_sums else PackedHistograms(self.histograms)
        return replace(self, moments={**self.moments, **compute_clamped_series(clamps, totals)})


def _read_groups(
    plan: MeasurementPlan, statement: ReleaseStatement, rows: Sequence[tuple[Any, ...]]
) -> _Groups:
    """Return the groups in public order; the moments of empty ones of a domain are zeros."""
    analysis = plan.analysis
    found = zip(*rows, strict=True) if rows else itertools.repeat(())
    series = dict(zip(statement.columns, found, strict=bool(rows)))
    keys = list(_iterate_rows([series[name] for name in statement.keys], len(rows)))
    moments = {statistic: list(map(_to_whole, series[name])) for name, statistic in statement.moments.items()}
    if not analysis.bound.per_unit:
        moments[UNITS] = moments[ROWS]
    histograms = tuple(series[name] for name in statement.histograms)
    sums = {part: series[name] for name, part in statement.clamped_sums.items()}
    windows = tuple([RankWindow.from_packed(packed) for packed in series[name]] for name in statement.windows)
    if analysis.domains is None:
        return _Groups(keys, moments, histograms, sums, windows)
    places = {key: place for place, key in enumerate(keys)}
    known = list(list_combinations(analysis.domains))
    if analysis.selects_keys:
        known = [key for key in known if key in places]
    at = [places.get(key, -1) for key in known]

    def fill_domain(values: Sequence[Any], empty: object) -> list[Any]:
        return [empty if place < 0 else values[place] for place in at]

    return _Groups(
        known,
        {statistic: fill_domain(values, 0) for statistic, values in moments.items()},
        tuple(fill_domain(values, None) for values in histograms),
        {part: fill_domain(values, None) for part, values in sums.items()},
        tuple(fill_domain(values, RankWindow()) for values in windows),
    )


@dataclass(frozen=True, slots=True)
class _SelectedGroups:
    """Groups that partition selection returned: their places among all groups, and their keys, which are released."""

    places: list[int]
    keys: list[Keys]


class _ClampSource(Protocol):
    """The exact groups, in which clamps are chosen."""

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> _Groups:
        """Return the groups, or the selected ones, in which units count up to the points of the clamps that are chosen."""

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        """Return the plan with the `wanted` clamps chosen, by their indices."""


@dataclass(frozen=True, slots=True)
class _WholeSource:
    """Groups with the histograms of their clamps."""

    exact_groups: _Groups

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> _Groups:
        found = self.exact_groups if selected is None else self.exact_groups.select_groups(selected.places)
        return found.with_clamped_moments(plan.clamps)

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        histograms = [group.clamp_histograms for group in self.exact_groups]
        return plan.with_clamps(select_clamp_points(plan.clamps, histograms, entropy, wanted))


GroupRows = tuple[ReleaseStatement, Exact]
"""A statement of the groups, and its exact result."""


class ReadGroups(Protocol):
    """A function that reads the groups of a plan whose clamps are chosen so far."""

    def __call__(self, plan: MeasurementPlan, selected: Sequence[Keys] | None = None, /) -> GroupRows:
        """Return all groups; or at least those with the `selected` keys, which are released."""
        ...


@dataclass(frozen=True, slots=True)
class _StagedSource:
    """The histograms of all clamps over all units; groups are read when their clamps are chosen."""

    histograms: tuple[ClampHistogram, ...]
    read: ReadGroups

    def __repr__(self) -> str:
        return "_Staged(…)"  # exact values are never displayed

    @classmethod
    def from_histograms(cls, plan: MeasurementPlan, histograms: Exact, read: ReadGroups) -> _StagedSource:
        """Return the source from the rows of the query of histograms: indices of a target and of an interval, and a number."""
        targets = list_clamp_targets(plan.clamps)
        found: list[dict[int, int]] = [{} for _ in targets]
        for target, interval, units in histograms.reveal():
            found[target][interval] = found[target].get(interval, 0) + _to_whole(units)
        each = zip(targets, found, strict=True)
        return cls(
            tuple(ClampHistogram.from_unit_counts(plan.clamps[target.clamp], held) for target, held in each),
            read,
        )

    def read_groups(self, plan: MeasurementPlan, selected: _SelectedGroups | None = None) -> _Groups:
        statement, exact = self.read(plan, None if selected is None else selected.keys)
        found = _read_groups(plan, statement, exact.reveal())
        if selected is not None and found.keys != selected.keys:
            found = found.select_groups(selected.places)
            if found.keys != selected.keys:
                raise InternalError("two statements disagree about the groups", code="release")
        return found.with_clamped_moments(plan.clamps)

    def select_clamps(
        self, plan: MeasurementPlan, wanted: Container[int], entropy: Entropy
    ) -> MeasurementPlan:
        return plan.with_clamps(select_clamp_points(plan.clamps, [self.histograms], entropy, wanted))


_Column = list[tuple[int, ...]]
"""The noisy components of a vector, group by group."""


def _draw_noisy_groups(
    plan: MeasurementPlan,
    source: _ClampSource,
    vectors: Sequence[int],
    entropy: Entropy,
    selected: _SelectedGroups | None = None,
) -> tuple[MeasurementPlan, _Groups, list[_Column]]:
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
) -> tuple[MeasurementPlan, _Groups, list[_Column]]:
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


def _iterate_rows(columns: Sequence[Iterable[Any]], length: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of columns of this length."""
    return zip(*columns, strict=True) if columns else itertools.repeat((), length)


def _get_keys(statement: ReleaseStatement, row: Mapping[str, Any]) -> Keys:
    """Return the group keys of a row."""
    return tuple(row[name] for name in statement.keys)


def _to_whole(value: Any) -> int:
    """Return a moment from the engine; NULL, the sum over no rows, is zero."""
    return 0 if value is None else int(value)


def _draw_noisy_components(measurement: VectorMeasurement, groups: _Groups, entropy: Entropy) -> _Column:
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


def draw_noise(measurement: VectorMeasurement, groups: int, entropy: Entropy) -> list[int]:
    """Return the noise of a vector in this many groups, component by component."""
    return measurement.mechanism.draw(groups * len(measurement.vector.components), entropy)
