"""Layouts: all considered ways to estimate the needed statistics by statistic vectors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction

from dpsql.analysis.lattice import Lattice
from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.aggregates import Moment
from dpsql.plan.expressions import Call, Expr
from dpsql.planning.build_clamps import LEAST_ADDED
from dpsql.planning.clamping import EXPECTED_VALUE, compute_expected_mean
from dpsql.planning.joint_vectors import is_always_present, iterate_joint_vectors
from dpsql.planning.statistics import (
    ROWS,
    UNITS,
    Statistic,
    StatisticVector,
    build_complementary_vector,
    build_count_vector,
    build_distinct_total_vector,
    build_distinct_vector,
    build_padded_vector,
    build_presence_vector,
    build_rows_vector,
    build_total_vector,
    build_units_vector,
)

FEW_VALUES = 100
"""So few whole numbers are expected to be as large as their bounds allow."""


def iterate_layouts(
    analysis: Analysis, wanted: Mapping[Statistic, None], *, separate_totals: bool = False
) -> Iterator[tuple[StatisticVector, ...]]:
    """Yield every way to serve the needed statistics: vector by vector, or joint.

    COUNT(*) is measured alone, or carried by one of the measures. Where one row of a unit counts, units
    are rows; otherwise they are measured alone, or fill up what counts the rows. With `separate_totals`, there are also layouts in
    which the total and the count of a measure are vectors of their own, where `favors_separate_totals` says so.
    """
    if UNITS in wanted and analysis.bound.rows == 1:
        wanted = {**wanted, ROWS: None}
    distinct = [
        build_distinct_vector(index, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.counts_distinct
    ]
    distinct += [
        build_distinct_total_vector(index, measure.lattice, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.sums_distinct and measure.lattice is not None
    ]
    units = [build_units_vector()] if UNITS in wanted and analysis.bound.rows > 1 else []
    fewest = len(analysis.measures) + 1
    for vectors in _iterate_separate_vectors(analysis, wanted):
        fewest = min(fewest, len(vectors))
        yield tuple(_with_units(analysis, (*vectors, *distinct, *units)))
    for split in _iterate_separated_measures(analysis, wanted) if separate_totals else ():
        for vectors in _iterate_separate_vectors(analysis, wanted, split):
            yield tuple(_with_units(analysis, (*vectors, *distinct, *units)))
    of_rows = {Moment.ROWS, Moment.COUNT, Moment.TOTAL}.intersection(moment for moment, _ in wanted)
    for vectors in _iterate_separate_vectors(analysis, {**wanted, ROWS: None}) if units and of_rows else ():
        most = analysis.bound.rows
        filled = (
            vector if vector.find_weights(ROWS) is None else build_padded_vector(vector, most)
            for vector in vectors
        )
        yield (*filled, *distinct)
    for vector in iterate_joint_vectors(analysis, wanted):
        if fewest + bool(vector.unit_extent) > 1:
            yield (vector, *distinct, *([] if vector.unit_extent else units))


def favors_separate_totals(lattice: Lattice) -> bool:
    """Return whether the total and the count of values of this lattice are measured apart, if each has a privately chosen clamp.

    Claim: let units have n rows in norm, and values of mean m and magnitude a. Measured apart, each at half of the loss, the
    error of the mean times the number of rows is √(2(a² + m²)) n times Gaussian noise for a sensitivity of one; as a
    partition of the width w it is w√(y² + (1-y)²) n, with y the place of the mean in the interval. They are measured apart
    if the former, for the expected values, is less than the least of the latter, w/√2.
    Why: the chosen clamp of a total follows the magnitude of the values, however wide their bounds are. From zero on, apart
    is worse by a factor of at most 2 (values near a far bound), and better without limit (values far below their
    bounds, or of both signs). Few whole numbers, as grades and months, are expected to be as large as their bounds.
    """
    magnitude = Fraction(max(abs(lattice.low), abs(lattice.high)), EXPECTED_VALUE)
    wide = lattice.step != 1 or lattice.width >= FEW_VALUES
    return wide and 4 * (magnitude**2 + compute_expected_mean(lattice) ** 2) < lattice.width**2


def _iterate_separated_measures(
    analysis: Analysis, wanted: Mapping[Statistic, None]
) -> Iterator[frozenset[int]]:
    """Yield the measures whose total and count are measured apart: those that have clamps, and lattices that favor it."""
    if not analysis.bound.per_unit or analysis.bound.rows < LEAST_ADDED:
        return
    subtracted = _list_variance_measures(analysis)
    found = [
        index
        for index, measure in enumerate(analysis.measures)
        if {(Moment.TOTAL, index), (Moment.COUNT, index)} <= wanted.keys()
        and measure.lattice is not None
        and index not in subtracted
        and favors_separate_totals(measure.lattice)
    ]
    if found:
        yield frozenset(found)


def _list_variance_measures(analysis: Analysis) -> frozenset[int]:
    """Return the measures of a variance or covariance: products of measures, and their factors.

    These are means of which one is subtracted from the other. What two clamps cut off of a total and of its count changes
    their quotient by a part of itself, and the difference of two such quotients by many times that part of the difference.
    A partition has one clamp, which leaves a unit's mean as it is.
    """
    places: dict[Expr, list[int]] = {}
    for index, measure in enumerate(analysis.measures):
        places.setdefault(_strip_null_check(measure.expr), []).append(index)
    found = set[int]()
    for expr, indexes in places.items():
        factors = expr.arguments if isinstance(expr, Call) and expr.function.name == "multiply" else ()
        if factors and all(factor in places for factor in factors):
            found.update(indexes, *(places[factor] for factor in factors))
    return frozenset(found)


def _strip_null_check(expr: Expr) -> Expr:
    """Return a measure as it is if the other column of a pair is not NULL."""
    if isinstance(expr, Call) and expr.function.name == "case" and len(expr.arguments) == 3:
        return expr.arguments[-1]
    return expr


def _iterate_separate_vectors(
    analysis: Analysis, wanted: Mapping[Statistic, None], separated: Container[int] = ()
) -> Iterator[list[StatisticVector]]:
    """Yield a vector for each measure, two for those `separated`, and one for COUNT(*) or a measure that carries it."""
    carriers: list[int | None] = [None]
    if ROWS in wanted:
        able = [index for index in range(len(analysis.measures)) if _can_carry_rows(analysis, index)]
        functions = _list_functions(analysis)
        alike = {
            _compute_carrier_key(analysis, wanted, index, separated, functions[index]): index
            for index in reversed(able)
        }
        carriers += sorted(alike.values())
    for carrier in carriers:
        vectors: list[StatisticVector] = []
        for index, measure in enumerate(analysis.measures):
            if measure.counts_rows and measure.lattice is not None and index in separated:
                vectors += _build_count_and_total(
                    analysis, index, measure.lattice, with_rows=index == carrier
                )
            elif measure.counts_rows:
                vectors.append(_build_measure_vector(analysis, index, wanted, with_rows=index == carrier))
        yield vectors + [build_rows_vector()] * (ROWS in wanted and carrier is None)


def _build_count_and_total(
    analysis: Analysis, index: int, lattice: Lattice, *, with_rows: bool
) -> list[StatisticVector]:
    """Return a vector that counts the values of a measure, and with rows also its NULLs, and one of their total."""
    count = build_count_vector(index, lattice)
    if with_rows and is_always_present(analysis, index):
        count = count.with_estimate(ROWS, (Moment.COUNT, index))
    elif with_rows:
        count = build_presence_vector(index)
    return [count, build_total_vector(index, lattice)]


def _with_units(analysis: Analysis, vectors: Sequence[StatisticVector]) -> Iterator[StatisticVector]:
    """Yield the vectors, with an estimate of the units where one row of a unit counts, so that there are as many units as rows."""
    for vector in vectors:
        yield vector.with_estimate(UNITS, ROWS) if analysis.bound.rows == 1 else vector


def _can_carry_rows(analysis: Analysis, index: int) -> bool:
    measure = analysis.measures[index]
    there = is_always_present(analysis, index)
    return measure.counts_rows and (measure.lattice is None or measure.lattice.width > 0 or there)


def _compute_carrier_key(
    analysis: Analysis,
    wanted: Mapping[Statistic, None],
    index: int,
    separated: Container[int],
    functions: tuple[str, ...],
) -> tuple[object, ...]:
    """Return a key for how well a measure carries COUNT(*); among measures with the same key, the first is tried.

    Claim: layouts whose carriers are alike have the same score, except for the rounding of lattices.
    Why: the same statistics are measured for the same aggregates, over values that differ by a scale; the score is the mean
    log of the errors, and a scale moves all of these by the same amount in either layout.
    """
    lattice = analysis.measures[index].lattice
    interval = () if lattice is None or not lattice.width else (Fraction(lattice.low, lattice.width),)
    counted = (Moment.COUNT, index) in wanted
    return (
        functions,
        is_always_present(analysis, index),
        lattice is None,
        counted,
        index in separated,
        *interval,
    )


def _list_functions(analysis: Analysis) -> list[tuple[str, ...]]:
    """Return the aggregate functions of each measure, in order."""
    found: list[list[str]] = [[] for _ in analysis.measures]
    for item in analysis.release.aggregations:
        place = analysis.find_measure_index(item)
        if place is not None:
            found[place].append(item.function)
    return [tuple(sorted(each)) for each in found]


def _build_measure_vector(
    analysis: Analysis, index: int, wanted: Mapping[Statistic, None], *, with_rows: bool
) -> StatisticVector:
    lattice, count = analysis.measures[index].lattice, (Moment.COUNT, index)
    if with_rows and is_always_present(analysis, index):
        return _build_measure_vector(analysis, index, {**wanted, count: None}, with_rows=False).with_estimate(
            ROWS, count
        )
    if lattice is None:
        return build_presence_vector(index) if with_rows else build_count_vector(index, Lattice(0, 0, 1))
    if lattice.width == 0:
        return build_count_vector(index, lattice)
    if with_rows or count in wanted:
        return build_complementary_vector(index, lattice, with_rows=with_rows)
    return build_total_vector(index, lattice)
