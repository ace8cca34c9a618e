"""ORDER BY an aggregate LIMIT n, where keys alone are shown: the best groups are chosen, and no aggregate released.

ARG_MAX(k, n) and ARG_MIN(k, n) over groups of which a statement asks nothing else are such a query.
"""

from __future__ import annotations

from dataclasses import replace

from dpsql.aggregates import AGGREGATES
from dpsql.analysis.analyse import analyse
from dpsql.analysis.stability import PublicFacts
from dpsql.functions import call
from dpsql.plan.expr import Column, Expr, Order, Released, Scalar, substituted, walk
from dpsql.plan.nodes import OuterQuery, Output, PerUnitAggregate, PerUnitGroupBy, Relation, Release, TopK
from dpsql.plan.provenance import provenance, unfiltered
from dpsql.planning.top_k import SCORES
from dpsql.sql.lower.joins import filtered

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


def best(post: OuterQuery, nothing: Relation, facts: PublicFacts) -> OuterQuery:
    """A statement that is one ARG_MAX or ARG_MIN of released groups, with the group chosen; else as it is.

    Claim: without noise it gives what the statement gives, a key of the groups that are best by n.
    Why: ARG_MAX(k, n) passes over groups without a key, and n is that of a group; the first of the others by n is
    the one that it takes. All that the statement asks of the release is read here, so nothing has to agree with
    it, and its further aggregates are not asked for.
    Source: Dwork, Roth 2014, Theorem 3.10 (exponential mechanism).

    `nothing` is one row without columns, of which the statement then is.
    """
    groups = post.source
    if not isinstance(groups, PerUnitGroupBy) or groups.keys or len(groups.aggregates) != 1 or _further(post):
        return post
    (item,), (column,) = groups.aggregates, groups.columns
    read = _read(item, groups.input)
    if read is None:
        return post
    release, key, score = read
    place = [known.name for known in release.keys].index(key.name)
    missing = call("is_null", release.keys[place].expr)
    there = None if missing is None else call("not", missing)
    if there is None:
        return post
    release = replace(
        release,
        input=filtered(release.input, [there]),
        aggregations=tuple(known for known in release.aggregations if known.name == score.name),
    )
    order = Order(score, descending=item.function == "arg_max", nulls_first=False)
    found = chosen(OuterQuery(release, (Output("best", key),), order=(order,), limit=1), facts)
    if (
        found.release.top is None
        or None in (analyse(found.release, facts, replace=False).domains or ())[place]
    ):
        return post
    value: dict[Column, Expr] = {column: Scalar(found, key.type)}
    outputs = (Output(output.name, substituted(output.expr, value)) for output in post.outputs)
    return replace(post, source=nothing, outputs=tuple(outputs))


def _further(post: OuterQuery) -> bool:
    """Whether a statement asks for more than the outputs of its one row, or for other subqueries in them."""
    other = any(isinstance(part, Scalar) for output in post.outputs for part in walk(output.expr))
    return other or any((post.having, post.qualify, post.order, post.limit is not None, post.offset))


def _read(item: PerUnitAggregate, source: Relation) -> tuple[Release, Released, Released] | None:
    """The release whose every group an ARG_MAX or ARG_MIN looks at, the key that it shows, and what it goes by."""
    if item.argument is None or item.order_by is None:
        return None
    asked = OuterQuery(source, (Output("key", item.argument), Output("score", item.order_by)))
    found = provenance(asked) or ()
    if len(found) != 1 or not unfiltered(asked):
        return None
    (trace,) = found
    key, score = trace.outputs
    if not isinstance(key, Released) or not isinstance(score, Released):
        return None
    if key.name not in {known.name for known in trace.release.keys}:
        return None
    return trace.release, key, score
