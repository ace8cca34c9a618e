"""Rows that follow a tree of pairs of columns: post-processing of noisy tables, in which no product of columns is formed.

Each column is independent of all others given its neighbors in the tree, so that tables of pairs that agree on the columns
which they share are all of the distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.synthesis.workload import Counts, Marginal

MOST_INVENTED = 250_000
"""The maximum number of rows that are made: in a larger table each stands for several."""
_ROUNDS, _NEAR = 100, 1e-3
"""The maximum number of projections onto tables with given sums, and the change of a cell, in rows, at which they end."""
_LEAST = 1e-9
"""The least variance by which values are weighted: at a large loss it is 0 in floats."""


@dataclass(frozen=True)
class MergedColumn:
    """A column in which the values that are too rare to be told from noise are one: `bins` has the bin of each value.

    Claim: a table whose cells are merged so is moved by one unit no further, in l1 and in l2 norm, than one whose cells are not
    may be.
    Why: cells are added up, and the bounds of `compute_marginal_sensitivity` are of any sums of cells of a histogram.
    Source: McKenna, Miklau, Sheldon 2021, "Winning the NIST contest" (compression of domains).
    """

    bins: NDArray[np.int64]
    size: int

    @classmethod
    def from_noisy_counts(cls, noisy: Floats, least: float) -> MergedColumn:
        """Return the column of which these are noisy counts, with those below `least` in the last bin if there are two at least."""
        rare = noisy < least
        if rare.sum() < 2:
            return cls(np.arange(len(noisy)), len(noisy))
        frequent = int((~rare).sum())
        return cls(np.where(rare, frequent, np.cumsum(~rare) - 1), frequent + 1)

    @property
    def value_counts(self) -> Floats:
        """How many values each bin has."""
        return np.bincount(self.bins, minlength=self.size).astype(np.float64)

    def sum_bins(self, counts: Floats) -> Floats:
        """Return the counts of values, added up in each bin."""
        return np.bincount(self.bins, counts, minlength=self.size).astype(np.float64)


def merge_table(table: Counts, rows: MergedColumn, columns: MergedColumn) -> Counts:
    """Return the table of two columns by their bins."""
    found = np.zeros((rows.size, columns.size), np.int64)
    np.add.at(found, (rows.bins[:, None], columns.bins[None, :]), table)
    return found


def project_onto_simplex(values: Floats, totals: Floats | float, variances: Floats | float = 1.0) -> Floats:
    """Return the nearest values of at least 0, along the last axis, that add up to `totals`, with squares weighted by 1/variance.

    Why: at the minimum each value is less by a common multiple of its variance, and 0 where it would fall below that.
    Source: Duchi, Shalev-Shwartz, Singer, Chandra 2008, "Efficient projections onto the l1-ball", Theorem 1.

    >>> project_onto_simplex(np.array([3.0, 2.0, -4.0]), 4.0).tolist()
    [2.5, 1.5, 0.0]
    """
    scales = np.broadcast_to(np.asarray(variances, np.float64), values.shape)
    order = np.argsort(-values / scales, axis=-1, kind="stable")
    sorted_values, sorted_scales = (np.take_along_axis(part, order, -1) for part in (values, scales))
    excess = np.cumsum(sorted_values, axis=-1) - np.asarray(totals, np.float64)[..., None]
    steps = excess / np.cumsum(sorted_scales, axis=-1)
    last = np.maximum((sorted_values > steps * sorted_scales).sum(axis=-1, keepdims=True) - 1, 0)
    found: Floats = np.maximum(values - np.take_along_axis(steps, last, -1) * scales, 0)
    return found


def project_onto_sums(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return the nearest table of counts of at least 0 whose rows and columns add up to these; those of rows hold exactly.

    Source: Boyle, Dykstra 1986, "A method for finding projections onto the intersection of convex sets in Hilbert spaces".
    """
    found, by_rows, by_columns = table, np.zeros_like(table), np.zeros_like(table)
    for _ in range(_ROUNDS):
        across = project_onto_simplex(found + by_rows, rows)
        by_rows = found + by_rows - across
        down = project_onto_simplex((across + by_columns).T, columns).T
        by_columns = across + by_columns - down
        found, change = down, float(np.abs(down - across).max())
        if change < _NEAR:
            break
    return project_onto_simplex(found, rows)


