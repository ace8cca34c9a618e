"""The parts of an aggregate: its statistic, its arguments and its result type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.plan.interval import Interval
from dpsql.plan.tags import TaggedEnum
from dpsql.plan.types import Type, Value

_MOST = 2**63 - 1


class Moment(TaggedEnum):
    """A sum over the rows of a group, from which aggregates are computed.

    ROWS counts rows and UNITS distinct privacy units. COUNT counts the rows whose argument is not
    NULL, TOTAL adds their clamped values up, DISTINCT counts the values themselves and
    DISTINCT_TOTAL adds these up. RANKED is no sum: it is a value that has a given share of the others below it.
    """

    ROWS = "rows", "ROWS"
    UNITS = "units", "UNITS"
    COUNT = "count", "COUNT"
    TOTAL = "total", "TOTAL"
    DISTINCT = "distinct", "DISTINCT"
    ORDER_STATISTIC = "ranked", "RANKED"
    DISTINCT_TOTAL = "distinct_total", "DISTINCT_TOTAL"

    @property
    def is_sum_of_values(self) -> bool:
        """Whether the moment adds up values, in steps of the argument's lattice."""
        return self in (Moment.TOTAL, Moment.DISTINCT_TOTAL)

    @property
    def depends_on_argument(self) -> bool:
        """Whether the moment depends on the aggregate's argument."""
        return self not in (Moment.ROWS, Moment.UNITS)


Estimates = Mapping[Moment, Fraction]
"""Estimated moments, TOTAL and RANKED in the argument's own units; dates as their interval counts them."""


class EstimateSeries(NamedTuple):
    """The estimates of one moment in all groups: whole numbers over a common denominator above zero."""

    numerators: Sequence[int]
    denominator: int


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """An entry of the registry.

    `moments` are those that `compute_value` reads. `compute_value` maps estimates and the argument's interval to the
    released value: it is post-processing, so it may do anything. `compute_column` makes the same values of many groups at once;
    None where they are made one by one. `ratio` says that the value is
    TOTAL over COUNT rather than one moment. `rank` is that of a value in order of size, where the call
    does not say it. `keeps_scale` says that of DECIMAL values it is a DECIMAL with as many digits after the point.
    """

    name: str
    signature: str
    moments: tuple[Moment, ...]
    result_type: Callable[[Type | None], Type | None]
    compute_value: Callable[[Estimates, Interval | None, Type], Value]
    ratio: bool = False
    rank: Fraction | None = None
    compute_column: Callable[[Sequence[EstimateSeries], Interval | None, Type], list[Value]] | None = None
    keeps_scale: bool = False

    @property
    def within_argument(self) -> bool:
        """Whether the released value lies in the interval of the argument, as a quantile or an average does."""
        return self.ratio or self.moments == (Moment.ORDER_STATISTIC,)

    def format_call(self, argument: str, rank: Fraction | None = None, end: int = 0) -> str:
        """Return the call with an argument, as text, or of an end of its interval.

        >>> from dpsql.plan.aggregates import AGGREGATES
        >>> AGGREGATES["quantile_cont"].format_call("age", Fraction(9, 10))
        'QUANTILE_CONT(age, 0.9)'
        >>> AGGREGATES["min"].format_call("age", end=1)
        'DP_INTERVAL_HIGH(MIN(age))'
        """
        texts = {"x": argument, "q": f"{float(rank or 0):g}"}
        called = re.sub(r"\b[xq]\b", lambda found: texts[found.group()], self.signature)
        return f"DP_INTERVAL_{'LOW' if end < 0 else 'HIGH'}({called})" if end else called


def to_value(estimate: Fraction, kind: Type) -> int | float:
    """Return an estimate as a value of the column's type; integers are rounded and kept within 64 bits."""
    if kind is Type.INTEGER:
        return max(-_MOST, min(_MOST, math.floor(estimate + Fraction(1, 2))))
    return round_to_double(estimate)


def to_values(series: Sequence[EstimateSeries], _: Interval | None, kind: Type) -> list[Value]:
    """Return the one moment of each group as `to_value` makes a value of it.

    >>> to_values([EstimateSeries([7, -7], 2)], None, Type.INTEGER), to_values([EstimateSeries([7, -7], 2)], None, Type.DOUBLE)
    ([4, -3], [3.5, -3.5])
    """
    ((numerators, denominator),) = series
    if kind is Type.INTEGER:
        if denominator == 1 and max(map(abs, numerators), default=0) < _MOST:
            return list(numerators)
        whole = 2 * denominator
        return [max(-_MOST, min(_MOST, (2 * each + denominator) // whole)) for each in numerators]
    return [divide_to_double(each, denominator) for each in numerators]


def divide_to_double(numerator: int, denominator: int) -> float:
    """Return the nearest DOUBLE to a quotient of whole numbers, as `round_to_double` has it; the denominator is above zero."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def round_to_double(value: Fraction) -> float:
    """Return the nearest DOUBLE, or an infinity beyond the largest, as IEEE 754 rounds; it never raises.

    >>> round_to_double(Fraction(1, 4)), round_to_double(Fraction(-(10**400)))
    (0.25, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
