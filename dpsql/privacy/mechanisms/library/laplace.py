"""Pure noise on numbers: Laplace, geometric and staircase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dpsql.errors import LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.accounting.profiles import GeometricProfile, Profile, PureProfile, StaircaseProfile
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.library.base import (
    NoiseMechanism,
    bound_l1_steps,
    bound_steps_moved,
    compute_spacing,
    require_dimensions,
    set_frozen_fields,
)
from dpsql.privacy.mechanisms.staircase import Staircase

# The Laplace mechanism and the geometric mechanism: noise of pure loss, for the l1 norm.


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism(NoiseMechanism):
    """Noise with density e^(-|z|/b)/2b, b = sensitivity/epsilon, on each of `dimensions` real numbers.

    `sensitivity` is the largest change of the vector in l1 norm, in the units of the values, as `step` is.

    Claim: ε-DP. The noise is two-sided geometric on a lattice of steps, by default at most b/2**20, with the scale that
    the sensitivity of the rounded vector asks for; its law differs from the continuous one by less than a step.
    Why: a shift by d changes the density by at most e^(|d|/b), and over coordinates the |d| add up to the l1 norm.
    The profile of one number is exact; of more it is that of any ε-DP release, an upper bound.
    Source: Dwork, McSherry, Nissim, Smith 2006, "Calibrating noise to sensitivity in private data analysis", Example 1;
    Balle, Barthe, Gaboardi 2020, Theorem 3 (profile).

    >>> noise = LaplaceMechanism(epsilon=0.5, sensitivity=1)
    >>> round(noise.variance, 4), [round(end, 2) for end in noise.interval(0.95)]
    (8.0, [-5.99, 5.99])
    """

    name: ClassVar[str] = "Laplace"

    epsilon: Amount
    sensitivity: Amount = 1
    dimensions: int = 1
    step: Amount | None = None

    def __post_init__(self) -> None:
        epsilon, sensitivity = parse_amount(self.epsilon), parse_amount(self.sensitivity, "sensitivity")
        step = compute_spacing(self.step, sensitivity / epsilon)
        set_frozen_fields(self, epsilon=epsilon, sensitivity=sensitivity, step=step)
        require_dimensions(self.dimensions)

    @property
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> Geometric:
        """Return the two-sided geometric law, in steps."""
        moved = bound_l1_steps(parse_amount(self.sensitivity), self.spacing, self.dimensions)
        return Geometric.calibrate(Fraction(moved), parse_amount(self.epsilon))

    def profile(self) -> Profile:
        """Return the profile of the noise: exact for one number, an upper bound for a vector."""
        if self.dimensions > 1:
            return PureProfile(parse_amount(self.epsilon))
        return GeometricProfile(
            self.law.scale, bound_l1_steps(parse_amount(self.sensitivity), self.spacing, 1)
        )

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def density(self, at: Floats) -> Floats:
        """Return e^(-|z|/b)/2b."""
        scale = float(parse_amount(self.sensitivity) / parse_amount(self.epsilon))
        found: Floats = np.exp(-np.abs(at) / scale) / (2 * scale)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricMechanism(NoiseMechanism):
    """Noise k with probability (1-a)/(1+a)·a^|k|, a = e^(-epsilon/sensitivity), on each of `dimensions` integers.

    Claim: ε-DP for integers whose l1 norm moves by at most `sensitivity`; exact, and no smaller ε holds.
    Why: as for the Laplace mechanism, of which it is the law on the integers. In a text that parametrises the law by
    α > 1, with probability ((α-1)/(α+1))·α^-|k|, α is e^(ε/sensitivity), not ε/sensitivity.
    Source: Ghosh, Roughgarden, Sundararajan 2009, "Universally utility-maximizing privacy mechanisms".

    >>> noise = GeometricMechanism(epsilon=1)
    >>> round(noise.variance, 4), noise.interval(0.95)
    (1.8413, (-3.0, 3.0))
    """

    name: ClassVar[str] = "geometric"

    epsilon: Amount
    sensitivity: Amount = 1
    dimensions: int = 1

    def __post_init__(self) -> None:
        set_frozen_fields(
            self,
            epsilon=parse_amount(self.epsilon),
            sensitivity=parse_amount(self.sensitivity, "sensitivity"),
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
    def law(self) -> Geometric:
        """Return the law itself."""
        return Geometric.calibrate(parse_amount(self.sensitivity), parse_amount(self.epsilon))

    def profile(self) -> Profile:
        """Return the profile: exact for one integer that moves by a whole number of steps, else an upper bound."""
        moved = parse_amount(self.sensitivity)
        if self.dimensions > 1 or moved.denominator != 1:
            return PureProfile(parse_amount(self.epsilon))
        return GeometricProfile(self.law.scale, int(moved))

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def density(self, at: Floats) -> Floats:
        """Return (1-a)/(1+a)·a^|k|."""
        rate = float(parse_amount(self.epsilon) / parse_amount(self.sensitivity))
        found: Floats = np.tanh(rate / 2) * np.exp(-rate * np.abs(at))
        return found


# The staircase mechanism: the least noise of pure loss for one number, for either of two costs.


_FAR = 700


@dataclass(frozen=True, slots=True, kw_only=True)
class StaircaseMechanism(NoiseMechanism):
    """Noise on one number whose density falls by the factor e^-ε at γ·Δ, (1+γ)·Δ, (2+γ)·Δ, …, Δ being the sensitivity.

    `cost` says which error is least: "l1", the mean of |z|, or "l2", its square's. With `step=1` and whole numbers it is the
    staircase on integers; by default it is on a lattice of at most sensitivity/ε/2**20, nearly the continuous law.

    Claim: ε-DP, whatever γ is, and no noise of pure loss has a smaller cost for one number, with the γ that is chosen here.
    Why: see `Staircase`. For "l1" γ = 1/(1 + e^(ε/2)); on a lattice the best whole number of steps is one of the two beside
    it, as the cost is a square over a line in γ. It is no special case of the Laplace mechanism: both are additive.
    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", Theorems 3 to 5; Geng,
    Kairouz, Oh, Viswanath 2015, "The staircase mechanism in differential privacy".

    >>> noise = StaircaseMechanism(epsilon=5)
    >>> round(noise.variance / (2 / 5**2), 2)  # of that of Laplace noise
    0.37
    """

    name: ClassVar[str] = "staircase"
    dimensions: ClassVar[int] = 1  # type: ignore[misc]

    epsilon: Amount
    sensitivity: Amount = 1
    cost: Literal["l1", "l2"] = "l2"
    step: Amount | None = None

    def __post_init__(self) -> None:
        epsilon, sensitivity = parse_amount(self.epsilon), parse_amount(self.sensitivity, "sensitivity")
        if self.cost not in ("l1", "l2"):
            raise LossError(f"there is no cost {self.cost!r}", hint='"l1" or "l2"')
        step = compute_spacing(self.step, sensitivity / max(epsilon, Fraction(1)))
        set_frozen_fields(self, epsilon=epsilon, sensitivity=sensitivity, step=step)

    @property
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> Staircase:
        """Return the law on the lattice."""
        epsilon, width = (
            parse_amount(self.epsilon),
            bound_steps_moved(parse_amount(self.sensitivity), self.spacing),
        )
        if self.cost == "l2":
            return Staircase.calibrate(width, 1, epsilon)
        around = width / (1 + math.exp(min(float(epsilon) / 2, _FAR)))
        candidates = {min(max(1, math.floor(around) + shift), width) for shift in (-1, 0, 1, 2)}
        inner = min(sorted(candidates), key=lambda inner: compute_mean_magnitude(epsilon, width, inner))
        return Staircase(epsilon, width, inner)

    @property
    def gamma(self) -> float:
        """γ, the length of the first stair as a part of the sensitivity."""
        law = self.law
        return law.inner / law.width

    def profile(self) -> StaircaseProfile:
        """Return the exact one."""
        law = self.law
        return StaircaseProfile(parse_amount(self.epsilon), law.width, law.inner)

    def event(self) -> Pure:
        """Return `Pure(epsilon)`."""
        return Pure(parse_amount(self.epsilon))

    def density(self, at: Floats) -> Floats:
        """Return the density; with the step 1 the probabilities of integers."""
        law, ratio, step = self.law, math.exp(-float(parse_amount(self.epsilon))), float(self.spacing)
        steps = np.abs(np.asarray(at, np.float64)) / step
        first = law.inner - (0.5 if self.spacing != 1 else 0)
        stairs = np.floor((steps + law.width - first) / law.width)
        total = 2 * (law.inner + ratio * (law.width - law.inner)) / (1 - ratio) - 1
        found: Floats = ratio**stairs / total / step
        return found


def compute_mean_magnitude(loss: Fraction, width: int, inner: int) -> float:
    """Return the mean of |k| in steps.

    Why: a row of `width` numbers has the weights and the places s0 and s1, row i is b**i of the first, moved by i·width.
    """
    ratio = math.exp(-float(loss))
    s0 = inner + ratio * (width - inner)
    s1 = inner * (inner - 1) / 2 * (1 - ratio) + ratio * width * (width - 1) / 2
    rest = -math.expm1(-float(loss))
    return 2 * (width * ratio * s0 / rest + s1) / (2 * s0 - rest)