@dataclass(frozen=True)
class NoisyTables:
    """Noisy tables: of each column by value, and of each pair of the tree by bin, with the variances of their cells."""

    columns: Sequence[Floats]
    column_variance: float
    merged: Sequence[MergedColumn]
    pairs: Mapping[Marginal, Floats]
    pair_variance: float

    def estimate_bins(self, axis: int, total: float) -> Floats:
        """Return the counts of a column's bins: the mean of all that was measured of them, weighted by inverse variance; not below 0."""
        bins = self.merged[axis]
        spread = max(self.column_variance, _LEAST) * bins.value_counts
        precision, weighted = 1 / spread, bins.sum_bins(self.columns[axis]) / spread
        for pair, table in self.pairs.items():
            if axis in pair:
                place = pair.index(axis)
                variance = max(self.pair_variance, _LEAST) * table.shape[1 - place]
                precision = precision + 1 / variance
                weighted = weighted + table.sum(axis=1 - place) / variance
        return project_onto_simplex(weighted / precision, total, 1 / precision)

    def compute_value_shares(self, axis: int) -> Floats:
        """Return, for each bin of a column, a row with the shares of its values."""
        bins = self.merged[axis]
        found = np.zeros((bins.size, len(bins.bins)))
        for place in range(bins.size):
            held = bins.bins == place
            counts = np.maximum(self.columns[axis][held], 0)
            found[place, held] = counts / counts.sum() if counts.sum() > 0 else 1 / held.sum()
        return found


def sample_rows(
    noisy: NoisyTables, total: int, draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows, as the index of a value for each column, and their multiplicities, which add up to `total`.

    The first column has its counts, each other one those that its table with the column before it in the tree gives it, as whole
    numbers; which row of a value has which value of the next column is random.
    Source: McKenna, Miklau, Sheldon 2021, "Winning the NIST contest" (generation of rows).
    """
    width, made = len(noisy.columns), min(total, MOST_INVENTED)
    counts = [noisy.estimate_bins(axis, float(total)) for axis in range(width)]
    found = np.zeros((made, width), np.int64)
    alike = np.zeros(made, np.int64)
    found[:, 0] = _sample_next_column(alike, counts[0][None, :], draw)
    for (before, axis), table in _iterate_from_root(noisy.pairs):
        found[:, axis] = _sample_next_column(
            found[:, before], project_onto_sums(table, counts[before], counts[axis]), draw
        )
    for axis, bins in enumerate(noisy.merged):
        if bins.size < len(bins.bins):
            found[:, axis] = _sample_next_column(found[:, axis], noisy.compute_value_shares(axis), draw)
    each, more = divmod(total, max(1, made))
    ends = np.arange(made + 1, dtype=np.int64) * more // max(1, made)
    return found, each + np.diff(ends)


def _iterate_from_root(pairs: Mapping[Marginal, Floats]) -> Iterator[tuple[Marginal, Floats]]:
    """Yield the tables of a tree from the first column on, the column that is reached before on the left."""
    reached, left = {0}, dict(pairs)
    while left:
        one, other = next(pair for pair in left if reached & set(pair))
        table = left.pop((one, other))
        yield ((one, other), table) if one in reached else ((other, one), table.T)
        reached |= {one, other}


def _sample_next_column(
    before: NDArray[np.int64], table: Floats, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Return the value of a next column for each row, in the shares that the table has in the row for the value `before`.

    Systematic sampling leaves each number within 1 of its part.
    """
    size, rows = table.shape[1], np.bincount(before, minlength=len(table))
    sums = table.sum(axis=1, keepdims=True)
    parts = np.where(sums > 0, table / np.where(sums > 0, sums, 1), 1 / size)
    ends = np.floor(np.cumsum(parts, axis=1) * rows[:, None] + draw.random((len(table), 1))).astype(np.int64)
    ends = np.minimum(ends, rows[:, None])
    ends[:, -1] = rows
    numbers = np.diff(ends, axis=1, prepend=0)
    found = np.empty(len(before), np.int64)
    order = np.lexsort((draw.random(len(before)), before))
    found[order] = np.repeat(np.tile(np.arange(size), len(table)), numbers.ravel())
    return found


def count_rows(
    found: NDArray[np.int64], numbers: NDArray[np.int64], shape: Sequence[int], part: Marginal
) -> Counts:
    """Return the table of some columns of these rows."""
    cells = [shape[axis] for axis in part]
    places = np.ravel_multi_index([found[:, axis] for axis in part], cells)
    counts = np.zeros(int(np.prod(cells)), np.int64)
    np.add.at(counts, places, numbers)
    return counts.reshape(cells)
