"""Privacy profiles: the least δ at each ε, with rigorous bounds.

A profile belongs to one release; a `Profile` of a whole batch is in `accounting.batch`. What a profile proves
about Gaussian differential privacy is in `accounting.measurement`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Protocol

from dpsql.errors import LossError
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Event,
    Gaussian,
    Pure,
    Selection,
    require_exact_positive,
)
from dpsql.privacy.accounting.numerics import MARGIN, Bounds, gaussian_delta, to_decimal
from dpsql.privacy.accounting.tradeoffs import bound_lattice_gaussian_mu

NOTHING = Bounds(Decimal(0), Decimal(0))


class Profile(Protocol):
    """The (ε, δ) guarantees of a release: δ falls as ε grows."""

    @property
    def tail(self) -> Decimal | None:
        """√lim ε²/(-2 ln δ(ε)), 0 where δ vanishes; None if that is infinite: then no μ-GDP holds."""
        ...

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the least δ at an ε of 0 or more; an upper bound if only that is known."""
        ...

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Return an ε from which on δ is at most that of `mu`-GDP, for a `mu` of `tail` or more and above 0."""
        ...


def bound_probability(value: Decimal, size: Decimal = Decimal(1)) -> Bounds:
    """Return a chance that was computed from terms of at most that size."""
    with localcontext(prec=110):
        off = MARGIN * size
        return Bounds(
            min(max(value - off, Decimal(0)), Decimal(1)), max(min(value + off, Decimal(1)), Decimal(0))
        )


@dataclass(frozen=True, slots=True)
class _BoundedLossProfile:
    """A profile that is 0 from `epsilon` on."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_exact_positive(self.epsilon, "epsilon"))

    @property
    def tail(self) -> Decimal | None:
        """0: no loss is larger than ε."""
        return Decimal(0)

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:  # noqa: ARG002  (the Protocol's)
        """Return ε: from there on δ is 0."""
        return to_decimal(self.epsilon)


@dataclass(frozen=True, slots=True)
class PureProfile(_BoundedLossProfile):
    """That of ε-DP, hence of randomized response: δ = (e^ε₀ - e^ε)₊/(1 + e^ε₀).

    Claim: no ε₀-DP release has a larger δ, and randomized response with that loss has this one.
    Source: Kairouz, Oh, Viswanath 2015, Theorem 2.

    >>> round(PureProfile(Fraction(1)).delta(Decimal(0)).high, 12)  # tanh(1/2)
    Decimal('0.462117157260')
    """

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the largest δ of any ε-DP release, exact up to rounding."""
        return compute_implied_delta(to_decimal(self.epsilon), NOTHING, epsilon)


@dataclass(frozen=True, slots=True)
class ResponseProfile(_BoundedLossProfile):
    """That of randomized response among `choices` answers: the truth e^ε₀ times as likely as each other one.

    Claim: δ = (e^ε₀ - e^ε)₊/(e^ε₀ + choices - 1).
    Why: only the true answer is more likely than on the neighbor, by the factor e^ε₀.
    Source: Warner 1965; Kairouz, Bonawitz, Ramage 2016, section 3 (more than two choices).

    >>> ResponseProfile(Fraction(1)).delta(Decimal(0)) == PureProfile(Fraction(1)).delta(Decimal(0))
    True
    """

    choices: int = 2

    def __post_init__(self) -> None:
        _BoundedLossProfile.__post_init__(self)
        if self.choices < 2:
            raise LossError("randomized response needs at least two choices")

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        whole = to_decimal(self.epsilon)
        if epsilon >= whole:
            return NOTHING
        with localcontext(prec=110):
            shrunk = (-whole).exp()
            return bound_probability((1 - (epsilon - whole).exp()) / (1 + (self.choices - 1) * shrunk))


@dataclass(frozen=True, slots=True)
class BoundedRangeProfile(_BoundedLossProfile):
    """That of one choice of bounded range ε₀: δ = (e^(ε₀/2) - e^(ε/2))₊²/(e^ε₀ - 1).

    Claim: no choice of that range has a larger δ at any ε; which choice attains it depends on ε.
    Why: the worst choice has two outcomes, of losses u and u - ε₀, where P(u) = (e^ε₀ - e^u)/(e^ε₀ - 1); its δ is
    P(u)·(1 - e^(ε-u)), largest at u = (ε₀+ε)/2.
    Source: Dong, Durfee, Rogers 2020, Lemma 3.2 (the worst choice).
    """

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the largest δ of any choice with that range, exact up to rounding."""
        whole = to_decimal(self.epsilon)
        if epsilon >= whole:
            return NOTHING
        with localcontext(prec=110):
            gap = 1 - ((epsilon - whole) / 2).exp()
            return bound_probability(gap * gap / (1 - (-whole).exp()), 1 / min(whole, Decimal(1)))


