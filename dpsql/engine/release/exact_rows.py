"""Exact rows as groups, scores, histograms and marginals, before their noise. This is the only module that opens `Exact`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsql.analysis.domains import Domain, list_combinations
from dpsql.analysis.release_analysis import Analysis
from dpsql.backends import Exact
from dpsql.engine.release.released_table import Keys
from dpsql.planning.clamp_histogram import (
    ClampedSum,
    ClampedSums,
    ClampHistogram,
    Packed,
    PackedHistograms,
    compute_clamped_series,
    list_clamp_targets,
)
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.quantiles import RankWindow
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.privacy.synthesis.mst import Mst, list_read_marginals
from dpsql.privacy.synthesis.workload import Counts, Marginal
from dpsql.sql.compile.statement import SCORE, ReleaseStatement


@dataclass(frozen=True, slots=True)
class UnreleasedGroup:
    """A group with its exact moments, its clamp histograms, and the window of values around each quantile."""

    keys: Keys
    moments: Mapping[Statistic, int]
    clamp_histograms: tuple[ClampHistogram, ...]
    windows: tuple[RankWindow, ...]

    def __repr__(self) -> str:
        return "UnreleasedGroup(…)"  # exact values are never displayed


@dataclass(frozen=True, slots=True)
class UnreleasedGroups:
    """Groups, column by column: their keys, exact moments, packed clamp histograms by target, and windows by quantile.

    Once clamps are chosen there may be the clamped sums that the engine computed, in place of histograms.
    """

    keys: list[Keys]
    moments: Mapping[Statistic, Sequence[int]]
    histograms: tuple[Sequence[Packed], ...]
    clamped_sums: Mapping[ClampedSum, Sequence[int | None]]
    windows: tuple[Sequence[RankWindow], ...]

    def __repr__(self) -> str:
        return "UnreleasedGroups(…)"  # exact values are never displayed

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[UnreleasedGroup]:
        for place, keys in enumerate(self.keys):
            moments = {statistic: series[place] for statistic, series in self.moments.items()}
            histograms = tuple(ClampHistogram.from_packed(series[place]) for series in self.histograms)
            yield UnreleasedGroup(keys, moments, histograms, tuple(series[place] for series in self.windows))

    def select_groups(self, places: Sequence[int]) -> UnreleasedGroups:
        """Return the groups in these places."""

        def select_places(series: Sequence[Any]) -> list[Any]:
            return [series[place] for place in places]

        moments = {statistic: select_places(series) for statistic, series in self.moments.items()}
        sums = {part: select_places(series) for part, series in self.clamped_sums.items()}
        histograms, windows = (
            tuple(map(select_places, self.histograms)),
            tuple(map(select_places, self.windows)),
        )
        return UnreleasedGroups(select_places(self.keys), moments, histograms, sums, windows)

    def get_unit_counts(self, plan: MeasurementPlan) -> Sequence[int]:
        """Return the exact numbers of units."""
        return self.moments[UNITS if plan.analysis.bound.per_unit else ROWS]

    def with_clamped_moments(self, clamps: Sequence[Clamp]) -> UnreleasedGroups:
        """Return the groups in which units count up to the chosen points."""
        if not clamps:
            return self
        totals = ClampedSums(self.clamped_sums) if self.clamped_sums else PackedHistograms(self.histograms)
        return replace(self, moments={**self.moments, **compute_clamped_series(clamps, totals)})


def read_groups(plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact) -> UnreleasedGroups:
    """Return the groups in public order; the moments of empty ones of a domain are zeros."""
    analysis, rows = plan.analysis, exact.reveal()
    found = zip(*rows, strict=True) if rows else itertools.repeat(())
    series = dict(zip(statement.columns, found, strict=bool(rows)))
    keys = list(iterate_rows([series[name] for name in statement.keys], len(rows)))
    moments = {statistic: list(map(_to_whole, series[name])) for name, statistic in statement.moments.items()}
    if not analysis.bound.per_unit:
        moments[UNITS] = moments[ROWS]
    histograms = tuple(series[name] for name in statement.histograms)
    sums = {part: series[name] for name, part in statement.clamped_sums.items()}
    windows = tuple([RankWindow.from_packed(packed) for packed in series[name]] for name in statement.windows)
    if analysis.domains is None:
        return UnreleasedGroups(keys, moments, histograms, sums, windows)
    places = {key: place for place, key in enumerate(keys)}
    known = list(list_combinations(analysis.domains))
    if analysis.selects_keys:
        known = [key for key in known if key in places]
    at = [places.get(key, -1) for key in known]

    def fill_domain(values: Sequence[Any], empty: object) -> list[Any]:
        return [empty if place < 0 else values[place] for place in at]

    return UnreleasedGroups(
        known,
        {statistic: fill_domain(values, 0) for statistic, values in moments.items()},
        tuple(fill_domain(values, None) for values in histograms),
        {part: fill_domain(values, None) for part, values in sums.items()},
        tuple(fill_domain(values, RankWindow()) for values in windows),
    )


def read_histograms(plan: MeasurementPlan, exact: Exact) -> tuple[ClampHistogram, ...]:
    """Return the histograms of all clamps, from rows with the indices of a target and of an interval, and a number of units."""
    targets = list_clamp_targets(plan.clamps)
    found: list[dict[int, int]] = [{} for _ in targets]
    for target, interval, units in exact.reveal():
        found[target][interval] = found[target].get(interval, 0) + _to_whole(units)
    each = zip(targets, found, strict=True)
    return tuple(ClampHistogram.from_unit_counts(plan.clamps[target.clamp], held) for target, held in each)


def read_scores(
    analysis: Analysis, statement: ReleaseStatement, exact: Exact
) -> tuple[tuple[Keys, ...], list[int]]:
    """Return all groups of the public keys, in order, and their scores: 0 for a group without rows."""
    if analysis.domains is None:
        raise TypeError("the best are chosen among groups that are known")
    named = map(statement.label_row, exact.reveal())
    found = {_get_keys(statement, row): _to_whole(row[SCORE]) for row in named}
    known = tuple(list_combinations(analysis.domains))
    return known, [found.get(keys, 0) for keys in known]


def count_marginals(
    mechanism: Mst, domains: Sequence[Domain], statement: ReleaseStatement, exact: Exact
) -> dict[Marginal, Counts]:
    """Return the exact marginals, by the sets of their columns; values that are not public are not counted, as in any release."""
    width = len(domains)
    parts = list_read_marginals(width, mechanism.workload)
    tables = {part: np.zeros([len(domains[axis]) for axis in part], np.int64) for part in parts}
    places = [{value: place for place, value in enumerate(domain)} for domain in domains]
    at = {sum(1 << axis for axis in range(width) if axis not in part): part for part in parts}
    number, left_out = (statement.columns.index(name) for name in (*statement.moments, statement.left_out))
    for row in exact.reveal():
        part = at[row[left_out]]
        cell = tuple(places[axis].get(row[axis], -1) for axis in part)
        if -1 not in cell:
            tables[part][cell] += _to_whole(row[number])
    return tables


def iterate_rows(columns: Sequence[Iterable[Any]], length: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of columns of this length."""
    return zip(*columns, strict=True) if columns else itertools.repeat((), length)


def _get_keys(statement: ReleaseStatement, row: Mapping[str, Any]) -> Keys:
    """Return the group keys of a row."""
    return tuple(row[name] for name in statement.keys)


def _to_whole(value: Any) -> int:
    """Return a moment from the engine; NULL, the sum over no rows, is zero."""
    return 0 if value is None else int(value)
