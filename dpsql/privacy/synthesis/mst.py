"""Synthetic rows of many columns, privately: MST, which measures a spanning tree of the pairs of columns.

From private rows it reads tables of single columns, of pairs and of the workload. The product of all columns, which may
have any number of cells, is formed nowhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import QueryRejected
from dpsql.privacy.accounting.events import BoundedRange, Composed
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.gaussian import DiscreteGaussian
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.selection import Exponential
from dpsql.privacy.synthesis.mechanism import (
    CHECK,
    Mwem,
    NoisyCounts,
    SmallDatabase,
    Synthesis,
    SynthesisLoss,
    add_noise,
    calibrate_noise,
    compute_distance_sensitivity,
    compute_marginal_sensitivity,
    estimate_row_count,
    format_count,
    make_noise_event,
    rescale_std,
    score_marginal,
)
from dpsql.privacy.synthesis.workload import Counts, Marginal

# Rows that follow a tree of pairs of columns: post-processing of noisy tables, in which no product of columns is formed.


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
        """Return how many values each bin has."""
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

    Each column is independent of all others given its neighbors in the tree, so that tables of pairs that agree on the columns
    which they share are all of the distribution.
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


# The mechanism MST.


Tables: TypeAlias = Mapping[Marginal, Counts]
"""The exact tables of the marginals, by their columns."""

MOST_COLUMNS = 40
MOST_CELLS, MOST_TOGETHER = 100_000, 1_000_000
"""The maximum number of cells of one table, and of all tables together."""
_COLUMNS, _PAIRS = Fraction(2, 5), Fraction(9, 20)
"""The shares of the loss for the tables of single columns and for those of the tree; the choices get the rest, except `CHECK`."""
_RARE = 3.0
"""Values whose noisy count is below this many standard deviations of its noise are merged."""


@dataclass(frozen=True, slots=True)
class SynthesizedRows:
    """The released rows, as indices of their values, their multiplicities, and the noisy distance of the workload."""

    rows: NDArray[np.int64]
    numbers: NDArray[np.int64]
    distance: int


def list_read_marginals(width: int, workload: Sequence[Marginal]) -> tuple[Marginal, ...]:
    """Return the marginals that are read: of single columns, pairs and the workload.

    >>> list_read_marginals(2, [(0, 1)])
    ((0,), (1,), (0, 1))
    """
    columns = range(width)
    return tuple(
        dict.fromkeys([*((axis,) for axis in columns), *itertools.combinations(columns, 2), *workload])
    )


@dataclass(frozen=True)
class Mst(Synthesis):
    """Single columns are measured with `noise`; then a tree of pairs is chosen, and each of its tables measured with `pair_noise`.

    Claim: with l1 the sensitivity of the histogram of all columns, each measured table has the loss of its noise for
    `compute_marginal_sensitivity(l1)`, each choice a range of 2·l1·rate, and the last distance the loss of `check` for `compute_distance_sensitivity`; their sum is
    the event's.
    Why: each table that is read is a marginal of one histogram, of which sums of cells move no further than it does. A score is the
    l1 distance of a pair's table from whole numbers that follow from the noisy columns, less a public number, so that it
    changes by at most l1, up or down; which pairs are left follows from those chosen before. Bins, tables that agree, and rows are
    post-processing. Composition is adaptive.
    Source: McKenna, Miklau, Sheldon 2021, "Winning the NIST contest: a scalable and general approach to differentially private
    synthetic data"; McKenna, Mullins, Sheldon, Miklau 2022, "AIM", section 4 (scores less the expected noise).
    """

    tag: ClassVar[str] = "Mst"
    method: ClassVar[str] = "mst"

    noise: Geometric | DiscreteGaussian
    pair_noise: Geometric | DiscreteGaussian
    selection: Exponential | None

    @classmethod
    def calibrate(
        cls,
        shape: tuple[int, ...],
        workload: tuple[Marginal, ...],
        l1: int,
        loss: SynthesisLoss,
        *,
        replace: bool,
    ) -> Mst:
        """Return the synthesis that spends the loss. Raises QueryRejected (`synthetic_domain`) if a table has too many cells."""
        require_small_tables(shape, workload)
        pairs = len(shape) - 1
        # Of two columns there is one pair, of which nothing is chosen; of one there is none.
        choices = pairs if pairs > 1 else 0
        chosen = 1 - CHECK - _COLUMNS - _PAIRS if choices else Fraction(0)
        columns = _COLUMNS if choices else (1 - CHECK) / (2 if pairs else 1)
        each = [BoundedRange(loss.compute_range(chosen / choices)) for _ in range(choices)]
        norms = compute_marginal_sensitivity(l1, replace=replace)
        column_noise = calibrate_noise(norms, loss, columns / len(shape))
        return cls(
            shape,
            workload,
            l1,
            replace,
            calibrate_noise(compute_distance_sensitivity(l1, len(workload)), loss, CHECK),
            Composed((make_noise_event(loss, 1 - chosen), *each)),
            column_noise,
            calibrate_noise(norms, loss, (1 - CHECK - chosen - columns) / pairs) if pairs else column_noise,
            Exponential.calibrate(2 * l1, each[0].epsilon) if each else None,
        )

    @property
    def pair_count(self) -> int:
        """Return the number of pairs in a tree."""
        return len(self.shape) - 1

    def run(self, tables: Tables, entropy: Entropy) -> SynthesizedRows:
        """Return the release."""
        columns = [self.measure_column(tables, axis, entropy) for axis in range(len(self.shape))]
        total = estimate_row_count(columns)
        counts = [found.astype(np.float64) for found in columns]
        merged = [MergedColumn.from_noisy_counts(found, _RARE * self.noise.std) for found in counts]
        pairs: dict[Marginal, Floats] = {}
        left: list[Marginal] = list(itertools.combinations(range(len(self.shape)), 2))
        gains = dict(zip(left, self.compute_scores(tables, counts, merged, total), strict=True))
        while left:
            chosen = left[self.select_pair([gains[pair] for pair in left], entropy)]
            pairs[chosen] = self.measure_pair(tables, chosen, merged, entropy).astype(np.float64)
            left = _filter_joining_pairs(pairs, left)
        noisy = NoisyTables(counts, self.noise.std**2, merged, pairs, self.pair_noise.std**2)
        draw = np.random.default_rng(
            entropy.draw_words(4)
        )  # rows follow from what is released, whatever is drawn
        rows, numbers = sample_rows(noisy, total, draw)
        (off,) = self.check.draw(1, entropy)
        return SynthesizedRows(rows, numbers, self.compute_workload_distance(tables, rows, numbers) + off)

    def measure_column(self, tables: Tables, axis: int, entropy: Entropy) -> NoisyCounts:
        """Return the noisy counts of a column's values."""
        return add_noise(tables[axis,], self.noise, entropy)

    def measure_pair(
        self, tables: Tables, pair: Marginal, merged: Sequence[MergedColumn], entropy: Entropy
    ) -> NoisyCounts:
        """Return the noisy table of a pair, by its bins."""
        return add_noise(_merge_pair_table(tables, pair, merged), self.pair_noise, entropy)

    def compute_scores(
        self, tables: Tables, columns: Sequence[Floats], merged: Sequence[MergedColumn], total: int
    ) -> list[int]:
        """Return the gain of measuring each pair, compared with assuming that its columns are independent."""
        parts = [
            _normalize_counts(project_onto_simplex(bins.sum_bins(found), float(total), bins.value_counts))
            for bins, found in zip(merged, columns, strict=True)
        ]
        found = []
        for pair in itertools.combinations(range(len(columns)), 2):
            estimate = np.rint(np.outer(parts[pair[0]], parts[pair[1]]) * total).astype(np.int64)
            found.append(score_marginal(_merge_pair_table(tables, pair, merged), estimate, self.pair_noise))
        return found

    def select_pair(self, scores: Sequence[int], entropy: Entropy) -> int:
        """Select the index of the pair that is measured next."""
        if self.selection is None:
            return 0
        return self.selection.select_candidate([1] * len(scores), [-score for score in scores], entropy)

    def compute_workload_distance(
        self, tables: Tables, rows: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> int:
        """Return the sum over the workload of l1 distances between the tables and those of such rows, in rows."""
        made = (count_rows(rows, numbers, self.shape, part) for part in self.workload)
        return sum(
            int(np.abs(tables[part] - found).sum()) for part, found in zip(self.workload, made, strict=True)
        )

    def describe(self) -> list[dict[str, object]]:
        """Describe what is measured and chosen."""
        norms = compute_marginal_sensitivity(self.l1, replace=self.replace)
        sensitivities = {"l1_sensitivity": str(norms.l1), "l2_sensitivity_squared": str(norms.l2_squared)}
        found: list[dict[str, object]] = [
            {
                "statistic": format_count(len(self.shape), "column"),
                "noise": self.noise.describe(),
                **sensitivities,
            }
        ]
        if self.pair_count:
            found.append(
                {
                    "statistic": format_count(self.pair_count, "pair"),
                    "noise": self.pair_noise.describe(),
                    **sensitivities,
                }
            )
        if self.selection is not None:
            found.append(
                {"statistic": format_count(self.pair_count, "choice"), "noise": self.selection.describe()}
            )
        return [*found, self._describe_check()]

    @property
    def direct_std(self) -> float:
        """Return the same as in `Synthesis`."""
        columns = _COLUMNS if self.selection is not None else (1 - CHECK) / (2 if self.pair_count else 1)
        return rescale_std(self.noise, float(columns / len(self.shape)) * len(self.workload))


def require_small_tables(
    shape: Sequence[int], workload: Sequence[Marginal], names: Sequence[str] | None = None
) -> None:
    """Raise QueryRejected (`synthetic_domain`) if one table, or all tables together, have too many cells."""
    sizes = {
        part: math.prod(shape[axis] for axis in part) for part in list_read_marginals(len(shape), workload)
    }
    for part, cells in sizes.items():
        if cells > MOST_CELLS:
            of = " and ".join(names[axis] if names else f"column {axis + 1}" for axis in part)
            raise QueryRejected(
                f"{of} have {cells:,} combinations of values; method='mst' counts {MOST_CELLS:,} at most",
                code="synthetic_domain",
                hint="group the values, for example CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
            )
    if sum(sizes.values()) > MOST_TOGETHER:
        raise QueryRejected(
            f"all pairs of columns and the workload have {sum(sizes.values()):,} cells; "
            f"method='mst' counts {MOST_TOGETHER:,} at most",
            code="synthetic_domain",
            hint="use fewer columns and values, or a smaller workload",
        )


def _normalize_counts(counts: Floats) -> Floats:
    """Return shares that add up to 1, so that row counts computed from them fit 64 bits whatever the noise was."""
    total = counts.sum()
    found: Floats = counts / total if 0 < total < math.inf else np.full(len(counts), 1 / len(counts))
    return found


def _merge_pair_table(tables: Tables, pair: Marginal, merged: Sequence[MergedColumn]) -> Counts:
    one, other = pair
    return merge_table(tables[pair], merged[one], merged[other])


def _filter_joining_pairs(pairs: Mapping[Marginal, object], left: Sequence[Marginal]) -> list[Marginal]:
    """Return the pairs that join two columns which no path of pairs joins yet."""
    part = {axis: axis for pair in left for axis in pair}
    for pair in pairs:
        low, high = sorted(part.setdefault(axis, axis) for axis in pair)
        part = {axis: low if of == high else of for axis, of in part.items()}
    return [(one, other) for one, other in left if part[one] != part[other]]


# The methods to make synthetic tables, by name.


SyntheticMethod: TypeAlias = Mwem | SmallDatabase | Mst

METHODS: dict[str, type[SyntheticMethod]] = {
    Mwem.method: Mwem,
    SmallDatabase.method: SmallDatabase,
    Mst.method: Mst,
}
