"""The dimensions by which rows are partitioned, and the places that a predicate can reach."""

from __future__ import annotations

import datetime as dt
import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from hashlib import sha256

from dpsql.analysis.intervals import derive_interval
from dpsql.plan.expressions import Call, Column, Expr, Literal, ReleasedColumn, Scalar, is_null, walk
from dpsql.plan.functions.dates import UNITS, convert_position, iterate_timestamps, truncate_timestamp
from dpsql.plan.interval import Interval, find_position, get_timestamp_at
from dpsql.plan.tables import PartitionFilter, PartitionSource
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.privacy.accounting.partitions.grid import Ranges, intersect_ranges, merge_ranges

# Partition dimensions: the values of a partition column as integer positions, and the name that ledgers keep.


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


# Partition predicates: the positions of a partition column at which conditions can be true.


Positions = tuple[tuple[int, int], ...]
Condition = Callable[[Interval, Interval], bool]

_RISING = frozenset(
    {"year", "decade", "century", "millennium", "isoyear", "yearweek", "epoch", "julian", "last_day"}
    | {"cast_date", "cast_timestamp"}
    | {f"date_trunc_{unit}" for unit in UNITS}
)
"""Non-decreasing functions of a date or timestamp."""
_MONTHS = {"month": 1, "quarter": 3}
MOST_MONTHS = 6_000
_DAY, _DAY_OF_1970 = 86_400_000_000, 719_163

