"""Partition filters: their ranges of values, and the dimension that they are charged under."""

from __future__ import annotations

from dataclasses import replace

from dpsql.analysis.partitions.dimension import Dimension
from dpsql.plan.expressions import Column
from dpsql.plan.tables import PartitionFilter, PartitionSource
from dpsql.privacy.accounting.partitions.ranges import Ranges, intersect_ranges, merge_ranges

MOST_RANGES = 16
"""The most ranges of a filter; with more, it is one range from the first to the last."""


def make_partition_filter(
    dimension: Dimension, places: Ranges, source: PartitionSource | None = None
) -> PartitionFilter:
    """Build the filter to these positions, or to one range that covers them if there are many.

    Without positions, one is read: a charge has at least one box.
    """
    places = places or ((dimension.low, dimension.low),)
    if len(places) > MOST_RANGES:
        places = ((places[0][0], places[-1][1]),)
    return _build_filter(dimension, places, source)


def with_positions(side: PartitionFilter, places: Ranges) -> PartitionFilter:
    """Return the same filter at other positions."""
    return _build_filter(_get_dimension(side.column), places, side.source)


def with_source(side: PartitionFilter, alias: str, source: PartitionSource | None) -> PartitionFilter:
    """Return the same filter for the dimension of another table's account; without a source, for the column's own table."""
    return _build_filter(_get_dimension(replace(side.column, source=alias)), side.positions, source)


def intersect_filters(side: PartitionFilter, other: PartitionFilter) -> PartitionFilter:
    """Return the intersection of two filters of one dimension."""
    return make_partition_filter(
        _get_dimension(side.column), intersect_ranges(side.positions, other.positions), side.source
    )


def merge_filters(side: PartitionFilter, other: PartitionFilter) -> PartitionFilter:
    """Return the union of two filters of one dimension."""
    return make_partition_filter(
        _get_dimension(side.column), merge_ranges((*side.positions, *other.positions)), side.source
    )


def _get_dimension(column: Column) -> Dimension:
    dimension = Dimension.from_column(column)
    if dimension is None:
        raise TypeError("the column must be a partition column")
    return dimension


def _build_filter(dimension: Dimension, places: Ranges, source: PartitionSource | None) -> PartitionFilter:
    # Both ends of each range lie within the dimension, which is bounded.
    bounded = ((low, high) for low, high in places if low is not None and high is not None)
    ranges = tuple((dimension.get_value(low), dimension.get_value(high)) for low, high in bounded)
    return PartitionFilter(dimension.column, ranges, dimension.get_account_name(source), places, source)
