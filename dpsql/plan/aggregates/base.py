"""The parts of an aggregate: its statistic, its arguments and its result type."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import NamedTuple

from dpsql.plan.interval import Interval, get_time_at, get_timestamp_at
from dpsql.plan.types import TaggedEnum, Type, Value

_MOST = 2**63 - 1


class Moment(TaggedEnum):
    """A sum over the rows of a group, from which aggregates are computed.

    ROWS counts rows and UNITS distinct privacy units. COUNT counts the rows whose argument is not
    NULL, TOTAL adds their clamped values up, DISTINCT counts the values themselves and
    DISTINCT_TOTAL adds these up. ORDER_STATISTIC is not a sum, but a value that has a given share of the others below it.
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
        """Return whether the moment adds up values, in steps of the argument's lattice."""
        return self in (Moment.TOTAL, Moment.DISTINCT_TOTAL)

    @property
    def depends_on_argument(self) -> bool:
        """Return whether the moment depends on the aggregate's argument."""
        return self not in (Moment.ROWS, Moment.UNITS)


Estimates = Mapping[Moment, Fraction]
"""Estimated moments, TOTAL and ORDER_STATISTIC in the argument's own units; dates as their interval counts them."""


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
        """Return whether the released value lies in the interval of the argument, as a quantile or an average does."""
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


# The aggregates of a release: counts, sums, means and quantiles, each with the moments that it needs.


def _compute_mean(estimates: Estimates, interval: Interval | None, _: Type) -> Value:
    count = estimates[Moment.COUNT]
    if count <= 0:
        return None
    low, high = (interval or Interval()).ends
    return float(min(high, max(low, estimates[Moment.TOTAL] / count)))


def _compute_column(series: Sequence[EstimateSeries], interval: Interval | None, _: Type) -> list[Value]:
    """Return the SQL like `_compute_value`; rounding to a DOUBLE keeps the order, so it may come before the interval's ends."""
    (totals, parts), (counts, shares) = series
    low, high = map(float, (interval or Interval()).ends)
    return [
        min(high, max(low, divide_to_double(total * shares, count * parts))) if count > 0 else None
        for total, count in zip(totals, counts, strict=True)
    ]


AVG = Aggregate(
    "avg",
    "AVG(x)",
    (Moment.TOTAL, Moment.COUNT),
    lambda argument: Type.DOUBLE if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_mean,
    ratio=True,
    compute_column=_compute_column,
)
"""The mean of x clamped to its interval; NULL where no row is estimated to be.

Claim: it is a function of TOTAL and COUNT, which together cost what one of them costs: with
y = (x-L)/(U-L), the pair of sums of y and 1-y has l1 sensitivity 1.
Why: y and 1-y are not negative and add up to one in each row.
Source: Kulesza, Suresh, Wang 2024, "Mean estimation in the add-remove model of differential privacy".
"""


def _compute_count(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.COUNT], kind)


COUNT = Aggregate(
    "count",
    "COUNT(x)",
    (Moment.COUNT,),
    lambda argument: None if argument is None else Type.INTEGER,
    _compute_count,
    compute_column=to_values,
)
"""The number of rows in which x is not NULL. NaN counts as NULL.

Claim: one privacy unit moves it by at most the number of its rows that count.
Why: each row counts one or nothing.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""


def _compute_distinct_count(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.DISTINCT], kind)


COUNT_DISTINCT = Aggregate(
    "count_distinct",
    "COUNT(DISTINCT x)",
    (Moment.DISTINCT,),
    lambda argument: None if argument in (None, Type.NULL) else Type.INTEGER,
    _compute_distinct_count,
    compute_column=to_values,
)
"""The number of values of x, NULL and NaN left out.

Claim: one privacy unit moves it, in all groups together, by at most the number of its rows that count.
Why: so many pairs of a group and a value of each unit count, chosen by the unit's own rows; the values of
a group are the union over units, which one more unit enlarges by no more than what it brings.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union); Knop, Steinke 2023, "Counting
distinct elements under person-level differential privacy", section 1.
"""


def _compute_row_count(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.ROWS], kind)


COUNT_ROWS = Aggregate(
    "count_rows",
    "COUNT(*)",
    (Moment.ROWS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _compute_row_count,
    compute_column=to_values,
)
"""The number of rows.

