"""Second-moment matrices with the noise of the least expected error, made positive semidefinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.accountants.base import search_largest
from dpsql.privacy.accounting.events import Approximate, Gaussian, Pure
from dpsql.privacy.accounting.numerics import Bounds
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy
from dpsql.privacy.mechanisms.library.base import parse_exact_number, require_dimensions, set_frozen_fields
from dpsql.privacy.mechanisms.library.gaussian import GaussianMechanism
from dpsql.privacy.mechanisms.library.laplace import LaplaceMechanism
from dpsql.privacy.mechanisms.library.norms import MOST_OF_BALL, CubeMechanism, VectorMechanism

# The Wishart mechanism, in its corrected form, for second-moment matrices.


_BLUR = 1e-12
"""An upper bound on the relative error of a probability in floats."""
_FAR = 700.0
"""The largest ε whose e^ε is a float; δ at a larger ε is at most the δ at this one."""
_MOST = 64


@dataclass(frozen=True, slots=True)
class WishartProfile:
    """The profile of a Wishart matrix W(k, scale·I) of d dimensions, added to one that moves by v·vᵀ, ‖v‖² <= shift·scale.

    `degrees` is m = k - d + 1.

    Claim: it is that of a chi-squared variable of m degrees added to one number that moves by `shift`.
    Why: the density of W is proportional to |W|^((k-d-1)/2)·e^(-tr W/2·scale), so the loss depends on vᵀW⁻¹v alone, whose
    inverse is a chi-squared variable of m degrees; with c that variable the loss is ((m-2)/2)·ln(c/(c-s)) - s/2, the loss of the
    shifted variable. It is monotone in c, so that δ is F(t) - e^ε·F(t-s) at one point t, and grows with s. Where c <= s the
    outcome is impossible on the neighbor: δ never falls below F(s), so there is no pure loss and no μ-GDP, whatever the scale.
    Source: derived here; Muirhead 1982, "Aspects of multivariate statistical theory", Theorem 3.2.12 (vᵀW⁻¹v).

    >>> published = WishartProfile(degrees=2, shift=2 / 3)  # as published for ε = 1
    >>> round(float(published.delta(Decimal(1)).high), 4), round(1 - math.exp(-1 / 3), 4)
    (0.2835, 0.2835)
    """

    degrees: int
    shift: float = 1.0

    @property
    def tail(self) -> Decimal | None:
        """Return None: δ does not fall below a floor."""
        return None

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Raise LossError: there is no crossover."""
        raise LossError(f"no δ of {float(mu):g}-GDP stays above a floor")

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to the rounding of floats."""
        from scipy.special import gammainc, gammaincc

        e, s, half = min(float(epsilon), _FAR), self.shift, self.degrees / 2
        power, factor = half - 1, math.exp(e)
        # Without the row and more likely than with it: c below `first`; with it: c above `last`.
        first = s if power == 0 else _solve_crossing(s, (e + s / 2) / power)
        here, there = float(gammainc(half, first / 2)), float(gammainc(half, (first - s) / 2))
        value, size = here - factor * there, here + factor * there
        if e < s / 2:
            last = s if power == 0 else _solve_crossing(s, (s / 2 - e) / power)
            here, there = float(gammaincc(half, (last - s) / 2)), float(gammaincc(half, last / 2))
            value, size = max(value, here - factor * there), size + here + factor * there
        floor = float(gammainc(half, s / 2)) * (
            1 - _BLUR
        )  # what is impossible on the neighbor counts at any ε
        low = value - _BLUR * size if e < _FAR else floor
        return Bounds(Decimal(max(low, floor)), Decimal(min(value + _BLUR * size, 1.0)))


def _solve_crossing(shift: float, exponent: float) -> float:
    """Return the c with c/(c - shift) = e^exponent."""
    return shift / -math.expm1(-exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class WishartMechanism:
    """A Wishart matrix W(k, bound²·I) added to the second-moment matrix Σ x·xᵀ of rows with ‖x‖₂ <= `bound`.

    k is d + ⌊28·ln(4/δ)/ε²⌋, d = `dimensions`; with `calibration="profile"` it is the least k whose exact profile keeps (ε, δ),
    which needs several times less. The mean k·bound²·I of the noise may be subtracted afterwards.

    Claim: (ε, δ)-DP where a row is added or removed, and never ε-DP. The mechanism as first published, W(d+1, (3/2nε)·I) for the
    mean of n rows, claims ε-DP, and is not: a part 1 - e^(-ε/3) of its outcomes is impossible on the neighbor. Any noise whose
    matrices are all positive semidefinite has that defect.
    Why: see `WishartProfile`, which is exact.
    Draws are made in floats, by inverting the normal law at 53 random bits: for study, not for release. For a release add lattice
    noise to the entries on and above the diagonal, by `CubeMechanism` or `GaussianMechanism`.
    Source: Jiang, Xie, Zhang 2016, "Wishart mechanism for differentially private principal components analysis" (as published);
    Sheffet 2019, "Old techniques in differentially private linear regression" (corrected, with 28·ln(4/δ)/ε²).

    >>> noise = WishartMechanism(epsilon=1, delta=1e-6, dimensions=3)
    >>> noise.degrees, WishartMechanism(epsilon=1, delta=1e-6, dimensions=3, calibration="profile").degrees
    (428, 45)
    """

    name: ClassVar[str] = "Wishart"

    epsilon: Amount
    delta: Amount
    bound: Amount = 1
    dimensions: int = 2
    calibration: Literal["published", "profile"] = "published"

    def __post_init__(self) -> None:
        set_frozen_fields(
            self,
            epsilon=parse_amount(self.epsilon),
            delta=parse_amount(self.delta, "delta"),
            bound=parse_amount(self.bound, "bound"),
        )
        if parse_amount(self.delta) >= 1:
            raise LossError("delta must be below 1")
        if self.calibration not in ("published", "profile"):
            raise LossError(f"there is no calibration {self.calibration!r}", hint='"published" or "profile"')
        require_dimensions(self.dimensions, _MOST)

    @property
    def degrees(self) -> int:
        """k, the degrees of freedom."""
        epsilon, delta = parse_amount(self.epsilon), parse_amount(self.delta)
        published = math.floor(28 / float(epsilon) ** 2 * math.log(4 / float(delta)))
        if self.calibration == "published":
            return self.dimensions + published
        at = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)

        def exceeds_delta(less: int) -> bool:
            return less < 2 or WishartProfile(less).delta(at).high > delta

        return search_largest(exceeds_delta, published + 1) + 1 + self.dimensions - 1

    @property
    def mean(self) -> Floats:
        """Return the mean of the noise, a multiple of the unit matrix."""
        found: Floats = self.degrees * float(parse_amount(self.bound)) ** 2 * np.eye(self.dimensions)
        return found

    @property
    def variance(self) -> float:
        """Return the variance of an entry on the diagonal, 2k·bound⁴; that of any other entry is half of it."""
        return 2 * self.degrees * float(parse_amount(self.bound)) ** 4

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the ends of the interval that holds the noise of a diagonal entry, with its mean, with that probability.

        Why: it is bound² times a chi-squared variable of k degrees. DataError unless 0 < confidence < 1.
        """
        from scipy.special import gammainccinv, gammaincinv

        if not 0 < confidence < 1:
            raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
        scale, side = 2 * float(parse_amount(self.bound)) ** 2, (1 - confidence) / 2
        low, high = gammaincinv(self.degrees / 2, side), gammainccinv(self.degrees / 2, side)
        return float(scale * low), float(scale * high)

    def sample(self, size: int = 1, *, entropy: Entropy | None = None) -> NDArray[np.float64]:
        """Return `size` independent matrices, shape `(size, dimensions, dimensions)`, in floats: for study."""
        from scipy.special import ndtri

        k, d = self.degrees, self.dimensions
        words = (entropy or SystemEntropy()).draw_words(size * k * d)
        normal = ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(size, k, d)
        found: NDArray[np.float64] = (
            np.einsum("ski,skj->sij", normal, normal) * float(parse_amount(self.bound)) ** 2
        )
        return found

    def density(self, at: Floats) -> Floats:
        """Return the density of an entry on the diagonal, with its mean."""
        from scipy.special import gammaln

        half, scale = self.degrees / 2, 2 * float(parse_amount(self.bound)) ** 2
        x = np.maximum(np.asarray(at, np.float64) / scale, 1e-300)
        found: Floats = np.exp((half - 1) * np.log(x) - x - gammaln(half)) / scale
        return found

    def profile(self) -> WishartProfile:
        """Return the exact profile, up to the rounding of floats."""
        return WishartProfile(self.degrees - self.dimensions + 1)

    def event(self) -> Approximate:
        """Return `Approximate(epsilon, delta)`."""
        return Approximate(Fraction(parse_amount(self.epsilon)), Fraction(parse_amount(self.delta)))


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
        """Return the mechanisms on the entries, each with the whole loss."""
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
        """Return the candidate with the least expected error."""
        return min(self.candidates, key=self._compute_error)

    @property
    def errors(self) -> dict[str, float]:
        """Return the root mean square of the Frobenius norm of the noise, by the names of the mechanisms."""
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
