"""The workload of a synthetic table, the weights on its domain, and their rounding to rows."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ProgrammingError
from dpsql.privacy.mechanisms.base import Floats

# Workloads: the marginals that synthetic data should agree with, as tuples of the places of columns.


Marginal: TypeAlias = tuple[int, ...]
"""The places of its columns, in increasing order."""
Counts: TypeAlias = NDArray[np.int64]
"""A whole number for each cell, with an axis for each column."""

MOST_MARGINALS = 1_000
_WAYS = re.compile(r"marginals\((\d{1,2})\)")
_HINT = (
    "write workload='marginals(2)', or list groups of columns: workload=[('age', 'plan'), ('plan', 'smoker')]"
)


def parse_workload(asked: str | Iterable[Sequence[str] | str], names: Sequence[str]) -> tuple[Marginal, ...]:
    """Return the requested marginals, each once, in order.

    `asked` is "marginals(k)", for all marginals of k columns (of all columns if there are fewer), or a list of groups of column
    names. Raises ProgrammingError (`workload`) for anything else, for an unknown column, and for more than `MOST_MARGINALS`
    marginals.

    >>> parse_workload("marginals(2)", ["age", "plan", "smoker"])
    ((0, 1), (0, 2), (1, 2))
    >>> parse_workload([("plan", "age"), "smoker"], ["age", "plan", "smoker"])
    ((0, 1), (2,))
    """
    if isinstance(asked, str):
        matched = _WAYS.fullmatch(asked.strip().lower())
        ways = int(matched[1]) if matched else 0
        if not ways:
            raise ProgrammingError("this is not a workload", code="workload", hint=_HINT)
        ways = min(ways, len(names))
        if math.comb(len(names), ways) > MOST_MARGINALS:
            raise _make_size_error()
        return tuple(itertools.combinations(range(len(names)), ways))
    places = {name: place for place, name in enumerate(names)}
    found: dict[Marginal, None] = {}
    if not isinstance(asked, Iterable):
        raise ProgrammingError("this is not a workload", code="workload", hint=_HINT)
    for group in asked:
        listed = [group] if isinstance(group, str) else group
        try:
            marginal = tuple(sorted({places[name] for name in listed}))
        except (KeyError, TypeError):
            raise ProgrammingError(
                f"a marginal may only name columns of the synthetic table: {', '.join(names)}",
                code="workload",
                hint=_HINT,
            ) from None
        if not marginal:
            raise ProgrammingError("a marginal needs at least one column", code="workload", hint=_HINT)
        found[marginal] = None
        if len(found) > MOST_MARGINALS:
            raise _make_size_error()
    if not found:
        raise ProgrammingError("a workload needs at least one marginal", code="workload", hint=_HINT)
    return tuple(found)


def _make_size_error() -> ProgrammingError:
    return ProgrammingError(
        f"a workload may have at most {MOST_MARGINALS:,} marginals", code="workload", hint=_HINT
    )


def compute_marginal(histogram: NDArray[Any], marginal: Marginal) -> NDArray[Any]:
    """Return the sums of a histogram over all columns except those of a marginal.

    A histogram has one axis for each column, and one cell for each combination of public values. A marginal of some columns is the
    histogram of these alone.
    """
    others = tuple(axis for axis in range(histogram.ndim) if axis not in marginal)
    found: NDArray[Any] = np.asarray(histogram.sum(axis=others))
    return found


def expand_marginal(values: NDArray[np.float64], marginal: Marginal, dimensions: int) -> NDArray[np.float64]:
    """Return the values of a marginal's cells, with axes of length 1 for the other columns."""
    shape = [1] * dimensions
    for axis, length in zip(marginal, values.shape, strict=True):
        shape[axis] = length
    return values.reshape(shape)


def compute_marginal_distance(one: Counts, other: Counts, marginal: Marginal) -> int:
    """Return the l1 distance of a marginal of two histograms, in rows.

    Claim: where one histogram changes by l1 norm d, the distance changes by at most d.
    Why: sums over cells do not increase an l1 norm, and a norm changes by no more than its argument.
    """
    return int(np.abs(compute_marginal(one, marginal) - compute_marginal(other, marginal)).sum())


# Multiplicative weights: the one core of synthetic histograms and of hypotheses that answer streams of queries.


