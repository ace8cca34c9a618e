"""What confines a scan in one column: its places as ranges of values, and under which name they are charged."""

from __future__ import annotations

from dataclasses import replace

from dpsql.accounting.partitions.ranges import Ranges, intersection, union
from dpsql.analysis.partitions.dimension import Dimension
from dpsql.plan.expr import Column
from dpsql.plan.tables import Confined, Roll

MOST_RANGES = 16
"""Most ranges of a column; what has more is charged and read from the first to the last."""


def confined_to(line: Dimension, places: Ranges, roll: Roll | None = None) -> Confined:
    """What confines to these places, or to few ranges around them.

    Where there are none, one place is read: that some box is charged keeps the rest simple.
    """
    places = places or ((line.low, line.low),)
    if len(places) > MOST_RANGES:
        places = ((places[0][0], places[-1][1]),)
    return _of(line, places, roll)


def at(side: Confined, places: Ranges) -> Confined:
    """The same column, of the same table, at other places."""
    return _of(_line(side.column), places, side.roll)


def renamed(side: Confined, source: str, roll: Roll | None) -> Confined:
    """The same places as the account of another table calls them, by a roll, or as that of the column's own does."""
    return _of(_line(replace(side.column, source=source)), side.places, roll)


def both(side: Confined, other: Confined) -> Confined:
    """Where both confine, which are of one dimension."""
    return confined_to(_line(side.column), intersection(side.places, other.places), side.roll)


def either(side: Confined, other: Confined) -> Confined:
    """Where either confines, which are of one dimension."""
    return confined_to(_line(side.column), union((*side.places, *other.places)), side.roll)


def _line(column: Column) -> Dimension:
    line = Dimension.of(column)
    if line is None:
        raise TypeError("a column without places confines nothing")
    return line


def _of(line: Dimension, places: Ranges, roll: Roll | None) -> Confined:
    # All places of a column lie on its line, which has two ends.
    ranges = tuple((line.value(low), line.value(high)) for low, high in places if None not in (low, high))  # type: ignore[arg-type]
    return Confined(line.column, ranges, line.named(roll), places, roll)
