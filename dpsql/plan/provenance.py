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
from dataclasses import dataclass, replace

from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    ReleasedColumn,
    Scalar,
    has_window,
    is_null,
    replace_parts,
    walk,
)
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SetKind,
    SetOperation,
    Source,
    Values,
    find_place,
    has_public_subquery,
    iterate_sources,
    list_inputs,
)
from dpsql.plan.steps import list_releases
from dpsql.plan.tables import Scan


@dataclass(frozen=True, slots=True)
class Provenance:
    """One branch of a UNION ALL, or the whole query: its outputs as expressions over the columns of one release.

    `order` are the expressions that order its rows, and `filters` those that decide which rows are kept.
    """

    release: Release
    outputs: tuple[Expr, ...]
    order: tuple[Expr, ...] = ()
    filters: tuple[Expr, ...] = ()


def find_provenance(outer: OuterQuery) -> tuple[Provenance, ...] | None:
    """Return the branches of a query, where each row comes from one branch; None if rows have no single origin."""
    if outer.distinct:
        return None
    if isinstance(outer.source, Release):
        below: _Branches | None = (_Branch(outer.source, {}),)
    else:
        below = _find_branches(outer.source)
    return None if below is None else tuple(_trace_branch(outer, branch) for branch in below)


def _trace_branch(outer: OuterQuery, branch: _Branch) -> Provenance:
    """Return a query as it reads one branch below it."""
    order = tuple(replace_parts(item.expr, branch.known) for item in outer.order) + branch.order
    conditions = tuple(
        replace_parts(part, branch.known) for part in (outer.having, outer.qualify) if part is not None
    )
    cut = outer.limit is not None or outer.offset > 0
    return Provenance(
        branch.release,
        tuple(replace_parts(output.expr, branch.known) for output in outer.outputs),
        order,
        (*branch.filters, *conditions, *(order if cut else ())),
    )


def trace_expression(expr: Expr, relation: Relation) -> tuple[tuple[Release, Expr], ...] | None:
    """Return an expression over a relation, for each release that the rows come from; None as for `find_provenance`."""
    below = _find_branches(relation)
    if below is None:
        return None
    return tuple((branch.release, replace_parts(expr, branch.known)) for branch in below)


def trace_conditions(relation: Relation) -> tuple[tuple[Release, tuple[Expr, ...]], ...]:
    """Return the expressions that decide which rows of a relation are kept, for each release that the rows come from."""
    return tuple((branch.release, branch.filters) for branch in _find_branches(relation) or ())


def count_branches(relation: Relation) -> int:
    """Return the number of branches of a relation with provenance."""
    return len(_find_branches(relation) or ())


def is_unfiltered(outer: OuterQuery) -> bool:
    """Return whether a query with provenance returns every row of its releases."""
    hides = outer.having is not None or outer.qualify is not None or outer.limit is not None or outer.offset
    return not hides and (isinstance(outer.source, Release) or _is_unfiltered_relation(outer.source))


