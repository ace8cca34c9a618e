"""Emit the lattice points of a table's columns where the table is read, if they are not the values themselves.

Claim: their sums, and the numbers of those that are not NULL, are the same as of points that are computed later.
Why: a point depends on one value alone, which is clamped as it is read, and is NULL if and only if the value is. Where a join
finds no row, both are NULL. An engine can add up columns of one table before it joins another; it does not do so with
products, which might fail for rows that the join leaves out.
Source: Yan and Larson 1995, "Eager aggregation and lazy aggregation", section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.analysis.release_analysis import Analysis, Measure
from dpsql.plan.expressions import Column
from dpsql.sql.compile.decimal_points import emit_decimal_lattice_point
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.lattice import emit_lattice_point, is_clamped_when_read, is_own_point
from dpsql.sql.compile.scalars import quote_identifier


def emit_scan_points(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the columns that scans add, each with its alias: the points of the summed measures."""
    for index, measure in enumerate(analysis.measures):
        column = find_point_column(measure)
        if column is not None and measure.counts_rows and measure.lattice is not None:
            text = emit_decimal_lattice_point(column, measure.lattice)
            if text is None:
                text = emit_lattice_point(
                    column, measure.lattice, get_dialect().emit_bounded_column(column), measure.interval
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
