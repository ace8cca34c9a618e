"""Provenance of results: which released columns each output is computed from, through subqueries and UNION ALL.

Claim: a result cell whose expression is traced to a released column holds that column's value in the released row
whose ordinal and branch the emitted query returns.
Why: provenance passes through outputs, conditions, orders, limits and UNION ALL, which keep a row unchanged or drop it, and
through a LEFT JOIN with groups of public rows on all keys of these groups, which keeps each row once. Operators that
combine rows otherwise (joins, groups, DISTINCT) have no provenance.
Source: Green, Karvounarakis, Tannen 2007, "Provenance semirings", section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpsql.plan.expr import Expr, replaced
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetKind,
    SetOperation,
    inputs,
    is_answered,
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """One branch of a UNION ALL, or the whole query: its outputs as expressions over the columns of one release."""

    release: Release
    outputs: tuple[Expr, ...]


def provenance(outer: OuterQuery) -> tuple[Provenance, ...] | None:
    """The branches of a query, each row of which comes from one branch; None if rows have no single origin."""
    if outer.distinct:
        return None
    exprs = tuple(output.expr for output in outer.outputs)
    if isinstance(outer.source, Release):
        return (Provenance(outer.source, exprs),)
    below = _below(outer.source)
    if below is None:
        return None
    return tuple(
        Provenance(release, tuple(replaced(expr, known) for expr in exprs)) for release, known in below
    )


def traced(expr: Expr, relation: Relation) -> tuple[tuple[Release, Expr], ...] | None:
    """An expression over a relation, for each release that the rows come from; None as for `provenance`."""
    below = _below(relation)
    return None if below is None else tuple((release, replaced(expr, known)) for release, known in below)


def branches(relation: Relation) -> int:
    """The number of branches of a relation with provenance."""
    return len(_below(relation) or ())


def unfiltered(outer: OuterQuery) -> bool:
    """Whether a query with provenance returns every row of its releases."""
    hides = outer.having is not None or outer.qualify is not None or outer.limit is not None or outer.offset
    return not hides and (isinstance(outer.source, Release) or _unfiltered(outer.source))


def _unfiltered(relation: Relation) -> bool:
    match relation:
        case PublicSubquery():
            return unfiltered(relation.outer)
        case Filter():
            return False
        case _:
            return all(map(_unfiltered, inputs(relation)))


_Branches = tuple[tuple[Release, Mapping[Expr, Expr]], ...]


def _below(relation: Relation) -> _Branches | None:
    """The releases that the rows of a relation come from, each with the relation's columns as expressions over it."""
    match relation:
        case Filter():
            return _below(relation.input)
        case PublicSubquery():
            found = provenance(relation.outer)
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
                (release, {column: replaced(item, known) for column, item in items})
                for release, known in below
            )
        case SetOperation(kind=SetKind.UNION_ALL):
            branches: _Branches = ()
            for side in (relation.left, relation.right):
                below = _below(side)
                if below is None or not isinstance(side, (PublicSubquery, Project, SetOperation)):
                    return None
                pairs = list(zip(relation.columns, side.columns, strict=True))
                branches += tuple(
                    (release, {ours: known[theirs] for ours, theirs in pairs}) for release, known in below
                )
            return branches
        case Join(kind=JoinKind.LEFT, left=left) if _finds_one_row(relation):
            return _below(left)
        case _:
            return None


def _finds_one_row(join: Join) -> bool:
    """Whether a row finds at most one row of the right side, whatever is released, and reads no release there."""
    right = join.right
    if not isinstance(right, PerUnitGroupBy) or is_answered(right):
        return False
    return {column for _, column in join.on} >= set(right.columns[: len(right.keys)])
