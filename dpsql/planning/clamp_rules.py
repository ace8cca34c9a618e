"""The rules by which clamps are chosen: public constants, that of today and the one before 0.3.0."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from dpsql.analysis.release_analysis import Analysis

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
    of a point that is its prior weight; `pure_share` and `pure_exponent` are those of pure accounting. With `uses_tiers` these
    follow from the number of groups: the share where it is public, the exponent where it is released. `tolerance` is the
    mean error that units beyond the clamp may cause in a group, as a part of the noise. `slack` is the surplus of evidence,
    as a log of odds, that a point below the greatest needs; None asks for no evidence, and then the power is the same for
    any number of groups. `euclidean` says that l2 norms are clamped, `clamps_declared_rows` that clamps are also chosen where the
    owner declares the rows of a unit, and `separate_totals` that the total and the count of a mean may have clamps of their own.
    """

    share: Fraction
    pure_share: Fraction
    exponent: int
    pure_exponent: int
    uses_tiers: bool = False
    tolerance: Fraction = Fraction(0)
    slack: int | None = None
    euclidean: bool = False
    clamps_declared_rows: bool = False
    separate_totals: bool = False

    def get_share(self, analysis: Analysis, *, pure: bool) -> Fraction:
        """Return the part of a statistic's loss that the choice of its clamp spends."""
        public = not analysis.is_grouped or analysis.domains is not None
        found = get_tier(count_released_groups(analysis)) if public and self.uses_tiers else self
        return found.pure_share if pure else found.share


CURRENT_RULE = ClampSelectionRule(
    Fraction(1, 5),
    Fraction(1, 4),
    4,
    4,
    uses_tiers=True,
    tolerance=Fraction(2, 5),
    slack=12,
    euclidean=True,
    clamps_declared_rows=True,
    separate_totals=True,
)
"""The rule of all new releases. Its constants are those for which intervals hold the true value, cut included, in
`benchmarks.clamps`."""
FORMER_RULE = ClampSelectionRule(Fraction(1, 10), Fraction(1, 5), 3, 2)
"""The rule of releases before 0.3.0: they are found again by the plan that was made then."""


def count_released_groups(analysis: Analysis) -> int:
    """Return the number of groups of a release, if their keys are public; else 1, until they are selected."""
    return 1 if analysis.domains is None else min(MOST_RELEASED, prod(map(len, analysis.domains)))
