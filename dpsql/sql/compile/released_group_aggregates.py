"""Decide whether an aggregate over released groups excludes empty groups."""

from __future__ import annotations

from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.plan.expressions import Expr, ReleasedColumn
from dpsql.plan.nodes import PerUnitGroupBy, Release
from dpsql.plan.provenance import trace_expression

_ADD_UP = frozenset({Moment.ROWS, Moment.UNITS, Moment.COUNT, Moment.DISTINCT, Moment.TOTAL})


def needs_occupied_groups(source: PerUnitGroupBy) -> bool:
    """Return whether an empty group would change the result: it does not where released counts and sums are only added up.

    To these it adds nothing but noise, which is zero on average, and who is in a small group would be lost.
    """
    return not all(
        item.function == "sum" and item.argument is not None and _is_additive(item.argument, source)
        for item in source.aggregates
    )


def _is_additive(expr: Expr, source: PerUnitGroupBy) -> bool:
    found = trace_expression(expr, source.input)
    return found is not None and all(_is_count_or_sum(origin, release) for release, origin in found)


def _is_count_or_sum(expr: Expr, release: Release) -> bool:
    """Return whether an expression is a released count or sum."""
    name = expr.name if isinstance(expr, ReleasedColumn) else None
    named = (item for item in release.aggregations if item.name == name)
    return any(
        len(moments) == 1 and set(moments) <= _ADD_UP
        for moments in (AGGREGATES[item.function].moments for item in named)
    )
