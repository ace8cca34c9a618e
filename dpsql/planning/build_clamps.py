"""The clamps of a layout: which contributions are clamped together, on which grid, and by which choice.

`clamping` has the clamp itself and the sensitivities that follow from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, isqrt

from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import is_declared_bound
from dpsql.plan.aggregates import Moment
from dpsql.planning.clamping import (
    EXPECTED_VALUE,
    RULE,
    SUBDIVISIONS,
    Amount,
    Clamp,
    compute_grid,
    compute_step_range,
    count_released_groups,
)
from dpsql.planning.statistics import Statistic, StatisticVector
from dpsql.privacy.mechanisms import Exponential

EXPECTED_PART = 4
"""One part in four of a bound is the expected contribution, by which candidate plans are compared before noise is drawn."""
_EXPECTED_STATED = 2
"""Of rows that the owner declares, one in two is expected."""
LEAST_ROWS, LEAST_STATED, LEAST_ADDED, LEAST_GROUPS = 8, 32, 5, 8
"""With lower bounds than these, no clamp is chosen: on rows for counts, on rows that are declared, on rows for sums, and on
groups for counts of units. With larger ones, the planner compares the expected errors."""


@dataclass(frozen=True, slots=True)
class ClampScope:
    """The contributions that clamps limit together: those to each group, or `across_groups` their sum or l2 norm."""

    across_groups: bool
    euclidean: bool = False


BY_GROUP, BY_SUM, BY_NORM = ClampScope(False), ClampScope(True), ClampScope(True, euclidean=True)


@dataclass(frozen=True, slots=True)
class ClampSelection:
    """The way in which the clamps of a layout are chosen: the scope, the part of the loss, and the noise.

    `part` is the part of each vector's loss that the choice spends, and `range_of` gives the range of a choice that spends
    a part. `variance` is that of the noise in a group for a sensitivity of one.
    """

    scope: ClampScope
    part: Fraction
    range_of: Callable[[Fraction], Fraction]
    variance: Fraction

    @property
    def allows_gaussian(self) -> bool:
        """Return whether these clamps are for Gaussian noise too: not on sums, since l2 norms are smaller."""
        return self.scope != BY_SUM

    @property
    def tolerance(self) -> Fraction:
        """Return the square of the number of units beyond a clamp that are tolerated for each released group.

        Claim: let each of t units beyond a clamp τ lose as much as τ, among G groups. Then a group loses t·τ/G on
        average, which is the rule's `tolerance` times the standard deviation of the noise, σ = τ·s, if t is
        tolerance·G·s.
        Why: what a unit loses beyond the clamp is divided among its groups. Noise is added to each group, however many
        there are, so that more units may lose where there are more groups.
        """
        return RULE.tolerance**2 * self.variance

    def calibrate_mechanism(self, steps: int, vectors: int) -> Exponential:
        """Return the mechanism that chooses the clamp of this many vectors, whose penalties change by at most `steps`."""
        return Exponential.calibrate(steps, self.range_of(self.part * vectors))


def build_clamps(
    analysis: Analysis, vectors: Sequence[StatisticVector], clamp_selection: ClampSelection
) -> tuple[tuple[Clamp, ...], tuple[int | None, ...]]:
    """Return the clamps for a layout, and the index of the clamp of each vector, or None.

    A total that is measured alone has a clamp of its own. All other statistics of rows share one clamp on the rows of a
    unit, and counts of units share one on its groups.
    """
    builder = _ClampBuilder.from_layout(analysis, vectors, clamp_selection)
    taken: list[int | None] = [None] * len(vectors)
    clamps: list[Clamp] = []
    for places, clamp in (
        *builder.iterate_total_clamps(),
        *builder.iterate_row_clamps(),
        *builder.iterate_group_clamps(),
    ):
        for place in places:
            taken[place] = len(clamps)
        clamps.append(clamp)
    return tuple(clamps), tuple(taken)


@dataclass(frozen=True, slots=True)
class _ClampBuilder:
    """Builds the clamps of one layout, each with the places of the vectors that it clamps.

    A unit has at most `rows` rows and `groups` groups: 1, where clamps cannot be proved. `expected_part` divides its rows into
    the expected number. `clamps_rows` says whether rows have a clamp.
    """

    analysis: Analysis
    vectors: Sequence[StatisticVector]
    selection: ClampSelection
    rows: int
    groups: int
    expected_part: int
    clamps_rows: bool

    @classmethod
    def from_layout(
        cls, analysis: Analysis, vectors: Sequence[StatisticVector], selection: ClampSelection
    ) -> _ClampBuilder:
        """Return the builder of a layout's clamps."""
        # The sensitivity of joint and of padded vectors is proved for unclamped rows only.
        is_able = analysis.bound.per_unit and not any(vector.joint or vector.padded for vector in vectors)
        rows = analysis.bound.rows if is_able else 1
        groups = analysis.bound.groups if is_able and analysis.is_grouped else 1
        expected_part, clamps_rows = _compute_expected_part(analysis, selection, rows)
        return cls(analysis, vectors, selection, rows, groups, expected_part, clamps_rows)

    def iterate_total_clamps(self) -> Iterator[tuple[list[int], Clamp]]:
        """Yield the clamp of each total that is measured alone."""
        counted = {
            index
            for vector in self.vectors
            for (moment, index), _ in vector.estimates
            if moment is Moment.COUNT
        }
        for place, vector in enumerate(self.vectors):
            measure = _find_single_total(vector)
            if measure is None or self.rows < LEAST_ADDED:
                continue
            signs, most = _compute_total_sides(self.analysis, measure)
            scope, part = self.selection.scope, self.expected_part
            expected = _compute_expected_amount(self.analysis, Amount.TOTAL, most, part, scope)
            if measure in counted:
                # What a unit has above zero and below is together as much as its values in magnitude.
                expected *= Fraction(EXPECTED_PART, EXPECTED_VALUE * len(signs))
            yield [place], self._build_clamp(Amount.TOTAL, (measure,), signs, most, expected=expected)

    def iterate_row_clamps(self) -> Iterator[tuple[list[int], Clamp]]:
        """Yield the clamp on the rows of a unit, which all other statistics of rows share, if there are any."""
        places = [
            place
            for place, vector in enumerate(self.vectors)
            if self.clamps_rows and self.rows >= LEAST_ROWS and _counts_rows(vector)
        ]
        if not places:
            return
        read = dict.fromkeys(
            index for place in places for _, index in _iterate_read_statistics(self.vectors[place])
        )
        # If the vectors read rows of one measure, those are counted; else rows of any kind.
        measures = tuple(read) if len(read) == 1 else (None, *(index for index in read if index is not None))
        expected = _compute_expected_amount(
            self.analysis, Amount.ROWS, self.rows, self.expected_part, self.selection.scope
        )
        yield (
            places,
            self._build_clamp(Amount.ROWS, measures, (1,), self.rows, expected=expected, vectors=len(places)),
        )

    def iterate_group_clamps(self) -> Iterator[tuple[list[int], Clamp]]:
        """Yield the clamp on the groups of a unit, which counts of units share, if there are any."""
        places = [place for place, vector in enumerate(self.vectors) if vector.counts_units]
        if places and self.groups >= LEAST_GROUPS:
            expected = Fraction(self.groups, EXPECTED_PART)
            yield (
                places,
                self._build_clamp(
                    Amount.GROUPS, (None,), (1,), self.groups, expected=expected, vectors=len(places)
                ),
            )

    def _build_clamp(
        self,
        amount: Amount,
        measures: tuple[int | None, ...],
        signs: tuple[int, ...],
        most: int,
        *,
        expected: Fraction,
        vectors: int = 1,
    ) -> Clamp:
        """Return the clamp on an amount of at most `most`, for this many vectors; `expected` is a unit's expected amount."""
        scope = BY_GROUP if amount is Amount.GROUPS else self.selection.scope
        steps = compute_step_range(self.analysis, amount, len(signs) if scope.across_groups else 0)
        mechanism = self.selection.calibrate_mechanism(steps, vectors)
        clamp = Clamp(
            amount,
            measures,
            signs,
            compute_grid(most),
            mechanism,
            RULE.exponent,
            across_groups=scope.across_groups,
            subdivisions=_compute_subdivisions(
                self.analysis, amount, measures, across_groups=scope.across_groups
            ),
            euclidean=scope.euclidean,
            tolerance=self.selection.tolerance,
            released_groups=count_released_groups(self.analysis),
            min_support=RULE.compute_min_support(mechanism),
        )
        return replace(clamp, default_index=_compute_default_index(clamp, expected))


