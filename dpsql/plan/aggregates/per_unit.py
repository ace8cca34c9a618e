"""Exact aggregates over the rows of one group of one privacy unit, below the release boundary.

Claim: the value depends on these rows alone, whatever their order and whatever other rows there are,
and lies in the interval, to which the engine clamps it.
Why: counts and sums are of integers, real values being added up on their lattice; the least, the
greatest and the two in the middle are some rows', and of several rows that are best by y the one that is shown is least or greatest by x.
Source: Mironov 2012, "On significance of the least significant bits for differential privacy".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from dpsql.plan.interval import Interval
from dpsql.plan.types import Type

_MIDDLE = Fraction(1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class ExactAggregate:
    """An entry of the registry `WITHIN`.

    `result` gives the type for the (first) argument's, or None where it refuses that. `interval` maps the
    argument's interval and the most rows of a group to the value's. `sql` is a template over the
    argument; `is_sum` says that it sums values up, which for real ones takes bounds, and `nullable` that
    it is NULL where there is no value. `takes_order_value` says that it takes a second argument y, by which a row is chosen.
    `keeps_scale` says that its result for DECIMAL values is a DECIMAL with as many digits after the point, and `takes_rank` that
    it takes the share of the values below it, {q} in the template.
    """

    name: str
    signature: str
    result: Callable[[Type | None], Type | None]
    interval: Callable[[Interval, int], Interval]
    sql: str
    is_sum: bool = False
    nullable: bool = True
    takes_order_value: bool = False
    keeps_scale: bool = False
    takes_rank: bool = False

    def emit_sql(self, *arguments: str, rank: Fraction | None = None) -> str:
        """Return the SQL over these arguments; `rank` is the share of values below a quantile."""
        return self.sql.format(*arguments, q=repr(float(_MIDDLE if rank is None else rank)))

    def format_call(self, *arguments: str, rank: Fraction | None = None) -> str:
        """Return the call with these arguments, as a user writes it.

        >>> WITHIN["arg_max"].format_call("plan", "n")
        'ARG_MAX(plan, n)'
        """
        names = dict(zip("xy", arguments, strict=False)) | {
            "q": f"{float(_MIDDLE if rank is None else rank):g}"
        }
        return re.sub(r"\b[xyq]\b", lambda found: names.get(found[0], found[0]), self.signature)


def _infer_integer_type(_: Type | None) -> Type:
    return Type.INTEGER


def _derive_count_interval(_: Interval, rows: int) -> Interval:
    return Interval(0, rows)


def _derive_sum_interval(each: Interval, rows: int) -> Interval:
    low = None if each.low is None else min(each.low, each.low * rows)
    high = None if each.high is None else max(each.high, each.high * rows)
    return Interval(low, high)


def _derive_value_interval(each: Interval, _: int) -> Interval:
    return each


def _infer_ordered_type(kind: Type | None) -> Type | None:
    return None if kind is Type.NULL else kind


def _infer_numeric_type(kind: Type | None) -> Type | None:
    return kind if kind is not None and kind.numeric else None


def _infer_double_type(kind: Type | None) -> Type | None:
    return Type.DOUBLE if kind is not None and kind.numeric else None


_ENTRIES = (
    ExactAggregate(
        "count_rows", "COUNT(*)", _infer_integer_type, _derive_count_interval, "COUNT(*)", nullable=False
    ),
    ExactAggregate(
        "count", "COUNT(x)", _infer_integer_type, _derive_count_interval, "COUNT({0})", nullable=False
    ),
    ExactAggregate(
        "count_distinct",
        "COUNT(DISTINCT x)",
        _infer_integer_type,
        _derive_count_interval,
        "COUNT(DISTINCT {0})",
        nullable=False,
    ),
    ExactAggregate(
        "sum", "SUM(x)", _infer_numeric_type, _derive_sum_interval, "SUM({0})", is_sum=True, keeps_scale=True
    ),
    ExactAggregate(
        "avg", "AVG(x)", _infer_double_type, _derive_value_interval, "SUM({0}) / COUNT({0})", is_sum=True
    ),
    ExactAggregate(
        "sum_distinct",
        "SUM(DISTINCT x)",
        _infer_numeric_type,
        _derive_sum_interval,
        "SUM(DISTINCT {0})",
        is_sum=True,
        keeps_scale=True,
    ),
    ExactAggregate(
        "avg_distinct",
        "AVG(DISTINCT x)",
        _infer_double_type,
        _derive_value_interval,
        "SUM(DISTINCT {0}) / COUNT(DISTINCT {0})",
        is_sum=True,
    ),
    ExactAggregate(
        "min", "MIN(x)", _infer_ordered_type, _derive_value_interval, "MIN({0})", keeps_scale=True
    ),
    ExactAggregate(
        "max", "MAX(x)", _infer_ordered_type, _derive_value_interval, "MAX({0})", keeps_scale=True
    ),
    ExactAggregate(
        "quantile_cont",
        "QUANTILE_CONT(x, q)",
        _infer_double_type,
        _derive_value_interval,
        "QUANTILE_CONT({0}, {q})",
        takes_rank=True,
    ),
    ExactAggregate(
        "quantile_disc",
        "QUANTILE_DISC(x, q)",
        _infer_ordered_type,
        _derive_value_interval,
        "QUANTILE_DISC({0}, {q})",
        keeps_scale=True,
        takes_rank=True,
    ),
    ExactAggregate("median", "MEDIAN(x)", _infer_double_type, _derive_value_interval, "MEDIAN({0})"),
    *(
        ExactAggregate(
            name,
            f"{name.upper()}(x, y)",
            _infer_ordered_type,
            _derive_value_interval,
            f"{name.upper()}({{0}}, ROW({{1}}, {{0}})) FILTER (WHERE {{1}} IS NOT NULL)",
            takes_order_value=True,
            keeps_scale=True,
        )
        for name in ("arg_min", "arg_max")
    ),
)

WITHIN = MappingProxyType({entry.name: entry for entry in _ENTRIES})
