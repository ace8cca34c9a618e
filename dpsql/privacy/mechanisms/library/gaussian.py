"""The Gaussian mechanism, calibrated by its profile or by the classical formula, and the discrete Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dpsql.errors import InternalError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Gaussian
from dpsql.privacy.accounting.numerics import convert_to_mu, gaussian_delta, ln_up, to_decimal
from dpsql.privacy.accounting.profiles import GaussianProfile
from dpsql.privacy.accounting.tradeoffs import bound_discrete_gaussian_mu
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.gaussian import DiscreteGaussian
from dpsql.privacy.mechanisms.library.base import (
    NoiseMechanism,
    bound_root,
    bound_squared_l2_steps,
    compute_spacing,
    require_dimensions,
    set_frozen_fields,
)

_UP = Context(prec=60, rounding=ROUND_CEILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism(NoiseMechanism):
    """Noise N(0, σ²) on each of `dimensions` real numbers; `sensitivity` is the largest change in l2 norm.

    `calibration` chooses σ from (epsilon, delta): "analytic" is the least σ whose privacy profile keeps them, at any ε.
    "classical" is sensitivity·√(2·ln(1.25/δ))/ε, which is proved for ε < 1 only and refused (LossError) from there on:
    at δ = 1e-5 it breaks the promise from ε = 9 on, and by far beyond.

    Claim: (ε, δ)-DP. The noise is discrete Gaussian on a lattice of steps, by default at most σ/2**20.
    Why: continuous noise is μ-GDP with μ = sensitivity/σ; on a lattice μ is larger by a part of 1/(24σ²), σ in steps,
    which the calibration counts. Each variance is checked against the profile before it is used.
    Source: Balle, Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8 (analytic);
    Dwork, Roth 2014, "The algorithmic foundations of differential privacy", Theorem A.1 (classical).

    >>> analytic = GaussianMechanism(epsilon=0.5, delta=1e-5)
    >>> classical = GaussianMechanism(epsilon=0.5, delta=1e-5, calibration="classical")
    >>> round(analytic.variance**0.5, 3), round(classical.variance**0.5, 3)
    (7.032, 9.69)
    """

    name: ClassVar[str] = "Gaussian"

    epsilon: Amount
    delta: Amount
    sensitivity: Amount = 1
    dimensions: int = 1
    calibration: Literal["analytic", "classical"] = "analytic"
    step: Amount | None = None

    def __post_init__(self) -> None:
        epsilon, delta = parse_amount(self.epsilon), parse_amount(self.delta, "delta")
        sensitivity = parse_amount(self.sensitivity, "sensitivity")
        if delta >= 1:
            raise LossError("delta must be below 1")
        if self.calibration not in ("analytic", "classical"):
            raise LossError(f"there is no calibration {self.calibration!r}", hint='"analytic" or "classical"')
        if self.calibration == "classical" and epsilon >= 1:
            raise LossError(
                "the classical calibration of Gaussian noise is only proved for epsilon below 1",
                hint='use calibration="analytic", which holds at any epsilon and needs less noise',
            )
        set_frozen_fields(self, epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        require_dimensions(self.dimensions)
        set_frozen_fields(self, step=compute_spacing(self.step, sensitivity / Fraction(self._mu)))
        if gaussian_delta(self.mu, to_decimal(epsilon)).high > to_decimal(delta):
            raise InternalError("the calibrated noise exceeds its privacy loss")

    @property
    def _mu(self) -> Decimal:
        """Return the μ of the calibration."""
        epsilon, delta = parse_amount(self.epsilon), parse_amount(self.delta)
        if self.calibration == "analytic":
            return convert_to_mu(epsilon, delta)
        return to_decimal(epsilon / bound_root(2 * ln_up(Fraction(5, 4) / delta)))

    @property
    def _squared_sensitivity(self) -> Fraction:
        return bound_squared_l2_steps(parse_amount(self.sensitivity), self.spacing, self.dimensions)

    @property
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> DiscreteGaussian:
        """Return the discrete Gaussian law, in squared steps: nearly the least variance with at most the μ of the calibration."""
        wanted = self._mu
        # A twelfth of a squared step is what the lattice costs; whole multiples of 2**-20 keep numbers short.
        variance = self._squared_sensitivity / Fraction(wanted) ** 2 + Fraction(1, 12)
        variance = Fraction(-(-variance.numerator * (1 << 20) // variance.denominator), 1 << 20)
        while bound_discrete_gaussian_mu(variance, self._squared_sensitivity) > wanted:
            variance += variance / 1024
        return DiscreteGaussian(variance)

    @property
    def mu(self) -> Decimal:
        """Return the μ of the noise in Gaussian differential privacy, rounded up."""
        return bound_discrete_gaussian_mu(self.law.variance, self._squared_sensitivity)

    def profile(self) -> GaussianProfile:
        """Return the profile of `mu`-GDP, which the lattice attains except for a share of 1/(24σ²)."""
        return GaussianProfile(self.mu)

    def event(self) -> Gaussian:
        """Return `Gaussian(rho)` with rho = sensitivity²/(2σ²)."""
        return Gaussian(self.law.compute_rho(self._squared_sensitivity))

    def density(self, at: Floats) -> Floats:
        """Return e^(-z²/2σ²)/(σ√2π)."""
        return _compute_normal_density(at, self.variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianMechanism(NoiseMechanism):
    """Noise k with probability proportional to e^(-k²/2σ²), σ² = sensitivity²/(2·rho), on each of `dimensions` integers.

    Claim: ρ-zCDP for integers whose l2 norm moves by at most `sensitivity`, with a variance of at most σ².
    Why: see `DiscreteGaussian`. The profile is that of the μ-GDP that the law keeps, an upper bound.
    Source: Canonne, Kamath, Steinke 2020, "The discrete Gaussian for differential privacy", Theorem 4.

    >>> noise = DiscreteGaussianMechanism(rho=0.005)
    >>> round(noise.variance, 6), noise.interval(0.95)
    (100.0, (-20.0, 20.0))
    """

    name: ClassVar[str] = "discrete Gaussian"

    rho: Amount
    sensitivity: Amount = 1
    dimensions: int = 1

    def __post_init__(self) -> None:
        set_frozen_fields(
            self, rho=parse_amount(self.rho, "rho"), sensitivity=parse_amount(self.sensitivity, "sensitivity")
        )
        require_dimensions(self.dimensions)

    @property
    def spacing(self) -> Fraction:
        """1."""
        return Fraction(1)

    @property
    def rounds(self) -> bool:
        """False: for whole numbers only."""
        return False

    @property
    def law(self) -> DiscreteGaussian:
        """Return the law itself."""
        return DiscreteGaussian.calibrate(parse_amount(self.sensitivity) ** 2, parse_amount(self.rho))

    def profile(self) -> GaussianProfile:
        """Return the profile of the μ-GDP that the law satisfies."""
        return GaussianProfile(
            bound_discrete_gaussian_mu(self.law.variance, parse_amount(self.sensitivity) ** 2)
        )

    def event(self) -> Gaussian:
        """Return `Gaussian(rho)`."""
        return Gaussian(parse_amount(self.rho))

    def density(self, at: Floats) -> Floats:
        """Return e^(-k²/2σ²) over its sum."""
        parameter = float(self.law.variance)
        reach = np.arange(-int(12 * parameter**0.5) - 12, int(12 * parameter**0.5) + 13)
        found: Floats = np.exp(-(at**2) / (2 * parameter)) / np.exp(-(reach**2) / (2 * parameter)).sum()
        return found


def _compute_normal_density(at: Floats, variance: float) -> Floats:
    found: Floats = np.exp(-(at**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    return found
