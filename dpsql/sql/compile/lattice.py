"""Emit the lattice points of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from dpsql.analysis.lattice import Lattice
from dpsql.analysis.number_types import parse_decimal_type
from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.plan.expressions import Column, Expr
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.scalars import MAX_INTEGER, emit_constant, quote_identifier
from dpsql.sql.compile.scan_conditions import emit_stored_decimals


def emit_lattice_point(expr: Expr, lattice: Lattice, name: str, around: Interval | None = None) -> str:
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
        else get_dialect().points.emit_lattice_point(name, float(1 / lattice.step))
    )
    if around is not None and is_clamped_when_read(expr, around):
        return at
    low, high = (emit_constant(float(end)) for end in lattice.interval.ends)
    if expr.type is Type.INTEGER:
        low, high = (
            emit_constant(max(-MAX_INTEGER, min(MAX_INTEGER, int(end)))) for end in lattice.interval.ends
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
#
# Claim: they are the points of the column's value, which is a DOUBLE and clamped to the bounds.
# Why: of at most 15 digits each DECIMAL has a DOUBLE of its own, in the same order, and so have the bounds. Times a power of ten the DOUBLE
# is off by less than a quarter from the whole number that the DECIMAL is, which is the nearest. No row fails: what is multiplied is between
# the bounds, whatever is stored.
# Source: IEEE 754-2019, section 5.12.2 (15 digits of a decimal survive in a DOUBLE).


_MOST_DIGITS = 18
"""The digits of a DECIMAL of 64 bits."""


def emit_decimal_lattice_point(column: Column, lattice: Lattice) -> str | None:
    """Return the lattice point of a column that is clamped as it is read; None if it is computed from a DOUBLE."""
    facts, digits = column.facts, parse_decimal_type(column.facts.engine_type)
    if digits is None or facts.domain is not None or not facts.interval.is_bounded:
        return None
    bounds = emit_stored_decimals(column, map(float, facts.interval.ends))
    if bounds is None or (lattice.exponent, lattice.digits) != (0, digits[1]):
        return None
    if sum(digits) + 1 > _MOST_DIGITS:
        return None
    low, high = bounds
    return get_dialect().points.emit_decimal_lattice_point(
        get_dialect().columns.emit_stored_column(column), low, high, 10 ** digits[1]
    )


# Emit the lattice points of a table's columns where the table is read, if they are not the values themselves.
#
# Claim: their sums, and the numbers of those that are not NULL, are the same as of points that are computed later.
# Why: a point depends on one value alone, which is clamped as it is read, and is NULL if and only if the value is. Where a join
# finds no row, both are NULL. An engine can add up columns of one table before it joins another; it does not do so with
# products, which might fail for rows that the join leaves out.
# Source: Yan and Larson 1995, "Eager aggregation and lazy aggregation", section 3.


def emit_scan_points(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the columns that scans add, each with its alias: the points of the summed measures."""
    for index, measure in enumerate(analysis.measures):
        column = find_point_column(measure)
        if column is not None and measure.counts_rows and measure.lattice is not None:
            text = emit_decimal_lattice_point(column, measure.lattice)
            if text is None:
                text = emit_lattice_point(
                    column,
                    measure.lattice,
                    get_dialect().columns.emit_bounded_column(column),
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
    return quote_identifier(f"#x{index}")
