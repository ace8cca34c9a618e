"""What an aggregate is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.plan.interval import Interval
from dpsql.plan.tags import TaggedEnum
from dpsql.plan.types import Type, Value


class Moment(TaggedEnum):
    """A sum over the rows of a group, from which aggregates are computed.

    ROWS counts rows and UNITS distinct privacy units. COUNT counts the rows whose argument is not
    NULL, TOTAL adds their clamped values up, and DISTINCT counts the values themselves. RANKED is no sum:
    it is a value that has a given share of the others below it.
    """

    ROWS = "rows", "ROWS"
    UNITS = "units", "UNITS"
    COUNT = "count", "COUNT"
    TOTAL = "total", "TOTAL"
    DISTINCT = "distinct", "DISTINCT"
    RANKED = "ranked", "RANKED"

    @property
    def of_argument(self) -> bool:
        """Whether the moment depends on the aggregate's argument."""
        return self not in (Moment.ROWS, Moment.UNITS)


Estimates = Mapping[Moment, Fraction]
"""Estimated moments, TOTAL and RANKED in the argument's own units; dates as their interval counts them."""


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """An entry of the registry.

    `moments` are those that `value` reads. `value` maps estimates and the argument's interval to the
    released value: it is post-processing, so it may do anything. `ratio` says that the value is
    TOTAL over COUNT rather than one moment. `rank` is that of a value in order of size, where the call
    does not say it.
    """

    name: str
    signature: str
    moments: tuple[Moment, ...]
    result_type: Callable[[Type | None], Type | None]
    value: Callable[[Estimates, Interval | None, Type], Value]
    ratio: bool = False
    rank: Fraction | None = None

    def call(self, argument: str, rank: Fraction | None = None, end: int = 0) -> str:
        """The call with an argument, as text, or of an end of its interval.

        >>> from dpsql.aggregates import AGGREGATES
        >>> AGGREGATES["quantile_cont"].call("age", Fraction(9, 10))
        'QUANTILE_CONT(age, 0.9)'
        >>> AGGREGATES["min"].call("age", end=1)
        'DP_INTERVAL_HIGH(MIN(age))'
        """
        texts = {"x": argument, "q": f"{float(rank or 0):g}"}
        called = re.sub(r"\b[xq]\b", lambda found: texts[found.group()], self.signature)
        return f"DP_INTERVAL_{'LOW' if end < 0 else 'HIGH'}({called})" if end else called


def number(estimate: Fraction, kind: Type) -> int | float:
    """An estimate as a value of the column's type; integers are rounded and kept within 64 bits."""
    if kind is Type.INTEGER:
        return max(-(2**63) + 1, min(2**63 - 1, math.floor(estimate + Fraction(1, 2))))
    return nearest(estimate)


def nearest(value: Fraction) -> float:
    """The nearest DOUBLE; beyond the largest it is an infinity, as IEEE 754 rounds. It never raises.

    >>> nearest(Fraction(1, 4)), nearest(Fraction(-(10**400)))
    (0.25, -inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
