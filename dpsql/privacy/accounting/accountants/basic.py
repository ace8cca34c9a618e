"""The accountant `basic`: the composition of (ε, δ), both of which add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpsql.privacy.accounting.accountants.pure import PureAccountant
from dpsql.privacy.accounting.charge import Charge, to_units_up
from dpsql.privacy.accounting.events import Approximate, Event


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
