"""The protocol of additive noise mechanisms, and the sensitivity that they are calibrated to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Protocol, Union

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    PlainSerializer,
    PlainValidator,
    Tag,
    TypeAdapter,
    model_serializer,
    model_validator,
)

from dpsql.errors import DataError, InternalError, LossError
from dpsql.privacy.mechanisms.entropy import Entropy

Floats = NDArray[np.float64]

_LEAST_PROBABILITY = Fraction(1, 2**900)
_LEAST_FLOAT, _LARGE = 5e-324, 1e300


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The sensitivity: how far one privacy unit moves a vector of integers, in lattice steps.

    `l1` is the largest change in l1 norm, `l2_squared` the square of the largest change in l2 norm.
    `linf` is the largest sum, over the groups of the vector, of each group's largest change; that it is no
    more than `l1` is all that is known of it where it is not given. InternalError if one is negative, or
    another norm passes the l1 norm, which no vector's does.

    >>> Sensitivity(l1=Fraction(2), l2_squared=Fraction(2))
    Sensitivity(l1=Fraction(2, 1), l2_squared=Fraction(2, 1), linf=Fraction(2, 1))
    """

    tag: ClassVar[str] = "Sensitivity"

    l1: Fraction
    l2_squared: Fraction
    linf: Fraction = Fraction(-1)

    def __post_init__(self) -> None:
        # In whole numbers: of these there are many to a plan.
        (above, below), (square, divisor) = self.l1.as_integer_ratio(), self.l2_squared.as_integer_ratio()
        if above < 0 or not 0 <= square * below * below <= above * above * divisor:
            raise InternalError(f"no vector has l1 norm {self.l1} and squared l2 norm {self.l2_squared}")
        if self.linf.numerator < 0:
            object.__setattr__(self, "linf", self.l1)
        elif self.linf > self.l1:
            raise InternalError(f"no vector has l1 norm {self.l1} and l∞ norm {self.linf}")


def _parse_fraction(value: object) -> Fraction:
    if isinstance(value, Fraction):
        return value
    if not isinstance(value, str):
        raise ValueError("an exact number is stored as text")  # noqa: TRY004 - pydantic expects it
    try:
        return Fraction(value)
    except ZeroDivisionError:
        raise ValueError("the denominator is zero") from None


ExactText = Annotated[Fraction, PlainValidator(_parse_fraction), PlainSerializer(str)]
"""An exact number in a record: the text of a whole number or of a ratio."""