_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_CAN: dict[str, Condition] = {
    "lt": lambda x, y: _is_below(x.low, y.high, operator.lt),
    "le": lambda x, y: _is_below(x.low, y.high, operator.le),
    "gt": lambda x, y: _is_below(y.low, x.high, operator.lt),
    "ge": lambda x, y: _is_below(y.low, x.high, operator.le),
}
_COMPARED: dict[str, Callable[..., bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def find_possible_positions(said: Iterable[Expr], dimension: Dimension) -> Positions | None:
    """Return the positions at which all conditions can be true; None if they do not restrict the column.

    Claim: at every other position, and for NULL, some condition is not true, whatever the values of other columns.
    Why: a comparison with NULL is not true. Otherwise the values of both sides are in their intervals, and `_RISING` functions are
    monotone, so the positions at which a comparison can be true are found by binary search. An unknown condition is taken to be
    true anywhere.
    Source: Moore 1966, "Interval Analysis" (enclosures of images); for months the calendar itself.
    """
    return _combine_all([_find_true_positions(condition, dimension) for condition in said])


def _find_true_positions(condition: Expr, dimension: Dimension) -> Positions | None:
    """Return the positions at which a condition can be true; None for all positions and NULL."""
    if condition == dimension.column and dimension.column.type is Type.BOOLEAN:
        return _find_compared_positions("eq", condition, Literal(value=True, type=Type.BOOLEAN), dimension)
    if not isinstance(condition, Call):
        return None
    name, arguments = condition.function.name, condition.arguments
    match name:
        case "and":
            return find_possible_positions(arguments, dimension)
        case "or":
            return _combine_any([_find_true_positions(argument, dimension) for argument in arguments])
        case "not" | "is_false":
            return _find_false_positions(arguments[0], dimension)
        case "is_true":
            return _find_true_positions(arguments[0], dimension)
        case "in":
            return _combine_any(
                [_find_compared_positions("eq", arguments[0], item, dimension) for item in arguments[1:]]
            )
        case "is_not_distinct" if not any(map(_may_be_null, arguments[1:])):
            return _find_compared_positions("eq", arguments[0], arguments[1], dimension)
        case _:
            return (
                _find_compared_positions(name, arguments[0], arguments[1], dimension)
                if name in _COMPARED
                else None
            )


def _find_false_positions(condition: Expr, dimension: Dimension) -> Positions | None:
    """Return the positions at which a condition can be false (not NULL); None for all."""
    if condition == dimension.column and dimension.column.type is Type.BOOLEAN:
        return _find_compared_positions("eq", condition, Literal(value=False, type=Type.BOOLEAN), dimension)
    if not isinstance(condition, Call):
        return None
    name, arguments = condition.function.name, condition.arguments
    match name:
        case "and":
            return _combine_any([_find_false_positions(argument, dimension) for argument in arguments])
        case "or":
            return _combine_all([_find_false_positions(argument, dimension) for argument in arguments])
        case "not":
            return _find_true_positions(arguments[0], dimension)
        case "in" if not any(map(_may_be_null, arguments[1:])):
            return _combine_all(
                [_find_compared_positions("ne", arguments[0], item, dimension) for item in arguments[1:]]
            )
        case _:
            negated = _NEGATED.get(name)
            return (
                None
                if negated is None
                else _find_compared_positions(negated, arguments[0], arguments[1], dimension)
            )


def _find_compared_positions(name: str, left: Expr, right: Expr, dimension: Dimension) -> Positions | None:
    """Find the positions at which a comparison of a monotone function of the column with a constant can be true."""
    if _is_constant(left) and not _is_constant(right):
        name, left, right = _FLIPPED.get(name, name), right, left
    if not _is_constant(right):
        return None
    if left == dimension.column and isinstance(right, Literal) and dimension.values is not None:
        return _find_listed_positions(name, right, dimension)
    if isinstance(left, Call) and left.function.name in _MONTHS and left.arguments == (dimension.column,):
        return _find_month_positions(name, left, right, dimension)
    if not _is_monotone(left, dimension.column) or Type.VARCHAR in (left.type, right.type):
        return None
    constant = _to_moments(derive_interval(right), right.type, left.type)
    if not constant.is_bounded:
        return None

    def compute_image(place: int) -> Interval:
        at = dimension.find_number(place)
        return _to_moments(derive_interval(left, {dimension.column: Interval(at, at)}), left.type, right.type)

    return _search_positions(name, compute_image, constant, dimension, exact=left == dimension.column)


def _find_listed_positions(name: str, literal: Literal, dimension: Dimension) -> Positions | None:
    """Find the listed values for which a comparison with a constant of their type is true."""
    if literal.value is None or dimension.values is None:
        return ()
    if literal.type is not dimension.column.type and not (
        literal.type.numeric and dimension.column.type.numeric
    ):
        return None
    places = (place for place, value in enumerate(dimension.values) if _COMPARED[name](value, literal.value))
    return _normalize_positions((place, place) for place in places)


def _find_month_positions(name: str, left: Call, right: Expr, dimension: Dimension) -> Positions | None:
    """Find the days of the months, or quarters, for which a comparison can be true."""
    around = derive_interval(right)
    kind = dimension.column.type
    if (
        dimension.values is not None
        or not kind.temporal
        or right.type is not Type.INTEGER
        or not around.is_bounded
    ):
        return None
    first, last = (convert_position(kind, Fraction(end)) for end in (dimension.low, dimension.high))
    if (last.year - first.year) * 12 > MOST_MONTHS:
        return None
    months = [*iterate_timestamps("month", 1, truncate_timestamp("month", first), last)]
    found = []
    for at, start in enumerate(months):
        number = -(-start.month // _MONTHS[left.function.name])
        if not _can_hold(name, Interval(number, number), around, exact=True):
            continue
        low = _compute_place(dimension, start)
        high = _compute_place(dimension, months[at + 1]) if at + 1 < len(months) else dimension.high + 1
        found.append((max(dimension.low, low), min(dimension.high, high - 1)))
    return _normalize_positions(found)


def _compute_place(dimension: Dimension, start: dt.datetime) -> int:
    """Compute the place of a month's first moment."""
    at = find_position(start.date() if dimension.column.type is Type.DATE else start)
    return dimension.low if at is None else int(at)


def _search_positions(
    name: str, image: Callable[[int], Interval], constant: Interval, dimension: Dimension, *, exact: bool
) -> Positions | None:
    """Return the positions at which a comparison of a monotone image with a constant can be true, by binary search."""
    if name == "ne":
        low, high = constant.ends
        outside = [(dimension.low, int(low) - 1), (int(low) + 1, dimension.high)]
        known = exact and dimension.values is None and low == high and low.denominator == 1
        known = (
            known
            and dimension.low <= low <= dimension.high
            and image(dimension.low) == Interval(dimension.low, dimension.low)
        )
        return _normalize_positions(pair for pair in outside if pair[0] <= pair[1]) if known else None
    if dimension.values is not None:
        places = (
            place
            for place in range(dimension.high + 1)
            if _can_hold(name, image(place), constant, exact=False)
        )
        return _normalize_positions((place, place) for place in places)
    first, last = dimension.low, dimension.high
    if name in ("eq", "gt", "ge"):
        over = "ge" if name == "eq" else name
        first = _search_first(lambda place: _CAN[over](image(place), constant), first, last + 1)
    if name in ("eq", "lt", "le"):
        under = "le" if name == "eq" else name
        last = (
            _search_first(lambda place: not _CAN[under](image(place), constant), dimension.low, last + 1) - 1
        )
    return _normalize_positions([(first, last)] if first <= last else [])


def _can_hold(name: str, x: Interval, y: Interval, *, exact: bool) -> bool:
    """Return whether values of two intervals can compare like this; `exact` if each interval holds one value."""
    if name == "eq":
        return _CAN["le"](x, y) and _CAN["ge"](x, y)
    if name == "ne":
        return not (exact and x == y and x.low == x.high)
    return _CAN[name](x, y)


def _is_below(
    low: Fraction | None, high: Fraction | None, less: Callable[[Fraction, Fraction], bool]
) -> bool:
    return low is None or high is None or less(low, high)


def _search_first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first place from `low` on at which something holds that holds at all after it; `high` if none before."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _is_monotone(expr: Expr, column: Column) -> bool:
    if expr == column:
        return column.type.numeric or column.type.temporal
    return (
        isinstance(expr, Call) and expr.function.name in _RISING and _is_monotone(expr.arguments[0], column)
    )


def _is_constant(expr: Expr) -> bool:
    return not any(isinstance(part, (Column, Scalar, ReleasedColumn)) for part in walk(expr))


def _may_be_null(expr: Expr) -> bool:
    return not isinstance(expr, Literal) or is_null(expr)


def _to_moments(around: Interval, own: Type, other: Type) -> Interval:
    """Return an interval of days as an interval of timestamps, for comparisons with timestamps."""
    if own is not Type.DATE or other is not Type.TIMESTAMP:
        return around
    ends = ((end - _DAY_OF_1970) * _DAY if end is not None else None for end in (around.low, around.high))
    return Interval(*ends)


def _combine_any(found: Sequence[Positions | None]) -> Positions | None:
    known = [places for places in found if places is not None]
    return (
        _normalize_positions(pair for places in known for pair in places)
        if len(known) == len(found)
        else None
    )


def _combine_all(found: Sequence[Positions | None]) -> Positions | None:
    known = [places for places in found if places is not None]
    return reduce(_intersect_positions, known) if known else None


def _intersect_positions(some: Positions, others: Positions) -> Positions:
    return _normalize_positions(intersect_ranges(some, others))


def _normalize_positions(pairs: Iterable[tuple[int | None, int | None]]) -> Positions:
    return merge_ranges(pairs)  # type: ignore[return-value]  # no range here reaches beyond the dimension
