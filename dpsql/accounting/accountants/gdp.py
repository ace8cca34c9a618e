"""The accountant `gdp`: squares of μ add, and convert to (ε, δ) once."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from dpsql.accounting.accountants.base import (
    composed_cost,
    largest,
    largest_epsilon,
    not_charged,
    split_conversion,
)
from dpsql.accounting.events import Approximate, BoundedRange, Composed, Event, Gaussian, Pure, Selection
from dpsql.accounting.numerics.normal import PI, epsilon_within, mu_within, tail
from dpsql.accounting.spend import Spend, units_down, units_up
from dpsql.accounting.tradeoffs import mu_of_bounded_range, mu_of_lattice_gaussian, mu_of_pure, squared_up


@dataclass(frozen=True, slots=True)
class GdpAccountant:
    """Gaussian differential privacy; the loss is μ².

    **Claim.** While Σμ² <= μ*² and Σδ <= δ_selection, everything released is (epsilon, delta)-DP, where
    μ*-GDP implies (epsilon, δ_conversion)-DP, even when each query is chosen after seeing the earlier
    answers. What each kind of release costs is proven in `accounting.tradeoffs`.

    **Why.** A release that is μ-GDP is a post-processing of N(0, 1) on one of two neighbors and of N(μ, 1)
    on the other (Blackwell), which is to watch a Brownian motion without or with drift 1 for the time μ². So
    a transcript is a post-processing of one motion, watched for Σμ² in all, however the times are chosen, and
    for at most μ*². A selection is (0, δ)-DP: but for a chance of δ, on neighbors alike, its outcome has the
    same law; by the union bound along each transcript these chances add at most Σδ to the whole's delta.

    **Source.** Smith, Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy",
    Theorem 1; Koskela, Tobaben, Honkela 2022, "Individual Privacy Accounting with Gaussian Differential
    Privacy", Theorem 6; Dong, Roth, Su 2022, Corollary 2.13 (conversion).

    >>> accountant = GdpAccountant()
    >>> limit = accountant.limit(Fraction(3), Fraction(1, 10**6), selection=Fraction(0))
    >>> limit.loss // accountant.cost(Pure(Fraction(1, 100))).loss
    2670
    """

    name: ClassVar[str] = "gdp"
    symbol: ClassVar[str] = "μ²"
    by_path: ClassVar[bool] = False

    def limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Spend:
        """The largest μ² that converts to (epsilon, δ_conversion), and δ_selection.

        Each delta is half of the budget's unless the share is stated. PolicyError (`delta_required`) if
        nothing is left to convert with.
        """
        conversion, selection = split_conversion(self.name, delta, selection)
        return Spend(units_down(Fraction(mu_within(epsilon, conversion)) ** 2), units_down(selection))

    def cost(self, event: Event) -> Spend:
        """μ² for a release, δ for a selection, both for an (ε, δ)-DP release."""
        match event:
            case Pure(epsilon):
                return Spend(_of_pure(epsilon), 0)
            case BoundedRange(epsilon):
                return Spend(units_up(squared_up(mu_of_bounded_range(epsilon))), 0)
            case Gaussian(rho):
                return Spend(_of_gaussian(rho), 0)
            case Selection(delta):
                return Spend(0, units_up(delta))
            case Approximate(epsilon, delta):
                return Spend(_of_pure(epsilon), units_up(delta))
            case Composed(events):
                return composed_cost(self.cost, events)
            case _:
                raise not_charged(self.name, event)

    def gaussian_rho(self, epsilon: Fraction) -> Fraction | None:
        """The largest ρ, in units, at which Gaussian noise is charged no more than an ε-DP release."""
        return _rho_at(_of_pure(epsilon))

    def epsilon_spent(self, spend: Spend, delta: Fraction, selection: Fraction | None = None) -> Fraction:
        """The ε to which the spent μ² converts at the budget's δ_conversion, in units rounded up."""
        conversion, _ = split_conversion(self.name, delta, selection)
        if spend.loss == 0:
            return Fraction(0)
        with localcontext(prec=110) as context:
            mu = context.next_plus((context.create_decimal(spend.loss) / Spend.UNIT).sqrt())
        return Fraction(units_up(Fraction(epsilon_within(mu, conversion))), Spend.UNIT)

    def remaining_epsilon(self, spend: Spend, limit: Spend) -> Fraction:
        """The largest ε whose μ² is at most what is left."""
        return largest_epsilon(self.cost, max(limit.loss - spend.loss, 0))


@lru_cache(maxsize=1024)
def _of_pure(epsilon: Fraction) -> int:
    return units_up(squared_up(mu_of_pure(epsilon)))


@lru_cache(maxsize=1024)
def _of_gaussian(rho: Fraction) -> int:
    return units_up(squared_up(mu_of_lattice_gaussian(rho)))


@lru_cache(maxsize=256)
def _rho_at(loss: int) -> Fraction | None:
    def fits(units: int) -> bool:
        return _of_gaussian(Fraction(units, Spend.UNIT)) <= loss

    return Fraction(largest(fits, _units_about(loss)), Spend.UNIT) if fits(1) else None


def _units_about(loss: int) -> int:
    """The ρ of discrete Gaussian noise whose μ² is near that loss, in units."""
    with localcontext(prec=110):
        unit = Decimal(Spend.UNIT)
        middle = 1 - 2 * tail(min((loss / unit).sqrt() / 2, Decimal(1000)))
        return int(max(PI * middle * middle, loss / unit / 8) * unit)
