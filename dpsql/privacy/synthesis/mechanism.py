"""Synthetic histograms, privately: MWEM over marginals, and the small-database mechanism (BLR) on tiny domains.

Both read the exact histogram of the private rows through quantities whose change by one unit is bounded by the change of the
histogram: marginals, distances from public values, and largest errors. All of them are whole numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import LossError
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure
from dpsql.privacy.mechanisms.base import Floats, Sensitivity
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.gaussian import DiscreteGaussian
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.selection import Exponential
from dpsql.privacy.synthesis.workload import (
    Counts,
    Marginal,
    MeasuredMarginal,
    compute_independent_weights,
    compute_marginal,
    compute_marginal_distance,
    fit_weights,
    round_to_rows,
)

NoisyCounts: TypeAlias = NDArray[np.object_]
"""Noisy counts, whole numbers of any size."""

MOST_DATABASES = 20_000
"""The maximum number of small databases among which BLR chooses, each with its exact probability."""
CHECK, _SELECTION = Fraction(1, 20), Fraction(1, 10)
"""The shares of the loss for the error of the result, for the choices of marginals, and, of the rest, for the number of rows."""
MOST_ROWS = 2**50
"""The maximum number of rows of a synthetic table, so that sums of counts and weighted sums are exact in 64 bits whatever the noise."""
_ROUNDS, _LAST_ROUNDS = 40, 200
"""Updates of the weights after each measurement, and after the last."""
MOST_WORK = 3 * 10**9
"""The maximum number of cell visits in making a table: about half a minute."""
MOST_COMPARED = 2 * 10**7
"""The maximum number of cells of the workload that are compared over all small databases."""


class SynthesisLoss(Protocol):
    """The loss that a synthesis may spend; see `dpsql.planning.choose.LossShare`."""

    @property
    def epsilon(self) -> Fraction:
        """Return the ε of the whole."""
        ...

    @property
    def rho(self) -> Fraction | None:
        """Return the ρ of Gaussian noise with the same charge; None if there is none."""
        ...

    def compute_range(self, share: Fraction) -> Fraction:
        """Return the range of a selection that spends this share."""
        ...


@dataclass(frozen=True, slots=True)
class SynthesizedHistogram:
    """The released synthetic histogram, and the noisy sum of its distances from the private one over the workload."""

    histogram: Counts
    distance: int


def calibrate_noise(
    sensitivity: Sensitivity, loss: SynthesisLoss, share: Fraction
) -> Geometric | DiscreteGaussian:
    """Return the noise for a vector that spends this share of the loss: Gaussian where the accountant supports it."""
    if loss.rho is None:
        return Geometric.calibrate(sensitivity.l1, loss.epsilon * share)
    return DiscreteGaussian.calibrate(sensitivity.l2_squared, loss.rho * share)


def make_noise_event(loss: SynthesisLoss, share: Fraction) -> Pure | Gaussian:
    """Return the event of noise that spends this share."""
    return Pure(loss.epsilon * share) if loss.rho is None else Gaussian(loss.rho * share)


def add_noise(exact: Counts, noise: Geometric | DiscreteGaussian, entropy: Entropy) -> NoisyCounts:
    """Return the counts with noise of its own in each cell."""
    drawn = np.array(noise.draw(exact.size, entropy), dtype=object).reshape(exact.shape)
    found: NoisyCounts = exact.astype(object) + drawn
    return found


def compute_marginal_sensitivity(l1: int, *, replace: bool) -> Sensitivity:
    """Return the sensitivity of a marginal of a histogram that one unit moves by at most `l1` in l1 norm.

    Claim: l1 again, and in squared l2 norm (l1)² for a unit that is added or removed, and l1²/2 for one that is replaced.
    Why: sums of cells do not increase an l1 norm, but rows in different cells of the histogram may be in one of the marginal.
    A unit's own marginal has no negative count and at most R rows, so its squared l2 norm is at most R²; of the difference of
    two such vectors it is at most 2R², and l1 is 2R.
    Source: Dwork, Roth 2014, Definitions 3.1 and 3.8.

    >>> compute_marginal_sensitivity(2, replace=True)
    Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1), linf=Fraction(2, 1))
    """
    return Sensitivity(Fraction(l1), Fraction(l1 * l1, 2 if replace else 1))


def compute_distance_sensitivity(l1: int, marginals: int) -> Sensitivity:
    """Return the sensitivity of the sum of distances of that many marginals: one number."""
    return Sensitivity(Fraction(l1 * marginals), Fraction((l1 * marginals) ** 2))


def estimate_row_count(columns: Sequence[NoisyCounts]) -> int:
    """Return the number of rows: the mean of what the columns' noisy counts add up to, weighted by their numbers of cells."""
    weights = [Fraction(1, found.size) for found in columns]
    sums = (int(found.sum()) * weight for found, weight in zip(columns, weights, strict=True))
    return min(MOST_ROWS, max(0, round(sum(sums, Fraction(0)) / sum(weights))))