@dataclass(frozen=True, slots=True)
class LaplaceProfile(_BoundedLossProfile):
    """That of Laplace noise of scale sensitivity/ε₀ on one number: δ = (1 - e^((ε-ε₀)/2))₊.

    Source: Balle, Barthe, Gaboardi 2020, "Privacy Profiles and Amplification by Subsampling", Theorem 3.

    >>> round(LaplaceProfile(Fraction(1)).delta(Decimal(0)).high, 12)
    Decimal('0.393469340287')
    """

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        whole = to_decimal(self.epsilon)
        with localcontext(prec=110):
            return NOTHING if epsilon >= whole else bound_probability(1 - ((epsilon - whole) / 2).exp())


@dataclass(frozen=True, slots=True)
class GeometricProfile:
    """That of two-sided geometric noise of that scale on one integer that moves by `shift`.

    Claim: δ = F(t) - e^ε·F(t-v) for the shift v, F the law's distribution function, and t the last integer whose
    loss passes ε, the largest below (v - scale·ε)/2.
    Why: the loss of the outcome k is (|k-v| - |k|)/scale, which falls in k; outcomes up to t make up the δ.
    Source: Ghosh, Roughgarden, Sundararajan 2009 (the law); the rest is derived here.

    >>> GeometricProfile(Fraction(2), 1).delta(Decimal(0)) == PureProfile(Fraction(1, 2)).delta(Decimal(0))
    True
    """

    scale: Fraction
    shift: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", require_exact_positive(self.scale, "scale"))
        if type(self.shift) is not int or self.shift < 1:
            raise LossError("the sensitivity must be a whole number of at least 1")

    @property
    def tail(self) -> Decimal | None:
        """0: no loss is larger than shift/scale."""
        return Decimal(0)

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:  # noqa: ARG002  (the Protocol's)
        """Return shift/scale: from there on δ is 0."""
        return to_decimal(self.shift / self.scale)

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        with localcontext(prec=110):
            rate = to_decimal(1 / self.scale)
            last = int(((self.shift - epsilon / rate) / 2).to_integral_value(ROUND_CEILING)) - 1
            if last < 0:
                return NOTHING
            whole = 1 + (-rate).exp()
            beyond = (-rate * (last + 1)).exp() + (epsilon - rate * (self.shift - last)).exp()
            return bound_probability(1 - beyond / whole)


@dataclass(frozen=True, slots=True)
class StaircaseProfile(_BoundedLossProfile):
    """That of staircase noise of the loss ε₀ on one integer that moves by `width` steps, or by fewer.

    Claim: δ = P·(1 - e^(ε-ε₀))₊, P the chance that an outcome is e^ε₀ times as likely as on the neighbor: that of k <= 0,
    and of those k below `inner` for which width - k is not.
    Why: a move by at most `width` changes the number of stairs below by -1, 0 or 1, so there are three losses, ε₀, 0 and
    -ε₀. P·(1 - e^-ε₀) is the distance in total variation, which for a symmetric law that falls on both sides grows with the
    move; so the longest move is the worst at every ε. The weights are those of `dpsql.privacy.mechanisms.Staircase`.
    Source: Geng, Viswanath 2016 (the law); the rest is derived here.

    >>> StaircaseProfile(Fraction(1), 1, 1).delta(Decimal(0)) == PureProfile(Fraction(1)).delta(Decimal(0))
    True
    """

    width: int = 1
    inner: int = 1

    def __post_init__(self) -> None:
        _BoundedLossProfile.__post_init__(self)
        if not 1 <= self.inner <= self.width:
            raise LossError("the first stair must have at least one step, and at most as many as the others")

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        whole = to_decimal(self.epsilon)
        if epsilon >= whole:
            return NOTHING
        with localcontext(prec=110):
            ratio = (-whole).exp()
            row = self.inner + ratio * (self.width - self.inner)
            total = 2 * row / (1 - ratio) - 1
            between = max(0, min(self.inner - 1, self.width - self.inner))
            chance = ((total + 1) / 2 + between) / total
            return bound_probability(chance * (1 - (epsilon - whole).exp()), 1 / min(whole, Decimal(1)))


