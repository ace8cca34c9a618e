"""What a query may spend: a loss, or a target error that is answered by the smallest loss that reaches it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, Self

from dpsql.errors import LossError

# Losses as they are requested and shown: numbers of a program as exact fractions, and fractions as short text.


MOST_BITS = 1100
"""Longer numbers are no losses: nothing between the least and the largest float needs more."""
MOST_DIGITS = 330
"""The same for decimal exponents."""

Amount = int | float | str | Decimal | Fraction


def parse_amount(value: Amount, name: str = "epsilon") -> Fraction:
    """Return the exact value that was written: 0.1 is one tenth, not the float nearest to it.

    Raises LossError unless it is a finite number above zero.

    >>> parse_amount(0.1), parse_amount("1e-7")
    (Fraction(1, 10), Fraction(1, 10000000))
    """
    exact = None
    if not isinstance(value, bool) and isinstance(value, (int, float, str, Decimal, Fraction)):
        exact = _parse_fraction(value)
    if exact is None or exact <= 0:
        given = repr(value) if isinstance(value, (str, float)) else f"this {type(value).__name__}"
        raise LossError(f"{name} must be a finite number above zero, not {given[:60]}", hint=f"{name}=0.1")
    return exact


def _parse_fraction(value: Amount) -> Fraction | None:
    if isinstance(value, (int, Fraction)):
        small = max(value.numerator.bit_length(), value.denominator.bit_length()) <= MOST_BITS
        return Fraction(value) if small else None
    if isinstance(value, str) and len(value) > MOST_BITS:
        return None
    try:
        decimal = Decimal(str(value))
    except (ValueError, ArithmeticError):
        return None
    # A number such as 1e999999999 is short to write and endless to hold.
    if not decimal.is_finite() or abs(decimal.adjusted()) > MOST_DIGITS:
        return None
    return Fraction(decimal)


class DisplayedFraction(Fraction):
    """An exact number that is shown with six digits, rounded down or up.

    Computations with it are exact, as with a Fraction; it is compared with floats as a Fraction is.

    >>> f"{DisplayedFraction(Fraction(2, 3))} of {DisplayedFraction(Fraction(2, 3), up=True)}", DisplayedFraction(Fraction(1, 2)) == Fraction(1, 2)
    ('0.666666 of 0.666667', True)
    >>> DisplayedFraction(Fraction(1, 2)) == 0.5, DisplayedFraction(Fraction(1, 2)) < 0.6
    (True, True)
    """

    __slots__ = ("_up",)
    _up: bool

    def __new__(cls, value: Fraction | int, denominator: int | None = None, *, up: bool = False) -> Self:
        """Return the number, or `value` over `denominator`, as Fraction takes it; `up` says how it is rounded when shown."""
        made = super().__new__(cls, value, denominator)
        made._up = up
        return made

    def __str__(self) -> str:
        return format_rounded(Fraction(self), 6, up=self._up)

    def __repr__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(Fraction(self), spec) if spec else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_fraction, (Fraction(self), self._up)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


def _restore_fraction(value: Fraction, up: bool) -> DisplayedFraction:
    return DisplayedFraction(value, up=up)


def format_rounded(value: Fraction, digits: int = 3, *, up: bool = False) -> str:
    """Format a number with at most this many significant digits, rounded down, or up.

    >>> format_rounded(Fraction(2719, 1000)), format_rounded(Fraction(2711, 1000), up=True), format_rounded(Fraction(1, 10**8))
    ('2.71', '2.72', '1e-8')
    """
    context = Context(prec=digits, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    number = context.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize(context)
    if -4 <= number.adjusted() <= 6:
        return format(number, "f")
    return format(number, "e").replace("e+", "e")


# The accuracy of an answer as a target: an error in the values' own units, and how often it is kept.


CONFIDENCE = Fraction(19, 20)
"""That of a target which names none."""
_MOST = 1 - Fraction(1, 10**9)
_LARGEST = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class RelativeError:
    """An error that is a part of each released value, whatever its sign.

    >>> str(RelativeError(Fraction(1, 20)))
    '5%'
    """

    fraction: Fraction

    def __str__(self) -> str:
        return f"{float(100 * self.fraction):.12g}%"


TargetError = Fraction | RelativeError


@dataclass(frozen=True, slots=True)
class Target:
    """The accuracy of each value of an answer: with probability `confidence` its noise is at most `error`.

    >>> str(Target(Fraction(50), Fraction(19, 20))), str(Target(RelativeError(Fraction(1, 50))))
    ('±50 in 95% of answers', '±2% of each value in 95% of answers')
    """

    error: TargetError
    confidence: Fraction = CONFIDENCE

    @property
    def relative_error(self) -> RelativeError | None:
        """Return the error as a part of each value; None for an absolute error."""
        return self.error if isinstance(self.error, RelativeError) else None

    def __str__(self) -> str:
        of = (
            f"{self.error} of each value"
            if isinstance(self.error, RelativeError)
            else f"{float(self.error):g}"
        )
        return f"±{of} in {float(100 * self.confidence):.12g}% of answers"


def parse_target_error(value: Amount | RelativeError) -> TargetError:
    """Return the exact error that was written, or the part of each value, such as "5%".

    Raises LossError unless it is a finite number above zero, and a part unless it is at most a half. Beyond a half, a value
    tells little more than its sign.

    >>> parse_target_error(50), parse_target_error("5%")
    (Fraction(50, 1), RelativeError(fraction=Fraction(1, 20)))
    """
    if isinstance(value, RelativeError):
        return value
    if isinstance(value, str) and value.rstrip().endswith("%"):
        share = parse_amount(value.rstrip()[:-1].strip(), "target_error") / 100
        if share > _LARGEST:
            raise LossError("a relative target_error must be at most 50%", hint='target_error="5%"')
        return RelativeError(share)
    return parse_amount(value, "target_error")


def parse_confidence(value: Amount) -> Fraction:
    """Return the exact confidence that was written; raise LossError unless it lies between 0 and 1.

    >>> parse_confidence(0.9)
    Fraction(9, 10)
    """
    found = parse_amount(value, "confidence")
    if found > _MOST:
        raise LossError("a confidence must be above 0 and at most 0.999999999", hint="confidence=0.95")
    return found
