"""The noise of a weighted mean of several releases of one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from pydantic import StrictInt

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms.base import Floats, Mechanism, MechanismRecord
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.records import StoredMechanism


class CombinedNoiseRecord(MechanismRecord):
    """A `CombinedNoise` in a stored release."""

    kind: Literal["merged"] = "merged"
    parts: list[tuple[StrictInt, StoredMechanism]]

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        return CombinedNoise(tuple(self.parts))


@dataclass(frozen=True, slots=True)
class CombinedNoise(Mechanism):
    """The law of Σ n·V over independent noises V, each with a whole weight n above 0, in steps of 1/Σ n.

    It has no privacy loss of its own: it combines values that were released (post-processing).
    InternalError without parts, or for a weight below 1.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.mechanisms import Geometric
    >>> twice = CombinedNoise(((1, Geometric(Fraction(10))), (1, Geometric(Fraction(10)))))
    >>> twice.subdivisions, round(twice.std / twice.subdivisions / Geometric(Fraction(10)).std, 3)
    (2, 0.707)
    """

    tag: ClassVar[str] = "Merged"
    name: ClassVar[str] = "merged"
    record_type: ClassVar[type[MechanismRecord]] = CombinedNoiseRecord
    tight_tail: ClassVar[bool] = False

    parts: tuple[tuple[int, Mechanism], ...]

    def __post_init__(self) -> None:
        if not self.parts or min(weight for weight, _ in self.parts) < 1:
            raise InternalError("combined noise needs parts, each with a weight of at least 1")

    @property
    def subdivisions(self) -> int:
        """The sum of the weights."""
        return sum(weight for weight, _ in self.parts)

    @property
    def summands(self) -> tuple[tuple[int, Mechanism], ...]:
        """The noises of the releases, with their weights."""
        return self.parts

    @property
    def is_gaussian(self) -> bool:
        """Whether all of it is Gaussian noise."""
        return all(noise.is_gaussian for _, noise in self.parts)

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        return CombinedNoiseRecord.model_construct(parts=list(self.parts))

    def compute_characteristic_function(self, weights: Sequence[float], at: Floats) -> Floats:
        """Return the characteristic function of Σ weight · draw: the product of those of all parts."""
        found = np.ones_like(at)
        for weight, part in self.parts:
            found *= part.compute_characteristic_function([weight * each for each in weights], at)
        return found

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` independent draws from the exact law."""
        drawn = [[weight * each for each in noise.draw(size, entropy)] for weight, noise in self.parts]
        return [sum(each) for each in zip(*drawn, strict=True)]

    def compute_variance(self) -> float:
        """Return the variance in squared steps of 1/Σ n, rounded to nearest."""
        return math.fsum(float(weight) ** 2 * noise.compute_variance() for weight, noise in self.parts)

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`."""
        return bound_tail_by_variance(terms * self.compute_variance(), threshold)

    def describe(self) -> str:
        """Return the law in words."""
        noises = "; ".join(
            f"{weight / self.subdivisions:.3g} of {noise.describe()}" for weight, noise in self.parts
        )
        return f"{self.name}: {noises}"


def bound_tail_by_variance(variance: float, threshold: int) -> float:
    """Return an upper bound on the probability that a noise with this variance is >= `threshold`.

    Source: Cantelli 1910, the one-sided inequality of Chebyshev.
    """
    if threshold < 1:
        return 1.0
    return min(1.0, variance / (variance + float(threshold) ** 2) * (1 + 1e-12))
