"""How an answer is asked for by its accuracy: an error in the values' own units, and how often it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import LossError, QueryRejected
from dpsql.loss import Amount, amount

CONFIDENCE = Fraction(19, 20)
"""That of a target which names none."""
_MOST = 1 - Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class Target:
    """For each value of an answer: with probability `confidence` its noise is at most `error`.

    >>> str(Target(Fraction(50), Fraction(19, 20)))
    '±50 in 95% of answers'
    """

    error: Fraction
    confidence: Fraction = CONFIDENCE

    def __str__(self) -> str:
        return f"±{float(self.error):g} in {float(100 * self.confidence):.12g}% of answers"


def error_amount(value: Amount) -> Fraction:
    """The exact error that was written. Raises LossError unless it is a finite number above zero.

    A part of the answer, as "5%", is refused: QueryRejected with code "relative_target".
    """
    if isinstance(value, str) and value.rstrip().endswith("%"):
        raise relative_target()
    return amount(value, "target_error")


def relative_target() -> QueryRejected:
    """The refusal of an error that is a part of the answer."""
    return QueryRejected(
        "an error cannot be asked for as a part of the answer: what it costs would depend on the answer",
        code="relative_target",
        hint="ask for a small epsilon first, then for an error in the value's own units: target_error=50",
    )


def confidence_amount(value: Amount) -> Fraction:
    """The exact confidence that was written. Raises LossError unless it lies between 0 and 1.

    >>> confidence_amount(0.9)
    Fraction(9, 10)
    """
    found = amount(value, "confidence")
    if found > _MOST:
        raise LossError("a confidence lies between 0 and 0.999999999", hint="confidence=0.95")
    return found
