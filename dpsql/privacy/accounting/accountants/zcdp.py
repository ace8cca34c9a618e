"""The accountant `zcdp`: rhos add, and convert to (ε, δ) once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from dpsql.privacy.accounting.accountants.base import (
    compute_composed_charge,
    make_refusal_error,
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
from dpsql.privacy.accounting.numerics import exp_minus_down, ln_down, ln_up, to_decimal_down

_SEARCH = Context(prec=50)
_SMALL = 4
_SEARCH_STEPS = 80  # halvings: the optimum is flat, so half of the digits are enough


@dataclass(frozen=True, slots=True)
class ZcdpAccountant:
    """Zero-concentrated differential privacy; the loss is ρ.

    **Claim.** While Σρ <= ρ* and Σδ <= δ_selection, everything released is δ_selection-approximate
    ρ*-zCDP, hence (epsilon, delta)-DP, even when each query is chosen after seeing the earlier answers.
    An ε-DP release costs ε·tanh(ε/2), a choice of bounded range ε no more than ε²/8 either.

    **Why.** The filter is proven for adaptively chosen ρ. For the cost: an ε-DP release is a
    post-processing of randomized response, whose Rényi divergence of order α is
    h((α−½)²) − h(¼) over α−1, with h(s) = ln cosh(ε√s). h is concave, so the difference is at most
    h'(¼)·((α−½)²−¼) = ε·tanh(ε/2)·α(α−1).

    **Source.** Whitehouse, Ramdas, Rogers, Wu 2023 (the filter for approximate zCDP); Steinke 2024,
    "Sharp RDP & zCDP from Pure DP", Theorem 4 (randomized response is the worst case); Canonne, Kamath,
    Steinke 2020, Corollary 13 (conversion); Cesar, Rogers 2021, section 3 (bounded range); Murtagh,
    Vadhan 2018, Lemma 3.7 (an (ε, δ)-DP release is an ε-DP one except with probability δ).

    >>> accountant = ZcdpAccountant()
    >>> compute_limit = accountant.compute_limit(Fraction(3), Fraction(1, 10**6), selection=Fraction(0))
    >>> compute_limit.loss // accountant.compute_charge(Pure(Fraction(1, 100))).loss
    3701
    """

    name: ClassVar[str] = "zcdp"
    symbol: ClassVar[str] = "ρ"
    can_charge_difference: ClassVar[bool] = False

    def compute_limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Charge:
        """Return the largest ρ that converts to (epsilon, δ_conversion), and δ_selection.

        Each delta is half of the budget's unless the share is stated. PolicyError (`delta_required`) if
        nothing is left to convert with.
        """
        conversion, selection = split_conversion_delta(self.name, delta, selection)
        return Charge(to_units_down(_convert_to_rho(epsilon, conversion)), to_units_down(selection))

    def compute_charge(self, event: Event) -> Charge:
        """Return ε·tanh(ε/2) for a pure release, ρ for a Gaussian one, δ for a selection or a release that has one."""
        match event:
            case Pure(epsilon):
                return Charge(to_units_up(_compute_pure_rho(epsilon)), 0)
            case BoundedRange(epsilon):
                return Charge(to_units_up(_compute_range_rho(epsilon)), 0)
            case Gaussian(rho):
                return Charge(to_units_up(rho), 0)
            case Selection(delta):
                return Charge(0, to_units_up(delta))
            case Approximate(epsilon, delta):
                return Charge(to_units_up(_compute_pure_rho(epsilon)), to_units_up(delta))
            case Composed(events):
                return compute_composed_charge(self.compute_charge, events)
            case _:
                raise make_refusal_error(self.name, event)

    def find_gaussian_rho(self, epsilon: Fraction) -> Fraction | None:
        """Return ε·tanh(ε/2) rounded up, the charge of an ε-DP release: a Gaussian one of this ρ has the same charge."""
        return self.compute_charge(Pure(epsilon)).loss_fraction

    def compute_spent_epsilon(
        self, spend: Charge, delta: Fraction, selection: Fraction | None = None
    ) -> Fraction:
        """Return the ε to which the spent ρ converts at the budget's δ_conversion, in units rounded up."""
        conversion, _ = split_conversion_delta(self.name, delta, selection)
        return Fraction(to_units_up(_convert_to_epsilon(spend.loss_fraction, conversion)), Charge.UNIT)

    def compute_remaining_epsilon(self, spend: Charge, limit: Charge) -> Fraction:
        """Return the largest ε with ε·tanh(ε/2) at most what is left of ρ."""
        return search_largest_epsilon(self.compute_charge, max(limit.loss - spend.loss, 0))