def _compute_expected_part(
    analysis: Analysis, clamp_selection: ClampSelection, rows: int
) -> tuple[int, bool]:
    """Return the divisor of a unit's rows that gives the expected number, and whether rows have clamps."""
    if not is_declared_bound(analysis.release, rows):
        return EXPECTED_PART, True
    if rows >= LEAST_STATED:
        return _EXPECTED_STATED, True
    return 1, analysis.bound.groups > 1 and clamp_selection.scope != BY_SUM


def _compute_subdivisions(
    analysis: Analysis, amount: Amount, measures: Sequence[int | None], *, across_groups: bool
) -> int:
    """Return the subdivisions of a row or lattice step in which clamped contributions are counted; 1 if none are needed.

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


def _compute_expected_amount(
    analysis: Analysis, amount: Amount, most: int, part: int, scope: ClampScope
) -> Fraction:
    """Return the expected contribution of a unit: a `part` of its groups and rows, with values a quarter of their bounds.

    Each group is expected to have equally many rows.
    """
    part *= EXPECTED_PART if amount is Amount.TOTAL else 1
    groups = analysis.bound.groups
    if scope.euclidean:
        among = Fraction(isqrt(groups), isqrt(EXPECTED_PART))
    else:
        among = Fraction(1) if scope.across_groups else Fraction(groups, EXPECTED_PART)
    return most / (part * max(among, Fraction(1)))


def _compute_default_index(clamp: Clamp, expected: Fraction) -> int:
    """Return the index of the point that is expected to be chosen, if units contribute at most `expected`.

    Claim: where the signal is clear, the noise has the mean square of that at the point returned, rounded up.
    Why: the points from `expected` on leave no unit beyond them, so that the prior weights alone decide among them.
    """
    first = bisect_left(clamp.grid, ceil(expected))
    likely = list(zip(clamp.grid, clamp.weights, strict=True))[first:]
    squares, weights = sum(weight * point**2 for point, weight in likely), sum(weight for _, weight in likely)
    return next(at for at, point in enumerate(clamp.grid) if weights * point**2 >= squares)


def _compute_total_sides(analysis: Analysis, measure: int) -> tuple[tuple[int, ...], int]:
    """Return the signs that a unit's total can have, and its greatest magnitude."""
    lattice = analysis.measures[measure].lattice
    if lattice is None:
        raise LookupError("totals have a lattice")
    ends = {1: max(0, lattice.high), -1: max(0, -lattice.low)}
    return tuple(sign for sign, end in ends.items() if end), analysis.bound.rows * max(ends.values())


def _find_single_total(vector: StatisticVector) -> int | None:
    """Return the measure whose total is all that a vector measures; None for other vectors."""
    match vector.estimates:
        case (((Moment.TOTAL, measure), _),):
            return measure
        case _:
            return None


def _counts_rows(vector: StatisticVector) -> bool:
    moments = {moment for moment, _ in _iterate_read_statistics(vector)}
    return _find_single_total(vector) is None and moments <= {Moment.ROWS, Moment.COUNT, Moment.TOTAL}


def _iterate_read_statistics(vector: StatisticVector) -> Iterator[Statistic]:
    return (statistic for component in vector.components for statistic, _ in component.combination)
