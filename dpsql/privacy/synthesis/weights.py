"""Multiplicative weights: the one core of synthetic histograms and of hypotheses that answer streams of queries.

Nothing private is read here: the weights are fitted to noisy marginals and noisy counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.synthesis.workload import Marginal, compute_marginal, expand_marginal

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
        """The weight of each cell's squared error: less where there are more rows, and bounded by the noise."""
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
        """The weight of the squared error."""
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