@lru_cache(maxsize=1024)
def _compute_pure_rho(epsilon: Fraction) -> Fraction:
    """Return ε·tanh(ε/2), rounded up."""
    power = exp_minus_down(epsilon)
    return epsilon * (1 - power) / (1 + power)


def _compute_range_rho(epsilon: Fraction) -> Fraction:
    """Return the lesser of ε·tanh(ε/2), rounded up, and ε²/8.

    Up to ε = 4 it is the second: tanh is concave above 0, so tanh(ε/2) >= ε/4·tanh(2) > ε/8.
    """
    square = epsilon * epsilon / 8
    return square if epsilon <= _SMALL else min(_compute_pure_rho(epsilon), square)


# Below, x = α−1 > 0. For each x, ρ-zCDP implies (ε, δ)-DP with
#   ln δ = x·((1+x)ρ − ε) + x·ln x − (1+x)·ln(1+x),
# so any x gives a valid bound: the search for the best one may be inexact, the bound is evaluated exactly.
# At the best x, ρ·x² + ln(1+x) = ln(1/δ), and ρ·(2x+1) = ε + ln((1+x)/x).


@lru_cache(maxsize=256)
def _convert_to_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a ρ, as large as can be shown, such that ρ-zCDP implies (epsilon, delta)-DP."""
    target = _SEARCH.minus(_SEARCH.ln(to_decimal_down(delta)))
    asked = to_decimal_down(epsilon)

    def is_too_high(x: Decimal) -> bool:
        odds = _SEARCH.ln(_SEARCH.divide(1 + x, x))
        rho = _SEARCH.divide(_SEARCH.add(asked, odds), _SEARCH.fma(2, x, Decimal(1)))
        return _SEARCH.fma(rho, _SEARCH.multiply(x, x), _SEARCH.ln(_SEARCH.add(1, x))) > target

    x = _search_crossing(is_too_high)
    slack = (ln_down(delta) + (1 + x) * ln_down(1 + x) - x * ln_up(x)) / x
    return max((epsilon + slack) / (1 + x), Fraction(0))


@lru_cache(maxsize=256)
def _convert_to_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an ε, as small as can be shown, such that ρ-zCDP implies (ε, delta)-DP."""
    if rho == 0:
        return Fraction(0)
    target = _SEARCH.minus(_SEARCH.ln(to_decimal_down(delta)))
    spent = to_decimal_down(rho)

    def is_too_high(x: Decimal) -> bool:
        return _SEARCH.fma(spent, _SEARCH.multiply(x, x), _SEARCH.ln(_SEARCH.add(1, x))) > target

    x = _search_crossing(is_too_high)
    slack = (ln_down(delta) + (1 + x) * ln_down(1 + x)) / x
    return max((1 + x) * rho + ln_up(x) - slack, Fraction(0))


def _search_crossing(high: Callable[[Decimal], bool]) -> Fraction:
    """Return about the x > 0 from which `high` holds."""
    low, up = Decimal(1), Decimal(1)
    while high(low):
        low = _SEARCH.divide(low, 4)
    while not high(up):
        up = _SEARCH.multiply(up, 4)
    for _ in range(_SEARCH_STEPS):
        middle = _SEARCH.divide(_SEARCH.add(low, up), 2)
        low, up = (low, middle) if high(middle) else (middle, up)
    return Fraction(up)
