"""Emit lattice points of values, and their sums within a unit."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from dpsql.analysis.release_analysis import Analysis, Lattice, Measure
from dpsql.plan.aggregates import Moment
from dpsql.plan.expressions import Column, Expr
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, parse_decimal_type
from dpsql.planning.statistics import ROWS, UNITS, Statistic
from dpsql.policy.names import quote_identifier
from dpsql.sql.compile.columns import name_total, name_value, name_value_count
from dpsql.sql.compile.compiler import MAX_INTEGER, Compiler
from dpsql.sql.compile.contribution_bounds import ONE, Summand, bound_unit_total
from dpsql.sql.compile.scan_conditions import emit_stored_decimals

# Emit the lattice points of values.


def emit_lattice_point(
    compiler: Compiler, expr: Expr, lattice: Lattice, name: str, around: Interval | None = None
) -> str:
    """Return the lattice point of the value of `expr`, known as `name`, which is not NaN.

    It is clamped, unless it is a table's column that was clamped to `around` when it was read.

    Claim: the point is from the lattice's low end to its high one; of a decimal with the lattice's digits, below 2^50 of its last
    one, it is exact.
    Why: the factor is 10^digits / 2^exponent, a DOUBLE up to 10^22, so that the product of a value within the ends is off by less
    than a quarter of a step, and the ends are whole numbers of steps.
    """
    at = (
        name
        if is_own_point(expr, lattice)
        else compiler.dialect.points.emit_lattice_point(name, float(1 / lattice.step))
    )
    if around is not None and is_clamped_when_read(expr, around):
        return at
    low, high = (compiler.emit_constant(float(end)) for end in lattice.interval.ends)
    if expr.type is Type.INTEGER:
        low, high = (
            compiler.emit_constant(max(-MAX_INTEGER, min(MAX_INTEGER, int(end))))
            for end in lattice.interval.ends
        )
    clamped = f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {at}"
    return f"{clamped} WHEN {name} < {low} THEN {lattice.low} WHEN {name} > {high} THEN {lattice.high} END"


def is_own_point(expr: Expr, lattice: Lattice) -> bool:
    """Return whether a value is its own lattice point."""
    return lattice.exponent == 0 and expr.type is Type.INTEGER


def is_clamped_when_read(expr: Expr, around: Interval) -> TypeGuard[Column]:
    """Return whether an expression is a stored column that is clamped to an interval when it is read."""
    return isinstance(expr, Column) and expr.facts.is_stored and expr.facts.interval == around


# Emit the lattice points of clamped DECIMAL columns without a conversion to DOUBLE.


_MOST_DIGITS = 18
"""The digits of a DECIMAL of 64 bits."""


def emit_decimal_lattice_point(compiler: Compiler, column: Column, lattice: Lattice) -> str | None:
    """Return the lattice point of a column that is clamped as it is read; None if it is computed from a DOUBLE.

    Claim: they are the points of the column's value, which is a DOUBLE and clamped to the bounds.
    Why: of at most 15 digits each DECIMAL has a DOUBLE of its own, in the same order, and so have the bounds. Times a power of ten
    the DOUBLE is off by less than a quarter from the whole number that the DECIMAL is, which is the nearest. No row fails: what is
    multiplied is between the bounds, whatever is stored.
    Source: IEEE 754-2019, section 5.12.2 (15 digits of a decimal survive in a DOUBLE).
    """
    facts, digits = column.facts, parse_decimal_type(column.facts.engine_type)
    if digits is None or facts.domain is not None or not facts.interval.is_bounded:
        return None
    bounds = emit_stored_decimals(column, map(float, facts.interval.ends))
    if bounds is None or (lattice.exponent, lattice.digits) != (0, digits[1]):
        return None
    if sum(digits) + 1 > _MOST_DIGITS:
        return None
    low, high = bounds
    return compiler.dialect.points.emit_decimal_lattice_point(
        compiler.dialect.columns.emit_stored_column(column), low, high, 10 ** digits[1]
    )


# The lattice points of a table's columns, emitted where the table is read.


def emit_scan_points(compiler: Compiler, analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the columns that scans add, each with its alias: the points of the summed measures.

    Claim: their sums, and the numbers of those that are not NULL, are the same as of points that are computed later.
    Why: a point depends on one value alone, which is clamped as it is read, and is NULL if and only if the value is. Where a join
    finds no row, both are NULL. An engine can add up columns of one table before it joins another; it does not do so with products,
    which might fail for rows that the join leaves out.
    Source: Yan and Larson 1995, "Eager aggregation and lazy aggregation", section 3.
    """
    for index, measure in enumerate(analysis.measures):
        column = find_point_column(measure)
        if column is not None and measure.counts_rows and measure.lattice is not None:
            text = emit_decimal_lattice_point(compiler, column, measure.lattice)
            if text is None:
                text = emit_lattice_point(
                    compiler,
                    column,
                    measure.lattice,
                    compiler.dialect.columns.emit_bounded_column(column),
                    measure.interval,
                )
            yield column.source, f"{text} AS {_name_point_column(index)}"


