"""How much of a unit counts in a group, learnt from the data where it is only derived from other bounds.

A *clamp* is a point of a public grid. What a unit has in a group, or in all of its groups together, in rows or
in lattice steps, counts up to that point, or it counts in so many groups; noise is then as for units that have no
more. The point is chosen by the exponential mechanism, and is released: the noise is that of a function of what has
been released before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import ClassVar

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis
from dpsql.analysis.stability import ContributionBound, as_declared
from dpsql.mechanisms import (
    DiscreteGaussian,
    Entropy,
    Exponential,
    Geometric,
    Mechanism,
    Sensitivity,
    Staircase,
)
from dpsql.plan.tags import TaggedEnum
from dpsql.planning.sensitivity import UnitChange, sensitivity, unit_change
from dpsql.planning.statistics import Statistic, StatisticVector

SHARE, PURE_SHARE = Fraction(1, 10), Fraction(1, 5)
"""The part of a statistic's loss that the choice of its clamp spends: a choice costs less than as much noise
where the accountant charges for its bounded range."""
EXPONENT, PURE_EXPONENT = 3, 2
"""Points weigh by their inverse to this power: to a lower one where the same loss buys a blunter choice."""
OCTAVES = 14
"""The least point is the most that a unit can have, halved so many times."""
_EXPECTED_PART = 4
"""The part of a bound that units are expected to use, where kinds of noise are compared before any is drawn."""
LEAST_ROWS, LEAST_ADDED, LEAST_GROUPS = 8, 5, 8
"""Units with fewer rows, or groups, than so many have nothing to learn: of counts, of sums, and of counts of units."""
SUBDIVISIONS = 2**16
"""What a unit with more than a point has in each of its groups, and its mean, are told in so many parts of a row or of a
lattice step: of all groups as one, in as many times more as it takes for each group to have so many."""


class Amount(TaggedEnum):
    """What of a unit is clamped: its rows, its total of a measure, or its groups."""

    ROWS = "rows", "ROWS"
    TOTAL = "total", "TOTAL"
    GROUPS = "groups", "GROUPS"


@dataclass(frozen=True, slots=True)
class Clamp:
    """A clamp on the rows of a unit in a group, on each side of its total of one measure, or on its groups.

    `measures` is that of a total; for rows those which share the clamp, None among them for rows of any kind;
    None alone for groups. `signs` are the sides that there are of a total. `whole` says that rows, or a total, are
    those of all of a unit's groups together: a unit with more has that much less in each. `fine` are the parts of a
    row, or of a lattice step, in which it is told what counts. `grid` ends with the most that a unit can have in all
    its groups. `chosen` are the indices of the points, side by side, empty before the
    release; `expected` is the one that noise is for until then.

    Claim: the choices of both sides together have a range of `mechanism.rate` times the most groups of a
    unit, or of it alone for a clamp on groups, or once for each side for one on all groups together; and twice
    that for `replace`.
    Why: the penalty of a point is the number of pairs of a unit and a group that have more, or of units that
    are in more groups, or that have more in all of them. One more unit raises those of all points by no more than
    its groups, or by one; none lowers any; and what it has in a group is on one side.
    Source: McSherry, Talwar 2007, Theorem 6; Dong, Durfee, Rogers 2020, section 3 (range); Durfee 2023,
    "Unbounded differentially private quantile and maximum estimation", section 5 (clamps for sums).
    """

    tag: ClassVar[str] = "Clamp"

    amount: Amount
    measures: tuple[int | None, ...]
    sides: tuple[int, ...]
    grid: tuple[int, ...]
    mechanism: Exponential
    exponent: int = EXPONENT
    expected: int = 0
    chosen: tuple[int, ...] = ()
    across_groups: bool = False
    subdivisions: int = 1

    @property
    def total(self) -> int | None:
        """The measure of a total, None for what is no total."""
        return self.measures[0] if self.amount is Amount.TOTAL else None

    @property
    def most(self) -> int:
        """The most that a unit can have, in rows or in lattice steps, as was derived."""
        return self.grid[-1]

    @property
    def statistic(self) -> str:
        """What is clamped, in words."""
        measure = "" if self.total is None else f" of x{self.total}"
        where = (
            ""
            if self.amount is Amount.GROUPS
            else " in all its groups"
            if self.across_groups
            else " in a group"
        )
        return f"{self.amount.value}{measure} of a unit{where}"

    @property
    def points(self) -> tuple[int, ...]:
        """What a unit has at most on each side, in a group or in all: as was chosen, or as is expected beforehand."""
        return tuple(self.grid[index] for index in self.chosen or (self.expected,) * len(self.sides))

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of each point before any data is seen, above zero: by its inverse to a power."""
        return tuple(self.most**self.exponent // point**self.exponent for point in self.grid)

    def range(self, analysis: Analysis) -> Fraction:
        """The range of the choices of both sides together."""
        return self.mechanism.range(
            step_range(analysis, self.amount, len(self.sides) if self.across_groups else 0)
        )

    def groups(self, analysis: Analysis) -> int:
        """The most groups that a unit counts in."""
        return self.points[0] if self.amount is Amount.GROUPS else analysis.bound.groups

    def choose(self, above: Sequence[Sequence[int]], entropy: Entropy) -> Clamp:
        """The clamp with a point for each side; `above` has for each point how many have more."""
        chosen = tuple(self.mechanism.choose(self.weights, side, entropy) for side in above)
        return replace(self, chosen=chosen)


def step_range(analysis: Analysis, amount: Amount, sides: int) -> int:
    """How far a unit moves the penalties of two points apart at most, of all sides together.

    `sides` are those on which all its groups are told as one, 0 where each is told by itself.
    """
    people = 2 if analysis.replace else 1
    if amount is Amount.GROUPS:
        return people
    return people * (sides or analysis.bound.groups)


def clamped_bound(analysis: Analysis, clamp: Clamp) -> ContributionBound:
    """The bound of a unit that is in no more groups than a clamp on these says."""
    return replace(analysis.bound, groups=clamp.groups(analysis))


def grid(most: int) -> tuple[int, ...]:
    """Points up to `most`, four to each doubling, without floats.

    >>> grid(10)
    (1, 2, 3, 4, 5, 6, 8, 9, 10)
    """
    start = max(1, most >> OCTAVES)
    points = {start, most}
    power = 1
    while (point := isqrt(isqrt(power * start**4))) < most:
        points.add(point)
        power *= 2
    return tuple(sorted(points))


def clamped_sensitivity(vector: StatisticVector, clamp: Clamp, analysis: Analysis) -> Sensitivity:
    """The sensitivity of a vector of which no unit has more than the clamp's points, in a group or in all of its groups.

    Claim: with τ the larger point, times the vector's contribution where it is of rows, S the most that a
    unit has in all groups and G its most groups, the vector of all components of all groups moves by at most
    l1 = min(Gτ, S) in l1 norm, and by at most the root of τ·l1 in l2 norm; where all groups are clamped as one, by
    the sum of the points of all sides in both. For `replace` as in `sensitivity`: an ungrouped single component moves by
    no more than the distance of the points.
    Why: in each group the norm of what a unit has is at most τ, and these add up to S at most; a sum of
    squares of numbers up to τ is at most τ times their sum. Parts of a point, rounded down, add up to the point at
    most; and the l2 norm is never above the l1 norm. A unit of fewer groups is one of a smaller bound.
    Source: Dwork, McSherry, Nissim, Smith 2006, section 3.
    """
    if clamp.amount is Amount.GROUPS:
        return sensitivity(
            vector, clamped_bound(analysis, clamp), grouped=analysis.grouped, replace=analysis.replace
        )
    rows = clamp.amount is Amount.ROWS
    unit = vector.contribution if rows else clamp.subdivisions
    top = max(clamp.points) * unit
    l1 = min(analysis.bound.groups * top, clamp.most * unit)
    if clamp.across_groups:
        top = l1 = min(sum(clamp.points), clamp.most) * unit
    if not analysis.replace:
        return Sensitivity(Fraction(l1), Fraction(top * l1))
    if not analysis.grouped and vector.range is not None:
        span = clamp.points[0] * vector.range if rows else sum(clamp.points)
        return Sensitivity(Fraction(span), Fraction(span * span))
    one_sign = vector.nonnegative or (not rows and len(clamp.sides) == 1)
    return Sensitivity(Fraction(2 * l1), Fraction((2 if one_sign else 4) * top * l1))


def clamped_unit_change(
    vector: StatisticVector, clamp: Clamp | None, analysis: Analysis
) -> UnitChange | None:
    """What a unit changes in a vector of one component, with a clamp where no unit has more in a group than its points.

    What a unit has in a group is at most the larger point, on that point's side, and is at most both points
    away from what another may have; of rows it is at most as many times what one puts in.
    """
    grouped, replaced = analysis.grouped, analysis.replace
    if clamp is not None and clamp.amount is Amount.GROUPS:
        return unit_change(vector, clamped_bound(analysis, clamp), grouped=grouped, replace=replaced)
    moved = unit_change(vector, analysis.bound, grouped=grouped, replace=replaced)
    if clamp is None or moved is None:
        return moved
    share, span = max(clamp.points), sum(clamp.points)
    if clamp.amount is Amount.ROWS:
        share, span = share * vector.contribution, clamp.points[0] * (vector.range or 2 * vector.contribution)
    return UnitChange.of(share, span, analysis.bound, grouped=grouped, replace=replaced)


def sensitivities(
    analysis: Analysis,
    vectors: Sequence[StatisticVector],
    clamps: Sequence[Clamp],
    taken: Sequence[int | None],
) -> list[Sensitivity]:
    """The sensitivity of each vector, of those that have taken a clamp at its points."""
    return [
        sensitivity(vector, analysis.bound, grouped=analysis.grouped, replace=analysis.replace)
        if place is None
        else clamped_sensitivity(vector, clamps[place], analysis)
        for vector, place in zip(vectors, taken, strict=True)
    ]


def rescaled(mechanism: Mechanism, old: Sensitivity, new: Sensitivity, moved: UnitChange | None) -> Mechanism:
    """The mechanism that has the same loss for another sensitivity, and other moves of as many components."""
    match mechanism:
        case Geometric(scale=scale):
            return Geometric(scale * new.l1 / old.l1)
        case DiscreteGaussian(variance=variance):
            return DiscreteGaussian(variance * new.l2_squared / old.l2_squared)
        case Staircase(loss=loss) if moved is not None:
            return Staircase.calibrate(moved.size, moved.count, moved.count * loss)
        case _:
            raise TypeError(f"no rule for the noise {mechanism.name}")


def clamps_for(
    analysis: Analysis,
    vectors: Sequence[StatisticVector],
    range_of: Callable[[Fraction], Fraction],
    part: Fraction,
    exponent: int,
    *,
    across_groups: bool,
) -> tuple[tuple[Clamp, ...], tuple[int | None, ...]]:
    """The clamps that can be learnt for a layout, and which of them each vector takes, None for none.

    A total that is measured alone has its own; all other statistics of rows share one on the rows of a unit, and
    counts of units one on its groups. Nothing is learnt of all rows of a unit where they are as many as is declared.
    Rows and totals are those of a group, or of the `across_groups` of a unit's groups. Choices spend that `part` of the price
    for each vector; `range_of` is what a part buys.
    """
    # What is proved of several arguments, or of rows and units, together is proved of rows that there are.
    able = analysis.bound.per_unit and not any(vector.joint or vector.padded for vector in vectors)
    rows = analysis.bound.rows if able else 1

    def made(
        amount: Amount, measures: tuple[int | None, ...], signs: tuple[int, ...], most: int, vectors: int
    ) -> Clamp:
        together = across_groups and amount is not Amount.GROUPS
        fine = _subdivisions(analysis, amount, measures, across_groups=together)
        steps = step_range(analysis, amount, len(signs) if together else 0)
        mechanism, points = Exponential.calibrate(steps, range_of(part * vectors)), grid(most)
        usual = _expected_amount(analysis, amount, most, stated=stated, across_groups=together)
        expected = next(at for at, point in enumerate(points) if point >= usual)
        return Clamp(
            amount,
            measures,
            signs,
            points,
            mechanism,
            exponent,
            expected,
            across_groups=together,
            subdivisions=fine,
        )

    taken: list[int | None] = [None] * len(vectors)
    found: list[Clamp] = []
    stated = as_declared(analysis.release, rows)
    learns = not stated or (analysis.bound.groups > 1 and not across_groups)
    sharing = [place for place, vector in enumerate(vectors) if learns and _counts_rows(vector)]
    for place, vector in enumerate(vectors):
        measure = _single_total(vector)
        if measure is not None and rows >= LEAST_ADDED:
            taken[place] = len(found)
            signs, most = _total_sides(analysis, measure)
            found.append(made(Amount.TOTAL, (measure,), signs, most, 1))
    if sharing and rows >= LEAST_ROWS:
        for place in sharing:
            taken[place] = len(found)
        read = dict.fromkeys(index for place in sharing for _, index in _statistics_read(vectors[place]))
        # Those of one measure are told by themselves, others by rows of any kind.
        measures = tuple(read) if len(read) == 1 else (None, *(index for index in read if index is not None))
        found.append(made(Amount.ROWS, measures, (1,), rows, len(sharing)))
    people = [place for place, vector in enumerate(vectors) if vector.by_unit]
    groups = analysis.bound.groups if able and analysis.grouped else 1
    if people and groups >= LEAST_GROUPS:
        for place in people:
            taken[place] = len(found)
        found.append(made(Amount.GROUPS, (None,), (1,), groups, len(people)))
    return tuple(found), tuple(taken)


def _subdivisions(
    analysis: Analysis, amount: Amount, measures: Sequence[int | None], *, across_groups: bool
) -> int:
    """The parts of a row, or of a lattice step, in which it is told what counts, 1 for whole ones.

    Parts of groups are needed where all are clamped as one, and parts of a mean where rows have values.

    Claim: the engine has room for them: no product is above 2^107, and no sum over units above 2^77 times as many.
    Why: a lattice has at most 2^30 steps to a side, a unit at most 2^30 rows, in as many groups at most, so that there
    are at most 2^46 parts; and of all its rows the parts of a unit are no more than these.
    Source: Mironov 2012, "On significance of the least significant bits for differential privacy".
    """
    if across_groups:
        return SUBDIVISIONS << (analysis.bound.groups - 1).bit_length()
    valued = any(index is not None and analysis.measures[index].lattice is not None for index in measures)
    return SUBDIVISIONS if amount is Amount.ROWS and valued else 1


def _expected_amount(
    analysis: Analysis, amount: Amount, most: int, *, stated: bool, across_groups: bool
) -> Fraction:
    """What a unit is expected to have: a quarter of its groups, and of its rows, with values of a quarter of their bounds.

    Rows of which it is `stated` how many a unit has are expected all.
    """
    part = 1 if stated and amount is not Amount.GROUPS else _EXPECTED_PART
    part *= _EXPECTED_PART if amount is Amount.TOTAL else 1
    by_group = not across_groups and amount is not Amount.GROUPS
    among = Fraction(analysis.bound.groups, _EXPECTED_PART) if by_group else Fraction(1)
    return most / (part * max(among, Fraction(1)))


def _total_sides(analysis: Analysis, measure: int) -> tuple[tuple[int, ...], int]:
    """The signs that a unit's total can have, and the most that it can be."""
    lattice = analysis.measures[measure].lattice
    if lattice is None:
        raise LookupError("totals have a lattice")
    ends = {1: max(0, lattice.high), -1: max(0, -lattice.low)}
    return tuple(sign for sign, end in ends.items() if end), analysis.bound.rows * max(ends.values())


def _single_total(vector: StatisticVector) -> int | None:
    """The measure of which a vector is the total, and nothing else."""
    match vector.estimates:
        case (((Moment.TOTAL, measure), _),):
            return measure
        case _:
            return None


def _counts_rows(vector: StatisticVector) -> bool:
    moments = {moment for moment, _ in _statistics_read(vector)}
    return _single_total(vector) is None and moments <= {Moment.ROWS, Moment.COUNT, Moment.TOTAL}


def _statistics_read(vector: StatisticVector) -> Iterator[Statistic]:
    return (statistic for component in vector.components for statistic, _ in component.combination)
