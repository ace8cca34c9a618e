"""Which released column a column of an answer is, through the subqueries and unions above the release.

Claim: a cell whose expression is traced to a released column holds that column's value, in the released row
whose ordinal and branch the emitted query gives beside it.
Why: what is traced through, outputs, conditions, orders, limits and UNION ALL, keeps rows as they are or
leaves them out; what puts rows together, as joins, groups and DISTINCT do, has no trace.
Source: Green, Karvounarakis, Tannen 2007, "Provenance semirings", section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpsql.plan.expr import Call, Column, Expr
from dpsql.plan.nodes import Answer, Filter, Post, Project, Relation, Release, SetKind, SetOperation, inputs


@dataclass(frozen=True, slots=True)
class Trace:
    """A branch of a UNION ALL, or the whole: the outputs in terms of the columns of one release."""

    release: Release
    outputs: tuple[Expr, ...]


def traces(post: Post) -> tuple[Trace, ...] | None:
    """The branches that each row of an answer comes from one of; None where rows have no single origin."""
    if post.distinct:
        return None
    exprs = tuple(output.expr for output in post.outputs)
    if isinstance(post.source, Release):
        return (Trace(post.source, exprs),)
    below = _below(post.source)
    if below is None:
        return None
    return tuple(
        Trace(release, tuple(_substituted(expr, known) for expr in exprs)) for release, known in below
    )


def traced(expr: Expr, relation: Relation) -> tuple[tuple[Release, Expr], ...] | None:
    """What an expression over a relation is in terms of each release that its rows come from; None as for `traces`."""
    below = _below(relation)
    return None if below is None else tuple((release, _substituted(expr, known)) for release, known in below)


def branches(relation: Relation) -> int:
    """How many branches the rows of a traced relation come from."""
    return len(_below(relation) or ())


def unfiltered(post: Post) -> bool:
    """Whether each row of the releases is in an answer that has traces."""
    hides = post.having is not None or post.qualify is not None or post.limit is not None or post.offset
    return not hides and (isinstance(post.source, Release) or _unfiltered(post.source))


def _unfiltered(relation: Relation) -> bool:
    match relation:
        case Answer():
            return unfiltered(relation.post)
        case Filter():
            return False
        case _:
            return all(map(_unfiltered, inputs(relation)))


_Branches = tuple[tuple[Release, Mapping[Expr, Expr]], ...]


def _below(relation: Relation) -> _Branches | None:
    """The releases that the rows of a relation come from, with what its columns are there."""
    match relation:
        case Filter():
            return _below(relation.input)
        case Answer():
            found = traces(relation.post)
            if found is None:
                return None
            return tuple(
                (trace.release, dict(zip(relation.columns, trace.outputs, strict=True))) for trace in found
            )
        case Project(distinct=False):
            below = _below(relation.input)
            if below is None:
                return None
            items = list(zip(relation.columns, relation.items, strict=True))
            return tuple(
                (release, {column: _substituted(item, known) for column, item in items})
                for release, known in below
            )
        case SetOperation(kind=SetKind.UNION_ALL):
            branches: _Branches = ()
            for side in (relation.left, relation.right):
                below = _below(side)
                if below is None or not isinstance(side, (Answer, Project, SetOperation)):
                    return None
                pairs = list(zip(relation.columns, side.columns, strict=True))
                branches += tuple(
                    (release, {ours: known[theirs] for ours, theirs in pairs}) for release, known in below
                )
            return branches
        case _:
            return None


def _substituted(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    match expr:
        case Column():
            return known.get(expr, expr)
        case Call():
            return replace(
                expr, arguments=tuple(_substituted(argument, known) for argument in expr.arguments)
            )
        case _:
            return expr
