"""The privacy profile of a batch of queries that is declared in advance, and the μ of the whole batch.

A batch's questions do not depend on each other's answers. Where they may, this is no filter: compose the μ of the
parts instead (`tests/ledger/test_adaptive.py` holds a counterexample).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.errors import LossError
from dpsql.privacy.accounting.events import BoundedRange, Composed, Event, Gaussian, Pure
from dpsql.privacy.accounting.measurement import compose_mu, measure
from dpsql.privacy.accounting.numerics import Bounds, to_decimal
from dpsql.privacy.accounting.profiles import GeometricProfile, LaplaceProfile, PureProfile, ResponseProfile
from dpsql.privacy.accounting.tradeoffs import bound_lattice_gaussian_mu, bound_range_mu

SymmetricProfile: TypeAlias = PureProfile | LaplaceProfile | GeometricProfile | ResponseProfile
"""Releases whose δ is the same whichever neighbor is real, and whose loss has an end."""

_BLUR = 1e-9  # a few thousand additions of positive floats err by less than a thousandth of that
_OFF = 1e-13  # and no float loss, or what is left of a chance beyond ε, by a hundredth of this
_LEAST = 1e-290
_POINTS = 200
_LONGEST = 60  # up to such losses no chance is so small that it could be taken for a rounding


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The profile of several releases together: `chances` of the losses -n·step, …, n·step.

    Claim: `delta` encloses the δ of the batch.
    Why: each part's loss is spread to the two nearest points of a grid so that both neighbors' chances are kept,
    which makes it no less telling: its δ is the chord of the part's own between grid points. That moves no loss up
    by more than a step, so the δ at an ε less `rounding_shift` is not below the batch's there. All terms are positive, so
    that floats lose no more than a share of 1e-9.
    Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, "Connect the Dots" (the spread).

    >>> sixteen = Batch.from_profiles([(LaplaceProfile(Fraction(1, 10)), 16)])
    >>> round(measure(sixteen).high, 3), round(4 * measure(LaplaceProfile(Fraction(1, 10))).low, 3)
    (Decimal('0.398'), Decimal('0.489'))
    """

    step: Fraction
    rounding_shift: Decimal
    chances: npt.NDArray[np.float64]

    @classmethod
    def from_profiles(cls, parts: Sequence[tuple[SymmetricProfile, int]], points: int = _POINTS) -> Batch:
        """Return the batch of profiles, each with its number of releases.

        Args:
            parts: Pairs of a profile and the number of its releases.
            points: The number of grid steps in the smallest loss; more are slower and closer to the exact profile.

        Raises:
            LossError: Without releases, and for a loss above the supported maximum.
        """
        if not parts or any(count < 1 for _, count in parts):
            raise LossError("a batch must have at least one release of each of its kinds")
        ends = [_compute_largest_loss(profile) for profile, _ in parts]
        if max(ends) > _LONGEST:
            raise LossError(f"the loss of a release in a batch must be at most {_LONGEST}")
        if all(type(profile) is PureProfile for profile, _ in parts) and not any(
            end % min(ends) for end in ends
        ):
            points = 1  # these losses lie on the coarsest grid
        step = min(ends) / points
        laws, moved = [], 0
        for (profile, count), end in zip(parts, ends, strict=True):
            law = _spread_losses(profile, step, -(-end // step))
            laws += [law] * count
            moved += 0 if np.count_nonzero(law) == 2 and end % step == 0 else count
        return cls(step, to_decimal(moved * step), reduce(np.convolve, laws))

    @property
    def tail(self) -> Decimal | None:
        """0, since the losses are bounded."""
        return Decimal(0)

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:  # noqa: ARG002  (the Protocol's)
        """Return the largest loss, above which δ is 0."""
        return to_decimal(self._last_index * self.step)

    @property
    def _last_index(self) -> int:
        return len(self.chances) // 2

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return bounds of the batch's δ."""
        low, high = (
            self._compute_delta(epsilon + self.rounding_shift, -_OFF),
            self._compute_delta(epsilon, _OFF),
        )
        return Bounds(
            Decimal(low * (1 - _BLUR)), min(Decimal(high * (1 + _BLUR) + _LEAST * (high > 0)), Decimal(1))
        )

    def _compute_delta(self, epsilon: Decimal, off: float) -> float:
        first = int(epsilon / to_decimal(self.step)) + 1
        if first > self._last_index:
            return 0.0
        losses = np.arange(first, self._last_index + 1) * float(self.step)
        part = np.maximum(off - np.expm1(float(epsilon) - losses), 0.0)
        return float(np.dot(self.chances[first + self._last_index :], part))


def bound_mu(events: Iterable[Event], margin: Decimal = Decimal("1e-3")) -> Bounds:
    """Return the μ of a batch of events: pure ones are measured together, Gaussian ones are added by √Σμ².

    Args:
        events: The events of the batch; compositions are resolved.
        margin: The largest difference between the two bounds.

    Returns:
        `low` and `high`, between which the μ lies.

    Raises:
        LossError: For events with a δ of their own, which have no Gaussian bound.

    >>> low, high = bound_mu([Pure(Fraction(1, 10))] * 16)
    >>> round(low, 3), round(high, 3)
    (Decimal('0.406'), Decimal('0.407'))
    """
    pure: dict[Fraction, int] = {}
    gaussian: list[Decimal] = []
    stack = list(events)
    while stack:
        match stack.pop():
            case Composed(parts):
                stack += parts
            case Pure(epsilon):
                pure[epsilon] = pure.get(epsilon, 0) + 1
            case Gaussian(rho):
                gaussian.append(bound_lattice_gaussian_mu(rho))
            case BoundedRange(epsilon):
                gaussian.append(bound_range_mu(epsilon))
            case other:
                raise LossError(
                    f"a {type(other).__name__} release has a δ of its own, so it has no Gaussian bound",
                    code="not_gaussian",
                )
    whole = Bounds(Decimal(0), Decimal(0))
    if pure:
        whole = measure(
            Batch.from_profiles([(PureProfile(epsilon), count) for epsilon, count in pure.items()]), margin
        )
    return Bounds(whole.low, compose_mu([whole.high, *gaussian]))


def _compute_largest_loss(profile: SymmetricProfile) -> Fraction:
    if isinstance(profile, GeometricProfile):
        return Fraction(profile.shift) / profile.scale
    return profile.epsilon


def _spread_losses(profile: SymmetricProfile, step: Fraction, cells: int) -> npt.NDArray[np.float64]:
    """Return the chances of the losses -cells·step, …, cells·step, when a loss within a cell goes to its two ends.

    Between grid points δ is linear in e^ε; the chance on the neighbor is the change of its slope at a point.
    """
    with localcontext(prec=110):
        above = [profile.delta(to_decimal(k * step)).high for k in range(cells)] + [Decimal(0)]
        unit = to_decimal(step).exp()
        powers = [unit**k for k in range(-cells, cells + 1)]
        # The pair is symmetric: δ(-ε) = 1 - e^-ε + e^-ε·δ(ε).
        below = [1 - powers[cells - k] * (1 - above[k]) for k in range(cells, 0, -1)]
        deltas = below + above
        slopes = [Decimal(-1)]
        slopes += [(deltas[i + 1] - deltas[i]) / (powers[i + 1] - powers[i]) for i in range(2 * cells)]
        slopes.append(Decimal(0))
        chances = [power * (slopes[i + 1] - slopes[i]) for i, power in enumerate(powers)]
        return np.array([float(chance) if chance > Decimal("1e-60") else 0.0 for chance in chances])
