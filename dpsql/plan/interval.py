"""Bounds on values: intervals of numbers, dates and times, and sizes of texts."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import ClassVar

from dpsql.plan.types import Type, Value

# Intervals: bounds on a value that hold before any data is read.


End = Fraction | None
_LONG = 2**64
"""Larger ends are shown in short: they may have thousands of digits, or be beyond the largest float."""
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  (SQL timestamps have no zone)


@dataclass(frozen=True, slots=True, init=False)
class Interval:
    """The closed range [low, high] of exact rationals.

    Ends are exact Fractions; None is an end without a bound. Dates count as their ordinal and timestamps as microseconds since
    1970, so that one algebra serves every ordered type. An interval speaks of the values that are not NULL.

    >>> Interval(-2, 5) + Interval(1, None)
    Interval(-1, None)
    """

    tag: ClassVar[str] = "Interval"

    low: End
    high: End

    def __init__(self, low: Fraction | int | None = None, high: Fraction | int | None = None) -> None:
        object.__setattr__(self, "low", None if low is None else Fraction(low))
        object.__setattr__(self, "high", None if high is None else Fraction(high))
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError("the low end of an interval must not be above its high end")

    def __repr__(self) -> str:
        return f"Interval({_format_end(self.low)}, {_format_end(self.high)})"

    def __str__(self) -> str:
        low = "(-∞" if self.low is None else f"[{_format_end(self.low)}"
        high = "∞)" if self.high is None else f"{_format_end(self.high)}]"
        return f"{low}, {high}"

    @property
    def is_bounded(self) -> bool:
        """Return whether both ends are known."""
        return self.low is not None and self.high is not None

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """Both ends of a bounded interval."""
        if self.low is None or self.high is None:
            raise ValueError("both ends of the interval must be bounded")
        return self.low, self.high

    @property
    def magnitude(self) -> Fraction:
        """max(|low|, |high|) of a bounded interval."""
        low, high = self.ends
        return max(abs(low), abs(high))

    def is_within(self, limit: Fraction | int) -> bool:
        """Return whether every value lies in [-limit, limit]."""
        return self.is_bounded and self.magnitude <= limit

    def contains(self, value: Fraction | int) -> bool:
        """Return whether `value` lies in the interval."""
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def __add__(self, other: Interval) -> Interval:
        return Interval(_add_ends(self.low, other.low), _add_ends(self.high, other.high))

    def __neg__(self) -> Interval:
        return Interval(_negate_end(self.high), _negate_end(self.low))

    def __sub__(self, other: Interval) -> Interval:
        return self + (-other)

    def __mul__(self, other: Interval) -> Interval:
        """Return all products. An end without a bound times zero counts as unbounded: inf * 0 is not 0."""
        if not (self.is_bounded and other.is_bounded):
            if self.low is not None and other.low is not None and self.low >= 0 and other.low >= 0:
                return Interval(self.low * other.low, None)
            return Interval()
        products = [a * b for a in self.ends for b in other.ends]
        return Interval(min(products), max(products))

    def __truediv__(self, other: Interval) -> Interval:
        """Return all quotients; unbounded when the divisor may come arbitrarily near zero."""
        low, high = other.low, other.high
        away = (low is not None and low > 0) or (high is not None and high < 0)
        if not away or not self.is_bounded:
            return Interval()
        inverse = [Fraction(0) if end is None else 1 / end for end in (low, high)]
        return self * Interval(min(inverse), max(inverse))

    def __abs__(self) -> Interval:
        if self.low is not None and self.low >= 0:
            return self
        if self.high is not None and self.high <= 0:
            return -self
        high = None if not self.is_bounded else self.magnitude
        return Interval(0, high)

    def map(self, rounded_down: Callable[[Fraction], int], rounded_up: Callable[[Fraction], int]) -> Interval:
        """Return the image under a monotone function, given below for the low end and above for the high."""
        return Interval(
            None if self.low is None else rounded_down(self.low),
            None if self.high is None else rounded_up(self.high),
        )

    def floor(self) -> Interval:
        """Return the image under ⌊·⌋."""
        return self.map(math.floor, math.floor)

    def ceil(self) -> Interval:
        """Return the image under ⌈·⌉."""
        return self.map(math.ceil, math.ceil)

    def round_outward(self) -> Interval:
        """Return the smallest enclosing interval with integer ends: holds under any rounding to integers."""
        return self.map(math.floor, math.ceil)

    def compute_hull(self, other: Interval) -> Interval:
        """Compute the smallest interval around both."""
        return Interval(_take_lesser(self.low, other.low), _take_greater(self.high, other.high))

    def is_part_of(self, other: Interval) -> bool:
        """Return whether all values of the interval lie in another one."""
        return self.compute_hull(other) == other

    def narrow_to(self, other: Interval) -> Interval:
        """Return the intersection, or `self` if it is empty: an empty filter needs no bound."""
        low = other.low if self.low is None else self.low if other.low is None else max(self.low, other.low)
        high = (
            other.high
            if self.high is None
            else self.high
            if other.high is None
            else min(self.high, other.high)
        )
        if low is not None and high is not None and low > high:
            return self
        return Interval(low, high)


ANYWHERE = Interval()
"""The interval without bounds."""


def merge_intervals(intervals: Iterable[Interval]) -> Interval:
    """Return the smallest interval around all of one or more."""
    first, *rest = intervals
    for interval in rest:
        first = first.compute_hull(interval)
    return first


def find_position(value: Value) -> Fraction | None:
    """Return the position of a value on the number line of intervals; None for text and NULL.

    >>> find_position(dt.date(1970, 1, 2)), find_position(True), find_position('a')
    (Fraction(719164, 1), Fraction(1, 1), None)
    """
    if isinstance(value, dt.datetime):
        return Fraction((value - _EPOCH) // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date):
        return Fraction(value.toordinal())
    if isinstance(value, (bool, int)):
        return Fraction(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(value)
    return None


def get_date_at(day: Fraction) -> dt.date:
    """Return the date at a position, rounded down to its day."""
    return dt.date.fromordinal(math.floor(day))


def get_timestamp_at(microseconds: Fraction) -> dt.datetime:
    """Return the timestamp at a position, rounded down to its microsecond."""
    return _EPOCH + dt.timedelta(microseconds=math.floor(microseconds))


def get_time_at(microseconds: Fraction) -> dt.time:
    """Return the time of day at a position within `DAY`, rounded down to its microsecond."""
    return (_EPOCH + dt.timedelta(microseconds=math.floor(microseconds))).time()


def get_value_at(position: End, kind: Type) -> Value:
    """Return the value of a type at a position; None without a position, and where the type has no values on the number line.

    >>> get_value_at(Fraction(3), Type.INTEGER), get_value_at(Fraction(719163), Type.DATE), get_value_at(None, Type.DOUBLE)
    (3, datetime.date(1970, 1, 1), None)
    """
    if position is None:
        return None
    try:
        return _VALUES[kind](position) if kind in _VALUES else None
    except (ValueError, OverflowError):  # before the year 1, after 9999, or beyond all numbers
        return None


def format_interval(values: Interval, kind: Type) -> str:
    """Return an interval of values of a type in words: the ends of dates and times are dates and times.

    >>> format_interval(Interval(719163, 719164), Type.DATE), format_interval(Interval(0, None), Type.DOUBLE)
    ('[1970-01-01, 1970-01-02]', '[0, ∞)')
    """
    point = _POINTS.get(kind)
    try:
        ends = [
            None if end is None or point is None else f"{point(end)}" for end in (values.low, values.high)
        ]
    except (ValueError, OverflowError):  # before the year 1, or after 9999
        return str(values)
    low, high = f"{values}".split(", ")
    return f"{low if ends[0] is None else f'[{ends[0]}'}, {high if ends[1] is None else f'{ends[1]}]'}"


_POINTS: Mapping[Type, Callable[[Fraction], object]] = {
    Type.DATE: get_date_at,
    Type.TIMESTAMP: get_timestamp_at,
    Type.TIME: get_time_at,
}
"""The value at a position, for each type that is not numeric."""
_VALUES: Mapping[Type, Callable[[Fraction], Value]] = {
    Type.INTEGER: math.floor,
    Type.DOUBLE: float,
    Type.DATE: get_date_at,
    Type.TIMESTAMP: get_timestamp_at,
    Type.TIME: get_time_at,
}
DAY = Interval(Fraction(0), Fraction(24 * 60 * 60 * 10**6 - 1))
"""The positions of times of day, in microseconds after midnight."""


def _add_ends(a: End, b: End) -> End:
    return None if a is None or b is None else a + b


def _negate_end(a: End) -> End:
    return None if a is None else -a


def _take_lesser(a: End, b: End) -> End:
    return None if a is None or b is None else min(a, b)


def _take_greater(a: End, b: End) -> End:
    return None if a is None or b is None else max(a, b)


def _format_end(end: End) -> str:
    if end is None:
        return "None"
    if abs(end) > _LONG:
        rounded = Context(prec=6).divide(Decimal(end.numerator), Decimal(end.denominator))
        return f"{rounded.normalize():g}"
    return str(end.numerator) if end.denominator == 1 else f"{float(end):g}"


# Bounds on the bytes of a text of one row, relative to its stored texts and absolute.


MOST_STORED = 2**20
"""Longer stored texts and blobs are read as NULL, so that no row can make a computation fail."""


@dataclass(frozen=True, slots=True)
class TextSize:
    """A bound on the bytes of a text.

    Claim: a text within a `TextSize` has at most `share` times the bytes of the longest stored text of its row and `extra_bytes`
    bytes more, and at most `max_bytes` bytes, whatever the row holds.
    Why: every engine reads a stored text of more than `MOST_STORED` bytes as NULL, constants have their lengths, and each function
    says by a rule of these bounds how long its text can be.
    Source: the definitions.

    >>> STORED.multiply_by(3) + make_constant_size(10)
    TextSize(share=Fraction(3, 1), extra_bytes=10, max_bytes=3145738)
    >>> STORED.truncate_to(400).max_bytes
    400
    """

    share: Fraction
    extra_bytes: int
    max_bytes: int

    def __add__(self, other: TextSize) -> TextSize:
        """Bound the concatenation of two texts."""
        return TextSize(
            self.share + other.share, self.extra_bytes + other.extra_bytes, self.max_bytes + other.max_bytes
        )

    def __or__(self, other: TextSize) -> TextSize:
        """Bound either of two texts."""
        return TextSize(
            max(self.share, other.share),
            max(self.extra_bytes, other.extra_bytes),
            max(self.max_bytes, other.max_bytes),
        )

    def multiply_by(self, factor: Fraction | int) -> TextSize:
        """Bound a text that is at most `factor` times as long."""
        return TextSize(
            self.share * factor, _round_up(self.extra_bytes * factor), _round_up(self.max_bytes * factor)
        )

    def truncate_to(self, size: int) -> TextSize:
        """Bound the text after a cut to `size` bytes."""
        return TextSize(self.share, self.extra_bytes, min(self.max_bytes, size))


def make_constant_size(size: int) -> TextSize:
    """Bound a text that has at most `size` bytes on every row."""
    return TextSize(Fraction(0), size, size)


def _round_up(size: Fraction | int) -> int:
    return -int(-size // 1)


NO_TEXT = make_constant_size(0)
STORED = TextSize(Fraction(1), 0, MOST_STORED)
