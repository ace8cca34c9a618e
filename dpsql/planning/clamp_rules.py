"""The rule by which clamps are chosen: public constants."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from dpsql.analysis.release_analysis import Analysis
from dpsql.privacy.mechanisms import Exponential

MOST_RELEASED = 256
"""No more groups of a public domain are expected to have units: in a larger one many may be empty."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The constants of releases with at most `groups` groups: the part of the loss that the choice spends, and the exponent.

    Claim: more groups want a smaller part, and a larger exponent.
    Why: what units have beyond a clamp is divided among the groups, and noise is added to each. So in few groups a clamp
    must leave few units beyond it, and the choice must tell few units apart.
    """

    groups: int
    exponent: int
    share: Fraction
    pure_share: Fraction


TIERS = (
    Tier(4, 1, Fraction(1, 6), Fraction(1, 4)),
    Tier(15, 2, Fraction(1, 6), Fraction(1, 5)),
    Tier(63, 3, Fraction(1, 12), Fraction(1, 6)),
    Tier(2**30, 4, Fraction(1, 25), Fraction(1, 12)),
)
"""Measured by `benchmarks.clamps`."""


def get_tier(groups: int) -> Tier:
    """Return the constants of releases with this number of groups."""
    return next(each for each in TIERS if groups <= each.groups)


@dataclass(frozen=True, slots=True)
class ClampSelectionRule:
    """The public constants by which clamps are chosen.

    `share` is the part of a statistic's loss that the choice of its clamp spends, and `exponent` the power of the inverse
    of a point that is its prior weight; `pure_share` is the share of pure accounting. Where the number of groups is known, the
    constants follow from it (`TIERS`): the share where it is public, the exponent where it is released. `tolerance` is the
    mean error that units beyond the clamp may cause in a group, as a part of the noise. `slack` is the surplus of evidence,
    as a log of odds, that a point below the greatest needs.
    """

    share: Fraction
    pure_share: Fraction
    exponent: int
    tolerance: Fraction
    slack: int

    def get_share(self, analysis: Analysis, *, pure: bool) -> Fraction:
        """Return the part of a statistic's loss that the choice of its clamp spends."""
        is_public = not analysis.is_grouped or analysis.domains is not None
        found = get_tier(count_released_groups(analysis)) if is_public else self
        return found.pure_share if pure else found.share

    def compute_min_support(self, mechanism: Exponential) -> int:
        """Return the `slack`, in steps of the mechanism's rate: the units that must contribute beyond all odds."""
        return -(-self.slack // mechanism.rate)


RULE = ClampSelectionRule(
    share=Fraction(1, 5), pure_share=Fraction(1, 4), exponent=4, tolerance=Fraction(2, 5), slack=12
)
"""The constants for which intervals hold the true value, including what clamps cut off, in `benchmarks.clamps`."""


def count_released_groups(analysis: Analysis) -> int:
    """Return the number of groups of a release, if their keys are public; else 1, until they are selected."""
    return 1 if analysis.domains is None else min(MOST_RELEASED, prod(map(len, analysis.domains)))
