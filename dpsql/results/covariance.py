"""Covariance matrices from released covariances, made positive semidefinite at no cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpsql.results.optional import make_missing_library_error
from dpsql.results.result import Result
from dpsql.sql.regression import CovarianceQuery

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CovarianceMatrix:
    """The covariances of the columns `names` in the group with these `keys`.

    `matrix` is the nearest positive semidefinite matrix in Frobenius norm, `released` the noisy one. `intervals` are the 95%
    intervals of the released covariances, entry by entry.

    Claim: `matrix` is as private as `released`, and no further from the exact matrix.
    Why: it is a function of the released matrix. The exact matrix is in the convex set that the projection maps to, so the
    projection never leads away from it.
    Source: Dwork, Roth 2014, Proposition 2.1; Higham 1988, "Computing a nearest symmetric positive semidefinite matrix".
    """

    keys: dict[str, Any]
    names: tuple[str, ...]
    matrix: NDArray[np.float64]
    released: NDArray[np.float64]
    intervals: tuple[tuple[tuple[float, float] | None, ...], ...]

    def df(self) -> pandas.DataFrame:
        """Return the matrix as a pandas DataFrame."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise make_missing_library_error("df()", "pandas", "pandas") from None
        return pandas.DataFrame(self.matrix, index=list(self.names), columns=list(self.names))


def project_semidefinite(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the positive semidefinite matrix nearest to a symmetric one in Frobenius norm, by dropping negative eigenvalues.

    >>> import numpy as np
    >>> project_semidefinite(np.array([[1.0, 2.0], [2.0, 1.0]])).round(3).tolist()
    [[1.5, 1.5], [1.5, 1.5]]
    """
    import numpy as np

    symmetric = (matrix + matrix.T) / 2
    values, vectors = np.linalg.eigh(symmetric)
    found: NDArray[np.float64] = (vectors * np.maximum(values, 0)) @ vectors.T
    return (found + found.T) / 2


def project_rows(rows: tuple[tuple[Any, ...], ...], places: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
    """Project, in each row, the columns at these places, which are the entries on and above the diagonal of a matrix.

    A row in which an entry is missing stays as it is.
    """
    if not places:
        return rows
    import numpy as np

    size = math.isqrt(2 * len(places))
    above, found = np.triu_indices(size), list[tuple[Any, ...]]()
    for row in rows:
        entries = [row[place] for place in places]
        if None not in entries:
            matrix = np.zeros((size, size))
            matrix[above] = entries
            matrix = project_semidefinite(matrix + np.triu(matrix, 1).T)
            values = dict(zip(places, matrix[above].tolist(), strict=True))
            found.append(tuple(values.get(place, value) for place, value in enumerate(row)))
        else:
            found.append(row)
    return tuple(found)


def iterate_matrices(asked: CovarianceQuery, result: Result) -> Iterator[CovarianceMatrix]:
    """Yield the matrix of each group that has rows, from the answer to its statement."""
    import numpy as np

    width, size = len(asked.keys), len(asked.names)
    for row, ends in zip(result.rows, result.intervals(), strict=True):
        entries = row[width:]
        if any(entry is None for entry in entries):
            continue
        found = np.zeros((size, size))
        around: list[list[tuple[float, float] | None]] = [[None] * size for _ in range(size)]
        for (a, b), entry, interval in zip(asked.pairs, entries, ends[width:], strict=True):
            found[a, b] = found[b, a] = float(entry)
            around[a][b] = around[b][a] = interval
        keys = dict(zip(asked.keys, row[:width], strict=True))
        yield CovarianceMatrix(
            keys, asked.names, project_semidefinite(found), found, tuple(map(tuple, around))
        )
