"""Amplification: a release from a Poisson sample of the units has a smaller loss, so it needs less noise.

Claim: what is (ε0, δ0)-DP on the sample is (ln(1 + q(e^ε0 - 1)), q·δ0)-DP on all units, where one unit is added or removed
and each unit is in the sample with probability q, independently of the others. So it is charged ε if its noise on the sample has
ε0 = ln(1 + (e^ε - 1)/q).
Why: let P and Q be the laws of the answer with and without the unit, given who else is in the sample. With the unit the answer
has the law (1-q)Q + qP, which is between Q/(1 + q(e^ε0 - 1)) and (1 + q(e^ε0 - 1))Q where P is between e^-ε0·Q and e^ε0·Q;
what is beyond has probability at most δ0, and the unit is there with probability q. Mixing over the others keeps both. It
holds for all that is computed of one sample together: clamps, partition selection, quantiles and sums.
Source: Li, Qardaji, Su 2012, Theorem 1; Balle, Barthe, Gaboardi 2018, Theorem 8.
"""

from __future__ import annotations

from fractions import Fraction

from dpsql.privacy.accounting.events import Composed, Event, Pure, Selection
from dpsql.privacy.accounting.numerics.rigorous import ln_down
from dpsql.privacy.mechanisms.exponentials import bound_exp

_DIGITS = 60
_PLACES = 10**30
"""A loss is rounded down to a multiple of its inverse, so that the check of it need not be exact."""


def compute_sample_loss(epsilon: Fraction, rate: Fraction) -> Fraction:
    """Return the loss on a sample that is amplified to at most `epsilon`: ln(1 + (e^ε - 1)/rate), rounded down, at least `epsilon`.

    >>> round(float(compute_sample_loss(Fraction(1), Fraction(1, 10))), 4)
    2.9005
    >>> round(float(compute_sample_loss(Fraction(10**9), Fraction(1, 10)) - 10**9), 4)
    2.3026
    """
    # ln(1 + (e^ε - 1)/q) = ε + ln(1/q - e^-ε·(1/q - 1)): no power is large.
    _, power = bound_exp(epsilon, _DIGITS)
    grown = 1 / rate - Fraction(power, 10**_DIGITS) * (1 / rate - 1)
    if grown <= 1:
        return epsilon
    return max(epsilon, Fraction(int((epsilon + ln_down(grown)) * _PLACES), _PLACES))


def compute_charged_event(epsilon: Fraction, inner: Event | None, rate: Fraction) -> Event | None:
    """Return the charge of a release from a sample: `epsilon`, and the part `rate` of the δ of `inner`, its event on the sample."""
    if inner is None:
        return None
    events = inner.events if isinstance(inner, Composed) else (inner,)
    delta = sum((part.delta for part in events if isinstance(part, Selection)), Fraction(0))
    pure = Pure(epsilon)
    return Composed((pure, Selection(rate * delta))) if delta else pure