def find_offered_point(measure: Measure, index: int) -> str | None:
    """Return the points of a measure in a query over the scan that offers them; None where they are computed later."""
    column = find_point_column(measure)
    return None if column is None else f"{quote_identifier(column.source)}.{_name_point_column(index)}"


def find_point_column(measure: Measure) -> Column | None:
    """Return the table's column whose points are offered, or None."""
    column, lattice = measure.expr, measure.lattice
    if lattice is None or is_own_point(column, lattice) or not is_clamped_when_read(column, measure.interval):
        return None
    return column


def _name_point_column(index: int) -> str:
    """Return the name under which a scan offers the points of a measure; no column of a table has it."""
    return quote_identifier(f"#point_{index + 1}")


# The summed values of a unit's rows in a group.


_NAMES = {Moment.COUNT: name_value_count, Moment.TOTAL: name_total}


@dataclass(frozen=True, slots=True)
class UnitSums:
    """The summed values of each measure of a release; values are counted for `counted` measures, by index, or for all.

    Claim: a total, limited to the counted rows, is in the interval in which that of as many counted values is.
    Why: it is clamped to as many times the ends of the values' interval as there are counted values. Where these are not counted,
    the rows are, which are no fewer; and an interval of values that does not hold 0 is widened to it, as some rows may have none.
    Source: Wilson et al. 2020, "Differentially private SQL with bounded user contribution", section 3.
    """

    compiler: Compiler
    analysis: Analysis
    counted: Container[int] | None = None

    @property
    def moments(self) -> dict[str, Statistic]:
        """Return the columns of numbers of units and rows, and of the sums over rows."""
        counts = (
            {"unit_count": UNITS, "row_count": ROWS} if self.analysis.bound.per_unit else {"row_count": ROWS}
        )
        return {
            **counts,
            **{_name_sum_column(statistic): statistic for statistic in self._iterate_statistics()},
        }

    @property
    def names(self) -> list[str]:
        """Return the columns of the sums over rows."""
        return [_name_sum_column(statistic) for statistic in self._iterate_statistics()]

    @property
    def row_sums(self) -> list[str]:
        """Return the sums over the rows of a unit in a group, under their names."""
        return [
            f"{self._emit_row_sum(*statistic)} AS {_name_sum_column(statistic)}"
            for statistic in self._iterate_statistics()
        ]

    @property
    def pair_summands(self) -> dict[str, Summand]:
        """Return what is added up of unit-group pairs, under the names of `moments`: units, rows, and limited sums over rows."""
        limited = {name: Summand(name, part.max_magnitude) for name, part in self.iterate_limited_sums()}
        return {"unit_count": ONE, "row_count": Summand("counted_rows", self.analysis.bound.rows), **limited}

    @property
    def pair_columns(self) -> list[str]:
        """Return the contributions of a unit to a group, limited to its counted rows, under their names."""
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
            return self.compiler.dialect.integers.emit_count(name_value(index))
        return emit_measure_total(self.compiler, self.analysis.measures[index], index)

    def _build_count(self, index: int) -> Summand:
        return Summand(
            self._limit_to_rows(f"LEAST({name_value_count(index)}, counted_rows)"), self.analysis.bound.rows
        )

    def _limit_to_rows(self, count: str) -> str:
        return self.compiler.dialect.integers.to_narrow_int(count, 0, self.analysis.bound.rows)

    def _build_total(self, index: int) -> Summand:
        measure = self.analysis.measures[index]
        low, high = _get_point_range(measure)
        least, most = min(low, 0), max(high, 0)
        if self._is_counted(index):
            total, count = name_total(index), self._build_count(index).text
        else:
            # LEAST of a number and NULL is the number.
            total, count, low, high = (
                f"COALESCE({name_total(index)}, 0)",
                self._limit_to_rows("counted_rows"),
                least,
                most,
            )
        greatest, rows = bound_unit_total(self.analysis, measure), self.analysis.bound.rows
        wide = self.compiler.dialect.integers.to_wide_int(count, greatest)
        clamped = f"LEAST(GREATEST({total}, {wide} * ({low})), {wide} * ({high}))"
        return Summand(
            self.compiler.dialect.integers.to_narrow_int(clamped, least * rows, most * rows), greatest
        )


def emit_measure_total(compiler: Compiler, measure: Measure, index: int) -> str:
    """Return the sum of the lattice points of a measure over the rows, which have its points or its values."""
    if find_point_column(measure) is None:
        return emit_point_sum(compiler, measure, name_value(index))
    return compiler.dialect.integers.emit_exact_sum(name_value(index), _bound_point_magnitude(measure))


def emit_point_sum(compiler: Compiler, measure: Measure, name: str) -> str:
    """Return the sum of the lattice points of values."""
    if measure.lattice is None:
        raise TypeError("only measures with a lattice can be summed")
    points = emit_lattice_point(compiler, measure.expr, measure.lattice, name, measure.interval)
    return compiler.dialect.integers.emit_exact_sum(points, _bound_point_magnitude(measure))


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
    if index is None:
        raise TypeError("only statistics of measures have a column of their own")
    return _NAMES[moment](index)
