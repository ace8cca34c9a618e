"""The accuracy of an answer as a target: an error in the values' own units, and how often it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import LossError
from dpsql.policy.request.loss import Amount, parse_amount

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
