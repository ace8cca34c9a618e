"""What a release may spend, in every form that noise and choices take it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class LossShare:
    """What a statement may spend: an ε-DP release, or by noise of Gaussian kind one of `rho`-zCDP.

    Both cost the ledger the same; `rho` is None where the ledger cannot charge Gaussian noise.
    `delta` is for key selection. `choice` gives the range of a choice that costs a share of it, the share
    of `epsilon` unless it is said. `refined` says that less noise may be drawn later given what is released
    now, which a coupling is known for in geometric noise alone.
    """

    epsilon: Fraction
    rho: Fraction | None
    delta: Fraction
    range_of: Callable[[Fraction], Fraction] | None = field(default=None, compare=False)
    refinable: bool = False

    def range(self, share: Fraction) -> Fraction:
        """The range of a choice that costs this share."""
        return self.epsilon * share if self.range_of is None else self.range_of(share)
