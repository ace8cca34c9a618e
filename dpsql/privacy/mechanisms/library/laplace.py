"""The Laplace mechanism and the geometric mechanism: noise of pure loss, for the l1 norm."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Pure
from dpsql.privacy.accounting.profiles import GeometricProfile, Profile, PureProfile
from dpsql.privacy.mechanisms.base import Floats
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.library.base import (
    NoiseMechanism,
    bound_l1_steps,
    compute_spacing,
    require_dimensions,
    set_frozen_fields,
)


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
        """The lattice's step, exactly."""
        return parse_amount(self.step or 1, "step")

    @property
    def law(self) -> Geometric:
        """The two-sided geometric law, in steps."""
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
        """The law itself."""
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
