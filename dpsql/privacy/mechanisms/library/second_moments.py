"""Second-moment matrices with the noise of the least expected error, made positive semidefinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Approximate, Gaussian, Pure
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.library.base import parse_exact_number, require_dimensions, set_frozen_fields
from dpsql.privacy.mechanisms.library.gaussian import GaussianMechanism
from dpsql.privacy.mechanisms.library.laplace import LaplaceMechanism
from dpsql.privacy.mechanisms.library.norms import MOST_OF_BALL, CubeMechanism, VectorMechanism
from dpsql.privacy.mechanisms.library.wishart import WishartMechanism

MOST_DIMENSIONS = 10
_ROOT = Fraction(math.isqrt(2 << 80), 1 << 40)
"""√2, rounded down: an entry off the diagonal counts twice in a Frobenius norm."""

AdditiveMechanism = LaplaceMechanism | CubeMechanism | VectorMechanism | GaussianMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondMoments:
    """Σ x·xᵀ over rows with ‖x‖₂ <= `bound`, as a matrix of `dimensions` rows and columns, with the least expected error.

    The candidates are Laplace noise on the entries on and above the diagonal, the cube (l∞) and, up to four dimensions, the vector (l2)
    mechanism on them, and, where there is a `delta`, Gaussian noise; `errors` has the root mean square of the Frobenius norm of each one's noise, and that of
    the Wishart mechanism in its corrected form, which is drawn in floats and never chosen.

    Claim: adding or removing a row loses ε, or (ε, δ); the result is positive semidefinite.
    Why: the entries on and above the diagonal of x·xᵀ have l1 norm (‖x‖₁² + ‖x‖₂²)/2 <= (d+1)/2·bound², as ‖x‖₁² <= d·‖x‖₂², and
    l∞ norm ‖x‖∞² <= bound². With those off the diagonal times √2, or a little less, their l2 norm is at most the Frobenius norm,
    ‖x‖₂². The projection onto positive semidefinite matrices is post-processing, and leads no further from the exact one.
    The entries must be exact sums: where they were added up in floats, rounding depends on all rows.
    Source: Dwork, Talwar, Thakurta, Zhang 2014, "Analyze Gauss" (Gaussian); Hardt, Talwar 2010 (norms); Sheffet 2019 (Wishart).

    >>> SecondMoments(epsilon=1, dimensions=3).chosen.name, SecondMoments(epsilon=1, delta=1e-6, dimensions=10).chosen.name
    ('vector', 'Gaussian')
    """

    epsilon: Amount
    delta: Amount | None = None
    bound: Amount = 1
    dimensions: int = 2

    def __post_init__(self) -> None:
        require_dimensions(self.dimensions, MOST_DIMENSIONS)
        set_frozen_fields(self, epsilon=parse_amount(self.epsilon), bound=parse_amount(self.bound, "bound"))
        if self.delta is not None:
            set_frozen_fields(self, delta=parse_amount(self.delta, "delta"))

    @property
    def candidates(self) -> tuple[AdditiveMechanism, ...]:
        """The mechanisms on the entries, each with the whole loss."""
        cells, square, epsilon = self._entry_count, parse_amount(self.bound) ** 2, parse_amount(self.epsilon)
        pure: tuple[AdditiveMechanism, ...] = (
            LaplaceMechanism(
                epsilon=epsilon, sensitivity=square * (self.dimensions + 1) / 2, dimensions=cells
            ),
            CubeMechanism(epsilon=epsilon, sensitivity=square, dimensions=cells),
        )
        if cells <= MOST_OF_BALL:
            pure = (*pure, VectorMechanism(epsilon=epsilon, sensitivity=square, dimensions=cells))
        if self.delta is None:
            return pure
        return (
            *pure,
            GaussianMechanism(epsilon=epsilon, delta=self.delta, sensitivity=square, dimensions=cells),
        )

    @property
    def chosen(self) -> AdditiveMechanism:
        """The candidate with the least expected error."""
        return min(self.candidates, key=self._compute_error)

    @property
    def errors(self) -> dict[str, float]:
        """The root mean square of the Frobenius norm of the noise, by the names of the mechanisms."""
        found = {each.name: self._compute_error(each) for each in self.candidates}
        if self.delta is not None:
            noise = WishartMechanism(
                epsilon=self.epsilon,
                delta=self.delta,
                bound=self.bound,
                dimensions=self.dimensions,
                calibration="profile",
            )
            # Less its mean: 2k on the diagonal and k elsewhere, times bound⁴.
            found[noise.name] = math.sqrt(noise.variance / 2 * self.dimensions * (self.dimensions + 1))
        return found

    def event(self) -> Pure | Gaussian | Approximate:
        """Return the event that an accountant charges."""
        return self.chosen.event()

    def release(
        self, matrix: Sequence[Sequence[Amount]] | NDArray[Any], *, entropy: Entropy | None = None
    ) -> Floats:
        """Return the nearest positive semidefinite matrix to a second-moment matrix with noise.

        DataError for another shape, or an entry that is not finite. What is below the diagonal is not read.
        """
        rows, size = list(matrix), self.dimensions
        if len(rows) != size or any(len(row) != size for row in rows):
            raise DataError(f"the matrix must have {size} rows and columns")
        law = self.chosen
        factor = _ROOT if _is_isometric(law) else Fraction(1)
        places = list(zip(*np.triu_indices(size), strict=True))
        values = [parse_exact_number(rows[a][b]) * (1 if a == b else factor) for a, b in places]
        noisy = law.release(values, entropy=entropy)
        found = np.zeros((size, size))
        for (a, b), value in zip(places, noisy, strict=True):
            found[a, b] = found[b, a] = float(value) / (1 if a == b else float(factor))
        eigenvalues, vectors = np.linalg.eigh(found)
        result: Floats = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
        return (result + result.T) / 2

    @property
    def _entry_count(self) -> int:
        return self.dimensions * (self.dimensions + 1) // 2

    def _compute_error(self, law: AdditiveMechanism) -> float:
        """Return the error of noise: in isometric coordinates each counts once, in others those off the diagonal count twice."""
        parts = self._entry_count if _is_isometric(law) else self.dimensions**2
        return math.sqrt(law.variance * parts)


def _is_isometric(law: AdditiveMechanism) -> bool:
    """Return whether its sensitivity is an l2 norm."""
    return isinstance(law, (VectorMechanism, GaussianMechanism))