Claim: one privacy unit moves it by at most the number of its rows that count.
Why: each row counts one.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""


def _compute_unit_count(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.UNITS], kind)


COUNT_UNITS = Aggregate(
    "count_units",
    "COUNT(DISTINCT unit)",
    (Moment.UNITS,),
    lambda argument: Type.INTEGER if argument is None else None,
    _compute_unit_count,
    compute_column=to_values,
)
"""The number of distinct privacy units.

Claim: one privacy unit moves each group's count by at most one, and only the groups in which it counts.
Why: it is one element of a set.
Source: Dwork, McSherry, Nissim, Smith 2006, Example 1.
"""


def _compute_sum(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.TOTAL], kind)


SUM = Aggregate(
    "sum",
    "SUM(x)",
    (Moment.TOTAL,),
    lambda argument: argument if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_sum,
    compute_column=to_values,
    keeps_scale=True,
)
"""The total of x clamped to its interval, NULL and NaN left out; 0 over no rows.

Claim: one row of x in [L, U] moves it by at most max(|L|, |U|).
Why: the row contributes one clamped value.
Source: Dwork, McSherry, Nissim, Smith 2006, Definition 3.
"""


def _compute_distinct_sum(estimates: Estimates, _: Interval | None, kind: Type) -> Value:
    return to_value(estimates[Moment.DISTINCT_TOTAL], kind)


SUM_DISTINCT = Aggregate(
    "sum_distinct",
    "SUM(DISTINCT x)",
    (Moment.DISTINCT_TOTAL,),
    lambda argument: argument if argument in (Type.INTEGER, Type.DOUBLE) else None,
    _compute_distinct_sum,
    compute_column=to_values,
    keeps_scale=True,
)
"""The total of the values of x in [L, U], each once; NULL and NaN left out.

Claim: one privacy unit moves it, in all groups together, by at most max(|L|, |U|) times the number of its pairs of a group
and a value that count.
Why: the values of a group are the union over units; one more unit adds to it those that no other has, each of which
adds itself to the total.
Source: McSherry 2009, "Privacy integrated queries", section 3.2 (union); Dwork, McSherry, Nissim, Smith 2006, Definition 3.
"""


def _compute_quantile(estimates: Estimates, interval: Interval | None, kind: Type) -> Value:
    low, high = (interval or Interval()).ends
    found = min(high, max(low, estimates[Moment.ORDER_STATISTIC]))
    if kind is Type.DATE:
        return dt.date.fromordinal(floor(found))
    if kind is Type.TIME:
        return get_time_at(found)
    return get_timestamp_at(found) if kind is Type.TIMESTAMP else to_value(found, kind)


def _define_order_statistic(
    name: str, signature: str, *, between: bool, rank: Fraction | None = None
) -> Aggregate:
    def infer_result_type(argument: Type | None) -> Type | None:
        if argument is None or not (argument.numeric or argument.temporal or argument is Type.TIME):
            return None
        # As in DuckDB, what lies between whole numbers is none.
        return Type.DOUBLE if between and argument.numeric else argument

    return Aggregate(
        name,
        signature,
        (Moment.ORDER_STATISTIC,),
        infer_result_type,
        _compute_quantile,
        rank=rank,
        keeps_scale=True,
    )


ORDER_STATISTICS = (
    _define_order_statistic("min", "MIN(x)", between=False, rank=Fraction(0)),
    _define_order_statistic("max", "MAX(x)", between=False, rank=Fraction(1)),
    _define_order_statistic("median", "MEDIAN(x)", between=True, rank=Fraction(1, 2)),
    _define_order_statistic("quantile_cont", "QUANTILE_CONT(x, q)", between=True),
    _define_order_statistic("quantile_disc", "QUANTILE_DISC(x, q)", between=False),
)
"""The value of x that a share q of the values lie below: within the interval of x, whatever the rows are.

Claim: it is a choice of bounded range, as `planning.quantiles` derives it.
Why: the points of the interval are the candidates, and how far a point is from the rank is its penalty,
which one row changes by one step or none.
Source: McSherry, Talwar 2007, section 3; Smith 2011, "Privacy-preserving statistical estimation with
optimal convergence rates", Algorithm 2.
"""