@dataclass(frozen=True, slots=True)
class UnaryProfile(_BoundedLossProfile):
    """That of optimized unary encoding: half of the one of randomized response, δ = (e^ε₀ - e^ε)₊/(2(1 + e^ε₀)).

    Claim: whatever the number of choices is.
    Why: two answers' bits differ in law, the true one's, 1 with chance 1/2, and the other's, 1 with chance 1/(1+e^ε₀). Of the
    four outcomes only (1, 0) is more likely than on the neighbor, by the factor e^ε₀; its chance is e^ε₀/(2(1 + e^ε₀)).
    Source: Wang, Blocki, Li, Jha 2017, "Locally differentially private protocols for frequency estimation" (the encoding).

    >>> round(UnaryProfile(Fraction(1)).delta(Decimal(0)).high, 12)  # tanh(1/2)/2
    Decimal('0.231058578630')
    """

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        low, high = PureProfile(self.epsilon).delta(epsilon)
        with localcontext(prec=110):
            return (
                Bounds(bound_probability(low / 2).low, bound_probability(high / 2).high) if high else NOTHING
            )


@dataclass(frozen=True, slots=True)
class SampledProfile:
    """The profile of a release from a Poisson sample of the units: each is in the sample with probability `rate`, independently.

    Claim: δ(ε) <= rate·δ₀(ε₀) with e^ε = 1 + rate·(e^ε₀ - 1), δ₀ being the profile of the release from all units, for one
    unit that is added or removed. The release must not reveal which units were in the sample.
    Why: with chance 1 - rate the unit is not in the sample and both outputs have one law; the mixture is convex in both.
    Source: Balle, Barthe, Gaboardi 2018, "Privacy amplification by subsampling", Theorem 8; Li, Qardaji, Su 2012, "On
    sampling, anonymization, and differential privacy", Theorem 1.

    >>> sampled = SampledProfile(PureProfile(Fraction(1)), Fraction(1, 10))
    >>> round(sampled.delta(Decimal(0)).high, 12), sampled.delta(Decimal("0.1586")).high
    (Decimal('0.046211715726'), Decimal('0'))
    """

    whole: Profile
    rate: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", require_exact_positive(self.rate, "rate"))
        if self.rate > 1:
            raise LossError("the sampling probability of a unit must be at most 1")

    @property
    def tail(self) -> Decimal | None:
        """Return the tail of the release from all units: ε₀ is ε + ln(1/rate), nearly."""
        return self.whole.tail

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Return the bound of the release from all units, whose δ is no smaller at the same ε."""
        return self.whole.bound_crossover_epsilon(mu)

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the upper bound, between its own bounds of rounding."""
        rate = to_decimal(self.rate)
        with localcontext(prec=110):
            inner = 1 + (epsilon.exp() - 1) / rate
            around = (inner.ln() - MARGIN * (1 + epsilon), inner.ln() + MARGIN * (1 + epsilon))
            high = self.whole.delta(max(around[0], Decimal(0))).high
            low = self.whole.delta(max(around[1], Decimal(0))).low
            return (
                Bounds(bound_probability(rate * low).low, bound_probability(rate * high).high)
                if high
                else NOTHING
            )