def rescale_std(noise: Geometric | DiscreteGaussian, share: float) -> float:
    """Return the standard deviation that such noise has at 1/`share` of its loss."""
    return noise.std * (share if isinstance(noise, Geometric) else math.sqrt(share))


def score_marginal(exact: Counts, estimate: Counts, noise: Geometric | DiscreteGaussian) -> int:
    """Return the gain of measuring a marginal: its distance from an estimate, minus the expected noise, in whole rows."""
    cell = noise.std * math.sqrt(2 / math.pi)
    return int(np.abs(exact - estimate).sum()) - round(cell * estimate.size)


@dataclass(frozen=True)
class Synthesis:
    """The common part of all methods. `l1` is the l1 sensitivity of the histogram, in rows per unit.

    `check` is the noise of the sum of distances over the workload, by which the result is judged.
    """

    tag: ClassVar[str] = "SynthesisOf"
    method: ClassVar[str]

    shape: tuple[int, ...]
    workload: tuple[Marginal, ...]
    l1: int
    replace: bool
    check: Geometric | DiscreteGaussian
    event: Event

    def describe(self) -> list[dict[str, object]]:
        """Describe what is measured and chosen, for receipts and the ledger."""
        raise NotImplementedError

    @property
    def direct_std(self) -> float:
        """Return the standard deviation of each cell if the whole loss were spent on noise for each marginal of the workload."""
        raise NotImplementedError

    @cached_property
    def direct_distance(self) -> float:
        """Return the expected sum of l1 distances over the workload if its marginals were measured directly, with the whole loss."""
        cells = sum(math.prod(self.shape[axis] for axis in part) for part in self.workload)
        return cells * self.direct_std * math.sqrt(2 / math.pi)

    def _describe_check(self) -> dict[str, object]:
        return {
            "statistic": "distance of the workload",
            "noise": self.check.describe(),
            "l1_sensitivity": str(compute_distance_sensitivity(self.l1, len(self.workload)).l1),
            "cells": 1,
        }


@dataclass(frozen=True)
class HistogramSynthesis(Synthesis):
    """A synthesis that holds a weight for each combination of values."""

    def run(self, histogram: Counts, entropy: Entropy) -> SynthesizedHistogram:
        """Return the release."""
        found = self._synthesize_histogram(histogram, entropy)
        (noise,) = self.check.draw(1, entropy)
        return SynthesizedHistogram(found, self.compute_workload_distance(histogram, found) + noise)

    def _synthesize_histogram(self, histogram: Counts, entropy: Entropy) -> Counts:
        raise NotImplementedError

    def compute_workload_distance(self, histogram: Counts, synthetic: Counts) -> int:
        """Return the sum over the workload of l1 distances between the marginals of the two, in rows."""
        return sum(compute_marginal_distance(histogram, synthetic, part) for part in self.workload)