def _is_unfiltered_relation(relation: Relation) -> bool:
    match relation:
        case PublicSubquery():
            return is_unfiltered(relation.outer)
        case Filter():
            return False
        case _:
            return all(map(_is_unfiltered_relation, list_inputs(relation)))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A release that rows of a relation come from, with the relation's columns as expressions over it.

    `order` and `filters` are as in `Provenance`.
    """

    release: Release
    known: Mapping[Expr, Expr]
    order: tuple[Expr, ...] = ()
    filters: tuple[Expr, ...] = ()


_Branches = tuple[_Branch, ...]


def _find_branches(relation: Relation) -> _Branches | None:
    """Find the branches that the rows of a relation come from."""
    match relation:
        case Filter():
            below = _find_branches(relation.input)
            if below is None:
                return None
            return tuple(
                replace(branch, filters=(*branch.filters, replace_parts(relation.predicate, branch.known)))
                for branch in below
            )
        case PublicSubquery():
            found = find_provenance(relation.outer)
            if found is None:
                return None
            return tuple(
                _Branch(
                    trace.release,
                    dict(zip(relation.columns, trace.outputs, strict=True)),
                    trace.order,
                    trace.filters,
                )
                for trace in found
            )
        case Project(distinct=False):
            below = _find_branches(relation.input)
            if below is None:
                return None
            items = list(zip(relation.columns, relation.items, strict=True))
            return tuple(
                replace(branch, known={column: replace_parts(item, branch.known) for column, item in items})
                for branch in below
            )
        case SetOperation(kind=SetKind.UNION_ALL):
            sides = [_find_side_branches(relation, side) for side in (relation.left, relation.right)]
            return None if None in sides else tuple(branch for side in sides for branch in side or ())
        case Join(kind=JoinKind.LEFT, left=left) if _matches_one_row(relation):
            return _find_branches(left)
        case _:
            return None


def _find_side_branches(operation: SetOperation, side: Source) -> _Branches | None:
    """Find the branches of one side of a UNION ALL, with the columns of the whole."""
    if not isinstance(side, (PublicSubquery, Project, SetOperation)):
        return None
    below, pairs = _find_branches(side), list(zip(operation.columns, side.columns, strict=True))
    if below is None:
        return None
    return tuple(
        replace(branch, known={ours: branch.known[theirs] for ours, theirs in pairs}) for branch in below
    )


def _matches_one_row(join: Join) -> bool:
    """Return whether a row finds at most one row on the right side for any released values, without reading a release there."""
    right = join.right
    if not isinstance(right, PerUnitGroupBy) or has_public_subquery(right):
        return False
    return {column for _, column in join.on} >= set(right.columns[: len(right.keys)])


# Outputs of a query over released values that have no noise: group keys and public values.


_CHOOSES = frozenset({"min", "max"})
"""Aggregates within groups whose value is one of the values of their argument."""


def mark_noiseless_outputs(outer: OuterQuery) -> tuple[bool, ...]:
    """Return for each output of a query whether it has no noise.

    Claim: such a value is a function of group keys, constants and public values only. Noise may decide whether a row exists, and
    which of these values it has.
    Why: each part of the expression is traced to the release, table or constant that it comes from; aggregates of private rows,
    window functions and all unknown cases count as noisy.
    """
    if not list_releases(outer):
        return (True,) * len(outer.outputs)
    return tuple(is_noiseless(output.expr, outer.source) for output in outer.outputs)


def mark_exact_outputs(outer: OuterQuery) -> tuple[bool, ...]:
    """Return for each output whether its values have no noise, though noise may decide where it is NULL."""
    if not list_releases(outer):
        return (True,) * len(outer.outputs)
    return tuple(is_noiseless(find_only_value(output.expr), outer.source) for output in outer.outputs)


def find_only_value(expr: Expr) -> Expr:
    """Return what a CASE gives where it is not NULL, if that is one expression over columns; other expressions as they are.

    A constant would say no more than the condition does, which is noisy.
    """
    if not isinstance(expr, Call) or expr.function.name != "case":
        return expr
    values = {each for each in (*expr.arguments[1::2], expr.arguments[-1]) if not is_null(each)}
    only = values.pop() if len(values) == 1 else expr
    return only if any(isinstance(part, (Column, ReleasedColumn)) for part in walk(only)) else expr


def is_noiseless(expr: Expr, source: Release | Relation) -> bool:
    """Return whether an expression over a source has no noise in it."""
    return not has_window(expr) and all(
        _is_noiseless_leaf(part, source) for part in dict.fromkeys(walk(expr))
    )


def _is_noiseless_leaf(part: Expr, source: Release | Relation) -> bool:
    match part:
        case ReleasedColumn():
            return isinstance(source, Release) and part.name in {key.name for key in source.keys}
        case Column():
            found = [] if isinstance(source, Release) else iterate_sources(source)
            return any(each.alias == part.source and _is_noiseless_column(part, each) for each in found)
        case Scalar():
            return all(mark_noiseless_outputs(part.outer))
        case _:
            return True


def _is_noiseless_column(column: Column, source: Source) -> bool:
    """Return whether a column of a source has no noise in it."""
    match source:
        case Scan() | Values():
            return True
        case PublicSubquery():
            return mark_noiseless_outputs(source.outer)[find_place(column, source.columns)]
        case Project():
            return is_noiseless(source.items[find_place(column, source.columns)], source.input)
        case PerUnitGroupBy():
            place = find_place(column, source.columns)
            if place < len(source.keys):
                return is_noiseless(source.keys[place], source.input)
            found = source.aggregates[place - len(source.keys)]
            return found.function in _CHOOSES and all(
                is_noiseless(expr, source.input) for expr in found.arguments
            )
        case PerUnitWindows():
            return False
        case SetOperation(left=left, right=right):
            place = find_place(column, source.columns)
            return all(
                _is_noiseless_column(side.columns[place], side)
                for side in (left, right)
                if not isinstance(side, Scan)
            )