@dataclass(frozen=True, slots=True)
class GaussianProfile:
    """That of μ-GDP, which continuous and rounded Gaussian noise of σ = l2_sensitivity/μ has exactly.

    Source: Balle, Wang 2018, Theorem 8; Dong, Roth, Su 2022, Corollary 2.13.
    """

    mu: Decimal

    @property
    def tail(self) -> Decimal | None:
        """μ itself (Liu, Sun, Jiang, Kong 2022, Lemma 3.1)."""
        return self.mu

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:  # noqa: ARG002  (the Protocol's)
        """Return 0: μ-GDP with a larger μ has a larger δ everywhere."""
        return Decimal(0)

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the exact δ, up to rounding."""
        return gaussian_delta(self.mu, epsilon)


@dataclass(frozen=True, slots=True)
class ApproximateProfile:
    """That of (ε₀, δ₀)-DP, with ε₀ = 0 for a selection: δ = δ₀ + (1-δ₀)(e^ε₀ - e^ε)₊/(1 + e^ε₀).

    Claim: (ε₀, δ₀)-DP implies (ε, δ)-DP if and only if δ is at least that.
    Source: Liu, Sun, Jiang, Kong 2022, Theorem 2.1.

    >>> round(ApproximateProfile(Fraction(0), Fraction(1, 100)).delta(Decimal(5)).high, 12)
    Decimal('0.010000000000')
    """

    epsilon: Fraction
    floor: Fraction

    @property
    def tail(self) -> Decimal | None:
        """Return None: a δ that never falls below a floor is not Gaussian for any μ."""
        return None

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Raise LossError: there is no crossover."""
        raise LossError(f"no δ of {float(mu):g}-GDP stays above a floor")

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the largest that (ε₀, δ₀)-DP leaves."""
        floor = to_decimal(self.floor)
        return compute_implied_delta(to_decimal(self.epsilon), bound_probability(floor), epsilon)


@dataclass(frozen=True, slots=True)
class RefinedProfile:
    """A profile with all that each of its points implies: the least over ε' of `compute_implied_delta`.

    Claim: it is a profile of the same release, never above `naive`. Upper bounds are what the points of the grid imply;
    lower bounds hold for the infimum over all ε'.
    Why: what (ε', δ') implies at ε is 1 - (1+e^ε)·h with h = (1-δ')/(1+e^ε'), so the best point beyond ε is that with the
    largest h, whatever ε is. Between two points of the grid h is at most (1-δ' of the higher)/(1 + e^(the lower)), beyond
    the last at most 1/(1 + e^last).
    Source: Liu, Sun, Jiang, Kong 2022, Theorem 2.1 and the refinement after it.

    >>> naive = ApproximateProfile(Fraction(1), Fraction(1, 10))
    >>> refined = RefinedProfile(naive, tuple(Decimal(k) / 10 for k in range(30)))
    >>> abs(refined.delta(Decimal(0)).high - naive.delta(Decimal(0)).high) < Decimal("1e-80")
    True
    """

    naive: Profile
    grid: tuple[Decimal, ...]
    _heights: tuple[Bounds, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.grid or list(self.grid) != sorted(self.grid):
            raise LossError("a grid must be in ascending order")
        with localcontext(prec=110):
            best = Bounds(Decimal(0), 1 / (1 + self.grid[-1].exp()) * (1 + MARGIN))
            heights, following = [], best.high
            for point in reversed(self.grid):
                low, high = _bound_heights(point, self.naive.delta(point))
                best = Bounds(max(best.low, low), max(best.high, high, following))
                heights.append(best)
                # Up to the point before, h is at most what this δ' and that ε' make.
                following = high * (1 + point.exp())
                index = len(self.grid) - len(heights) - 1
                if index >= 0:
                    following /= 1 + self.grid[index].exp()
        object.__setattr__(self, "_heights", tuple(reversed(heights)))

    @property
    def tail(self) -> Decimal | None:
        """Return the tail of the naive profile."""
        return self.naive.tail

    def bound_crossover_epsilon(self, mu: Decimal) -> Decimal:
        """Return the bound of the naive profile, which is above this one."""
        return self.naive.bound_crossover_epsilon(mu)

    def delta(self, epsilon: Decimal) -> Bounds:
        """Return the least δ that follows from any point of the naive profile."""
        here = self.naive.delta(epsilon)
        index = bisect_left(self.grid, epsilon)
        with localcontext(prec=110):
            factor = 1 + epsilon.exp()
            if index == len(self.grid):
                return Bounds(Decimal(0), here.high)
            beyond = self._heights[index]
            next_high = self.naive.delta(self.grid[index]).low
            reached = max(beyond.high, (1 - next_high) / factor * (1 + MARGIN))
            low, high = (
                bound_probability(1 - factor * reached).low,
                bound_probability(1 - factor * beyond.low).high,
            )
            return Bounds(min(low, here.high), min(high, here.high))


def _bound_heights(point: Decimal, delta: Bounds) -> Bounds:
    whole = 1 + point.exp()
    return Bounds((1 - delta.high) / whole * (1 - MARGIN), (1 - delta.low) / whole * (1 + MARGIN))


def compute_implied_delta(epsilon: Decimal, delta: Bounds, at: Decimal) -> Bounds:
    """Return the least δ at the ε `at` that (`epsilon`, `delta`)-DP implies.

    Source: Liu, Sun, Jiang, Kong 2022, Theorem 2.1.
    """
    if at >= epsilon:
        return delta
    with localcontext(prec=110):
        lost = (1 - (at - epsilon).exp()) / (1 + (-epsilon).exp())
        return Bounds(
            bound_probability(delta.low + (1 - delta.low) * lost).low,
            bound_probability(delta.high + (1 - delta.high) * lost).high,
        )


def compute_profile(event: Event) -> Profile:
    """Return the profile of an event; raise LossError for a composition, for which `Batch` computes one.

    >>> round(compute_profile(Selection(Fraction(1, 10))).delta(Decimal(1)).high, 12)
    Decimal('0.100000000000')
    """
    match event:
        case Pure(epsilon):
            return PureProfile(epsilon)
        case BoundedRange(epsilon):
            return BoundedRangeProfile(epsilon)
        case Gaussian(rho):
            return GaussianProfile(bound_lattice_gaussian_mu(rho))
        case Approximate(epsilon, delta):
            return ApproximateProfile(epsilon, delta)
        case Selection(delta):
            return ApproximateProfile(Fraction(0), delta)
        case _:
            raise LossError(f"a {type(event).__name__} release has no single privacy profile")
