"""Partition dimensions: the values of a partition column as integer positions, and the name that ledgers keep."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256

from dpsql.plan.expressions import Column
from dpsql.plan.interval import find_position, get_timestamp_at
from dpsql.plan.tables import PartitionFilter, PartitionSource
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.privacy.accounting.partitions.ranges import Ranges, intersect_ranges, merge_ranges

_DENSE = frozenset({Type.INTEGER, Type.DATE, Type.TIMESTAMP})
"""Types whose values lie at whole positions."""
_DIGITS = 32
_NAME = re.compile(
    r'(.+) ([A-Z]+) (bounds -?\d+ -?\d+|values [0-9a-f]+)(?: of ("(?:[^"\\]|\\.)*"))?', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Dimension:
    """The positions of a partition column: indices of its declared `values`, or else integers from `low` to `high`.

    The `name` depends on the declaration of the column: with another declaration it is another dimension. In the account
    of another table, whose units are assigned by a partition source, the name ends with the name of the source.
    """

    column: Column
    name: str
    low: int
    high: int
    values: tuple[Value, ...] | None

    def get_account_name(self, source: PartitionSource | None) -> str:
        """Return the name in an account: of the column's own table, or of another table if the column is of a partition source.

        No two dimensions share a name: the first ends in a digit or letter, the second in a quoted text, which holds no quote
        without a backslash before it.
        """
        return self.name if source is None else f"{self.name} of {json.dumps(normalize_name(source.table))}"

    @classmethod
    def from_column(cls, column: Column) -> Dimension | None:
        """Return the dimension of a column; None if neither values nor integer bounds are declared."""
        facts, kind = column.facts, column.type
        values = (False, True) if kind is Type.BOOLEAN and facts.domain is None else facts.domain
        if values is not None:
            listed = tuple(sorted({value for value in values if value is not None}))
            text = json.dumps([str(value) for value in listed], ensure_ascii=True)
            digest = sha256(text.encode()).hexdigest()[:_DIGITS]
            return cls(column, f"{_format_name(column)} values {digest}", 0, len(listed) - 1, listed)
        if kind not in _DENSE or not facts.interval.is_bounded:
            return None
        low, high = (int(end) for end in facts.interval.ends)
        return cls(column, f"{_format_name(column)} bounds {low} {high}", low, high, None)

    def get_value(self, place: int) -> Value:
        """Return the value at a position."""
        if self.values is not None:
            return self.values[place]
        if self.column.type is Type.DATE:
            return dt.date.fromordinal(place)
        return get_timestamp_at(Fraction(place)) if self.column.type is Type.TIMESTAMP else place

    def find_number(self, place: int) -> Fraction | None:
        """Return the value at a position as a number for interval arithmetic; None for text."""
        return Fraction(place) if self.values is None else find_position(self.values[place])


def describe_ranges(name: str, ranges: Ranges) -> str:
    """Describe the ranges of a dimension by its name alone, without the policy.

    Listed values are given by their indices in sorted order, from 1.

    >>> describe_ranges("day DATE bounds 738886 739251", ((738886, 738916),))
    'day 2024-01-01 to 2024-01-31'
    >>> describe_ranges("ward VARCHAR values 5f2c", ((0, 0), (2, 3)))
    'ward (listed value) 1, 3 to 4'
    >>> describe_ranges('ward VARCHAR values 5f2c of "patients"', ((0, 0),))
    'patients.ward (listed value) 1'
    """
    named = _NAME.fullmatch(name)
    column, kind, what, source = named.groups() if named else (name, "", "", None)
    column = column if source is None else f"{json.loads(source)}.{column}"
    listed = what.startswith("values")

    def format_place(place: int | None) -> str:
        if place is None:
            return "…"
        if listed:
            return str(place + 1)
        if kind == Type.DATE.tag:
            return str(dt.date.fromordinal(place))
        return str(get_timestamp_at(Fraction(place)) if kind == Type.TIMESTAMP.tag else place)

    texts = (
        format_place(low) if low == high else f"{format_place(low)} to {format_place(high)}"
        for low, high in ranges
    )
    return f"{column}{' (listed value)' * listed} {', '.join(texts)}"


def _format_name(column: Column) -> str:
    # Ledgers keep the name of a dimension, so the names of types in it are fixed.
    kind = "BIGINT" if column.type is Type.INTEGER else column.type.tag
    return f"{normalize_name(column.name)} {kind}"


# Partition filters: their ranges of values, and the dimension that they are charged under.


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
