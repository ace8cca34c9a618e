"""Workloads: the marginals that synthetic data should agree with, as tuples of the places of columns.

A histogram has one axis for each column, and one cell for each combination of public values. A marginal of some columns
is the histogram of these alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ProgrammingError

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
    """Return the sums of a histogram over all columns except those of a marginal."""
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
