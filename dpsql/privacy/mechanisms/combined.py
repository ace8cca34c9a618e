"""Noise that is computed from releases: weighted means, and counts made consistent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import StrictInt

from dpsql.errors import InternalError
from dpsql.privacy.mechanisms.base import Floats, Mechanism, MechanismRecord, StoredMechanism
from dpsql.privacy.mechanisms.entropy import Entropy

# The noise of a weighted mean of several releases of one value.


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
        """Return the sum of the weights."""
        return sum(weight for weight, _ in self.parts)

    @property
    def summands(self) -> tuple[tuple[int, Mechanism], ...]:
        """Return the noises of the releases, with their weights."""
        return self.parts

    @property
    def is_gaussian(self) -> bool:
        """Return whether all of it is Gaussian noise."""
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


# The noise of a value that was made consistent with others: a weighted sum of the noises of all of them.


_MANY = 16
"""This many noises of one law and weight, or more, are drawn as one normal variable of their variance."""


_RATIOS = 16
"""Ratios of weights are rounded up to multiples of its inverse, so that few quantiles are needed."""
_STEP, _REACH, _RADII = 0.125, 64.0, 128
"""The function is followed up to 64 inverse standard deviations: the rest of the integral is at most a 100,000th.

In steps of an eighth what lies beyond 25 standard deviations is mistaken, of which there is nothing.
"""
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class ConsistencyNoise(Mechanism):
    """The law of Σ n·V over independent noises V with whole weights n, in steps of 1/`whole`.

    A part is a weight, how many noises have it, and their law. It has no privacy loss of its own: it
    adjusts values that were released (post-processing). InternalError without parts, or for a number below 1.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.mechanisms import Geometric
    >>> noise = Geometric(Fraction(10))
    >>> half = ConsistencyNoise(((1, 2, noise),), 2)
    >>> round(half.std / half.whole / noise.std, 3)
    0.707
    """

    tag: ClassVar[str] = "Projected"
    name: ClassVar[str] = "projected"
    tight_tail: ClassVar[bool] = False

    parts: tuple[tuple[int, int, Mechanism], ...]
    whole: int

    def __post_init__(self) -> None:
        if not self.parts or self.whole < 1 or min(times for _, times, _ in self.parts) < 1:
            raise InternalError("consistency noise needs parts, each with a multiplicity of at least 1")

    @property
    def is_gaussian(self) -> bool:
        """Return whether all of it is Gaussian noise."""
        return all(noise.is_gaussian for _, _, noise in self.parts)

    @property
    def subdivisions(self) -> int:
        """Return the divisor of the sum."""
        return self.whole

    def find_sum_bound(self, confidence: float) -> Callable[[Sequence[float]], float]:
        """Return the t with P(|Σ size · draw| <= t) = `confidence` for cells of one group, in steps of the adjusted cells.

        Claim: the bounds are those of the law in which geometric noise is Laplace's, up to a 1,000th part.
        Why: a sum of independent noises has the product of their characteristic functions, and all of these are real,
        since the laws are symmetric. Half of the longest step is added, because the noise is on a lattice.
        Source: Gil-Pelaez 1951, "Note on the inversion theorem".
        """
        longest = max(abs(weight) for weight, _, _ in self.parts)

        def bound_sum(sizes: Sequence[float]) -> float:
            if not sizes or not sizes[0]:
                return 0.0
            if not self.std:
                return sizes[0] * longest / 2  # all noise is zero, up to the precision of floats
            shape = tuple(math.ceil(size / sizes[0] * _RATIOS) for size in sizes if size)
            return sizes[0] * (self.std * _compute_sum_quantile(self, shape, confidence) + longest / 2)

        return bound_sum

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` draws for simulations, from the exact law, except that many equal noises are drawn as one normal variable."""
        columns = []
        for weight, times, noise in self.parts:
            if times < _MANY:
                drawn = noise.draw(size * times, entropy)
                columns.append([weight * sum(drawn[at::size]) for at in range(size)])
            else:
                columns.append(
                    [
                        weight * each
                        for each in _draw_rounded_normals(noise.std * math.sqrt(times), size, entropy)
                    ]
                )
        return [sum(each) for each in zip(*columns, strict=True)]

    def compute_variance(self) -> float:
        """Return the variance in squared steps of 1/`whole`, rounded to nearest."""
        return math.fsum(
            float(weight) ** 2 * times * noise.compute_variance() for weight, times, noise in self.parts
        )

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`."""
        return bound_tail_by_variance(terms * self.compute_variance(), threshold)

    def describe(self) -> str:
        """Return the law in words."""
        std = self.std / self.whole
        return f"{self.name}: {sum(times for _, times, _ in self.parts):,} noises, of standard deviation {std:.4g}"


@lru_cache(maxsize=4096)
def _compute_sum_quantile(mechanism: ConsistencyNoise, shape: tuple[int, ...], confidence: float) -> float:
    """Return the t with P(|S| <= t·std) = `confidence`, S = Σ w_i z_i, w being `shape` over `_RATIOS`."""
    weights = [part / _RATIOS for part in shape]
    at: Floats = np.arange(_STEP / 2, _REACH, _STEP, dtype=np.float64)
    found = np.ones_like(at)
    scale = mechanism.std
    for weight, times, noise in mechanism.parts:
        found *= (
            noise.compute_characteristic_function([abs(weight) / scale * each for each in weights], at)
            ** times
        )
    density = found / at
    low, high = 0.0, 4 * math.sqrt(len(weights)) * (1 - math.log1p(-confidence))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        within = 2 / math.pi * _STEP * float((density * np.sin(at * middle)).sum())
        low, high = (middle, high) if within < confidence else (low, middle)
    return high


def _draw_rounded_normals(std: float, size: int, entropy: Entropy) -> list[int]:
    from scipy.special import ndtri  # scipy costs a tenth of a second, which not every query needs

    words = entropy.draw_words(size).astype(np.float64)
    drawn: list[int] = [round(each) for each in (std * ndtri((words + 0.5) / 2.0**64)).tolist()]
    return drawn
