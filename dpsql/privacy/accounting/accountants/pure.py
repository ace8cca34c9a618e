"""The accountants that add up epsilons: pure and basic composition."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.privacy.accounting.accountants.base import compute_composed_charge, make_refusal_error, split_delta
from dpsql.privacy.accounting.events import (
    Approximate,
    BoundedRange,
    Charge,
    Composed,
    Event,
    Pure,
    Selection,
    to_units_down,
    to_units_up,
)

# The accountant `pure`: epsilons add, deltas add.


@dataclass(frozen=True, slots=True)
class PureAccountant:
    """Basic composition; the loss is ε.

    **Claim.** While Σε <= epsilon and Σδ <= delta, everything released is (epsilon, delta)-DP, even when
    each query is chosen after seeing the earlier answers.

    **Why.** The privacy loss of a transcript is the sum of the steps' losses, and each step's is bounded
    whatever came before; a filter on both sums stops before either passes.

    **Source.** Rogers, Roth, Ullman, Vadhan 2016, Section 3 (the filter of basic composition).

    >>> accountant = PureAccountant()
    >>> compute_limit = accountant.compute_limit(Fraction(3), Fraction(0))
    >>> compute_limit.loss // accountant.compute_charge(Pure(Fraction(1, 100))).loss
    300
    """

    name: ClassVar[str] = "pure"
    symbol: ClassVar[str] = "ε"
    can_charge_difference: ClassVar[bool] = True

    def compute_limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Charge:
        """Return the limit is the budget itself; all of delta is for selection unless a share is stated."""
        _, selection = split_delta(delta, delta if selection is None else selection)
        return Charge(to_units_down(epsilon), to_units_down(selection))

    def compute_charge(self, event: Event) -> Charge:
        """Return ε for a pure release, δ for a selection; refuse Gaussian noise, which has no finite ε."""
        match event:
            case Pure(epsilon) | BoundedRange(epsilon):
                return Charge(to_units_up(epsilon), 0)
            case Selection(delta):
                return Charge(0, to_units_up(delta))
            case Composed(events):
                return compute_composed_charge(self.compute_charge, events)
            case _:
                raise make_refusal_error(self.name, event)

    def find_gaussian_rho(self, epsilon: Fraction) -> Fraction | None:  # noqa: ARG002  (the Protocol's)
        """Return None: this accountant never charges Gaussian noise."""
        return None

    def compute_spent_epsilon(
        self,
        spend: Charge,
        delta: Fraction,  # noqa: ARG002  (the Protocol's)
        selection: Fraction | None = None,  # noqa: ARG002
    ) -> Fraction:
        """Return Σε, exactly as charged."""
        return spend.loss_fraction

    def compute_remaining_epsilon(self, spend: Charge, limit: Charge) -> Fraction:
        """Return the budget's ε − Σε."""
        return Fraction(max(limit.loss - spend.loss, 0), Charge.UNIT)


# The accountant `basic`: the composition of (ε, δ), both of which add.


@dataclass(frozen=True, slots=True)
class BasicAccountant(PureAccountant):
    """Basic composition of releases that have a δ of their own; the loss is ε.

    **Claim.** While Σε <= epsilon and Σδ <= delta, everything released is (epsilon, delta)-DP, even when
    each query is chosen after seeing the earlier answers.

    **Why.** Each step is ε-DP except with probability δ, on both neighbors. Those probabilities add up to at
    most Σδ along every transcript; where none has come true, the losses add up to at most Σε.

    **Source.** Dwork, Roth 2014, Theorem B.1 (queries chosen one after the other); Rogers, Roth, Ullman,
    Vadhan 2016, Section 3 (losses chosen so too: the filter of basic composition).

    >>> from fractions import Fraction
    >>> basic = BasicAccountant()
    >>> basic.compute_charge(Approximate(Fraction(1, 2), Fraction(1, 10**6))) == Charge(Charge.UNIT // 2, Charge.UNIT // 10**6)
    True
    """

    name: ClassVar[str] = "basic"

    def compute_charge(self, event: Event) -> Charge:
        """Return what `pure` charges, and both numbers of an (ε, δ)-DP release; refuse Gaussian noise, as `pure` does."""
        match event:
            case Approximate(epsilon, delta):
                return Charge(to_units_up(epsilon), to_units_up(delta))
            case _:
                return PureAccountant.compute_charge(self, event)