@dataclass(frozen=True)
class Mwem(HistogramSynthesis):
    """Marginals of single columns are measured; then, `rounds` times, that of the workload which the weights fit worst.

    Claim: with l1 the sensitivity of the histogram, each measured marginal has the loss of `noise` for `compute_marginal_sensitivity(l1)`, each
    choice a range of 2·l1·rate, and the last distance the loss of `check` for `compute_distance_sensitivity`; their sum is the event's.
    Why: a score is the l1 distance of a marginal from whole numbers that follow from what was released before, less a public
    number, so that it changes by at most l1, up or down. Weights and rows are post-processing. Composition is adaptive.
    Source: Hardt, Ligett, McSherry 2012, "A simple and practical algorithm for differentially private data release"; McKenna,
    Mullins, Sheldon, Miklau 2022, "AIM", section 4 (scores of whole marginals less the expected noise).
    """

    tag: ClassVar[str] = "Mwem"
    method: ClassVar[str] = "mwem"

    rounds: int
    noise: Geometric | DiscreteGaussian
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
        rounds: int | None = None,
    ) -> Mwem:
        """Return the synthesis that spends the loss. `rounds` is at most the number of marginals that are not measured first.

        By default there are twice as many as columns, or as many as there is time for. Raises LossError (`too_long`) for more.
        """
        wide = sum(len(part) > 1 for part in workload)
        most = min(wide, 2 * len(shape) if rounds is None else rounds)
        while rounds is None and most > 1 and bound_work(shape, len(workload), most) > MOST_WORK:
            most -= 1
        if bound_work(shape, len(workload), most) > MOST_WORK:
            raise LossError(
                "a synthetic table with this many cells, marginals and rounds would take too long",
                code="too_long",
                hint="use fewer rounds, or fewer columns and values",
            )
        chosen = _SELECTION if most else Fraction(0)
        each = (1 - CHECK - chosen) / (len(shape) + most)
        choices = [BoundedRange(loss.compute_range(chosen / most)) for _ in range(most)]
        selection = Exponential.calibrate(2 * l1, choices[0].epsilon) if choices else None
        return cls(
            shape,
            workload,
            l1,
            replace,
            calibrate_noise(compute_distance_sensitivity(l1, len(workload)), loss, CHECK),
            Composed((make_noise_event(loss, 1 - chosen), *choices)),
            most,
            calibrate_noise(compute_marginal_sensitivity(l1, replace=replace), loss, each),
            selection,
        )

    def _synthesize_histogram(self, histogram: Counts, entropy: Entropy) -> Counts:
        seen = [self.measure_marginal(histogram, (axis,), entropy) for axis in range(len(self.shape))]
        total = self.estimate_total_rows([found for _, found in seen])
        weights = compute_independent_weights([found.astype(np.float64) for _, found in seen])
        left = [part for part in self.workload if len(part) > 1]
        for index in range(self.rounds):
            chosen = left.pop(
                self.select_marginal(self.compute_scores(histogram, weights, total, left), entropy)
            )
            seen.append(self.measure_marginal(histogram, chosen, entropy))
            most = _LAST_ROUNDS if index + 1 == self.rounds else _ROUNDS
            weights = fit_weights(weights, self._scale_measurements(seen, total), most)
        return round_to_rows(weights, total, self.workload)

    def measure_marginal(
        self, histogram: Counts, marginal: Marginal, entropy: Entropy
    ) -> tuple[Marginal, NoisyCounts]:
        """Return a marginal with noise in each cell."""
        return marginal, add_noise(compute_marginal(histogram, marginal), self.noise, entropy)

    def compute_scores(
        self, histogram: Counts, weights: Floats, total: int, marginals: Sequence[Marginal]
    ) -> list[int]:
        """Return the gain of measuring each marginal: its distance from that of the weights, minus the expected noise."""
        return [
            score_marginal(
                compute_marginal(histogram, part),
                np.rint(compute_marginal(weights, part) * total).astype(np.int64),
                self.noise,
            )
            for part in marginals
        ]

    def select_marginal(self, scores: Sequence[int], entropy: Entropy) -> int:
        """Select the index of the marginal that is measured next."""
        if self.selection is None:
            raise LossError("no marginal is chosen")
        return self.selection.select_candidate([1] * len(scores), [-score for score in scores], entropy)

    def estimate_total_rows(self, columns: Sequence[NoisyCounts]) -> int:
        """Return the number of rows."""
        return estimate_row_count(columns)

    def _scale_measurements(
        self, seen: Sequence[tuple[Marginal, NoisyCounts]], total: int
    ) -> list[MeasuredMarginal]:
        rows = max(1, total)
        return [
            MeasuredMarginal(part, np.asarray(found, np.float64) / rows, self.noise.std / rows)
            for part, found in seen
        ]

    def describe(self) -> list[dict[str, object]]:
        """Describe what is measured and chosen."""
        norms = compute_marginal_sensitivity(self.l1, replace=self.replace)
        measured: dict[str, object] = {
            "statistic": f"{format_count(len(self.shape), 'column')} and {format_count(self.rounds, 'marginal')}",
            "noise": self.noise.describe(),
            "l1_sensitivity": str(norms.l1),
            "l2_sensitivity_squared": str(norms.l2_squared),
        }
        choices: dict[str, object] = (
            {}
            if self.selection is None
            else {"statistic": format_count(self.rounds, "choice"), "noise": self.selection.describe()}
        )
        return [measured, *([choices] if choices else []), self._describe_check()]

    @property
    def direct_std(self) -> float:
        """Return the same as in `Synthesis`."""
        marginals = len(self.shape) + self.rounds
        share = float((1 - CHECK - (_SELECTION if self.rounds else 0)) / marginals)
        return rescale_std(self.noise, share * len(self.workload))


