"""Whole rows of a distribution: post-processing of what is released, by a public stream of numbers that protects nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.base import Floats
from dpsql.synthesis.workload import Counts, Marginal, marginal_of

_ORDERS = 8
_SEED = 1


def whole_rows(weights: Floats, total: int, workload: Sequence[Marginal]) -> Counts:
    """A whole number of rows for each cell, `total` in all, each the next whole number above or below its share.

    Systematic sampling leaves the sums of runs of cells within 1 of their shares. Several orders of the cells are tried, and
    the result that is nearest to the distribution on the workload is taken.
    """
    shares = weights * (total / weights.sum())
    wanted = [(part, marginal_of(shares, part)) for part in workload]

    def off(found: Counts) -> float:
        return math.fsum(float(np.abs(marginal_of(found, part) - parts).sum()) for part, parts in wanted)

    return min((_sampled(shares, order, total) for order in _orders(weights.shape)), key=off)


def _orders(shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """Orders of the cells: by each column first, and some at random."""
    cells = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    for axis in range(len(shape)):
        yield np.moveaxis(cells, axis, 0).ravel()
    stream = np.random.Generator(np.random.PCG64(_SEED))
    for _ in range(_ORDERS):
        yield stream.permutation(cells.ravel())


def _sampled(shares: Floats, order: NDArray[np.int64], total: int) -> Counts:
    ends = np.floor(np.cumsum(shares.ravel()[order]) + 0.5).astype(np.int64)
    ends[-1] = total
    ends = np.minimum(np.maximum.accumulate(ends), total)
    found = np.empty(len(order), np.int64)
    found[order] = np.diff(ends, prepend=0)
    return found.reshape(shares.shape)