class MechanismRecord(BaseModel):
    """A mechanism as stored releases hold it: the list of its word and its parameters, in this order.

    The first field is `kind: Literal[…] = …`, the word; the others are the parameters. Words and the order of fields
    never change: stored releases keep them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_mechanism(self) -> Mechanism:
        """Return the mechanism with these parameters."""
        raise NotImplementedError

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        names = tuple(cls.model_fields)
        if len(value) != len(names):
            raise ValueError(f"the record has {len(names)} parts, not {len(value)}")
        return dict(zip(names, value, strict=True))

    @model_serializer(mode="wrap")
    def _to_list(self, fields: Callable[[MechanismRecord], dict[str, Any]]) -> list[Any]:
        return list(fields(self).values())


class ComponentChanges(Protocol):
    """A change of a vector as a sum of `count` changes, each of one component by at most `size` lattice steps."""

    @property
    def size(self) -> int:
        """Return the largest change, in lattice steps."""
        ...

    @property
    def count(self) -> int:
        """Return the number of changes."""
        ...


class Refinement(Protocol):
    """A conditional law of less noise, given more noise on the same exact values."""

    def refine(self, noise: Sequence[int], entropy: Entropy) -> list[int]:
        """Return a draw of the new law for each draw of the old one, independent of the others."""
        ...


class Mechanism(Protocol):
    """A symmetric law on the integers, added to exact values: 1 is one lattice step.

    A mechanism states, in its own file:
    - its law: `draw`, `compute_variance`, `bound_sum_tail`, `describe`, and whether its coordinates are `independent`;
    - its privacy: `rescale_to_sensitivity` to the same loss for another sensitivity;
    - its intervals, where those of Laplace noise with its variance do not serve: `is_gaussian`, `find_sum_bound`,
      `compute_characteristic_function`;
    - its form in stored releases: `to_record` and `record_type`;
    - whether releases with it can be refined (`find_refinement`) and combined (`independent`).

    `dpsql.planning.verify` has one rule for each mechanism, the loss that follows from its law and a sensitivity. Without it no plan
    with the mechanism runs.
    """

    __slots__ = ()

    name: ClassVar[str]
    record_type: ClassVar[type[MechanismRecord]] = MechanismRecord
    """Its form in stored releases; the base class for noise that is not stored."""
    independent: ClassVar[bool] = True
    """Whether the coordinates of a vector are drawn independently; if not, releases are neither combined nor topped up."""
    tight_tail: ClassVar[bool] = True
    """Whether `bound_tail` is tight enough for the interval of one draw."""
    scaled_by_changes: ClassVar[bool] = False
    """Whether `rescale_to_sensitivity` reads the changes of single components."""

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """Return `size` independent draws from the exact law."""
        ...

    def compute_variance(self) -> float:
        """Return the variance in squared lattice steps, rounded to nearest: for predictions, not for proofs."""
        ...

    def bound_sum_tail(self, terms: int, threshold: int) -> float:
        """Return an upper bound on the probability that `terms` >= 1 independent draws sum to >= `threshold`."""
        ...

    def describe(self) -> str:
        """Return the law in words, for plans and receipts."""
        ...

    def __hash__(self) -> int:
        """Return one hash for equal mechanisms; a dataclass replaces this with the hash of its parameters."""
        return hash(self.name)

    def rescale_to_sensitivity(
        self, old: Sensitivity, new: Sensitivity, changes: ComponentChanges | None
    ) -> Mechanism:
        """Return the mechanism with the same loss for the sensitivity `new`, and for as many `changes`, as this has for `old`."""
        raise InternalError(f"{self.name} noise is computed from releases, so it cannot be rescaled")

    def to_record(self) -> MechanismRecord:
        """Return the mechanism as stored releases hold it."""
        raise InternalError(f"{self.name} noise cannot be stored")

    def find_refinement(self, finer: Mechanism) -> Refinement | None:
        """Return how noise of the law `finer` is drawn given noise of this law, for the difference of both losses; or None.

        Only where the difference of the two draws is independent of the finer one.
        """
        return None

    @property
    def is_gaussian(self) -> bool:
        """Return whether weighted sums of draws are practically normal."""
        return False

    @property
    def subdivisions(self) -> int:
        """Return the number of steps of this law in one lattice step; 1 except for computed noise."""
        return 1

    @property
    def summands(self) -> tuple[tuple[int, Mechanism], ...]:
        """Return the independent noises, with whole weights, that this is a sum of."""
        return ((1, self),)

    def find_sum_bound(self, confidence: float) -> Callable[[Sequence[float]], float] | None:
        """Return the t with P(|Σ size · draw| <= t) >= `confidence` for coordinates of one vector, as a function of sizes.

        Sizes are positive and fall. None where the law of a sum of Laplace variables of this variance serves.
        """
        return None

    def compute_characteristic_function(self, weights: Sequence[float], at: Floats) -> Floats:
        """Return the characteristic function of Σ weight · draw, for draws of one vector; that of Laplace noise by default."""
        found = np.ones_like(at)
        for each in weights:
            found /= 1 + (self.std * each * at) ** 2 / 2
        return found

    @property
    def std(self) -> float:
        """Return the standard deviation in lattice steps."""
        return math.sqrt(self.compute_variance())

    def bound_tail(self, threshold: int) -> float:
        """Return an upper bound on the probability that one draw is >= `threshold`."""
        return self.bound_sum_tail(1, threshold)

    def compute_half_width(self, confidence: float) -> int:
        """Return the smallest t, in lattice steps, with P(|draw| <= t) >= `confidence`, as `bound_tail` shows it.

        DataError unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise DataError(f"the confidence must lie between 0 and 1, not {confidence}")
        side = (1 - Fraction(confidence)) / 2
        return max(search_tail_threshold(self.bound_tail, side, math.ceil(min(self.std, _LARGE))), 1) - 1

    def compute_sum_threshold(self, terms: int, probability: Fraction) -> int:
        """Return the smallest t >= 0 with P(sum of `terms` draws >= t) <= `probability`, as `bound_sum_tail` shows it.

        The bound holds; rounding can only make t larger. LossError unless 2**-900 <= probability < 1,
        InternalError unless `terms` >= 1.
        """
        if terms < 1:
            raise InternalError(f"a sum needs at least one term, not {terms}")
        if not _LEAST_PROBABILITY <= probability < 1:
            raise LossError("the failure probability must lie between 2**-900 and 1")
        return _compute_sum_threshold(self, terms, probability)


def require_parameter(value: Fraction, bits: int, what: str) -> None:
    """Require a noise parameter that a sound plan may ask for.

    InternalError unless `value` is a positive Fraction (a sensitivity of zero needs no noise and no
    mechanism); LossError if it is not within 2**-bits and 2**bits, far past all that a database holds.
    """
    if not isinstance(value, Fraction) or value.numerator <= 0:
        raise InternalError(f"the {what} of a mechanism must be a positive Fraction, not {value!r}")
    if not value.denominator <= value.numerator << bits or value.numerator > value.denominator << bits:
        raise LossError(
            f"this privacy loss needs noise whose {what} is out of range",
            hint="choose an epsilon nearer to 1",
        )


def rescale_parameter(parameter: Fraction, new: Fraction, old: Fraction) -> Fraction:
    """Return `parameter * new / old`, reduced once; raise ZeroDivisionError if `old` is zero.

    >>> rescale_parameter(Fraction(3, 2), Fraction(4), Fraction(6))
    Fraction(1, 1)
    """
    above = parameter.numerator * new.numerator * old.denominator
    return Fraction(above, parameter.denominator * new.denominator * old.numerator)


