"""Layouts: all considered ways to estimate the needed statistics by statistic vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis
from dpsql.analysis.lattice import Lattice
from dpsql.planning.joint import always_there, joint_vectors
from dpsql.planning.statistics import (
    ROWS,
    UNITS,
    Statistic,
    StatisticVector,
    complementary_vector,
    count_vector,
    distinct_total_vector,
    distinct_vector,
    padded_vector,
    presence_vector,
    rows_vector,
    total_vector,
    units_vector,
)


def layouts(analysis: Analysis, wanted: Mapping[Statistic, None]) -> Iterator[tuple[StatisticVector, ...]]:
    """Every way to serve the needed statistics: vector by vector, or joint.

    COUNT(*) is measured alone, or carried by one of the measures. Where one row of a unit counts, units
    are rows; otherwise they are measured alone, or fill up what counts the rows.
    """
    if UNITS in wanted and analysis.bound.rows == 1:
        wanted = {**wanted, ROWS: None}
    distinct = [
        distinct_vector(index, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.counts_distinct
    ]
    distinct += [
        distinct_total_vector(index, measure.lattice, measure.most_distinct)
        for index, measure in enumerate(analysis.measures)
        if measure.sums_distinct and measure.lattice is not None
    ]
    units = [units_vector()] if UNITS in wanted and analysis.bound.rows > 1 else []
    fewest = len(analysis.measures) + 1
    for vectors in _separate(analysis, wanted):
        fewest = min(fewest, len(vectors))
        yield tuple(_with_units(analysis, (*vectors, *distinct, *units)))
    of_rows = {Moment.ROWS, Moment.COUNT, Moment.TOTAL}.intersection(moment for moment, _ in wanted)
    for vectors in _separate(analysis, {**wanted, ROWS: None}) if units and of_rows else ():
        most = analysis.bound.rows
        filled = (
            vector if vector.weights(ROWS) is None else padded_vector(vector, most) for vector in vectors
        )
        yield (*filled, *distinct)
    for vector in joint_vectors(analysis, wanted):
        if fewest + bool(vector.unit_extent) > 1:
            yield (vector, *distinct, *([] if vector.unit_extent else units))


def _separate(analysis: Analysis, wanted: Mapping[Statistic, None]) -> Iterator[list[StatisticVector]]:
    """A vector for each measure, and one for COUNT(*) or a measure that carries it."""
    carriers: list[int | None] = [None]
    if ROWS in wanted:
        carriers += [index for index in range(len(analysis.measures)) if _can_carry_rows(analysis, index)]
    for carrier in carriers:
        vectors = [
            _measure_vector(analysis, index, wanted, with_rows=index == carrier)
            for index, measure in enumerate(analysis.measures)
            if measure.counts_rows
        ]
        yield vectors + [rows_vector()] * (ROWS in wanted and carrier is None)


def _with_units(analysis: Analysis, vectors: Sequence[StatisticVector]) -> Iterator[StatisticVector]:
    """The vectors, with what they say besides: where one row of a unit counts, as many units as rows do."""
    for vector in vectors:
        yield vector.also_serving(UNITS, ROWS) if analysis.bound.rows == 1 else vector


def _can_carry_rows(analysis: Analysis, index: int) -> bool:
    measure = analysis.measures[index]
    there = always_there(analysis, index)
    return measure.counts_rows and (measure.lattice is None or measure.lattice.width > 0 or there)


def _measure_vector(
    analysis: Analysis, index: int, wanted: Mapping[Statistic, None], *, with_rows: bool
) -> StatisticVector:
    lattice, count = analysis.measures[index].lattice, (Moment.COUNT, index)
    if with_rows and always_there(analysis, index):
        return _measure_vector(analysis, index, {**wanted, count: None}, with_rows=False).also_serving(
            ROWS, count
        )
    if lattice is None:
        return presence_vector(index) if with_rows else count_vector(index, Lattice(0, 0, 1))
    if lattice.width == 0:
        return count_vector(index, lattice)
    if with_rows or count in wanted:
        return complementary_vector(index, lattice, with_rows=with_rows)
    return total_vector(index, lattice)
