"""Clamping thresholds for the contributions of units, chosen privately from the data.

A *clamp* is a threshold on a public grid. It limits the rows of a unit, its total in lattice steps, or its groups; rows
and totals are limited in each group, or across all groups of the unit. The noise is calibrated to the threshold. The
exponential mechanism chooses the threshold and releases it, so the scale of the noise is a function of released values.
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
    Entropy,
    Exponential,
    Sensitivity,
)
from dpsql.plan.tags import TaggedEnum
from dpsql.planning.sensitivity import UnitChange, sensitivity, unit_change
from dpsql.planning.statistics import Statistic, StatisticVector

SHARE, PURE_SHARE = Fraction(1, 10), Fraction(1, 5)
"""The part of a statistic's loss that the choice of its clamp spends, without and with pure accounting: a choice costs
less if the accountant charges for its bounded range."""
EXPONENT, PURE_EXPONENT = 3, 2
"""The prior weight of a point is its inverse to this power; lower if the same loss buys a less accurate choice."""
OCTAVES = 14
"""The least point is the greatest contribution, halved this many times."""
_EXPECTED_PART = 4
"""One part in four of a bound is the expected contribution, by which candidate plans are compared before noise is drawn."""
LEAST_ROWS, LEAST_ADDED, LEAST_GROUPS = 8, 5, 8
"""With lower bounds than these, no clamp is chosen: on rows for counts, on rows for sums, and on groups for counts of units."""
SUBDIVISIONS = 2**16
"""The subdivisions of a row or lattice step in which clamped contributions and means are counted. A clamp across groups
has more subdivisions, so that each group has as many."""


class Amount(TaggedEnum):
    """The contribution of a unit that is clamped: its rows, its total of a measure, or its groups."""

    ROWS = "rows", "ROWS"
    TOTAL = "total", "TOTAL"
    GROUPS = "groups", "GROUPS"


@dataclass(frozen=True, slots=True)
class Clamp:
    """A clamp on the rows of a unit, on each side of its total of one measure, or on its groups.

    `measures` are the measure of a total; for rows, the measures that share the clamp (None: rows of any kind); for
    groups, None. `sides` are the signs that a total can have. `across_groups` says that the clamp limits the unit's
    contribution to all its groups together; contributions above it are scaled down in each group. `subdivisions` are
    those of a row or lattice step in which clamped contributions are counted. `grid` ends with the greatest contribution
    of a unit. `chosen` has the index of the chosen point of each side, and is empty before the release; `expected` is
    the index that the noise is calibrated to until then.

    Claim: the choices of both sides together have a range of `mechanism.rate` times n, where n is the most groups of a
    unit; 1 for a clamp on groups; the number of sides for a clamp across groups; and twice as much under `replace`.
    Why: the penalty of a point is the number of unit-group pairs that contribute more, of units in more groups, or of
    units whose contribution to all groups is more. Adding a unit raises the penalty of any point by at most the number
    of its groups, or by one, and lowers none. The contribution of a unit to a group has one sign.
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
        """The measure of a clamped total; None for rows and groups."""
        return self.measures[0] if self.amount is Amount.TOTAL else None

    @property
    def most(self) -> int:
        """The greatest contribution of a unit, in rows, lattice steps or groups, as was derived."""
        return self.grid[-1]

    @property
    def statistic(self) -> str:
        """The clamped contribution, for EXPLAIN and receipts."""
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
        """The threshold of each side: the chosen one, or before the release the expected one."""
        return tuple(self.grid[index] for index in self.chosen or (self.expected,) * len(self.sides))

    @property
    def weights(self) -> tuple[int, ...]:
        """The prior weight of each point, above zero: its inverse to a power."""
        return tuple(self.most**self.exponent // point**self.exponent for point in self.grid)

    def range(self, analysis: Analysis) -> Fraction:
        """The range of the choices of both sides together."""
        return self.mechanism.range(
            step_range(analysis, self.amount, len(self.sides) if self.across_groups else 0)
        )

    def groups(self, analysis: Analysis) -> int:
        """The bound on the groups of a unit."""
        return self.points[0] if self.amount is Amount.GROUPS else analysis.bound.groups

    def choose(self, above: Sequence[Sequence[int]], entropy: Entropy) -> Clamp:
        """The clamp with a chosen point for each side; `above` has the penalties of the points of each side."""
        chosen = tuple(self.mechanism.choose(self.weights, side, entropy) for side in above)
        return replace(self, chosen=chosen)


def step_range(analysis: Analysis, amount: Amount, sides: int) -> int:
    """The most by which one unit changes the difference of the penalties of two points, summed over the sides.

    `sides` is the number of sides of a clamp across groups, and 0 for a clamp per group.
    """
    people = 2 if analysis.replace else 1
    if amount is Amount.GROUPS:
        return people
    return people * (sides or analysis.bound.groups)


def clamped_bound(analysis: Analysis, clamp: Clamp) -> ContributionBound:
    """The contribution bound with the groups of a unit limited by a clamp."""
    return replace(analysis.bound, groups=clamp.groups(analysis))


def grid(most: int) -> tuple[int, ...]:
    """Grid points up to `most`, four to each power of two, computed without floats.

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
    """The sensitivity of a vector whose contributions are clamped.

    Claim: let τ be the larger point, times the vector's contribution per row for a clamp on rows; S the greatest
    contribution of a unit to all groups; G its most groups. Adding or removing a unit moves all components of all
    groups by at most l1 = min(Gτ, S) in l1 norm, and by at most √(τ·l1) in l2 norm. For a clamp across groups both norms
    are at most the sum of the points of all sides. `replace` is as in `sensitivity`: an ungrouped single component
    moves by at most the distance of the points.
    Why: the contribution to one group has norm at most τ, and these norms sum to at most S; a sum of squares of numbers
    up to τ is at most τ times their sum. Subdivisions are rounded down, so they sum to at most the point. The l2 norm is
    at most the l1 norm. A clamp on groups is a smaller contribution bound.
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
    """The changes of single components that one unit causes, with a clamp; None if there is no such bound.

    A unit's contribution to a group is at most the larger point, and differs from that of another unit by at most the sum
    of both points; for rows, times the contribution of a row.
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


def clamps_for(
    analysis: Analysis,
    vectors: Sequence[StatisticVector],
    range_of: Callable[[Fraction], Fraction],
    part: Fraction,
    exponent: int,
    *,
    across_groups: bool,
) -> tuple[tuple[Clamp, ...], tuple[int | None, ...]]:
    """The clamps for a layout, and the index of the clamp of each vector, or None.

    A total that is measured alone has a clamp of its own. All other statistics of rows share one clamp on the rows of a
    unit, and counts of units share one on its groups. Rows have no clamp `across_groups` if their bound is the declared
    one. The choice of a clamp spends the `part` of the loss of each of its vectors; `range_of` gives the range of a
    choice that spends a part.
    """
    # The sensitivity of joint and of padded vectors is proved for unclamped rows only.
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
        # If the vectors read rows of one measure, those are counted; else rows of any kind.
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
    """The subdivisions of a row or lattice step in which clamped contributions are counted; 1 if none are needed.

    A clamp across groups divides its point among the groups. A clamp on rows with values divides the values' mean.

    Claim: the integers fit: no product is above 2^107, and no sum over n units above n·2^77.
    Why: a lattice has at most 2^30 steps to a side, and a unit at most 2^30 rows in at most as many groups, so there are
    at most 2^46 subdivisions; and the subdivisions of all rows of a unit sum to at most this.
    Source: Mironov 2012, "On significance of the least significant bits for differential privacy".
    """
    if across_groups:
        return SUBDIVISIONS << (analysis.bound.groups - 1).bit_length()
    valued = any(index is not None and analysis.measures[index].lattice is not None for index in measures)
    return SUBDIVISIONS if amount is Amount.ROWS and valued else 1


def _expected_amount(
    analysis: Analysis, amount: Amount, most: int, *, stated: bool, across_groups: bool
) -> Fraction:
    """The expected contribution of a unit: a quarter of its groups and rows, with values a quarter of their bounds.

    If the number of rows of a unit is `stated` by the owner, all of them are expected.
    """
    part = 1 if stated and amount is not Amount.GROUPS else _EXPECTED_PART
    part *= _EXPECTED_PART if amount is Amount.TOTAL else 1
    by_group = not across_groups and amount is not Amount.GROUPS
    among = Fraction(analysis.bound.groups, _EXPECTED_PART) if by_group else Fraction(1)
    return most / (part * max(among, Fraction(1)))


def _total_sides(analysis: Analysis, measure: int) -> tuple[tuple[int, ...], int]:
    """The signs that a unit's total can have, and its greatest magnitude."""
    lattice = analysis.measures[measure].lattice
    if lattice is None:
        raise LookupError("totals have a lattice")
    ends = {1: max(0, lattice.high), -1: max(0, -lattice.low)}
    return tuple(sign for sign, end in ends.items() if end), analysis.bound.rows * max(ends.values())


def _single_total(vector: StatisticVector) -> int | None:
    """The measure whose total is all that a vector measures; None for other vectors."""
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
