"""The sensitivity of a statistic vector to one privacy unit, by norm."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.analysis.stability import ContributionBound
from dpsql.planning.statistics import StatisticVector, bound_counted_pairs
from dpsql.privacy.accounting.events import Composed, Event, Pure, Selection
from dpsql.privacy.accounting.numerics import ln_down
from dpsql.privacy.mechanisms import Sensitivity
from dpsql.privacy.mechanisms.exponentials import bound_exp


@dataclass(frozen=True, slots=True)
class UnitChange:
    """The effect of one privacy unit, as changes of single components.

    The difference of two neighbors is a sum of at most `count` changes, each of one component of one group by at most
    `size` lattice steps.
    """

    size: int
    count: int

    @classmethod
    def from_contribution(
        cls, share: int, span: int | None, bound: ContributionBound, *, grouped: bool, replace: bool
    ) -> UnitChange:
        """Return the changes if the contribution of a unit to a component is at most `share`, and its extremes differ by `span`.

        Claim: adding or removing one unit is at most G changes of one component by at most `share`, where G is the most
        groups of a unit; under `replace` there are twice as many, or without groups one by at most `span`.
        Why: a unit is in at most G groups, each of which has one such component. A replaced unit is removed and then
        added; without groups both change the same component.
        Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Theorem 2.2 (moves in a row).
        """
        if replace and not grouped and span is not None:
            return cls(span, 1)
        return cls(share, bound.groups * (2 if replace else 1))


def compute_sensitivity(
    vector: StatisticVector, bound: ContributionBound, *, grouped: bool, replace: bool
) -> Sensitivity:
    """Return the sensitivities of a vector over all groups together, that of l2 squared.

    Claim: adding or removing one unit moves the vector of all components of all groups by at most
    R·c in l1 and in l2 norm, where R is the bound on rows of a unit and c the vector's contribution; the count
    of units by G in l1 and √G in l2 norm, where G is the most groups of a unit; a padded vector by its contribution per
    group times as much.
    Under `replace` the l1 norm doubles; the squared l2 norm doubles if no contribution is negative, and quadruples
    otherwise. An ungrouped single component changes by at most the range of a unit's contribution. For a joint vector
    see `_compute_joint_sensitivity`. Of a count of distinct values R is the number of pairs of a group and a value that count; if a unit has
    at most v values in a group, its squared l2 norm is largest with v in as many groups as there are, and the rest in one.
    Why: the contributions of at most R rows add up by the triangle inequality; two vectors a, b without negative
    entries have |a-b|² ≤ |a|² + |b|². The squares of entries of at most v that add up to R are convex, so they are
    largest where all entries but one are v or 0.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3; Dwork, Roth 2014, Definitions 3.1 and 3.8.
    """
    if vector.joint:
        return _compute_joint_sensitivity(vector, bound, replace=replace)
    if vector.counts_units or vector.padded:
        each = vector.padded or 1
        l1, l2_squared, span = bound.groups * each, bound.groups * each**2, vector.range
    else:
        rows = bound_counted_pairs(vector.most_distinct, bound)
        l1 = rows * vector.contribution
        most = min(rows, vector.most_distinct or rows)
        full, rest = divmod(rows, most)
        l2_squared = (full * most**2 + rest**2) * vector.contribution**2
        span = None if vector.range is None else rows * vector.range
    if not replace:
        return Sensitivity(Fraction(l1), Fraction(l2_squared))
    if span is not None and not grouped:
        return Sensitivity(Fraction(span), Fraction(span * span))
    return Sensitivity(Fraction(2 * l1), Fraction((2 if vector.nonnegative else 4) * l2_squared))


def _compute_joint_sensitivity(
    vector: StatisticVector, bound: ContributionBound, *, replace: bool
) -> Sensitivity:
    """Return the norms of a vector that several arguments share, whose rows move component i by at most e_i.

    Claim: with D the largest e_i, a unit that counts in h groups moves the components by at most R·Σe + h·u in l1
    norm, u being what it moves the count of units by in a group; in squared l2 norm by at most
    ((R-h+1)² + h-1)·Σe² + h·u²; and the sum over groups of the largest change is at most
    (h-1)·max(u, D) + max(u, (R-h+1)·D). The largest of these is at h = 1 or h = G. For `replace` the norms
    double.
    Why: in a group with r of its rows a unit moves component i by at most r·e_i. Each of these norms is convex in
    the numbers of rows r_1, …, r_h >= 1 that add up to R, so it is largest where all but one are 1; and
    there it is convex in h.
    Source: Dwork, Roth 2014, Definitions 3.1 and 3.8; Hardt, Talwar 2010, section 4.
    """
    largest, squares, unit = max(vector.extents), sum(e * e for e in vector.extents), vector.unit_extent
    most = bound.rows
    by_groups = [(h, most - h + 1) for h in {1, bound.groups}]
    l1 = most * vector.contribution + bound.groups * unit
    l2_squared = max((r * r + h - 1) * squares + h * unit * unit for h, r in by_groups)
    linf = max((h - 1) * max(unit, largest) + max(unit, r * largest) for h, r in by_groups)
    times = 2 if replace else 1
    return Sensitivity(Fraction(times * l1), Fraction(times**2 * l2_squared), Fraction(times * linf))


def compute_unit_change(
    vector: StatisticVector, bound: ContributionBound, *, grouped: bool, replace: bool
) -> UnitChange | None:
    """Return the changes that one unit causes in a vector of one component; None for other vectors.

    The R rows of a unit contribute at most R times the vector's contribution; a unit is counted once. Distinct values
    in groups have no such bound here: each of a unit's R values may be in a different group.
    """
    if vector.joint or len(vector.components) != 1 or (vector.counts_distinct_values and grouped):
        return None
    times = 1 if vector.counts_units else bound_counted_pairs(vector.most_distinct, bound)
    span = None if vector.range is None else times * vector.range
    return UnitChange.from_contribution(
        times * vector.contribution, span, bound, grouped=grouped, replace=replace
    )


# Amplification: a release from a Poisson sample of the units has a smaller loss, so it needs less noise.
#
# Claim: a release that is (ε0, δ0)-DP on the sample is (ln(1 + q(e^ε0 - 1)), q·δ0)-DP on all units, where one unit is added or removed
# and each unit is in the sample with probability q, independently of the others. So it is charged ε if its noise on the sample has
# ε0 = ln(1 + (e^ε - 1)/q).
# Why: let P and Q be the laws of the answer with and without the unit, given the other units of the sample. With the unit the answer
# has the law (1-q)Q + qP, which is between Q/(1 + q(e^ε0 - 1)) and (1 + q(e^ε0 - 1))Q where P is between e^-ε0·Q and e^ε0·Q;
# the rest has probability at most δ0, and the unit is there with probability q. Mixing over the others keeps both bounds. The
# claim holds for everything that is computed from one sample together: clamps, partition selection, quantiles and sums.
# Source: Li, Qardaji, Su 2012, Theorem 1; Balle, Barthe, Gaboardi 2018, Theorem 8.


_DIGITS = 60
_PLACES = 10**30
"""A loss is rounded down to a multiple of its inverse, so that the check of it need not be exact."""


def compute_sample_loss(epsilon: Fraction, rate: Fraction) -> Fraction:
    """Return the loss on a sample that is amplified to at most `epsilon`: ln(1 + (e^ε - 1)/rate), rounded down, at least `epsilon`.

    >>> round(float(compute_sample_loss(Fraction(1), Fraction(1, 10))), 4)
    2.9005
    >>> round(float(compute_sample_loss(Fraction(10**9), Fraction(1, 10)) - 10**9), 4)
    2.3026
    """
    # ln(1 + (e^ε - 1)/q) = ε + ln(1/q - e^-ε·(1/q - 1)): no power is large.
    _, power = bound_exp(epsilon, _DIGITS)
    grown = 1 / rate - Fraction(power, 10**_DIGITS) * (1 / rate - 1)
    if grown <= 1:
        return epsilon
    return max(epsilon, Fraction(int((epsilon + ln_down(grown)) * _PLACES), _PLACES))


def compute_charged_event(epsilon: Fraction, inner: Event | None, rate: Fraction) -> Event | None:
    """Return the charge of a release from a sample: `epsilon`, and the part `rate` of the δ of `inner`, its event on the sample."""
    if inner is None:
        return None
    events = inner.events if isinstance(inner, Composed) else (inner,)
    delta = sum((part.delta for part in events if isinstance(part, Selection)), Fraction(0))
    pure = Pure(epsilon)
    return Composed((pure, Selection(rate * delta))) if delta else pure
