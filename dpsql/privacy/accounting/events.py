"""Privacy events: the releases of a statement, as frozen data that an accountant interprets.

An event states what was released, not its cost, which the accountant computes. The meaning of an
event never changes, because ledgers keep events for ever; a new meaning is a new event. Every quantity
is an exact `Fraction`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from dpsql.errors import IntegrityError, LossError

VERSION = 1
_MOST_BITS = 4096  # holds any float exactly, and keeps hostile numbers out of the arithmetic


@dataclass(frozen=True, slots=True)
class Pure:
    """A release that is `epsilon`-DP, and nothing more is known of it.

    Raises LossError unless `epsilon` is an exact number above 0.

    >>> Pure(Fraction(1, 10)).epsilon
    Fraction(1, 10)
    """

    tag: ClassVar[str] = "Pure"

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_exact_positive(self.epsilon, "epsilon"))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A release by Gaussian noise that is exactly `rho`-zCDP: rho = l2_sensitivity² / (2 sigma²).

    It holds for the discrete Gaussian too (Canonne, Kamath, Steinke 2020). Raises LossError unless
    `rho` is an exact number above 0.
    """

    tag: ClassVar[str] = "Gaussian"

    rho: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", require_exact_positive(self.rho, "rho"))


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice of group keys that leaves a unit's key unprotected with probability `delta`.

    The rest of the choice, if it has a loss, is a `Pure` or `Gaussian` beside it. Raises LossError
    unless 0 < `delta` < 1.
    """

    tag: ClassVar[str] = "Selection"

    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _require_probability(self.delta))


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """Choices by exponential mechanisms whose ranges add up to at most `epsilon`.

    The privacy losses of all outcomes of a choice lie within an interval as long as its range, so it is
    `epsilon`-DP and (`epsilon`² / 8)-zCDP (Cesar, Rogers 2021, section 3); of several, which one privacy
    unit moves by the parts of a sum, losses add up and squares by no more. Raises LossError unless
    `epsilon` is an exact number above 0.
    """

    tag: ClassVar[str] = "BoundedRange"

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_exact_positive(self.epsilon, "epsilon"))


@dataclass(frozen=True, slots=True)
class Approximate:
    """A release that is (`epsilon`, `delta`)-DP, and nothing more is known of it.

    Raises LossError unless both are exact numbers above 0 and `delta` is below 1.
    """

    tag: ClassVar[str] = "Approximate"

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_exact_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", _require_probability(self.delta))


@dataclass(frozen=True, slots=True)
class Composed:
    """All the `events` of one statement; a later one may depend on the answer of an earlier one.

    Raises LossError when there is no event.
    """

    tag: ClassVar[str] = "Composed"

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        if not self.events:
            raise LossError("a composition needs at least one event")
        for event in self.events:
            if type(event) is not Composed and type(event) not in _TAGS:
                raise LossError(f"{type(event).__name__} is not a privacy event")


Event: TypeAlias = Pure | Gaussian | Selection | BoundedRange | Approximate | Composed

# An event of exact numbers is one line here: its tag in ledgers, and the names of its fields there, in their order.
_KINDS: dict[str, tuple[type[Pure | Gaussian | Selection | BoundedRange | Approximate], tuple[str, ...]]] = {
    "pure": (Pure, ("epsilon",)),
    "gaussian": (Gaussian, ("rho",)),
    "selection": (Selection, ("delta",)),
    "bounded_range": (BoundedRange, ("epsilon",)),
    "approximate": (Approximate, ("epsilon", "delta")),
}
_TAGS: dict[type, str] = {kind: tag for tag, (kind, _) in _KINDS.items()}


def require_exact_positive(value: object, name: str) -> Fraction:
    """Return `value` as a Fraction above 0; raise LossError for floats (NaN and infinities too), zero and less."""
    if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
        raise LossError(f"{name} must be an exact Fraction, not {type(value).__name__}")
    if value.numerator <= 0:
        raise LossError(f"{name} must be above 0")
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise LossError(f"{name} has too many digits")
    return value if type(value) is Fraction else Fraction(value)


def _require_probability(value: object) -> Fraction:
    delta = require_exact_positive(value, "delta")
    if delta >= 1:
        raise LossError("delta must be below 1")
    return delta


def to_json(event: Event) -> str:
    """Return the event as canonical JSON text, fractions as "a/b": equal events have equal texts.

    >>> to_json(Composed((Pure(Fraction(1, 2)), Selection(Fraction(1, 10**6)))))
    '{"events":[{"epsilon":"1/2","type":"pure"},{"delta":"1/1000000","type":"selection"}],"type":"composed","v":1}'
    """
    return json.dumps({"v": VERSION, **_encode_event(event)}, sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Event:
    """Return the event that `to_json` wrote; IntegrityError for any other text.

    >>> from_json('{"epsilon":"1/2","type":"pure","v":1}')
    Pure(epsilon=Fraction(1, 2))
    """
    try:
        data = json.loads(text)
        if data.pop("v") != VERSION:
            raise IntegrityError("the event was written by a newer dpsql", code="event_version")
        return _decode_event(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError):
        raise IntegrityError(
            "the text is not a privacy event, as dpsql writes it", code="event_text"
        ) from None


def _encode_event(event: Event) -> dict[str, Any]:
    if isinstance(event, Composed):
        return {"type": "composed", "events": [_encode_event(part) for part in event.events]}
    tag = _TAGS[type(event)]
    _, names = _KINDS[tag]
    numbers: list[Fraction] = [getattr(event, field.name) for field in fields(event)]
    texts = [f"{number.numerator}/{number.denominator}" for number in numbers]
    return {"type": tag, **dict(zip(names, texts, strict=True))}


def _decode_event(data: dict[str, Any]) -> Event:
    tag = data.pop("type")
    if tag == "composed":
        (parts,) = data.values()
        return Composed(tuple(_decode_event(part) for part in parts))
    kind, names = _KINDS[tag]
    if set(data) != set(names) or not all(isinstance(text, str) for text in data.values()):
        raise KeyError(tag)
    pairs = (data[name].split("/") for name in names)
    return kind(*(Fraction(int(numerator), int(denominator)) for numerator, denominator in pairs))


# Privacy losses as fixed-point integers, so that the sums of a ledger are exact and the same everywhere.


@dataclass(frozen=True, slots=True)
class Charge:
    """A loss and a delta in units of 10^-30 (`UNIT` of them make 1).

    What the loss counts (ε, ρ, ...) is the accountant's business. Raises LossError for negatives and
    non-integers, so subtracting more than there is raises too.

    >>> Charge(2, 1) + Charge(3, 0) - Charge(1, 1)
    Charge(loss=4, delta=0)
    """

    UNIT: ClassVar[int] = 10**30

    loss: int
    delta: int

    def __post_init__(self) -> None:
        if type(self.loss) is not int or type(self.delta) is not int:
            raise LossError("a charge must be a whole number of units")
        if self.loss < 0 or self.delta < 0:
            raise LossError("a charge must not be negative")

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.loss + other.loss, self.delta + other.delta)

    def __sub__(self, other: Charge) -> Charge:
        return Charge(self.loss - other.loss, self.delta - other.delta)

    def is_within(self, limit: Charge) -> bool:
        """Return whether both the loss and the delta are at most the limit's."""
        return self.loss <= limit.loss and self.delta <= limit.delta

    @property
    def loss_fraction(self) -> Fraction:
        """Return the loss in the accountant's own measure, exactly."""
        return Fraction(self.loss, self.UNIT)

    @property
    def delta_fraction(self) -> Fraction:
        """Return the delta, exactly."""
        return Fraction(self.delta, self.UNIT)


NOTHING = Charge(0, 0)


def to_units_up(value: Fraction) -> int:
    """Return `value` in units, rounded up: for charges.

    >>> to_units_up(Fraction(1, 3)) * 3 - Charge.UNIT
    2
    """
    return -(-value.numerator * Charge.UNIT // value.denominator)


def to_units_down(value: Fraction) -> int:
    """Return `value` in units, rounded down: for limits.

    >>> to_units_down(Fraction(1, 3)) * 3 - Charge.UNIT
    -1
    """
    return value.numerator * Charge.UNIT // value.denominator
