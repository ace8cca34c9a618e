"""The (ε, δ) guarantee of a list of releases that is fixed in advance, by the best Rényi order.

A ledger's ρ is a line above the Rényi curve of each release, so that it may be spent as the answers come in. Where the
list is known, the curves themselves add up, order by order, and the best order may be looked for afterwards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from dpsql.errors import LossError, NotSupportedError
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
)
from dpsql.privacy.accounting.numerics import exp_minus_down, exp_minus_up, ln_down, ln_up

_SMALLEST, _STEP, _PLACES = -16.0, 0.125, 321
"""The range and the step of log(α-1) in which the best order is searched."""
_FINER = 5
"""The number of searches on a finer grid around the best order."""


def fixed_epsilon(events: Iterable[Event], delta: Fraction) -> Fraction:
    """Return the ε of all `events` together at `delta`, rounded up.

    Claim: releases of these events, which were fixed before the first answer, are (ε, `delta`)-DP together.
    Why: their Rényi divergences of order α add up, and those of an ε-DP release are at most those of randomized
    response, of which it is a post-processing; a choice of bounded range ε also has at most α·ε²/8. At each order
    α the sum implies an ε, so any order is valid, and the search for the best one may be inexact. δ of the releases
    themselves is taken from `delta`.
    Source: Mironov 2017, "Rényi differential privacy", Proposition 1; Kairouz, Oh, Viswanath 2015, Theorem 2.5
    (randomized response); Cesar, Rogers 2021, section 3 (bounded range); Canonne, Kamath, Steinke 2020, Proposition 12
    (conversion).

    Args:
        events: The events of the releases; compositions are resolved.
        delta: The δ of all releases together.

    Returns:
        The ε of all releases together, rounded up.

    Raises:
        LossError: If the δ of the releases themselves leaves nothing of `delta` for the conversion.

    >>> round(float(fixed_epsilon([Pure(Fraction(1, 4))] * 100, Fraction(1, 10**6))), 2)
    14.67
    """
    counts = Counter(_iterate_single_events(events))
    left = delta - sum((_get_own_delta(event) * count for event, count in counts.items()), Fraction(0))
    if not 0 < left < 1:
        raise LossError("the releases need more delta themselves")
    simple = _sum_epsilons(counts)
    if simple == 0:
        return Fraction(0)

    def compute_epsilon(place: float) -> Fraction:
        x = Fraction(math.exp(place))
        curve = sum((count * _bound_divergence(event, x) for event, count in counts.items()), Fraction(0))
        return curve + ln_up(x) - (ln_down(left) + (1 + x) * ln_down(1 + x)) / x

    best = max(_search_minimum(compute_epsilon), Fraction(0))
    return best if simple is None else min(best, simple)


def _iterate_single_events(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Composed):
            yield from _iterate_single_events(event.events)
        else:
            yield event


def _get_own_delta(event: Event) -> Fraction:
    """Return a release's own δ."""
    return event.delta if isinstance(event, (Selection, Approximate)) else Fraction(0)


def _sum_epsilons(counts: Mapping[Event, int]) -> Fraction | None:
    """Return the sum of the ε; None if a release has none."""
    if any(isinstance(event, Gaussian) for event in counts):
        return None
    return sum(
        (
            event.epsilon * n
            for event, n in counts.items()
            if isinstance(event, (Pure, BoundedRange, Approximate))
        ),
        Fraction(0),
    )


def _bound_divergence(event: Event, x: Fraction) -> Fraction:
    """Return the Rényi divergence of order 1 + x, rounded up."""
    match event:
        case Gaussian(rho):
            return rho * (1 + x)
        case BoundedRange(epsilon):
            return min(_bound_response_divergence(epsilon, x), (1 + x) * epsilon * epsilon / 8)
        case Pure(epsilon) | Approximate(epsilon, _):
            return _bound_response_divergence(epsilon, x)
        case Selection():
            return Fraction(0)
        case _:
            raise NotSupportedError(f"{type(event).__name__} has no Rényi curve")


def _bound_response_divergence(epsilon: Fraction, x: Fraction) -> Fraction:
    """Bound the divergence of randomized response: ε + ln((1 + e^-(2x+1)ε) / (1 + e^-ε)) / x."""
    ratio = (1 + exp_minus_up((2 * x + 1) * epsilon)) / (1 + exp_minus_down(epsilon))
    return min(epsilon, epsilon + ln_up(ratio) / x)


def _search_minimum(function: Callable[[float], Fraction]) -> Fraction:
    """Return about the minimum of a function of few valleys, and no less than it."""
    step, places = _STEP, [_SMALLEST + _STEP * place for place in range(_PLACES)]
    values = {place: function(place) for place in places}
    for _ in range(_FINER):
        middle, step = min(values, key=values.__getitem__), step / 5
        values |= {near: function(near) for near in (middle + step * place for place in (-4, -2, 2, 4))}
    return min(values.values())
