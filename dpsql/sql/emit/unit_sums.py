"""Emits what is added up of a unit's rows in a group: the values of each measure that are not NULL, and their total.

Claim: a total, limited to the counted rows, is in the interval in which that of as many counted values is.
Why: it is clamped to as many times the ends of the values' interval as there are counted values. Where these are not counted,
the rows are, which are no fewer; and an interval of values that does not hold 0 is widened to it, as some rows may have none.
Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis, Measurand
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.sql.emit.clamp_histograms import ONE, Summand, most_total
from dpsql.sql.emit.dialect import dialect
from dpsql.sql.emit.lattice import point
from dpsql.sql.emit.scan_points import point_column

_NAMES = {Moment.COUNT: "c", Moment.TOTAL: "t"}


@dataclass(frozen=True, slots=True)
class UnitSums:
    """What is added up of each measure of a release: its values are counted if it is `counted`, by its index, or if all are."""

    analysis: Analysis
    counted: Container[int] | None = None

    @property
    def moments(self) -> dict[str, Statistic]:
        """The columns of numbers of units and rows, and of the sums over rows."""
        counts = {"units": UNITS, "n": ROWS} if self.analysis.bound.per_unit else {"n": ROWS}
        return {**counts, **{_name(statistic): statistic for statistic in self._statistics()}}

    @property
    def names(self) -> list[str]:
        """The columns of the sums over rows."""
        return [_name(statistic) for statistic in self._statistics()]

    @property
    def of_rows(self) -> list[str]:
        """The sums over the rows of a unit in a group, under their names."""
        return [f"{self._of_rows(*statistic)} AS {_name(statistic)}" for statistic in self._statistics()]

    @property
    def of_units(self) -> dict[str, Summand]:
        """What is added up of unit-group pairs, under the names of `moments`: units, rows, and limited sums over rows."""
        limited = {name: Summand(name, part.most) for name, part in self.limited()}
        return {"units": ONE, "n": Summand("m", self.analysis.bound.rows), **limited}

    @property
    def held(self) -> list[str]:
        """The contributions of a unit to a group, limited to its counted rows, under their names."""
        return [f"{part.text} AS {name}" for name, part in self.limited()]

    def limited(self) -> Iterator[tuple[str, Summand]]:
        """The contribution of a unit to a group, by name: values that are counted and their total, limited to the counted rows."""
        for statistic in self._statistics():
            moment, index = statistic
            yield _name(statistic), self._count(index) if moment is Moment.COUNT else self._total(index)

    def _statistics(self) -> Iterator[tuple[Moment, int]]:
        for index, measure in enumerate(self.analysis.measures):
            if measure.counts_rows and self._counts(index):
                yield Moment.COUNT, index
            if measure.counts_rows and measure.lattice is not None:
                yield Moment.TOTAL, index

    def _counts(self, index: int) -> bool:
        return self.counted is None or index in self.counted

    def _of_rows(self, moment: Moment, index: int) -> str:
        if moment is Moment.COUNT:
            return f"COUNT(x{index})"
        return total(self.analysis.measures[index], index)

    def _count(self, index: int) -> Summand:
        return Summand(self._within_rows(f"LEAST(c{index}, m)"), self.analysis.bound.rows)

    def _within_rows(self, count: str) -> str:
        return dialect().narrow(count, 0, self.analysis.bound.rows)

    def _total(self, index: int) -> Summand:
        measure = self.analysis.measures[index]
        low, high = _ends(measure)
        least, most = min(low, 0), max(high, 0)
        if self._counts(index):
            total, count = f"t{index}", self._count(index).text
        else:
            # The least of a number and NULL is the number.
            total, count, low, high = f"COALESCE(t{index}, 0)", self._within_rows("m"), least, most
        greatest, rows = most_total(self.analysis, measure), self.analysis.bound.rows
        wide = dialect().wide(count, greatest)
        clamped = f"LEAST(GREATEST({total}, {wide} * ({low})), {wide} * ({high}))"
        return Summand(dialect().narrow(clamped, least * rows, most * rows), greatest)


def total(measure: Measurand, index: int) -> str:
    """The sum of the lattice points of a measure over the rows, which have its points or its values."""
    if point_column(measure) is None:
        return added(measure, f"x{index}")
    return dialect().added(f"x{index}", _most(measure))


def added(measure: Measurand, name: str) -> str:
    """The sum of the lattice points of values."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice are summed")
    points = point(measure.expr, measure.lattice, name, measure.interval)
    return dialect().added(points, _most(measure))


def _most(measure: Measurand) -> int:
    """The greatest size of a lattice point of a value."""
    return max(map(abs, _ends(measure)))


def _ends(measure: Measurand) -> tuple[int, int]:
    """The least and the greatest lattice point of a value."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice are summed")
    return measure.lattice.low, measure.lattice.high


def _name(statistic: Statistic) -> str:
    moment, index = statistic
    return f"{_NAMES[moment]}{index}"
