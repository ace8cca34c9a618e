"""ORDER BY an aggregate LIMIT n, if only keys are selected: the best groups are selected, and no aggregate is released."""

from __future__ import annotations

from dataclasses import replace

from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.expressions import Expr, ReleasedColumn, walk
from dpsql.plan.nodes import OuterQuery, Release, TopK
from dpsql.planning.group_selection import SCORES

MOST = 100
"""The most groups that are selected one by one."""


def rewrite_as_top_k(outer: OuterQuery) -> OuterQuery | None:
    """Return the query with its best groups selected, if that is all it asks for; None for any other.

    The statement outputs only keys, and orders by one aggregate that is a sum over units. Its groups must be public.
    """
    if not isinstance(outer.source, Release):
        return None
    release = outer.source
    if len(release.aggregations) != 1 or not release.keys or len(outer.order) != 1 or not outer.limit:
        return None
    (item,), (order,) = release.aggregations, outer.order
    ordered = order.expr == ReleasedColumn(item.name, item.type)
    further = outer.having or outer.qualify or outer.offset or outer.distinct or outer.limit > MOST
    if not ordered or further or any(_reads_statistic(output.expr, item.name) for output in outer.outputs):
        return None
    if not SCORES.issuperset(AGGREGATES[item.function].moments) or len(AGGREGATES[item.function].moments) > 1:
        return None
    top = TopK(outer.limit, order.descending)
    return replace(outer, source=replace(release, top=top), order=())


def _reads_statistic(expr: Expr, name: str) -> bool:
    return any(isinstance(part, ReleasedColumn) and part.name == name for part in walk(expr))
