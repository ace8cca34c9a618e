"""ORDER BY an aggregate LIMIT n, where keys alone are shown: the best groups are chosen, and no aggregate released."""

from __future__ import annotations

from dataclasses import replace

from dpsql.aggregates import AGGREGATES
from dpsql.analysis.analyse import analyse
from dpsql.analysis.stability import PublicFacts
from dpsql.plan.expr import Expr, Released, walk
from dpsql.plan.nodes import OuterQuery, Release, TopK
from dpsql.planning.top_k import SCORES

MOST = 100
"""More groups than this are not chosen one by one."""


def chosen(post: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """The query with its best groups chosen, where that is all it asks for; else as it is.

    It has public keys, shows nothing but them, and orders by one aggregate that is a sum over units.
    """
    if not isinstance(post.source, Release):
        return post
    release = post.source
    if len(release.aggregations) != 1 or not release.keys or len(post.order) != 1 or not post.limit:
        return post
    (item,), (order,) = release.aggregations, post.order
    ordered = order.expr == Released(item.name, item.type)
    further = post.having or post.qualify or post.offset or post.distinct or post.limit > MOST
    if not ordered or further or any(_reads(output.expr, item.name) for output in post.outputs):
        return post
    if not SCORES.issuperset(AGGREGATES[item.function].moments) or len(AGGREGATES[item.function].moments) > 1:
        return post
    analysis = analyse(release, facts, replace=False)
    if analysis.domains is None or analysis.selects:
        return post
    top = TopK(post.limit, order.descending)
    return replace(post, source=replace(release, top=top), order=())


def _reads(expr: Expr, name: str) -> bool:
    return any(isinstance(part, Released) and part.name == name for part in walk(expr))
