"""The discrete staircase mechanism: the least noise for one integer with a bounded change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import StrictInt

from dpsql.errors import InternalError
from dpsql.privacy.accounting.accountants.base import search_largest
from dpsql.privacy.accounting.numerics import exp, make_guarded_context
from dpsql.privacy.mechanisms.base import (
    ComponentChanges,
    ExactText,
    Mechanism,
    MechanismRecord,
    Sensitivity,
    require_parameter,
    require_positive_loss,
)
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.sampler import sample_staircase

_UP = 1 + Decimal(10) ** -30
_WIDEST = 1 << 256
_LARGEST_EXPONENT, _NEAR_ONE = 700.0, 1 - 1e-6
"""The limits within which floats have digits left for the first guess at the first stair."""


class StaircaseRecord(MechanismRecord):
    """A `Staircase` in a stored release."""

    kind: Literal["staircase"] = "staircase"
    loss: ExactText
    width: StrictInt
    inner: StrictInt

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        return Staircase(self.loss, self.width, self.inner)


@dataclass(frozen=True, slots=True)
class Staircase(Mechanism):
    """Integer noise k with probability proportional to b**j, b = exp(-`loss`), j the stairs below |k|.

    The first stair ends before `inner`, and each further one is `width` long: |k| < inner has j = 0, then
    inner <= |k| < inner + width has j = 1, and so on. Both are in lattice steps, 1 <= inner <= width.
    InternalError for other numbers, or unless `loss` is a positive Fraction.

    Claim: added to one integer that moves by at most d steps it is (⌈d / width⌉ · loss)-differentially
    private; added to the cells of a vector independently, the sum over the cells of this, and so at most
    n · loss where the change is a sum of n moves, each of one cell by at most `width`. It is not private for
    the l1 norm: of two cells that move by width/2 each may cost the whole `loss`.
    Why: j is ⌊(|k| + width - inner) / width⌋. A move of the center by at most `width` changes |k| by at
    most `width` (triangle inequality), so j by at most 1, and the probability by at most a factor 1/b, with
    the same normalizer; longer moves are made of such ones, and over independent cells factors multiply.
    Which `inner` is chosen does not matter for this.
    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", section V
    (integers); Geng, Kairouz, Oh, Viswanath 2015, "The staircase mechanism in differential privacy".

    >>> noise = Staircase.calibrate(cell=1000, cells=1, epsilon=Fraction(3))
    >>> noise, noise.compute_epsilon(cell=1000, cells=1)
    (Staircase(loss=Fraction(3, 1), width=1000, inner=260), Fraction(3, 1))
    >>> noise.compute_epsilon(cell=500, cells=2)
    Fraction(6, 1)
    """

    tag: ClassVar[str] = "Staircase"
    name: ClassVar[str] = "staircase"
    record_type: ClassVar[type[MechanismRecord]] = StaircaseRecord
    scaled_by_changes: ClassVar[bool] = True

    loss: Fraction
    width: int
    inner: int

    def __post_init__(self) -> None:
        require_parameter(self.loss, 256, "loss of a stair")
        if type(self.width) is not int or type(self.inner) is not int:
            raise InternalError("the length of a stair must be a whole number of steps")
        if not 1 <= self.inner <= self.width <= _WIDEST:
            raise InternalError(f"no staircase has stairs of {self.inner} and {self.width} steps")

    @classmethod
    def calibrate(cls, cell: int, cells: int, epsilon: Fraction) -> Staircase:
        """Return the mechanism with loss `epsilon` and the least variance for `cells` moves of one cell by `cell` steps each.

        LossError unless `epsilon` is a positive Fraction, InternalError unless both numbers are positive.
        """
        if cells < 1 or not 1 <= cell <= _WIDEST:
            raise InternalError(f"no staircase is for {cells} moves by {cell} steps")
        loss = require_positive_loss(epsilon, "epsilon") / cells
        require_parameter(loss, 256, "loss of a stair")
        return cls(loss, cell, _compute_optimal_inner(loss, cell))

    def compute_epsilon(self, cell: int, cells: int) -> Fraction:
        """Return the loss of a release whose change is `cells` moves of one cell by at most `cell`, exactly."""
        return cells * -(-cell // self.width) * self.loss

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> Staircase:
        """Return the mechanism with the same loss for as many `moves`."""
        if changes is None:
            raise InternalError("staircase noise is for cells that move one at a time")
        return Staircase.calibrate(changes.size, changes.count, changes.count * self.loss)

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        return StaircaseRecord(loss=self.loss, width=self.width, inner=self.inner)

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` independent draws from the exact law."""
        draws: list[int] = sample_staircase(self.loss, self.width, self.inner, size, entropy).tolist()
        return draws

    def compute_variance(self) -> float:
        """Return the variance in squared lattice steps, rounded to nearest."""
        with localcontext(_make_precise_context(self.loss, self.width)):
            above, below = _compute_variance_ratio(exp(-self.loss), self.width, self.inner)
            return float(above / below)

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`.

        Claim: for one term it is the exact probability, rounded up; for more a bound.
        Why: with t = i·width + u, 0 <= u < width, the weights of the numbers from t on are b**i times those
        of u and beyond: of what is left of the first `width` numbers, which weigh 1 below `inner` and b from
        there on, and of all later rows of `width`, b/(1-b) times as much as the first row. Those of all
        numbers are 2/(1-b) times the first row's, less 1 for zero, which is counted twice. For t < 1
        symmetry gives P(z >= t) = 1 - P(z >= 1-t). A sum of n is >= t only if one term is >= t/n.
        All terms are positive except one that is at most half of the term from which it is subtracted, so 50 digits leave a
        relative error far below the 1e-30 put on top, and the next float up is above what is too small for a
        float.
        """
        if terms > 1:
            each = self.bound_sum_tail(1, -(-threshold // terms)) if threshold >= 1 else 1.0
            return min(1.0, math.nextafter(terms * each, math.inf))
        distance = max(threshold, 1 - threshold)
        rows, place = divmod(distance, self.width)
        with localcontext(make_guarded_context(1 / self.loss)):
            ratio = exp(-self.loss)
            row = self.inner + ratio * (self.width - self.inner)
            left = max(0, self.inner - place) + ratio * (self.width - max(self.inner, place))
            total = exp(-rows * self.loss) * (left * (1 - ratio) + ratio * row) / (2 * row - (1 - ratio))
            upper = (total if threshold == distance else 1 - total) * _UP
        return min(1.0, math.nextafter(float(upper), math.inf))

    def describe(self) -> str:
        """Return the law in words.

        >>> Staircase(Fraction(3), 1000, 260).describe()
        'staircase, stairs of 1000 steps, the first 260, standard deviation 390.735'
        """
        return (
            f"{self.name}, stairs of {self.width} steps, the first {self.inner}, "
            f"standard deviation {self.std:.6g}"
        )


@lru_cache(maxsize=1024)
def _compute_optimal_inner(loss: Fraction, width: int) -> int:
    """Return the length of the first stair at which the variance is least.

    Why: as a function of that length the variance is a cubic over a line, both positive, and the cubic is
    convex; so it falls up to its least value and rises from there on. That it is the least over all lengths
    is an aim, not a claim of privacy.
    """
    with localcontext(_make_precise_context(loss, width)):
        ratio = exp(-loss)

        def is_rising(inner: int) -> bool:
            above, below = _compute_variance_ratio(ratio, width, inner)
            above_next, below_next = _compute_variance_ratio(ratio, width, inner + 1)
            return above_next * below >= above * below_next

        if width == 1 or is_rising(1):
            return 1
        # One more than the greatest length from which the variance still falls; all lengths are below `width`.
        return (
            search_largest(
                lambda inner: inner < width and not is_rising(inner), _guess_optimal_inner(loss, width)
            )
            + 1
        )


def _guess_optimal_inner(loss: Fraction, width: int) -> int:
    """Estimate the length of the first stair that minimizes the variance, from the continuous law.

    Source: Geng, Viswanath 2016, "The optimal noise-adding mechanism in differential privacy", section IV.
    """
    ratio = math.exp(-min(float(loss), _LARGEST_EXPONENT))
    if ratio > _NEAR_ONE:
        return width // 2
    return int(((ratio * (1 + ratio) / 2) ** (1 / 3) - ratio) / (1 - ratio) * width)


def _compute_variance_ratio(ratio: Decimal, width: int, inner: int) -> tuple[Decimal, Decimal]:
    """Return the variance as a quotient.

    Why: a row of `width` numbers has the sums of weights, of weights times places and of weights times
    squared places s0, s1, s2; row i is b**i of the first, moved by i·width. So the weighted squares add up to
    the sum over i of b**i · (i²·width²·s0 + 2i·width·s1 + s2), and all weights to s0 / (1-b), on each side.
    """
    sums = ((n, n * (n - 1) // 2, (n - 1) * n * (2 * n - 1) // 6) for n in (inner, width))
    s0, s1, s2 = (near + ratio * (whole - near) for near, whole in zip(*sums, strict=True))
    rest = 1 - ratio
    above = width * width * ratio * (1 + ratio) / rest**2 * s0 + 2 * width * ratio / rest * s1 + s2
    return 2 * above, 2 * s0 - rest


def _make_precise_context(loss: Fraction, width: int) -> Context:
    """See `make_guarded_context`, with as many more as neighboring lengths of the first stair are alike in."""
    known = make_guarded_context(1 / loss)
    return Context(prec=3 * known.prec + 3 * len(str(width)))