@dataclass(frozen=True)
class SmallDatabase(HistogramSynthesis):
    """One of all databases of `size` rows is chosen, each row of it standing for as many as there are.

    Claim: the noisy number of rows has the loss of `count` for l1, the choice a range of 2·size·l1·rate, and the last distance
    the loss of `check`. With probability 1 - e^-t, the largest error over the workload's cells is at most that of the best
    database of that size, plus (2·l1/range)·(ln(databases) + t) rows. Of `size` >= ln(2·cells)/(2α²) rows there is one with an
    error below α in parts of all rows.
    Why: the penalty is the largest, over cells, of |size · count - rows · small count|, whole numbers of which a unit moves the
    first by at most size·l1. A sample of that size has that error by Hoeffding's inequality, with positive probability.
    Source: Blum, Ligett, Roth 2008, "A learning theory approach to non-interactive database privacy", Theorems 3.1 to 3.3; Hu,
    Zhou 2017, section 2.5.
    """

    tag: ClassVar[str] = "SmallDatabase"
    method: ClassVar[str] = "blr"

    size: int
    count: Geometric | DiscreteGaussian
    selection: Exponential
    direct: Geometric | DiscreteGaussian

    @classmethod
    def calibrate(
        cls,
        shape: tuple[int, ...],
        workload: tuple[Marginal, ...],
        l1: int,
        loss: SynthesisLoss,
        *,
        replace: bool,
        size: int | None = None,
    ) -> SmallDatabase:
        """Return the synthesis that spends the loss; `size` is by default the largest with few enough databases.

        Raises LossError (code "synthetic_domain") where there are too many of any size above 1.
        """
        cells = math.prod(shape)
        most = compute_largest_size(cells)
        chosen = most if size is None else size
        if most < 2 or not 1 <= chosen <= most:
            raise LossError(
                f"method='blr' cannot compare all databases of {cells:,} cells: there are too many"
                if most < 2
                else f"with {cells:,} cells, method='blr' compares databases of 1 to {most} rows",
                code="synthetic_domain",
                hint="use method='mwem', or fewer columns and values",
            )
        if _count_compared_cells(shape, workload, chosen) > MOST_COMPARED:
            raise LossError(
                "this many marginals of this many databases would take too long to compare",
                code="too_long",
                hint="use method='mwem', or fewer marginals",
            )
        rest = 1 - CHECK - _SELECTION
        event = BoundedRange(loss.compute_range(rest))
        one = compute_marginal_sensitivity(l1, replace=replace)
        count = Sensitivity(one.l1, one.l1**2)
        return cls(
            shape,
            workload,
            l1,
            replace,
            calibrate_noise(compute_distance_sensitivity(l1, len(workload)), loss, CHECK),
            Composed((make_noise_event(loss, CHECK + _SELECTION), event)),
            chosen,
            calibrate_noise(count, loss, _SELECTION),
            Exponential.calibrate(2 * chosen * l1, event.epsilon),
            calibrate_noise(one, loss, Fraction(1, len(workload))),
        )

    @property
    def direct_std(self) -> float:
        """Return the same as in `Synthesis`."""
        return self.direct.std

    @property
    def database_count(self) -> int:
        """Return the number of databases to choose from."""
        return math.comb(math.prod(self.shape) + self.size - 1, self.size)

    def bound_shortfall(self, confidence: float) -> float:
        """Bound by how many rows the largest error exceeds that of the best small database, with that probability."""
        rate = float(self.selection.rate) * self.size
        return (math.log(self.database_count) - math.log1p(-confidence)) / rate

    def _synthesize_histogram(self, histogram: Counts, entropy: Entropy) -> Counts:
        (noise,) = self.count.draw(1, entropy)
        total = min(MOST_ROWS, max(0, int(histogram.sum()) + noise))
        index = self.selection.select_candidate(
            [1] * self.database_count, self.compute_penalties(histogram, total), entropy
        )
        chosen = enumerate_databases(math.prod(self.shape), self.size)[index].reshape(self.shape)
        return round_to_rows(chosen / self.size, total, self.workload)

    def compute_penalties(self, histogram: Counts, total: int) -> list[int]:
        """Return the largest error in a cell of the workload, times `size`, of each small database."""
        small = enumerate_databases(math.prod(self.shape), self.size).reshape(-1, *self.shape)
        worst = np.zeros(len(small), object)
        for part in self.workload:
            exact = compute_marginal(histogram, part).ravel().astype(object) * self.size
            others = tuple(axis + 1 for axis in range(len(self.shape)) if axis not in part)
            sums = small.sum(axis=others).reshape(len(small), -1)
            for cell, value in enumerate(exact):
                found = np.abs(sums[:, cell].astype(object) * total - value)
                worst = np.maximum(worst, found)
        return [int(value) for value in worst]

    def describe(self) -> list[dict[str, object]]:
        """Describe what is measured and chosen."""
        counted: dict[str, object] = {
            "statistic": "rows",
            "noise": self.count.describe(),
            "l1_sensitivity": str(self.l1),
            "cells": 1,
        }
        choice: dict[str, object] = {
            "statistic": f"one of {self.database_count:,} databases of {self.size} rows",
            "noise": self.selection.describe(),
        }
        return [counted, choice, self._describe_check()]


