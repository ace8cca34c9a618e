"""Whole rows of a distribution: deterministic post-processing of a release."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.synthesis.workload import Counts, Marginal, compute_marginal

_ORDERS = 8
_SCATTER = 0x9E3779B97F4A7C15
"""An odd number near 2^64 divided by the golden ratio: products with it, of 64 bits, lie far apart for numbers that are near."""


def round_to_rows(weights: Floats, total: int, workload: Sequence[Marginal]) -> Counts:
    """Return a whole number of rows for each cell, `total` in all, each the next whole number above or below its share.

    Systematic sampling leaves the sums of runs of cells within 1 of their shares. Several orders of the cells are tried, and
    the result that is nearest to the distribution on the workload is taken.
    """
    shares = weights * (total / weights.sum())
    wanted = [(part, compute_marginal(shares, part)) for part in workload]

    def compute_error(found: Counts) -> float:
        return math.fsum(float(np.abs(compute_marginal(found, part) - parts).sum()) for part, parts in wanted)

    return min(
        (_round_in_order(shares, order, total) for order in _iterate_orders(weights.shape)), key=compute_error
    )


def _iterate_orders(shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """Yield orders of the cells: by each column first, and some in which neighbors are far apart."""
    cells = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    for axis in range(len(shape)):
        yield np.moveaxis(cells, axis, 0).ravel()
    numbers = cells.ravel().astype(np.uint64) + np.uint64(1)
    for order in range(_ORDERS):
        numbers *= np.uint64(_SCATTER)
        yield np.argsort(numbers ^ (numbers >> np.uint64(29 + order)), kind="stable")


def _round_in_order(shares: Floats, order: NDArray[np.int64], total: int) -> Counts:
    ends = np.floor(np.cumsum(shares.ravel()[order]) + 0.5).astype(np.int64)
    ends[-1] = total
    ends = np.minimum(np.maximum.accumulate(ends), total)
    found = np.empty(len(order), np.int64)
    found[order] = np.diff(ends, prepend=0)
    return found.reshape(shares.shape)
