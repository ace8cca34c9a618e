"""Emit the summed values of a unit's rows in a group: the values of each measure that are not NULL, and their total.

Claim: a total, limited to the counted rows, is in the interval in which that of as many counted values is.
Why: it is clamped to as many times the ends of the values' interval as there are counted values. Where these are not counted,
the rows are, which are no fewer; and an interval of values that does not hold 0 is widened to it, as some rows may have none.
Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.plan.aggregates import Moment
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.sql.compile.clamp_histograms import ONE, Summand, bound_unit_total
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.lattice import emit_lattice_point, find_point_column

_NAMES = {Moment.COUNT: "c", Moment.TOTAL: "t"}


@dataclass(frozen=True, slots=True)
class UnitSums:
    """The summed values of each measure of a release; values are counted for `counted` measures, by index, or for all."""

    analysis: Analysis
    counted: Container[int] | None = None

    @property
    def moments(self) -> dict[str, Statistic]:
        """The columns of numbers of units and rows, and of the sums over rows."""
        counts = {"units": UNITS, "n": ROWS} if self.analysis.bound.per_unit else {"n": ROWS}
        return {
            **counts,
            **{_name_sum_column(statistic): statistic for statistic in self._iterate_statistics()},
        }

    @property
    def names(self) -> list[str]:
        """The columns of the sums over rows."""
        return [_name_sum_column(statistic) for statistic in self._iterate_statistics()]

    @property
    def row_sums(self) -> list[str]:
        """The sums over the rows of a unit in a group, under their names."""
        return [
            f"{self._emit_row_sum(*statistic)} AS {_name_sum_column(statistic)}"
            for statistic in self._iterate_statistics()
        ]

    @property
    def pair_summands(self) -> dict[str, Summand]:
        """What is added up of unit-group pairs, under the names of `moments`: units, rows, and limited sums over rows."""
        limited = {name: Summand(name, part.max_magnitude) for name, part in self.iterate_limited_sums()}
        return {"units": ONE, "n": Summand("m", self.analysis.bound.rows), **limited}

    @property
    def pair_columns(self) -> list[str]:
        """The contributions of a unit to a group, limited to its counted rows, under their names."""
        return [f"{part.text} AS {name}" for name, part in self.iterate_limited_sums()]

    def iterate_limited_sums(self) -> Iterator[tuple[str, Summand]]:
        """Yield the contribution of a unit to a group, by name: values that are counted and their total, limited to the counted rows."""
        for statistic in self._iterate_statistics():
            moment, index = statistic
            yield (
                _name_sum_column(statistic),
                self._build_count(index) if moment is Moment.COUNT else self._build_total(index),
            )

    def _iterate_statistics(self) -> Iterator[tuple[Moment, int]]:
        for index, measure in enumerate(self.analysis.measures):
            if measure.counts_rows and self._is_counted(index):
                yield Moment.COUNT, index
            if measure.counts_rows and measure.lattice is not None:
                yield Moment.TOTAL, index

    def _is_counted(self, index: int) -> bool:
        return self.counted is None or index in self.counted

    def _emit_row_sum(self, moment: Moment, index: int) -> str:
        if moment is Moment.COUNT:
            return f"COUNT(x{index})"
        return emit_measure_total(self.analysis.measures[index], index)

    def _build_count(self, index: int) -> Summand:
        return Summand(self._limit_to_rows(f"LEAST(c{index}, m)"), self.analysis.bound.rows)

    def _limit_to_rows(self, count: str) -> str:
        return get_dialect().integers.to_narrow_int(count, 0, self.analysis.bound.rows)

    def _build_total(self, index: int) -> Summand:
        measure = self.analysis.measures[index]
        low, high = _get_point_range(measure)
        least, most = min(low, 0), max(high, 0)
        if self._is_counted(index):
            total, count = f"t{index}", self._build_count(index).text
        else:
            # LEAST of a number and NULL is the number.
            total, count, low, high = f"COALESCE(t{index}, 0)", self._limit_to_rows("m"), least, most
        greatest, rows = bound_unit_total(self.analysis, measure), self.analysis.bound.rows
        wide = get_dialect().integers.to_wide_int(count, greatest)
        clamped = f"LEAST(GREATEST({total}, {wide} * ({low})), {wide} * ({high}))"
        return Summand(get_dialect().integers.to_narrow_int(clamped, least * rows, most * rows), greatest)


def emit_measure_total(measure: Measure, index: int) -> str:
    """Return the sum of the lattice points of a measure over the rows, which have its points or its values."""
    if find_point_column(measure) is None:
        return emit_point_sum(measure, f"x{index}")
    return get_dialect().integers.emit_exact_sum(f"x{index}", _bound_point_magnitude(measure))


def emit_point_sum(measure: Measure, name: str) -> str:
    """Return the sum of the lattice points of values."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice can be summed")
    points = emit_lattice_point(measure.expr, measure.lattice, name, measure.interval)
    return get_dialect().integers.emit_exact_sum(points, _bound_point_magnitude(measure))


def _bound_point_magnitude(measure: Measure) -> int:
    """Return the greatest size of a lattice point of a value."""
    return max(map(abs, _get_point_range(measure)))


def _get_point_range(measure: Measure) -> tuple[int, int]:
    """Return the least and the greatest lattice point of a value."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice can be summed")
    return measure.lattice.low, measure.lattice.high


def _name_sum_column(statistic: Statistic) -> str:
    moment, index = statistic
    return f"{_NAMES[moment]}{index}"
