"""The norms of the largest change of a vector, derived from extreme rows: the part of verification that counts contributions.

No formula of the planner is used: the components of every extreme row are computed, and added up over a unit's rows and groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import isqrt

from dpsql.analysis.release_analysis import Analysis
from dpsql.errors import VerificationError
from dpsql.plan.aggregates import Moment
from dpsql.planning.clamping import Clamp
from dpsql.planning.statistics import ROWS, UNITS, Component, Statistic, StatisticVector

Vector = tuple[int, ...]
Pair = tuple[int | Fraction, int | Fraction]
"""An l1 norm and a squared l2 norm."""

Norms = tuple[int | Fraction, int | Fraction, int | Fraction]
"""An l1 norm, a squared l2 norm, and a sum over groups of l∞ norms."""

_TRIED = 100
"""Numbers of groups up to this one are tried, and the largest."""


def derive_norms(vector: StatisticVector, analysis: Analysis, clamp: Clamp | None = None) -> Norms:
    """Return the l1 norm, squared l2 norm, and sum over groups of l∞ norms of the largest change, by trying all extreme rows."""
    return build_norms_function(vector, analysis, clamp)(clamp.points if clamp else ())


def build_norms_function(
    vector: StatisticVector, analysis: Analysis, clamp: Clamp | None
) -> Callable[[Vector], Norms]:
    """Return `derive_norms` as a function of the clamp's points; the parts that do not depend on them are derived once.

    The worst case has all rows of a unit in one group; with a clamp, groups filled to its point one after another, or
    each side in a group of its own.
    """
    if vector.joint:
        joint = _compute_joint_norms(vector, analysis)
        return lambda _: joint
    found = _build_pair_function(vector, analysis, clamp)

    def compute_norms(points: Vector) -> Norms:
        l1, l2_squared = found(points)
        return l1, l2_squared, l1

    return compute_norms


def _build_pair_function(
    vector: StatisticVector, analysis: Analysis, clamp: Clamp | None
) -> Callable[[Vector], Pair]:
    """Return the l1 norm and squared l2 norm; the contributions of a unit to its groups are parts of one extreme contribution."""
    read = {statistic for component in vector.components for statistic, _ in component.combination}
    if UNITS in read and len(read) > 1:
        padded = _compute_padded_norms(vector, analysis)
        return lambda _: padded
    if vector.counts_units:
        return lambda points: _compute_unit_norms(points[0] if points else analysis.bound.groups, analysis)
    if clamp is not None and clamp.total is not None:
        return _build_total_function(analysis, clamp)
    shares = _list_contributions(vector.components, analysis)
    l1, l2_squared = _compute_largest_norms(shares, analysis)
    if clamp is not None and clamp.euclidean:
        longest = max(sum(map(abs, share)) for share in shares)
        return lambda points: _compute_euclidean_norms(
            clamp, points, longest, points[0] ** 2 * l2_squared, analysis
        )
    fine = 1 if clamp is None else clamp.subdivisions
    if clamp is not None and clamp.across_groups:
        # All in one group: the extreme contributions are those of a row, times the point.
        return lambda points: (fine * points[0] * l1, (fine * points[0]) ** 2 * l2_squared)
    counted = _bound_counted_rows(vector, analysis)

    def compute_by_group(points: Vector) -> Pair:
        top = points[0] if points else min(counted, vector.most_distinct or counted)
        amount, squared = _compute_group_sums(counted, top, analysis)
        return fine * amount * l1, fine**2 * squared * l2_squared

    return compute_by_group


def _build_total_function(analysis: Analysis, clamp: Clamp) -> Callable[[Vector], Pair]:
    """Return `_build_pair_function` for a clamp on a total: at most its points on each side, whatever a row contributes."""
    fine = clamp.subdivisions

    def compute_by_norm(points: Vector) -> Pair:
        ends = _list_extreme_totals(clamp, points)
        # Alone, a unit is as long in any order of its groups.
        orders = [(0,) * len(ends), *itertools.permutations(ends)] if analysis.replace else [ends]
        return _compute_euclidean_norms(
            clamp, points, 1, _compute_largest_norms(orders, analysis)[1], analysis
        )

    def compute_by_sum(points: Vector) -> Pair:
        l1, l2_squared = _compute_largest_norms(_list_totals_across_groups(clamp, points), analysis)
        return fine * l1, fine**2 * l2_squared

    def compute_by_group(points: Vector) -> Pair:
        top = max(points)
        l1, l2_squared = _compute_largest_norms(
            [(0,), *((end,) for end in _list_extreme_totals(clamp, points))], analysis
        )
        amount, squared = _compute_group_sums(clamp.upper_limit, top, analysis)
        return Fraction(amount * l1, top), Fraction(squared * l2_squared, top**2)

    return compute_by_norm if clamp.euclidean else compute_by_sum if clamp.across_groups else compute_by_group


def _list_extreme_totals(clamp: Clamp, points: Vector) -> Vector:
    """Return the extreme totals of a unit, one on each side."""
    return tuple(sign * point for sign, point in zip(clamp.sides, points, strict=True))


def _compute_largest_norms(shares: Sequence[Vector], analysis: Analysis) -> tuple[int, int]:
    """Return the largest l1 norm and squared l2 norm of a contribution; under `replace`, of the difference of two."""
    changes = list(shares)
    if analysis.replace:
        changes = [_subtract_vectors(a, b) for a, b in itertools.product(shares, repeat=2)]
        if analysis.is_grouped:  # the removed and the added unit may be in different groups
            changes += [(*a, *b) for a, b in itertools.product(shares, repeat=2)]
    l1 = max([sum(map(abs, change)) for change in changes])
    return l1, max([sum([x * x for x in change]) for change in changes])


def _compute_padded_norms(vector: StatisticVector, analysis: Analysis) -> Pair:
    """Try units of one row, and of the most rows, in each group; norms are convex in between."""
    rows = _iterate_extreme_rows(vector.components, analysis)
    shares = [
        tuple(
            component.compute_exact({name: n if name == UNITS else n * times for name, n in row.items()})
            for component in vector.components
        )
        for row in rows
        for times in (1, analysis.bound.rows)
    ]
    l1, l2_squared = _compute_largest_norms(shares, analysis)
    groups = analysis.bound.groups if analysis.is_grouped else 1
    return l1 * groups, l2_squared * groups


def _list_totals_across_groups(clamp: Clamp, points: Vector) -> list[Vector]:
    """Return the extreme totals under a clamp across groups: all in one group, or each side in its own group."""
    if len(clamp.sides) == 1:
        return [(0,), _list_extreme_totals(clamp, points)]
    above, below = points
    ends = [(min(above, clamp.upper_limit - below), -below), (above, -min(below, clamp.upper_limit - above))]
    return [(0, 0), *ends, *(end[::-1] for end in ends)]


def _compute_euclidean_norms(
    clamp: Clamp, points: Vector, longest: int, l2_squared: int, analysis: Analysis
) -> Pair:
    """Return the norms under a clamp on the l2 norm: largest in l2 norm in one group, or with each side in a group of its own.

    The l1 norm is largest if the unit has as much in each of its groups; `longest` is the largest of a row.
    """
    people = 2 if analysis.replace else 1
    square = analysis.bound.groups * sum(point**2 for point in points)
    root = isqrt(square)
    l1 = people * longest * (root + (root * root < square))
    return clamp.subdivisions * l1, clamp.subdivisions**2 * l2_squared


def bound_staircase_steps(
    vector: StatisticVector, analysis: Analysis, clamp: Clamp | None, width: int
) -> int:
    """Return the most steps of the staircase, each of `width`, by which a unit changes all components, rounded up per component.

    Each group is taken to have the largest change, which is tight for few groups only. A replaced unit changes its own
    groups and those of the other unit.
    """
    if vector.joint or len(vector.components) != 1:
        raise VerificationError(f"{vector.name} has several components, so it cannot have staircase noise")
    if vector.counts_units:
        shares: list[Vector] = [(0,), (1,)]
        times = 1
    elif clamp is not None and clamp.total is not None:
        shares = [(0,)]
        shares += [(sign * point,) for sign, point in zip(clamp.sides, clamp.points, strict=True)]
        times = 1
    else:
        shares = _list_contributions(vector.components, analysis)
        times = (
            _bound_counted_rows(vector, analysis) if clamp is None else clamp.points[0] * clamp.subdivisions
        )

    def count_steps(moves: Iterator[int]) -> int:
        return max(-(-times * abs(move) // width) for move in moves)

    if analysis.replace and not analysis.is_grouped:
        return count_steps(a - b for (a,), (b,) in itertools.product(shares, repeat=2))
    people = 2 if analysis.replace else 1
    if vector.counts_distinct_values and analysis.is_grouped:
        # Each of a unit's values may be in a group of its own.
        return people * _bound_counted_rows(vector, analysis) * -(-vector.contribution // width)
    groups = clamp.points[0] if clamp is not None and vector.counts_units else analysis.bound.groups
    return people * groups * count_steps(share for (share,) in shares)


def _bound_counted_rows(vector: StatisticVector, analysis: Analysis) -> int:
    """Return the rows of a unit that count; of distinct values, the pairs of one with a group, as the statement limits them."""
    each, bound = vector.most_distinct, analysis.bound
    return (
        bound.rows if not vector.counts_distinct_values or not each else min(bound.rows, bound.groups * each)
    )


def _compute_group_sums(most: int, top: int, analysis: Analysis) -> tuple[int, int]:
    """Return the sum, and the sum of squares, of what the groups have: each at most `top`, and all of them together `most`.

    As many groups as possible have as much as they can, and one more has the rest.
    """
    full = min(analysis.bound.groups, most // top)
    rest = most - full * top if full < analysis.bound.groups else 0
    return full * top + rest, full * top**2 + rest**2


def _compute_unit_norms(groups: int, analysis: Analysis) -> Pair:
    """Return a unit is counted once in each of its groups; under `replace`, the two units may have different groups."""
    if not analysis.is_grouped:
        return 1, 1
    total = groups * (2 if analysis.replace else 1)
    return total, total


def _compute_joint_norms(vector: StatisticVector, analysis: Analysis) -> Norms:
    """Return the norms for components of several arguments: each argument may be at either end of its interval.

    The rows of a unit are in up to its most groups, with one row in each but one. Under `replace`, the removed and the
    added unit may be in different groups, or in the same.
    """
    units = [component for component in vector.components if component.combination[0][0] == UNITS]
    parts: dict[int | None, list[Component]] = {}
    for component in vector.components:
        of = {index for (_, index), _ in component.combination if index is not None}
        if len(of) > 1 or (component in units and len(component.combination) > 1):
            raise VerificationError(f"{component.name} mixes statistics that must be in separate components")
        if component not in units:
            parts.setdefault(next(iter(of), None), []).append(component)
    shares = [_list_contributions(components, analysis) for components in parts.values()]
    times = 2 if analysis.replace and analysis.is_grouped else 1
    if analysis.replace and not analysis.is_grouped:
        shares = [[_subtract_vectors(a, b) for a, b in itertools.product(part, repeat=2)] for part in shares]
    l1, squares, largest = (
        sum(max(sum(map(abs, share)) for share in part) for part in shares),
        sum(max(sum(x * x for x in share) for share in part) for part in shares),
        max(max(map(abs, share)) for part in shares for share in part),
    )
    unit = sum(abs(weight) for component in units for _, weight in component.combination)
    rows, groups = analysis.bound.rows, analysis.bound.groups if analysis.is_grouped else 1
    worst = [Fraction(0)] * 3
    for used in {*range(1, min(groups, _TRIED) + 1), groups}:
        by_group = [rows - used + 1, 1]
        number = [1, used - 1]
        norms = (
            sum(n * (r * l1 + unit) for n, r in zip(number, by_group, strict=True)),
            sum(n * (r * r * squares + unit**2) for n, r in zip(number, by_group, strict=True)),
            sum(n * max(r * largest, unit) for n, r in zip(number, by_group, strict=True)),
        )
        worst = [max(known, Fraction(norm)) for known, norm in zip(worst, norms, strict=True)]
    return worst[0] * times, worst[1] * times**2, worst[2] * times


def _list_contributions(components: Sequence[Component], analysis: Analysis) -> list[Vector]:
    return [
        tuple(component.compute_exact(row) for component in components)
        for row in _iterate_extreme_rows(components, analysis)
    ]


def _iterate_extreme_rows(
    components: Sequence[Component], analysis: Analysis
) -> Iterator[dict[Statistic, int]]:
    """Yield the moments of no row, and of each row whose argument is NULL or at an end of its lattice."""
    statistics = {statistic for component in components for statistic, _ in component.combination}
    yield dict.fromkeys(statistics, 0)
    measures = {index for _, index in statistics if index is not None}
    if not measures:
        yield dict.fromkeys(statistics, 1)
    for index in measures:
        lattice = analysis.measures[index].lattice
        ends = (0,) if lattice is None else (lattice.low, lattice.high)
        count, total = (Moment.COUNT, index), (Moment.TOTAL, index)
        values, added = (Moment.DISTINCT, index), (Moment.DISTINCT_TOTAL, index)
        yield {ROWS: 1, UNITS: 1, count: 0, total: 0, values: 0, added: 0}
        for end in ends:
            yield {ROWS: 1, UNITS: 1, count: 1, total: end, values: 1, added: end}


def _subtract_vectors(a: Vector, b: Vector) -> Vector:
    return tuple(x - y for x, y in zip(a, b, strict=True))
