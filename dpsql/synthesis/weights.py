"""Multiplicative weights: the one core of synthetic histograms and of hypotheses that answer streams of queries.

Nothing private is read here: what is fitted are noisy marginals and noisy counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.base import Floats
from dpsql.synthesis.workload import Marginal, marginal_of, spread

_LEAST = 1e-12
"""The least part of a column's rows that a value has at the start, so that no cell is excluded for good."""
_MOST_STEP = 60.0
"""The largest exponent of one update, which keeps weights in the range of floats."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A noisy marginal as parts of all rows; `weight` is the inverse of its variance, relative to the others'."""

    marginal: Marginal
    parts: Floats
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Counted:
    """A noisy count of these cells as a part of all rows."""

    cells: NDArray[np.bool_]
    part: float
    weight: float = 1.0


def independent(columns: Sequence[Floats]) -> Floats:
    """The distribution in which columns are independent, with these noisy one-way counts; uniform where none is positive."""
    found: Floats = np.ones((1,) * len(columns))
    for axis, counts in enumerate(columns):
        kept = np.maximum(np.asarray(counts, np.float64), 0)
        parts = kept / kept.sum() if kept.sum() > 0 else np.full(len(kept), 1 / len(kept))
        parts = np.maximum(parts, _LEAST)
        found = found * spread(parts / parts.sum(), (axis,), len(columns))
    return found


def updated(weights: Floats, exponent: Floats) -> Floats:
    """The distribution with each weight multiplied by e to its exponent.

    Claim: each round with exponent η·(query, signed by the error) brings the distribution nearer to the true one in relative
    entropy by at least η·error/2 for η at most error/2, so that there are at most 4·ln(cells)/error² rounds.
    Source: Hardt, Rothblum 2010, "A multiplicative weights mechanism for privacy-preserving data analysis", Lemma 4.2; Hardt,
    Ligett, McSherry 2012, Theorem 2.1.

    >>> updated(np.array([0.5, 0.5]), np.log([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    found = weights * np.exp(np.clip(exponent - exponent.max(), -_MOST_STEP, 0))
    result: Floats = found / found.sum()
    return result


def fitted(weights: Floats, measured: Sequence[Measured | Counted], rounds: int) -> Floats:
    """The distribution after updates against the weighted squared error of all that was measured.

    Each update is multiplicative, along the gradient, with a step that grows while the error falls and is halved where it
    would not. It ends early where the error no longer falls.
    Source: Beck, Teboulle 2003, "Mirror descent and nonlinear projected subgradient methods" (entropic descent).
    """
    step = 1.0 / max(sum(part.weight for part in measured), 1.0)
    error, gradient = _error(weights, measured)
    for _ in range(rounds):
        tried = updated(weights, -step * gradient)
        found, at = _error(tried, measured)
        if found > error:
            step /= 2
            continue
        settled = error - found <= 1e-10 * error
        weights, error, gradient, step = tried, found, at, step * 1.6
        if settled:
            break
    return weights


def _error(weights: Floats, measured: Sequence[Measured | Counted]) -> tuple[float, Floats]:
    """Half of the weighted squared error, and its gradient."""
    total, gradient = 0.0, np.zeros((1,) * weights.ndim)
    for part in measured:
        if isinstance(part, Counted):
            missed = float(weights[part.cells].sum()) - part.part
            total += part.weight * missed * missed / 2
            gradient = gradient + part.weight * missed * part.cells
            continue
        off: NDArray[np.float64] = np.asarray(marginal_of(weights, part.marginal), np.float64) - part.parts
        total += part.weight * float((off * off).sum()) / 2
        gradient = gradient + part.weight * spread(off, part.marginal, weights.ndim)
    return total, gradient
