"""The noise of a value that was adjusted to others: a weighted sum of the noises of all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.base import Mechanism
from dpsql.mechanisms.entropy import Entropy
from dpsql.mechanisms.gaussian import DiscreteGaussian
from dpsql.mechanisms.merged import Merged, tail_by_variance

_MANY = 16
"""So many noises of one law and weight, or more, are drawn as one normal variable of their variance."""


@dataclass(frozen=True, slots=True)
class Projected(Mechanism):
    """The law of Σ n·V over independent noises V with whole weights n, in steps of 1/`whole`.

    A part is a weight, how many noises have it, and their law. It protects nothing: noisy values are adjusted after
    they were released, and cost nothing more. InternalError without parts, or for a number below 1.

    >>> from fractions import Fraction
    >>> from dpsql.mechanisms import Geometric
    >>> noise = Geometric(Fraction(10))
    >>> half = Projected(((1, 2, noise),), 2)
    >>> round(half.std / half.whole / noise.std, 3)
    0.707
    """

    tag: ClassVar[str] = "Projected"
    name: ClassVar[str] = "projected"

    parts: tuple[tuple[int, int, Mechanism], ...]
    whole: int

    def __post_init__(self) -> None:
        if not self.parts or self.whole < 1 or min(times for _, times, _ in self.parts) < 1:
            raise InternalError("what is adjusted has noise")

    @property
    def normal(self) -> bool:
        """Whether all of it is Gaussian noise."""
        return all(is_normal(noise) for _, _, noise in self.parts)

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """`size` draws for simulations: of the exact law, but that many equal noises are drawn as a normal one."""
        columns = []
        for weight, times, noise in self.parts:
            if times < _MANY:
                drawn = noise.draw(size * times, entropy)
                columns.append([weight * sum(drawn[at::size]) for at in range(size)])
            else:
                columns.append(
                    [weight * each for each in _normals(noise.std * math.sqrt(times), size, entropy)]
                )
        return [sum(each) for each in zip(*columns, strict=True)]

    def variance_float(self) -> float:
        """The variance in squared steps of 1/`whole`, rounded to nearest."""
        return math.fsum(
            float(weight) ** 2 * times * noise.variance_float() for weight, times, noise in self.parts
        )

    def sum_tail_up(self, terms: int, threshold: int) -> float:
        """An upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`."""
        return tail_by_variance(terms * self.variance_float(), threshold)

    def describe(self) -> str:
        """The law in words."""
        std = self.std / self.whole
        return f"{self.name}: {sum(times for _, times, _ in self.parts):,} noises, of standard deviation {std:.4g}"


def steps_of(noise: Mechanism) -> int:
    """Into how many a step of the lattice is divided, for what a noise was merged or adjusted to."""
    return noise.whole if isinstance(noise, Merged | Projected) else 1


def is_normal(noise: Mechanism) -> bool:
    """Whether a noise is Gaussian, or put together of Gaussian noise alone."""
    return isinstance(noise, DiscreteGaussian) or (isinstance(noise, Merged | Projected) and noise.normal)


def _normals(std: float, size: int, entropy: Entropy) -> list[int]:
    from scipy.special import ndtri  # scipy costs a tenth of a second, which not every query needs

    words = entropy.words(size).astype(np.float64)
    drawn: list[int] = [round(each) for each in (std * ndtri((words + 0.5) / 2.0**64)).tolist()]
    return drawn