_LEAST = 1e-12
"""The least share of a column's rows that a value has at the start, so that no cell is excluded for good."""
_EXACT = 1e-9
"""The least noise, as a share of all rows, by which errors are weighted: at a large loss it would be 0 in floats."""
_MOST_STEP = 600.0
"""The largest difference between exponents of an update, which keeps weights in the range of floats."""


@dataclass(frozen=True, slots=True)
class MeasuredMarginal:
    """A noisy marginal as shares of all rows; `noise` is the standard deviation of each, as a share of all rows."""

    marginal: Marginal
    parts: Floats
    noise: float

    @property
    def precision(self) -> Floats:
        """Return the weight of each cell's squared error: less where there are more rows, and bounded by the noise."""
        found: Floats = 1 / (np.maximum(self.parts, 0) + max(self.noise, _EXACT))
        return found


@dataclass(frozen=True, slots=True)
class MeasuredCount:
    """A noisy count of these cells as a share of all rows; `noise` as in `MeasuredMarginal`."""

    cells: NDArray[np.bool_]
    part: float
    noise: float

    @property
    def precision(self) -> float:
        """Return the weight of the squared error."""
        return 1 / (max(self.part, 0) + max(self.noise, _EXACT))


def compute_independent_weights(columns: Sequence[Floats]) -> Floats:
    """Return the distribution in which columns are independent, with these noisy one-way counts; uniform where none is positive."""
    found: Floats = np.ones((1,) * len(columns))
    for axis, counts in enumerate(columns):
        positive = np.maximum(np.asarray(counts, np.float64), 0)
        parts = positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))
        parts = np.maximum(parts, _LEAST)
        found = found * expand_marginal(parts / parts.sum(), (axis,), len(columns))
    return found


def update_weights(weights: Floats, exponent: Floats) -> Floats:
    """Return the distribution with each weight multiplied by e to its exponent.

    Claim: each round with exponent η·(query, signed by the error) brings the distribution nearer to the true one in relative
    entropy by at least η·error/2 for η at most error/2, so that there are at most 4·ln(cells)/error² rounds.
    Source: Hardt, Rothblum 2010, "A multiplicative weights mechanism for privacy-preserving data analysis", Lemma 4.2; Hardt,
    Ligett, McSherry 2012, Theorem 2.1.

    >>> update_weights(np.array([0.5, 0.5]), np.log([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    found = weights * np.exp(np.clip(exponent - exponent.max(), -_MOST_STEP, 0))
    result: Floats = found / found.sum()
    return result


def fit_weights(weights: Floats, measured: Sequence[MeasuredMarginal | MeasuredCount], rounds: int) -> Floats:
    """Return the distribution after at most this many updates against the weighted squared error of all measurements.

    Each update is multiplicative, along the gradient, with a step that grows while the error falls and is halved where it
    would not. Errors count in proportion to their parts of rows, by which an update changes them, so that small and large
    cells approach their values alike.
    Source: Hardt, Ligett, McSherry 2012, section 2.2 (repeating updates over all measurements); Beck, Teboulle 2003, "Mirror
    descent and nonlinear projected subgradient methods" (entropic descent).

    Nothing private is read here: the weights are fitted to noisy marginals and noisy counts.
    """
    step, precisions = 1 / max(1, len(measured)), [part.precision for part in measured]
    error, gradient = _compute_error(weights, measured, precisions)
    for _ in range(rounds):
        tried = update_weights(weights, -step * gradient)
        found, at = _compute_error(tried, measured, precisions)
        if found > error:
            step /= 2
            if step < _LEAST:
                break
            continue
        settled = error - found <= 1e-9 * error
        weights, error, gradient, step = tried, found, at, step * 1.3
        if settled:
            break
    return weights


def _compute_error(
    weights: Floats,
    measured: Sequence[MeasuredMarginal | MeasuredCount],
    precisions: Sequence[Floats | float],
) -> tuple[float, Floats]:
    """Return half of the weighted squared error, and its gradient."""
    total, gradient = 0.0, np.zeros((1,) * weights.ndim)
    for part, precision in zip(measured, precisions, strict=True):
        if isinstance(part, MeasuredCount):
            missed = float(weights[part.cells].sum()) - part.part
            total += float(precision) * missed * missed / 2
            gradient = gradient + precision * missed * part.cells
            continue
        off: Floats = compute_marginal(weights, part.marginal) - part.parts
        total += float((precision * off * off).sum()) / 2
        gradient = gradient + expand_marginal(precision * off, part.marginal, weights.ndim)
    return total, gradient


# Whole rows of a distribution: deterministic post-processing of a release.


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
