"""Common parts of the library's mechanisms: exact numbers, lattices, and additive noise on them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import DataError, LossError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.privacy.accounting.events import Event
from dpsql.privacy.accounting.profiles import Profile
from dpsql.privacy.mechanisms.base import Floats, Mechanism
from dpsql.privacy.mechanisms.entropy import Entropy, SystemEntropy

FINENESS = 1 << 20
"""Lattice steps per scale of a continuous law, unless a step is given."""
MOST_DIMENSIONS = 1024
_ROOT_BITS = 64


class LibraryMechanism(Protocol):
    """A mechanism of the literature: losses and sensitivities in, the exact law out.

    `variance` and `interval` describe the error, the released value minus the true one: of each coordinate for additive
    noise, of the score for a selection, of an estimated frequency for a local answer.
    """

    name: ClassVar[str]
    """The name of the mechanism."""

    def sample(self, size: int = 1, *, entropy: Entropy = ...) -> NDArray[Any]:
        """Return `size` independent draws, from the operating system's entropy; another source is for tests."""
        ...

    @property
    def variance(self) -> float:
        """Return the variance of the error, rounded to nearest."""
        ...

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval that holds the error with at least that probability."""
        ...

    def profile(self) -> Profile:
        """Return the least δ at each ε, or an upper bound where the docstring of the class says so."""
        ...

    def event(self) -> Event:
        """Return the event that a ledger or an accountant charges."""
        ...


class NoiseMechanism(ABC):
    """Additive noise, drawn as exact integers on a public lattice.

    Claim: `release` is as private as the class claims for a query of the `sensitivity` in real numbers.
    Why: a value is rounded to the nearest multiple of `step`, which is public; what rounding adds to the sensitivity is
    counted in `law`, and the noise is an integer of steps with exactly that law. Nothing is added up in floats: the
    released number is one exact product. Noise that is drawn in floats and added to a float leaks by its low bits.
    Source: Mironov 2012, "On significance of the least significant bits for differential privacy"; Balcer, Vadhan 2018,
    "Differential privacy on finite computers". The sensitivity of a query that is itself computed in floats may exceed
    that of the same query in real numbers: Casacuberta, Shoemate, Vadhan, Wagaman 2022, "Widespread underestimation of
    sensitivity in differentially private libraries".
    """

    __slots__ = ()

    name: ClassVar[str]
    dimensions: int

    @property
    @abstractmethod
    def law(self) -> Mechanism:
        """Return the law of one coordinate's noise, on the integers: 1 is one `step`."""

    @property
    @abstractmethod
    def spacing(self) -> Fraction:
        """Return the lattice's step, exactly."""

    @abstractmethod
    def profile(self) -> Profile:
        """Return the least δ at each ε."""

    @abstractmethod
    def event(self) -> Event:
        """Return the event that an accountant charges."""

    @abstractmethod
    def density(self, at: Floats) -> Floats:
        """Return the law in closed form: the density, or for integers the probability, of one coordinate's noise."""

    def sample(self, size: int = 1, *, entropy: Entropy | None = None) -> NDArray[Any]:
        """Return independent draws of the noise.

        Args:
            size: The number of draws.
            entropy: The source of random words; the operating system's by default. Another one is for tests.

        Returns:
            An array of shape `(size,)`, or `(size, dimensions)` for vectors: integers if the step is 1, else floats
            that are exact multiples of the step.
        """
        steps = self.law.draw(size * self.dimensions, entropy or SystemEntropy())
        found = self._scale_steps(steps)
        return found if self.dimensions == 1 else found.reshape(size, self.dimensions)

    def release(
        self, values: Amount | Sequence[Any] | NDArray[Any], *, entropy: Entropy | None = None
    ) -> Any:
        """Return the values with noise. Each call is a release of its own.

        An error is visible, too: make sure that no unit's data can cause one.

        Args:
            values: One number, or a sequence of as many numbers as the mechanism has dimensions.
            entropy: The source of random words; the operating system's by default. Another one is for tests.

        Returns:
            One number for one value, else an array.

        Raises:
            DataError: For another number of values, for a value that is not finite, and for one that is not a multiple
                of the step if the mechanism does not round.
        """
        single = isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray))
        given: list[Any] = [values] if single else list(values)  # type: ignore[arg-type]
        if len(given) != self.dimensions:
            raise DataError(f"this mechanism takes {self.dimensions} values, not {len(given)}")
        places = [self._round_to_lattice(value) for value in given]
        steps = self.law.draw(self.dimensions, entropy or SystemEntropy())
        noisy = self._scale_steps([place + noise for place, noise in zip(places, steps, strict=True)])
        return noisy[0].item() if single else noisy

    @property
    def variance(self) -> float:
        """Return the variance of one coordinate's noise, rounded to nearest."""
        return self.law.compute_variance() * float(self.spacing) ** 2

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the interval that holds one coordinate's error with that probability: the noise, and half a step of rounding.

        The ends of the noise are the narrowest in whole steps.

        Args:
            confidence: The probability, between 0 and 1.

        Returns:
            The lower and the upper end, in the units of the values.

        Raises:
            DataError: Unless 0 < confidence < 1.
        """
        rounding = Fraction(1, 2) if self.rounds else Fraction(0)
        reach = float((self.law.compute_half_width(confidence) + rounding) * self.spacing)
        return -reach, reach

    def describe(self) -> str:
        """Return the law in words, in lattice steps."""
        return f"{self.law.describe()}, in steps of {float(self.spacing):.6g}"

    @property
    def rounds(self) -> bool:
        """Return whether values may lie between the points of the lattice; if not, they are refused there."""
        return True

    def _round_to_lattice(self, value: Any) -> int:
        """Return the nearest point of the lattice, in steps, exactly."""
        try:
            steps = Fraction(value.item() if isinstance(value, np.generic) else value) / self.spacing
        except (TypeError, ValueError, OverflowError):
            raise DataError("only finite numbers can be released") from None
        if not self.rounds and steps.denominator != 1:
            raise DataError(
                f"the {self.name} mechanism only takes multiples of {self.spacing}",
                hint="use a mechanism for real numbers, which rounds them and includes the rounding error in its noise",
            )
        return math.floor(steps + Fraction(1, 2))

    def _scale_steps(self, steps: Sequence[int]) -> NDArray[Any]:
        if self.spacing == 1:
            return np.array(steps, np.int64 if all(abs(step) < 1 << 62 for step in steps) else object)
        return np.array([float(step * self.spacing) for step in steps])


def set_frozen_fields(record: object, **values: object) -> None:
    """Set fields of a frozen record while it is made."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def parse_exact_number(value: Any) -> Fraction:
    """Return a finite number of either sign, exactly as it is written; raise DataError for anything else.

    >>> parse_exact_number("-0.1"), parse_exact_number(0)
    (Fraction(-1, 10), Fraction(0, 1))
    """
    plain = value.item() if isinstance(value, np.generic) else value
    try:
        exact: int | Fraction | Decimal = plain if isinstance(plain, (int, Fraction)) else Decimal(str(plain))
        if exact == 0:
            return Fraction(0)
        return parse_amount(exact) if exact > 0 else -parse_amount(-exact)
    except (ArithmeticError, LossError):
        raise DataError("the value must be a finite number") from None


