"""The K-norm mechanisms for the l∞ and the l2 norm: the cube and the vector mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsql.errors import DataError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.accounting.profiles import PureProfile
from dpsql.privacy.mechanisms.base import Floats, Mechanism, MechanismRecord
from dpsql.privacy.mechanisms.cube import MOST_DIMENSIONS, LInfinityMechanism
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.library.base import (
    NoiseMechanism,
    bound_root,
    bound_squared_l2_steps,
    bound_steps_moved,
    compute_spacing,
    require_dimensions,
    set_frozen_fields,
)
from dpsql.privacy.mechanisms.sampler import clear_cache, sample_l2_vectors

MOST_OF_BALL = 12
"""The largest dimension: with more, so few proposals are kept that a draw takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeMechanism(NoiseMechanism):
    """Noise with density proportional to e^(-ε·max|z_i|/sensitivity) on `dimensions` numbers that may all move at once.

    `sensitivity` is the largest change of any one of them.

    Claim: ε-DP; each number's variance is (k+1)(k+2)·sensitivity²/(3ε²), where a split of the loss costs 2k²·sensitivity²/ε².
    The profile is that of any ε-DP release, an upper bound.
    Why: see `LInfinityMechanism`, which is the law on a lattice of steps, by default at most sensitivity/ε/2**20.
    Source: Hardt, Talwar 2010, "On the geometry of differential privacy", section 4.

    >>> round(CubeMechanism(epsilon=1, dimensions=4).variance, 3)
    10.0
    """

    name: ClassVar[str] = "cube"

    epsilon: Amount
    sensitivity: Amount = 1
    dimensions: int = 2
    step: Amount | None = None

    def __post_init__(self) -> None:
        epsilon, sensitivity = parse_amount(self.epsilon), parse_amount(self.sensitivity, "sensitivity")
        set_frozen_fields(
            self,
            epsilon=epsilon,
            sensitivity=sensitivity,
            step=compute_spacing(self.step, sensitivity / epsilon),
        )
        require_dimensions(self.dimensions, MOST_DIMENSIONS)

    @property
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> LInfinityMechanism:
        """Return the law on the lattice."""
        moved = bound_steps_moved(parse_amount(self.sensitivity), self.spacing)
        return LInfinityMechanism.calibrate(Fraction(moved), parse_amount(self.epsilon), self.dimensions)

    def profile(self) -> PureProfile:
        """Return an upper bound."""
        return PureProfile(parse_amount(self.epsilon))

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def density(self, at: Floats) -> Floats:
        """Return the density of one coordinate: the sum over j < k of (|z|/b)^j/j!·e^(-|z|/b), over 2kb.

        Why: the radius is a gamma variable of shape k+1, in units of b, and a coordinate is uniform within it.
        """
        from scipy.special import gammaincc

        scale, k = float(parse_amount(self.sensitivity) / parse_amount(self.epsilon)), self.dimensions
        found: Floats = gammaincc(k, np.abs(at) / scale) / (2 * k * scale)
        return found


@dataclass(frozen=True, slots=True)
class KNormMechanism(Mechanism):
    """The law of `sample_l2_vectors`: vectors z of integers with probability proportional to a**⌈‖z‖₂⌉, a = exp(-1/scale).

    Claim: (⌈l2_sensitivity⌉/scale)-DP for integers.
    Why: ⌈‖z + d‖₂⌉ <= ⌈‖z‖₂⌉ + ⌈‖d‖₂⌉ (triangle inequality), with one normalizer.
    Source: Hardt, Talwar 2010, section 4; on integers derived here.

    `compute_variance` and `compute_half_width` are those of the continuous law e^(-‖z‖₂/scale), one step and more wider: the norms of
    both differ by less than a step and √dimensions/2, so at 2**20 steps a scale by less than a part in 10**5.
    """

    name: ClassVar[str] = "ball"
    independent: ClassVar[bool] = False
    record_type: ClassVar[type[MechanismRecord]] = MechanismRecord

    scale: Fraction
    dimensions: int

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return the coordinates of independent vectors, one vector after the other."""
        drawn = sample_l2_vectors(self.scale, self.dimensions, size // self.dimensions, entropy)
        clear_cache()  # of the coins of these draws
        flat: list[int] = drawn.ravel().tolist()
        return flat

    def compute_variance(self) -> float:
        """Return (d+1)·scale², the variance of the continuous law: of a coordinate of a gamma radius in a uniform direction."""
        return (self.dimensions + 1) * float(self.scale) ** 2

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Bound P(one coordinate of the continuous law >= `threshold`); sums are not known."""
        if terms > 1:
            return 1.0
        beyond = 1 - compute_coordinate_probability(self.dimensions, abs(threshold) / float(self.scale))
        return beyond / 2 if threshold >= 0 else 1 - beyond / 2

    def compute_half_width(self, confidence: float) -> int:
        """Return the t with P(|coordinate| <= t) = `confidence` in the continuous law, and 1 + √dimensions steps more."""
        from scipy.optimize import brentq

        if not 0 < confidence < 1:
            raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
        k, most = self.dimensions, (self.dimensions - math.log1p(-confidence)) * 4
        reach = brentq(lambda t: compute_coordinate_probability(k, t) - confidence, 0, most, xtol=1e-12)
        return math.ceil(reach * float(self.scale)) + 1 + math.isqrt(k) + 1

    def describe(self) -> str:
        """Return the law in words.

        >>> KNormMechanism(Fraction(20), 3).describe()
        'ball, scale 20, of 3 numbers at once'
        """
        return f"{self.name}, scale {float(self.scale):.6g}, of {self.dimensions} numbers at once"