def format_count(number: int, what: str) -> str:
    """Return a number with its noun, in the plural where needed."""
    return f"{number} {what}{'s' * (number != 1)}"


def bound_work(shape: tuple[int, ...], marginals: int, rounds: int) -> int:
    """Bound the number of cell visits in fitting the weights and scoring the marginals."""
    cells, columns = math.prod(shape), len(shape)
    fits = _ROUNDS * sum(columns + index for index in range(rounds + 1)) + _LAST_ROUNDS * (columns + rounds)
    return cells * (fits + rounds * marginals)


def _count_compared_cells(shape: tuple[int, ...], workload: tuple[Marginal, ...], size: int) -> int:
    cells = sum(math.prod(shape[axis] for axis in part) for part in workload)
    return cells * math.comb(math.prod(shape) + size - 1, size)


def compute_largest_size(cells: int) -> int:
    """Return the largest number of rows, up to 64, with at most `MOST_DATABASES` databases over this many cells.

    >>> compute_largest_size(2), compute_largest_size(8), compute_largest_size(200)
    (64, 10, 1)
    """
    return max(
        itertools.takewhile(lambda size: math.comb(cells + size - 1, size) <= MOST_DATABASES, range(1, 65)),
        default=0,
    )


@lru_cache(maxsize=4)
def enumerate_databases(cells: int, size: int) -> Counts:
    """Return all databases of that many rows: one in each row, with the number of rows in each cell."""
    return np.array(list(_iterate_compositions(cells, size)), np.int64)


def _iterate_compositions(cells: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to put that many equal rows into the cells."""
    for bars in itertools.combinations(range(size + cells - 1), cells - 1):
        ends = (-1, *bars, size + cells - 1)
        yield tuple(after - before - 1 for before, after in itertools.pairwise(ends))