def require_positive_loss(value: Fraction, what: str) -> Fraction:
    """Return `value`; raise LossError unless it is a positive Fraction."""
    if not isinstance(value, Fraction) or value.numerator <= 0:
        raise LossError(f"{what} must be a positive Fraction, not {value!r}")
    return value


def search_smallest(holds: Callable[[int], bool]) -> int:
    """Return the smallest t >= 0 where `holds`, given that it holds from there on.

    >>> search_smallest(lambda t: t * t > 50)
    8
    """
    high = 1
    while not holds(high):
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _compute_sum_threshold(mechanism: Mechanism, terms: int, probability: Fraction) -> int:
    """See `Mechanism.compute_sum_threshold`, computed once for equal arguments."""
    return search_tail_threshold(
        partial(mechanism.bound_sum_tail, terms), probability, math.ceil(min(mechanism.std, _LARGE))
    )


def search_tail_threshold(tail: Callable[[int], float], probability: Fraction, start: int) -> int:
    """Return the smallest t >= 0 where a tail, which falls, is at most a `probability`; `start` is near the scale of the tail.

    It interpolates the logarithm of the tail, which is nearly a line or a parabola, and halves the rest in between.

    >>> search_tail_threshold(lambda t: math.exp(-t / 1000), Fraction(1, 10**6), 1000)
    13816
    """
    wanted, steps = math.log(probability), itertools.chain((True, True, False) * 6, itertools.repeat(False))
    low, high = (-1, 0.0), (max(1, start), tail(max(1, start)))
    while high[1] > probability:
        low, high = (high[0], math.log(high[1])), (2 * high[0], tail(2 * high[0]))
    high = (high[0], math.log(max(high[1], _LEAST_FLOAT)))
    before = high[0]
    while high[0] - low[0] > 1:
        middle = (low[0] + high[0]) // 2
        if next(steps) and low[1] > high[1]:
            part = min(1.0, max(0.0, (low[1] - wanted) / (low[1] - high[1])))
            guess = low[0] + math.ceil(part * (high[0] - low[0]))
            # A little to the side of the end that is farther off, so that both ends come nearer.
            moved = abs(guess - before) // 8
            nearer_low = guess - low[0] < high[0] - guess
            before, middle = (
                guess,
                min(high[0] - 1, max(low[0] + 1, guess + (moved if nearer_low else -moved))),
            )
        found = tail(middle)
        if found <= probability:
            high = (middle, math.log(max(found, _LEAST_FLOAT)))
        else:
            low = (middle, math.log(found))
    return high[0]


# Mechanisms as the lists that stored releases hold: a union of records, discriminated by their first word.


RECORDS: dict[str, type[MechanismRecord]] = {}
"""The record of each mechanism that a stored release may name, by its word."""


def register_mechanisms(*mechanisms: type[Mechanism]) -> None:
    """Add the records of mechanisms to `RECORDS`; InternalError where another has the word."""
    for mechanism in mechanisms:
        record = mechanism.record_type
        word = record.model_fields["kind"].default
        if RECORDS.setdefault(word, record) is not record:
            raise InternalError(f"two mechanisms have the same tag {word!r}")


def to_stored_list(mechanism: Mechanism) -> list[Any]:
    """Return the list that a stored release holds for a mechanism; InternalError for one that is not stored.

    Each mechanism states its record in its own file.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.mechanisms import Geometric
    >>> to_stored_list(Geometric(Fraction(7, 2)))
    ['geometric', '7/2']
    """
    record = mechanism.to_record()
    listed: Any = record.model_dump()  # a list, by the record's own serializer
    if RECORDS.get(listed[0]) is not type(record):
        raise InternalError(f"{mechanism.name} noise is not registered, so it cannot be stored")
    return list(listed)


def from_stored_list(value: object) -> Mechanism:
    """Return the mechanism that `to_stored_list` wrote; ValueError for anything else.

    >>> from_stored_list(["geometric", "7/2"])
    Geometric(scale=Fraction(7, 2))
    """
    record: MechanismRecord = _make_record_adapter(tuple(RECORDS.items())).validate_python(value)
    return record.to_mechanism()


StoredMechanism = Annotated[Any, PlainValidator(from_stored_list), PlainSerializer(to_stored_list)]
"""A mechanism within the record of another one."""


@lru_cache(maxsize=8)
def _make_record_adapter(records: tuple[tuple[str, type[MechanismRecord]], ...]) -> TypeAdapter[Any]:
    choices = tuple(Annotated[record, Tag(word)] for word, record in records)
    union: Any = Annotated[Union[choices], Discriminator(_find_record_kind)]  # noqa: UP007 - the choices are a value
    return TypeAdapter(union)


def _find_record_kind(value: object) -> object:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else None
