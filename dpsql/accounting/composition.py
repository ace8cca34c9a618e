"""The composition theorems of (ε, δ), as functions of the guarantee of each release.

They speak of releases whose ε and δ are fixed beforehand; a budget that is spent as the answers come in is an
accountant's business. All results are exact, or rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from dpsql.accounting.events import exact_positive
from dpsql.accounting.numerics.rigorous import decimal_up, exp_minus_down, ln_down
from dpsql.errors import LossError

_FAR = 1000  # no power beyond is computed: nothing is left of a δ that grows by it


class Guarantee(NamedTuple):
    """(`epsilon`, `delta`)-DP."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)


def sequential(releases: Iterable[Guarantee]) -> Guarantee:
    """The guarantee of several releases about the same units.

    Claim: (Σε, Σδ)-DP.
    Source: Dwork, Roth 2014, Theorem 3.14 (ε alone) and Theorem 3.16.

    >>> sequential([Guarantee(Fraction(1, 10)), Guarantee(Fraction(1, 5), Fraction(1, 10**6))])
    Guarantee(epsilon=Fraction(3, 10), delta=Fraction(1, 1000000))
    """
    guarantees = list(map(_checked, releases))
    return Guarantee(
        sum((e for e, _ in guarantees), Fraction(0)), sum((d for _, d in guarantees), Fraction(0))
    )


def advanced(releases: Iterable[Guarantee], slack: Fraction) -> Guarantee:
    """The guarantee of several releases, with `slack` more δ for less ε.

    Claim: (Σε·tanh(ε/2) + √(2·ln(1/slack)·Σε²), Σδ + slack)-DP, and (Σε, Σδ)-DP where that ε is smaller.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 3.5; Dwork, Roth 2014, Theorem 3.20 with ε·(e^ε-1) for the first sum.

    >>> float(advanced([Guarantee(Fraction(1, 100))] * 2945, Fraction(1, 10**6)).epsilon) < 3
    True
    """
    guarantees = list(map(_checked, releases))
    if not 0 < slack < 1:
        raise LossError("the slack must lie between 0 and 1")
    drift = Fraction(0)
    for epsilon, _ in guarantees:
        power = exp_minus_down(epsilon)
        drift += epsilon * (1 - power) / (1 + power)
    spread = -2 * ln_down(slack) * sum((e * e for e, _ in guarantees), Fraction(0))
    simple = sequential(guarantees)
    epsilon = drift + _root_up(spread)
    if simple.epsilon <= epsilon:
        return simple
    return Guarantee(epsilon, simple.delta + slack)


def parallel(releases: Iterable[Guarantee]) -> Guarantee:
    """The guarantee of several releases that each read their own partition of the units.

    Claim: (max ε, max δ)-DP, where one unit is added or removed: it is in one partition, and the others do not change.
    Where a unit may move from one partition to another, two partitions change, and the two largest losses add.
    Source: McSherry 2009, "Privacy Integrated Queries", Theorem 4.

    >>> parallel([Guarantee(Fraction(1, 10)), Guarantee(Fraction(1, 5))])
    Guarantee(epsilon=Fraction(1, 5), delta=Fraction(0, 1))
    """
    guarantees = list(map(_checked, releases))
    if not guarantees:
        raise LossError("a composition needs at least one release")
    return Guarantee(max(e for e, _ in guarantees), max(d for _, d in guarantees))


def group(guarantee: Guarantee, size: int) -> Guarantee:
    """The guarantee for `size` units at once of a release that is (ε, δ)-DP for one unit (group privacy).

    Claim: (size·ε, δ·(e^(size·ε)-1)/(e^ε-1))-DP, at most 1 in δ; 1 at once beyond ε = 1,000.
    Why: k neighbouring steps lead from one database to the other; δ grows by e^ε at each.
    Source: Dwork, Roth 2014, Theorem 2.2; Vadhan 2017, Lemma 2.2.

    >>> group(Guarantee(Fraction(1, 10)), 5)
    Guarantee(epsilon=Fraction(1, 2), delta=Fraction(0, 1))
    """
    epsilon, delta = _checked(guarantee)
    if size < 1:
        raise LossError("a group has one unit or more")
    if delta == 0:
        return Guarantee(size * epsilon)
    if size > 1 and epsilon > _FAR:
        return Guarantee(size * epsilon, Fraction(1))
    factor, grown = _exp_up(epsilon), Fraction(0)
    for _ in range(size):
        grown = Fraction(decimal_up(grown * factor + delta))
        if grown >= 1:
            break
    return Guarantee(size * epsilon, min(grown, Fraction(1)))


def _exp_up(epsilon: Fraction) -> Fraction:
    with localcontext(prec=70) as context:
        return Fraction(context.next_plus(decimal_up(epsilon).exp()))


def _root_up(square: Fraction) -> Fraction:
    with localcontext(prec=70) as context:
        return Fraction(context.next_plus(decimal_up(square).sqrt())) if square else Fraction(Decimal(0))


def _checked(guarantee: Guarantee) -> Guarantee:
    epsilon, delta = guarantee
    exact_positive(epsilon, "epsilon")
    if not 0 <= delta < 1:
        raise LossError("delta must be at least 0 and below 1")
    return Guarantee(Fraction(epsilon), Fraction(delta))
