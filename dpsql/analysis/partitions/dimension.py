"""A partition column as a dimension of whole numbers: its places, what they stand for, and the line's name."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

from dpsql.accounting.partitions.ranges import Ranges
from dpsql.plan.expr import Column
from dpsql.plan.interval import position, timestamp_at
from dpsql.plan.tables import PartitionSource
from dpsql.plan.types import Type, Value
from dpsql.policy import fold

_DENSE = frozenset({Type.INTEGER, Type.DATE, Type.TIMESTAMP})
"""Types whose values lie at whole positions."""
_DIGITS = 32
_NAME = re.compile(
    r'(.+) ([A-Z]+) (bounds -?\d+ -?\d+|values [0-9a-f]+)(?: of ("(?:[^"\\]|\\.)*"))?', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Dimension:
    """The places 0, 1, … of the `values` of a column's public domain, or else those from `low` to `high`.

    Its `name` says how the column is declared: declared anew, it is another dimension. The same dimension in the account of
    another table, whose units lie where `source` says, has a name that ends in that table's.
    """

    column: Column
    name: str
    low: int
    high: int
    values: tuple[Value, ...] | None

    def named(self, source: PartitionSource | None) -> str:
        """The name in an account: that of its own table, or that of another, where the column is a roll's.

        No two lines share one: the first ends in a digit or letter, the second in a quoted text, which holds no quote
        without a backslash before it.
        """
        return self.name if source is None else f"{self.name} of {json.dumps(fold(source.table))}"

    @classmethod
    def of(cls, column: Column) -> Dimension | None:
        """The dimension of a column; None where neither values nor whole bounds are declared."""
        facts, kind = column.facts, column.type
        values = (False, True) if kind is Type.BOOLEAN and facts.domain is None else facts.domain
        if values is not None:
            listed = tuple(sorted({value for value in values if value is not None}))
            text = json.dumps([str(value) for value in listed], ensure_ascii=True)
            digest = sha256(text.encode()).hexdigest()[:_DIGITS]
            return cls(column, f"{_called(column)} values {digest}", 0, len(listed) - 1, listed)
        if kind not in _DENSE or not facts.interval.bounded:
            return None
        low, high = (int(end) for end in facts.interval.ends)
        return cls(column, f"{_called(column)} bounds {low} {high}", low, high, None)

    def value(self, place: int) -> Value:
        """What a place stands for."""
        if self.values is not None:
            return self.values[place]
        if self.column.type is Type.DATE:
            return dt.date.fromordinal(place)
        return timestamp_at(Fraction(place)) if self.column.type is Type.TIMESTAMP else place

    def position(self, place: int) -> Fraction | None:
        """Where the value of a place lies on the dimension of intervals; None for text."""
        return Fraction(place) if self.values is None else position(self.values[place])


def described(name: str, ranges: Ranges) -> str:
    """Ranges of a dimension for people, as far as its name alone tells, without the policy.

    Values that the policy lists are known by their places among the sorted ones, from 1.

    >>> described("day DATE bounds 738886 739251", ((738886, 738916),))
    'day 2024-01-01 to 2024-01-31'
    >>> described("ward VARCHAR values 5f2c", ((0, 0), (2, 3)))
    'ward (listed value) 1, 3 to 4'
    >>> described('ward VARCHAR values 5f2c of "patients"', ((0, 0),))
    'patients.ward (listed value) 1'
    """
    named = _NAME.fullmatch(name)
    column, kind, what, source = named.groups() if named else (name, "", "", None)
    column = column if source is None else f"{json.loads(source)}.{column}"
    listed = what.startswith("values")

    def value(place: int | None) -> str:
        if place is None:
            return "…"
        if listed:
            return str(place + 1)
        if kind == Type.DATE.tag:
            return str(dt.date.fromordinal(place))
        return str(timestamp_at(Fraction(place)) if kind == Type.TIMESTAMP.tag else place)

    texts = (value(low) if low == high else f"{value(low)} to {value(high)}" for low, high in ranges)
    return f"{column}{' (listed value)' * listed} {', '.join(texts)}"


def _called(column: Column) -> str:
    # Ledgers keep the name of a dimension, so it has words of its own for types.
    kind = "BIGINT" if column.type is Type.INTEGER else column.type.tag
    return f"{fold(column.name)} {kind}"