def compute_coordinate_probability(dimensions: int, reach: float) -> float:
    """Return P(|z_1| <= reach) where z has the density proportional to e^-‖z‖₂.

    Why: z has the characteristic function (1 + ‖w‖²)^(-(d+1)/2), as √(2g) times a standard normal vector has for a gamma
    variable g of shape (d+1)/2.
    """
    from scipy.integrate import quad
    from scipy.special import gamma

    shape = (dimensions + 1) / 2
    # With g = s², the integrand is smooth at 0.
    value, _ = quad(
        lambda s: 2 * s ** (2 * shape - 1) * math.exp(-s * s) * math.erf(reach / (2 * s)) / gamma(shape),
        1e-12,
        math.sqrt(shape) + 12,
        limit=200,
        epsabs=1e-12,
    )
    return float(min(1.0, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMechanism(NoiseMechanism):
    """Noise with density proportional to e^(-ε·‖z‖₂/sensitivity) on a vector; `sensitivity` is its largest change in l2 norm.

    Claim: ε-DP; each coordinate's variance is (d+1)·sensitivity²/ε². The profile is that of any ε-DP release, an upper bound.
    Why: a shift by v changes ‖z‖₂ by at most ‖v‖₂. The noise is `KNormMechanism` on a lattice of steps, by default at most
    sensitivity/ε/2**20, where ⌈‖z‖₂⌉ takes the place of the norm. Independent Laplace noise of scale sensitivity/ε in
    each coordinate, with that l2 sensitivity, is not ε-DP but (√d·ε)-DP: the l1 norm may be √d times as long.
    Source: Chaudhuri, Monteleoni, Sarwate 2011, "Differentially private empirical risk minimization", Algorithm 1; Hardt,
    Talwar 2010, section 4.

    >>> round(VectorMechanism(epsilon=1, dimensions=3).variance, 3)
    4.0
    """

    name: ClassVar[str] = "vector"

    epsilon: Amount
    sensitivity: Amount = 1
    dimensions: int = 2
    step: Amount | None = None

    def __post_init__(self) -> None:
        epsilon, sensitivity = parse_amount(self.epsilon), parse_amount(self.sensitivity, "sensitivity")
        set_frozen_fields(
            self,
            epsilon=epsilon,
            sensitivity=sensitivity,
            step=compute_spacing(self.step, sensitivity / epsilon),
        )
        require_dimensions(self.dimensions, MOST_OF_BALL)

    @property
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> KNormMechanism:
        """Return the law on the lattice."""
        moved = bound_root(
            bound_squared_l2_steps(parse_amount(self.sensitivity), self.spacing, self.dimensions)
        )
        return KNormMechanism(Fraction(math.ceil(moved)) / parse_amount(self.epsilon), self.dimensions)

    def profile(self) -> PureProfile:
        """Return an upper bound."""
        return PureProfile(parse_amount(self.epsilon))

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def density(self, at: Floats) -> Floats:
        """Return the density of one coordinate: (|z|/2b)^(d/2)·K_(d/2)(|z|/b) over b·√π·Γ((d+1)/2).

        Source: the Bessel integral of the mixture in `compute_coordinate_probability`.
        """
        from scipy.special import gamma, kv

        scale, order = float(parse_amount(self.sensitivity) / parse_amount(self.epsilon)), self.dimensions / 2
        x = np.maximum(np.abs(np.asarray(at, np.float64)) / scale, 1e-9)
        found: Floats = (x / 2) ** order * kv(order, x) / (scale * math.sqrt(math.pi) * gamma(order + 0.5))
        return found
