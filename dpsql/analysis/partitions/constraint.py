"""What confines a scan in one column: its places as ranges of values, and under which name they are charged."""

from __future__ import annotations

from dataclasses import replace

from dpsql.accounting.partitions.ranges import Ranges, intersection, union
from dpsql.analysis.partitions.dimension import Dimension
from dpsql.plan.expr import Column
from dpsql.plan.tables import PartitionFilter, PartitionSource

MOST_RANGES = 16
"""Most ranges of a column; what has more is charged and read from the first to the last."""


def partition_filter(
    dimension: Dimension, places: Ranges, source: PartitionSource | None = None
) -> PartitionFilter:
    """What confines to these places, or to few ranges around them.

    Where there are none, one place is read: that some box is charged keeps the rest simple.
    """
    places = places or ((dimension.low, dimension.low),)
    if len(places) > MOST_RANGES:
        places = ((places[0][0], places[-1][1]),)
    return _of(dimension, places, source)


def at_positions(side: PartitionFilter, places: Ranges) -> PartitionFilter:
    """The same column, of the same table, at other places."""
    return _of(_dimension(side.column), places, side.source)


def renamed(side: PartitionFilter, alias: str, source: PartitionSource | None) -> PartitionFilter:
    """The same places as the account of another table calls them, by a source, or as that of the column's own does."""
    return _of(_dimension(replace(side.column, source=alias)), side.positions, source)


def intersected(side: PartitionFilter, other: PartitionFilter) -> PartitionFilter:
    """Where both confine, which are of one dimension."""
    return partition_filter(
        _dimension(side.column), intersection(side.positions, other.positions), side.source
    )


def united(side: PartitionFilter, other: PartitionFilter) -> PartitionFilter:
    """Where either confines, which are of one dimension."""
    return partition_filter(_dimension(side.column), union((*side.positions, *other.positions)), side.source)


def _dimension(column: Column) -> Dimension:
    dimension = Dimension.of(column)
    if dimension is None:
        raise TypeError("a column without places confines nothing")
    return dimension


def _of(dimension: Dimension, places: Ranges, source: PartitionSource | None) -> PartitionFilter:
    # Both ends of each range lie within the dimension, which is bounded.
    bounded = ((low, high) for low, high in places if low is not None and high is not None)
    ranges = tuple((dimension.value(low), dimension.value(high)) for low, high in bounded)
    return PartitionFilter(dimension.column, ranges, dimension.named(source), places, source)
