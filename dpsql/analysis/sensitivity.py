"""How much one privacy unit can change a block of statistics, with the norm in the name."""

from __future__ import annotations

from fractions import Fraction

from dpsql.analysis.blocks import Block
from dpsql.analysis.stability import Bound
from dpsql.mechanisms import Sensitivity


def sensitivity(block: Block, bound: Bound, *, grouped: bool, replace: bool) -> Sensitivity:
    """The l1 sensitivity of a block over all groups together, and its l2 sensitivity squared.

    Claim: adding or removing one unit moves the vector of all cells of all groups by at most
    R·c in l1 and in l2 norm, where R is the most rows of a unit that count and c the block's
    contribution; the count of units by G in l1 and √G in l2, where G is the most groups of a unit.
    For `replace` the l1 norm doubles, and the squared l2 norm doubles where no share is negative and
    quadruples else. An ungrouped single cell moves by no more than the range of a unit's share.
    Why: shares of at most R rows add up by the triangle inequality; two vectors a, b without negative
    entries have |a-b|² ≤ |a|² + |b|².
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Definitions 3.1 and 3.8.
    """
    if block.by_unit:
        l1, l2_squared, span = bound.groups, bound.groups, block.range
    else:
        l1 = bound.rows * block.contribution
        l2_squared = l1 * l1
        span = None if block.range is None else bound.rows * block.range
    if not replace:
        return Sensitivity(Fraction(l1), Fraction(l2_squared))
    if span is not None and not grouped:
        return Sensitivity(Fraction(span), Fraction(span * span))
    return Sensitivity(Fraction(2 * l1), Fraction((2 if block.nonnegative else 4) * l2_squared))