def require_dimensions(dimensions: int, most: int = MOST_DIMENSIONS) -> int:
    """Return `dimensions`; raise LossError unless it is a whole number from 1 to `most`."""
    if type(dimensions) is not int or not 1 <= dimensions <= most:
        raise LossError(f"a vector must have 1 to {most} dimensions, not {dimensions!r}")
    return dimensions


def compute_spacing(step: Amount | None, scale: Fraction) -> Fraction:
    """Return `step`, or the largest power of two that is at most `scale` / 2**20."""
    if step is not None:
        return parse_amount(step, "step")
    wanted = scale / FINENESS
    power = wanted.numerator.bit_length() - wanted.denominator.bit_length()
    found = Fraction(2) ** power
    return found if found <= wanted else found / 2


def bound_steps_moved(sensitivity: Fraction, spacing: Fraction) -> int:
    """Return how many steps the rounding of one number moves at most, if the number moves by at most `sensitivity`.

    Claim: ⌈sensitivity/step⌉.
    Why: with ⌊·⌋ the rounding and f the part that x lies above its point, x + D lies in the row of ⌊f + D⌋ steps more,
    and f < 1.

    >>> bound_steps_moved(Fraction(1), Fraction(1, 4)), bound_steps_moved(Fraction(1), Fraction(2, 3))
    (4, 2)
    """
    return math.ceil(sensitivity / spacing)


def bound_l1_steps(sensitivity: Fraction, spacing: Fraction, dimensions: int) -> int:
    """Bound the l1 norm of a vector in lattice steps: less than a step more for each coordinate.

    >>> bound_l1_steps(Fraction(1), Fraction(1, 4), 1), bound_l1_steps(Fraction(1), Fraction(1, 4), 3)
    (4, 6)
    """
    return math.ceil(sensitivity / spacing + dimensions) - 1


def bound_squared_l2_steps(sensitivity: Fraction, spacing: Fraction, dimensions: int) -> Fraction:
    """Return the square of the same for the l2 norm: the rounding errors add √dimensions, rounded up.

    >>> bound_squared_l2_steps(Fraction(1), Fraction(1, 4), 1)
    Fraction(16, 1)
    """
    if dimensions == 1:
        return Fraction(bound_steps_moved(sensitivity, spacing) ** 2)
    return (sensitivity / spacing + bound_root(Fraction(dimensions))) ** 2


def bound_root(square: Fraction) -> Fraction:
    """Return a rational, barely above the square root.

    >>> 0 < bound_root(Fraction(2)) ** 2 - 2 < Fraction(1, 2**60)
    True
    """
    scaled = square * (1 << 2 * _ROOT_BITS)
    return Fraction(math.isqrt(math.ceil(scaled)) + 1, 1 << _ROOT_BITS)
