"""The conversion of a privacy profile to Gaussian differential privacy: whether it holds, and with which μ.

A release is μ-GDP if and only if its δ(ε) is at most δ_μ(ε) at every ε of 0 or more (Dong, Roth, Su 2022, Corollary
2.13). So the best μ is the largest G(ε), the μ with δ_μ(ε) = δ(ε): the transform of the profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, Context, Decimal, localcontext

from dpsql.errors import LossError
from dpsql.privacy.accounting.numerics import Bounds, gaussian_delta, solve_mu
from dpsql.privacy.accounting.profiles import Profile

_LEAST = Decimal("1e-9")
_UP = Context(prec=60, rounding=ROUND_CEILING)


def is_gaussian(profile: Profile) -> bool:
    """Return whether a release with this profile is μ-GDP for some μ.

    Claim: it is, if and only if lim ε²/(-2 ln δ(ε)) is finite.
    Source: Liu, Sun, Jiang, Kong 2022, Theorem 3.3.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.accounting.profiles import ApproximateProfile, LaplaceProfile
    >>> is_gaussian(LaplaceProfile(Fraction(1))), is_gaussian(ApproximateProfile(Fraction(0), Fraction(1, 10**9)))
    (True, False)
    """
    return profile.tail is not None


def transform(profile: Profile, epsilon: Decimal) -> Bounds:
    """Return G(ε), bounds of the μ with δ_μ(ε) = δ(ε); 0 where δ is 0.

    Source: Liu, Sun, Jiang, Kong 2022, the Gaussian differential privacy transformation.
    """
    return _solve_mu(epsilon, profile.delta(epsilon))


def measure(profile: Profile, margin: Decimal = Decimal("1e-3")) -> Bounds:
    """Return bounds of the best μ of a profile, at most `margin` apart.

    Claim: the release is μ-GDP with μ = `high`, and with no μ below `low` if the profile is exact.
    Why: G at any ε, and the tail, are lower bounds. Between ε and ε' > ε the profile is at most δ(ε), so the μ with
    any μ with δ_μ(ε') >= δ(ε) is enough there; beyond `profile.bound_crossover_epsilon` the lower bound itself is. Intervals on which the
    largest G known, and the margin, are not enough are halved. A profile with bounds of its own that are further
    apart than the margin has a wider answer.
    Source: Liu, Sun, Jiang, Kong 2022, the measurement of μ on a grid; the halving is derived here.

    Args:
        profile: The privacy profile of a release.
        margin: The largest difference between the two bounds.

    Returns:
        `low` and `high`, between which the best μ lies.

    Raises:
        LossError: `not_gaussian`, if no μ-GDP holds.

    >>> from fractions import Fraction
    >>> from dpsql.privacy.accounting.profiles import LaplaceProfile
    >>> low, high = measure(LaplaceProfile(Fraction(1)))
    >>> round(low, 6), round(high, 6)
    (Decimal('1.030064'), Decimal('1.031063'))
    """
    tail = profile.tail
    if tail is None:
        raise LossError(
            "a release with this privacy profile has no Gaussian bound, because its δ decreases too slowly",
            code="not_gaussian",
        )
    first = transform(profile, Decimal(0))
    low, high = max(tail, first.low), max(tail, first.high)
    last = profile.bound_crossover_epsilon(max(low, _LEAST))
    if last == 0:
        return Bounds(low, high)
    with localcontext(prec=110):
        # Room above the known value at every point, or an interval at that point would be halved forever.
        room = margin * Decimal("0.999")
        high += room
        open_intervals = [(Decimal(0), profile.delta(Decimal(0)), last)]
        while open_intervals:
            start, before, stop = open_intervals.pop()
            if gaussian_delta(high, stop).low >= before.high:
                continue
            middle = (start + stop) / 2
            here = profile.delta(middle)
            if gaussian_delta(max(low, _LEAST), middle).high < here.low:
                low = max(low, solve_mu(middle, here.low).low)
            if gaussian_delta(high - room / 2, middle).low < here.high:
                high = solve_mu(middle, here.high).high + room
            high = max(high, low + room)
            open_intervals += [(middle, here, stop), (start, before, middle)]
    return Bounds(low, high)


def compose_mu(parts: Iterable[Decimal]) -> Decimal:
    """Return the μ of releases with these μ, each chosen after the earlier answers: √Σμ², rounded up.

    Source: Dong, Roth, Su 2022, Corollary 3.3; Smith, Thakurta 2022 where the μ are chosen so too.

    >>> compose_mu([Decimal(3), Decimal(4)])
    Decimal('5')
    """
    total = Decimal(0)
    for mu in parts:
        total = _UP.add(total, _UP.multiply(mu, mu))
    return _UP.sqrt(total) if _UP.sqrt(total) ** 2 >= total else _UP.next_plus(_UP.sqrt(total))


def _solve_mu(epsilon: Decimal, delta: Bounds) -> Bounds:
    low = solve_mu(epsilon, delta.low).low if delta.low > 0 else Decimal(0)
    return Bounds(low, solve_mu(epsilon, delta.high).high if delta.high > 0 else Decimal(0))
