"""Adversaries who choose each question after the last answer, and the exact δ of the best of them.

A `Release` gives the chances of its outcomes on two neighbours. On a menu of them, `worst_delta` tries
every way of asking: at each point of the tree of answers each question that the filter admits, or none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from scipy import stats

from dpsql.privacy.accounting.accountants import Accountant
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
)

Budget = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Release:
    """What may be asked: how it is charged, and the chances of its outcomes on either neighbour."""

    event: Event
    here: tuple[float, ...]
    there: tuple[float, ...]

    @property
    def mirrored(self) -> Release:
        """The same with the neighbours exchanged."""
        return Release(self.event, self.there, self.here)


Filter = Callable[[tuple[Release, ...]], bool]
"""Whether the last of these, asked after the others were admitted, is admitted too."""


def response(epsilon: Fraction) -> Release:
    """Randomised response, the most telling ε-DP release."""
    truth, lie = _chances(epsilon)
    return Release(Pure(epsilon), (truth, lie), (lie, truth))


def _chances(epsilon: Fraction) -> tuple[float, float]:
    """Of a true and of a false response; each is computed by itself, as a difference would lose digits."""
    return 1 / (1 + math.exp(-float(epsilon))), 1 / (1 + math.exp(float(epsilon)))


def leak(delta: Fraction) -> Release:
    """A release that says nothing but, with probability δ, everything."""
    d = float(delta)
    return Release(Selection(delta), (1 - d, d, 0.0), (1 - d, 0.0, d))


def leaking_response(epsilon: Fraction, delta: Fraction) -> Release:
    """The most telling (ε, δ)-DP release (Kairouz, Oh, Viswanath 2015, Theorem 3.3)."""
    (truth, lie), d = _chances(epsilon), float(delta)
    kept = ((1 - d) * truth, (1 - d) * lie)
    return Release(Approximate(epsilon, delta), (*kept, d, 0.0), (*kept[::-1], 0.0, d))


def choice(epsilon: Fraction, part: float) -> Release:
    """The choice of range ε between two outcomes whose larger loss is that part of ε."""
    e = float(epsilon)
    here = (math.exp(e) - math.exp(part * e)) / math.expm1(e)
    there = math.expm1(e - part * e) / math.expm1(e)
    return Release(BoundedRange(epsilon), (here, 1 - here), (there, 1 - there))


def gaussian(rho: Fraction, cuts: Sequence[float] = (-2, -1, 0, 1, 2, 3)) -> Release:
    """Gaussian noise about 0 or √(2ρ), told to within an interval between the cuts."""
    mu = math.sqrt(2 * rho)
    ends = [-math.inf, *(mu / 2 + cut for cut in cuts), math.inf]

    def law(centre: float) -> tuple[float, ...]:
        return tuple(
            float(stats.norm.cdf(high, centre) - stats.norm.cdf(low, centre)) for low, high in pairwise(ends)
        )

    return Release(Gaussian(rho), law(mu), law(0.0))


def lattice_gaussian(rho: Fraction) -> Release:
    """Discrete Gaussian noise on the integers about 1 or 0, the coarsest of that ρ; tails in one outcome each."""
    sigma = 1 / math.sqrt(2 * rho)
    span = math.ceil(8 * sigma) + 1
    weights = {k: math.exp(-k * k / (2 * sigma * sigma)) for k in range(-span, span + 1)}
    total, near = sum(weights.values()), range(-1, 3)

    def law(centre: int) -> tuple[float, ...]:
        chances = {k + centre: weight / total for k, weight in weights.items()}
        below = sum(chance for k, chance in chances.items() if k < near[0])
        above = sum(chance for k, chance in chances.items() if k > near[-1])
        return (below, *(chances.get(k, 0.0) for k in near), above)

    return Release(Gaussian(rho), law(1), law(0))


def worst_delta(admits: Filter, menu: Sequence[Release], epsilon: Fraction, depth: int) -> float:
    """The largest δ at that ε that any adversary reaches with at most `depth` questions from the menu."""
    factor = math.exp(float(epsilon))
    known: dict[tuple[Release, ...], bool] = {}

    def allowed(path: tuple[Release, ...]) -> bool:
        if path not in known:
            known[path] = admits(path)
        return known[path]

    def best(path: tuple[Release, ...], here: float, there: float) -> float:
        found = max(0.0, here - factor * there)
        if here == 0 or there == 0 or len(path) == depth:
            return found
        for question in menu:
            asked = (*path, question)
            if allowed(asked):
                answers = zip(question.here, question.there, strict=True)
                found = max(found, sum(best(asked, here * p, there * q) for p, q in answers))
        return found

    return best((), 1.0, 1.0)


def filter_of(accountant: Accountant, budget: Budget) -> Filter:
    """The filter of an accountant: the sum of the costs stays within the limit."""
    limit = accountant.compute_limit(*budget)

    def admits(path: tuple[Release, ...]) -> bool:
        return accountant.compute_charge(Composed(tuple(release.event for release in path))).is_within(limit)

    return admits


def naive_pld_filter(budget: Budget) -> Filter:
    """What looks at the privacy loss of the questions asked so far as if they had been fixed beforehand.

    It is no filter: it composes exactly, yet forgets that other answers would have led to other questions.
    """
    epsilon, delta = budget
    factor = math.exp(float(epsilon))

    def admits(path: tuple[Release, ...]) -> bool:
        pairs = [(1.0, 1.0)]
        for release in path:
            chances = list(zip(release.here, release.there, strict=True))
            pairs = [(here * p, there * q) for here, there in pairs for p, q in chances]
        return sum(max(0.0, here - factor * there) for here, there in pairs) <= delta

    return admits


def assert_private(admits: Filter, menu: Sequence[Release], budget: Budget, depth: int) -> None:
    """The law of filters: no adversary passes the budget, whichever of the neighbours is real."""
    for side in (list(menu), [release.mirrored for release in menu]):
        worst = worst_delta(admits, side, budget[0], depth)
        assert worst <= float(budget[1]) * (1 + 1e-9), f"δ = {worst:.6g}"
