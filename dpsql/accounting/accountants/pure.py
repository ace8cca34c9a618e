"""The accountant `pure`: epsilons add, deltas add."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting.accountants.base import composed_cost, not_charged, split_delta
from dpsql.accounting.events import BoundedRange, Composed, Event, Pure, Selection
from dpsql.accounting.spend import Spend, units_down, units_up


@dataclass(frozen=True, slots=True)
class PureAccountant:
    """Basic composition; the loss is ε.

    **Claim.** While Σε <= epsilon and Σδ <= delta, everything released is (epsilon, delta)-DP, even when
    each query is chosen after seeing the earlier answers.

    **Why.** The privacy loss of a transcript is the sum of the steps' losses, and each step's is bounded
    whatever came before; a filter on both sums stops before either passes.

    **Source.** Rogers, Roth, Ullman, Vadhan 2016, Section 3 (the filter of basic composition).

    >>> accountant = PureAccountant()
    >>> limit = accountant.limit(Fraction(3), Fraction(0))
    >>> limit.loss // accountant.cost(Pure(Fraction(1, 100))).loss
    300
    """

    name: ClassVar[str] = "pure"
    symbol: ClassVar[str] = "ε"
    by_path: ClassVar[bool] = True

    def limit(self, epsilon: Fraction, delta: Fraction, selection: Fraction | None = None) -> Spend:
        """The limit is the budget itself; all of delta is for selection unless a share is stated."""
        _, selection = split_delta(delta, delta if selection is None else selection)
        return Spend(units_down(epsilon), units_down(selection))

    def cost(self, event: Event) -> Spend:
        """ε for a pure release, δ for a selection; Gaussian noise has no finite ε and is refused."""
        match event:
            case Pure(epsilon) | BoundedRange(epsilon):
                return Spend(units_up(epsilon), 0)
            case Selection(delta):
                return Spend(0, units_up(delta))
            case Composed(events):
                return composed_cost(self.cost, events)
            case _:
                raise not_charged(self.name, event)

    def gaussian_rho(self, epsilon: Fraction) -> Fraction | None:  # noqa: ARG002  (the Protocol's)
        """None: Gaussian noise is never charged here."""
        return None

    def epsilon_spent(
        self,
        spend: Spend,
        delta: Fraction,  # noqa: ARG002  (the Protocol's)
        selection: Fraction | None = None,  # noqa: ARG002
    ) -> Fraction:
        """Σε, exactly as charged."""
        return spend.loss_fraction

    def remaining_epsilon(self, spend: Spend, limit: Spend) -> Fraction:
        """The budget's ε − Σε."""
        return Fraction(max(limit.loss - spend.loss, 0), Spend.UNIT)
