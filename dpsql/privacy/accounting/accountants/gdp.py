"""The accountant `gdp`: squares of μ add, and convert to (ε, δ) once."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from dpsql.privacy.accounting.accountants.base import (
    compute_composed_charge,
    make_refusal_error,
    search_largest,
    search_largest_epsilon,
    split_conversion_delta,
)
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Charge,
    Composed,
    Event,
    Gaussian,
    Pure,
    Selection,
    to_units_down,
    to_units_up,
)
from dpsql.privacy.accounting.numerics import PI, convert_to_epsilon, convert_to_mu, tail
from dpsql.privacy.accounting.tradeoffs import (
    bound_lattice_gaussian_mu,
    bound_pure_mu,
    bound_range_mu,
    compute_squared_mu,
)


@dataclass(frozen=True, slots=True)
class GdpAccountant:
    """Gaussian differential privacy; the loss is μ².

    **Claim.** While Σμ² <= μ*² and Σδ <= δ_selection, everything released is (epsilon, delta)-DP, where
    μ*-GDP implies (epsilon, δ_conversion)-DP, even when each query is chosen after seeing the earlier
    answers. What each kind of release costs is proven in `accounting.tradeoffs`.

    **Why.** A release that is μ-GDP is a post-processing of N(0, 1) on one of two neighbors and of N(μ, 1)
    on the other (Blackwell), which is to watch a Brownian motion without or with drift 1 for the time μ². So
    a transcript is a post-processing of one motion, watched for Σμ² in all, however the times are chosen, and
    for at most μ*². A selection is (0, δ)-DP: except with probability δ, on both neighbors, its outcome has the
    same law; by the union bound along each transcript these chances add at most Σδ to the whole's delta.

    **Source.** Smith, Thakurta 2022, "Fully Adaptive Composition for Gaussian Differential Privacy",
    Theorem 1; Koskela, Tobaben, Honkela 2022, "Individual Privacy Accounting with Gaussian Differential
    Privacy", Theorem 6; Dong, Roth, Su 2022, Corollary 2.13 (conversion).

    >>> accountant = GdpAccountant()
    >>> compute_limit = accountant.compute_limit(Fraction(3), Fraction(1, 10**6), selection=Fraction(0))
    >>> compute_limit.loss // accountant.compute_charge(Pure(Fraction(1, 100))).loss
    2670
    """

    name: ClassVar[str] = "gdp"
    symbol: ClassVar[str] = "μ²"
    can_charge_difference: ClassVar[bool] = False

    def compute_limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Charge:
        """Return the largest μ² that converts to (epsilon, δ_conversion), and δ_selection.

        Each delta is half of the budget's unless the share is stated. PolicyError (`delta_required`) if
        nothing is left to convert with.
        """
        conversion, selection = split_conversion_delta(self.name, delta, selection)
        return Charge(
            to_units_down(Fraction(convert_to_mu(epsilon, conversion)) ** 2), to_units_down(selection)
        )

    def compute_charge(self, event: Event) -> Charge:
        """Return μ² for a release, δ for a selection, both for an (ε, δ)-DP release."""
        match event:
            case Pure(epsilon):
                return Charge(_compute_pure_loss(epsilon), 0)
            case BoundedRange(epsilon):
                return Charge(to_units_up(compute_squared_mu(bound_range_mu(epsilon))), 0)
            case Gaussian(rho):
                return Charge(_compute_gaussian_loss(rho), 0)
            case Selection(delta):
                return Charge(0, to_units_up(delta))
            case Approximate(epsilon, delta):
                return Charge(_compute_pure_loss(epsilon), to_units_up(delta))
            case Composed(events):
                return compute_composed_charge(self.compute_charge, events)
            case _:
                raise make_refusal_error(self.name, event)

    def find_gaussian_rho(self, epsilon: Fraction) -> Fraction | None:
        """Return the largest ρ, in units, at which Gaussian noise is charged no more than an ε-DP release."""
        return _find_rho(_compute_pure_loss(epsilon))

    def compute_spent_epsilon(
        self, spend: Charge, delta: Fraction, selection: Fraction | None = None
    ) -> Fraction:
        """Return the ε to which the spent μ² converts at the budget's δ_conversion, in units rounded up."""
        conversion, _ = split_conversion_delta(self.name, delta, selection)
        if spend.loss == 0:
            return Fraction(0)
        with localcontext(prec=110) as context:
            mu = context.next_plus((context.create_decimal(spend.loss) / Charge.UNIT).sqrt())
        return Fraction(to_units_up(Fraction(convert_to_epsilon(mu, conversion))), Charge.UNIT)

    def compute_remaining_epsilon(self, spend: Charge, limit: Charge) -> Fraction:
        """Return the largest ε whose μ² is at most what is left."""
        return search_largest_epsilon(self.compute_charge, max(limit.loss - spend.loss, 0))


@lru_cache(maxsize=1024)
def _compute_pure_loss(epsilon: Fraction) -> int:
    return to_units_up(compute_squared_mu(bound_pure_mu(epsilon)))


@lru_cache(maxsize=1024)
def _compute_gaussian_loss(rho: Fraction) -> int:
    return to_units_up(compute_squared_mu(bound_lattice_gaussian_mu(rho)))


@lru_cache(maxsize=256)
def _find_rho(loss: int) -> Fraction | None:
    def fits_loss(units: int) -> bool:
        return _compute_gaussian_loss(Fraction(units, Charge.UNIT)) <= loss

    return Fraction(search_largest(fits_loss, _guess_rho_units(loss)), Charge.UNIT) if fits_loss(1) else None


def _guess_rho_units(loss: int) -> int:
    """Return the ρ of discrete Gaussian noise whose μ² is near that loss, in units."""
    with localcontext(prec=110):
        unit = Decimal(Charge.UNIT)
        middle = 1 - 2 * tail(min((loss / unit).sqrt() / 2, Decimal(1000)))
        return int(max(PI * middle * middle, loss / unit / 8) * unit)
