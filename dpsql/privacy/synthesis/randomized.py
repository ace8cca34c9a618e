"""Randomized tables: each row is answered by randomized response, so that the table itself protects its units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import LossError
from dpsql.privacy.accounting.events import Event, Pure
from dpsql.privacy.accounting.numerics import exp_minus_up, ln_up
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.sampler import sample_below
from dpsql.privacy.mechanisms.selection import sample_uniform_index
from dpsql.privacy.synthesis.mechanism import MOST_ROWS, SynthesisLoss, SynthesizedHistogram
from dpsql.privacy.synthesis.workload import Counts

_COUNT = Fraction(1, 10)
"""The share of the loss for the number of rows."""
_PARTS = 1 << 16
"""Odds are multiples of this fraction, so that answers are drawn exactly."""
_MOST_ODDS = 1 << 40
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RandomizedTable:
    """Each value of each row is the truth with odds `odds` of its column against each other value; rows come in no order.

    A value of a column in `rounded`, which is a place in steps of equal length, is first rounded at random to one of the two ends, so
    that the mean does not change; then the end is answered.

    The number of rows has noise by `count`: where it is more than there are, rows with values at random are put in, where it is less,
    rows at random are left out.

    Claim: one row more or less changes the probability of any table by a factor of at most e^(1/count.scale) times the product
    of all odds; a unit that moves the histogram by l1 makes l1 such changes.
    Why: let the number of rows that is shown be the same, at the price of the first factor. If rows were put in, one of these is in
    the place of the new row: with k values and odds o, an answer of it has k·o/(o+k-1) <= o times, or k/(o+k-1) >= 1/o times, the
    probability that a value at random has. If rows were left out, the tables with the new row have another real one in its place without
    it, whose answers differ by at most the odds; the others are the same. Without the noisy number, the number would tell of a row.
    An end that is at random has both answers with chances whose ratio is at most the odds, too, and a value at random has each end as
    often.
    Source: derived here; Warner 1965 and Kairouz, Bonawitz, Ramage 2016 (randomized response); Balle, Bell, Gascón, Nissim 2019,
    "The privacy blanket of the shuffle model" (answers at random in place of a row); Nguyên, Xiao, Yang, Hui, Shin, Shin 2016,
    "Collecting and analyzing data from smart device users with local differential privacy" (rounding at random).
    """

    tag: ClassVar[str] = "RandomizedTable"
    method: ClassVar[str] = "local"

    shape: tuple[int, ...]
    l1: int
    replace: bool
    odds: tuple[Fraction, ...]
    count: Geometric
    event: Event
    rounded: tuple[int, ...] = ()

    @classmethod
    def calibrate(
        cls,
        shape: tuple[int, ...],
        l1: int,
        loss: SynthesisLoss,
        *,
        replace: bool,
        rounded: tuple[int, ...] = (),
    ) -> RandomizedTable:
        """Return the table that spends the loss equally on each column. Raises LossError (`epsilon_small`) if it is too small."""
        each = loss.epsilon * (1 - _COUNT) / (l1 * len(shape))
        most = math.floor(_PARTS / exp_minus_up(each)) if each < 40 else _PARTS * _MOST_ODDS
        odds = Fraction(min(most, _PARTS * _MOST_ODDS), _PARTS)
        if odds <= 1:
            raise LossError(
                "epsilon is too small for a randomized table: every value would be random",
                code="epsilon_small",
                hint="use a larger epsilon, fewer columns, or fewer rows per unit",
            )
        return cls(
            shape,
            l1,
            replace,
            (odds,) * len(shape),
            Geometric.calibrate(Fraction(l1), loss.epsilon * _COUNT),
            Pure(loss.epsilon),
            rounded,
        )

    @property
    def loss(self) -> Fraction:
        """Return the ε of one unit, rounded up."""
        rows = sum((ln_up(odds) for odds in self.odds), Fraction(0)) + 1 / self.count.scale
        return self.l1 * rows

    def run(self, histogram: Counts, entropy: Entropy) -> SynthesizedHistogram:
        """Return the randomized rows as a histogram, which holds all information of unordered rows."""
        (noise,) = self.count.draw(1, entropy)
        exact = int(histogram.sum())
        rows = min(MOST_ROWS, max(0, exact + noise))
        left = self._drop_random_rows(histogram.ravel().copy(), exact - rows, entropy)
        ends, found = np.cumsum(left), np.zeros(histogram.size, np.int64)
        for start in range(0, rows, _CHUNK):
            places = np.arange(start, min(start + _CHUNK, rows))
            anywhere = sample_below(np.full(len(places), histogram.size), entropy).astype(np.int64)
            real = np.searchsorted(ends, places, side="right")
            cells = np.where(places < ends[-1], np.minimum(real, histogram.size - 1), anywhere)
            found += np.bincount(self._randomize_cells(cells, entropy), minlength=histogram.size)
        return SynthesizedHistogram(found.reshape(self.shape), 0)

    def describe(self) -> list[dict[str, object]]:
        """Describe what is randomized."""
        counted: dict[str, object] = {
            "statistic": "rows",
            "noise": self.count.describe(),
            "l1_sensitivity": str(self.l1),
            "cells": 1,
        }
        columns: list[dict[str, object]] = [
            {
                "statistic": f"column {place + 1}",
                "noise": f"randomised response, odds {float(odds):.6g}{', of the end that a value is rounded to' * (place in self.rounded)}",
            }
            for place, odds in enumerate(self.odds)
        ]
        return [counted, *columns]

    def _drop_random_rows(self, counts: Counts, number: int, entropy: Entropy) -> Counts:
        """Return the counts without this many random rows; `number` may be below zero."""
        for _ in range(number):
            place = sample_uniform_index(int(counts.sum()), entropy)
            counts[np.searchsorted(np.cumsum(counts), place, side="right")] -= 1
        return counts

    def _randomize_cells(self, cells: NDArray[np.int64], entropy: Entropy) -> NDArray[np.int64]:
        """Return the cells of the randomized answers of rows in these cells."""
        answers = []
        for axis, (values, whole, odds) in enumerate(
            zip(np.unravel_index(cells, self.shape), self.shape, self.odds, strict=True)
        ):
            size, ends = whole, axis in self.rounded
            if ends:
                size, step = 2, sample_below(np.full(len(cells), whole - 1), entropy)
                values = (step < values).astype(np.int64)  # noqa: PLW2901
            truth = odds.numerator
            drawn = sample_below(np.full(len(cells), truth + odds.denominator * (size - 1)), entropy)
            other = (drawn - truth) // odds.denominator
            found = np.where(drawn < truth, values, other + (other >= values)).astype(np.int64)
            answers.append(found * (whole - 1) if ends else found)
        places: NDArray[np.int64] = np.ravel_multi_index(answers, self.shape)
        return places
