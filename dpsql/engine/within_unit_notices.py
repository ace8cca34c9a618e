"""Notices of joins and groups within each privacy unit, where the policy declares that a key belongs to one unit.

Claim: a notice costs no privacy loss.
Why: it is a function of the statement and the policy.
Source: Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpsql.analysis.intervals import iterate_conjuncts
from dpsql.analysis.nullability import is_never_null
from dpsql.analysis.unit_identity import find_identity, find_injective_identity, list_finer_keys
from dpsql.plan.dependencies import list_children
from dpsql.plan.expressions import Column, Expr
from dpsql.plan.nodes import Join, OuterQuery, PerUnitGroupBy, SemiJoin, is_private
from dpsql.plan.render import format_expression

_Pairs = list[tuple[Expr, Expr]]


def describe_unit_keys(outer: OuterQuery) -> Iterator[str]:
    """Yield a notice for each key by which rows are joined or grouped within a unit, other than by the unit itself."""
    joined: set[str] = set()
    parts = list(_iterate_parts(outer))
    for part in parts:
        found = list_declared_pairs(_list_equal_pairs(part))
        names = " and ".join(dict.fromkeys(format_expression(ours) for ours, _ in found))
        if found and names not in joined:
            joined |= {names, " and ".join(dict.fromkeys(format_expression(theirs) for _, theirs in found))}
            yield (
                f"Rows of equal {names} are joined only within a unit, since the policy declares that they belong to one: "
                f"rows of different units are not joined, even where {names} is the same."
            )
    for part in parts:
        if isinstance(part, PerUnitGroupBy) and is_private(part):
            yield from _describe_grouping(part, joined)


def list_declared_pairs(pairs: _Pairs) -> _Pairs:
    """Return those of some pairs of equal values that are parts of a declared link, if none of the pairs tells the unit."""
    columns = [
        (ours, theirs) for ours, theirs in pairs if isinstance(ours, Column) and isinstance(theirs, Column)
    ]
    if any(
        ours.facts.identity is not None and ours.facts.identity == theirs.facts.identity
        for ours, theirs in columns
    ):
        return []
    return [(ours, theirs) for ours, theirs in columns if ours.facts.link_keys & theirs.facts.link_keys]


def _list_equal_pairs(part: object) -> _Pairs:
    """Return the pairs of values that are equal in a join of private rows."""
    if isinstance(part, Join) and is_private(part.right):
        return list(part.on)
    if isinstance(part, SemiJoin) and is_private(part.right):
        equal = (item for item in iterate_conjuncts(part.on) if item.function.name == "eq")
        return [(item.arguments[0], item.arguments[1]) for item in equal]
    return []


def _describe_grouping(groups: PerUnitGroupBy, joined: Iterable[str]) -> Iterator[str]:
    if any(find_identity(key, groups.input) is not None for key in groups.keys):
        return
    finer = list_finer_keys(groups.keys, groups.input)
    names = " and ".join(map(format_expression, finer))
    if not finer or names in joined:
        return
    nullable = [key for key in finer if not is_never_null(key, groups.input)]
    missing = (
        f"WHERE {' AND '.join(f'{format_expression(key)} IS NOT NULL' for key in nullable)} leaves them out"
    )
    if all(find_injective_identity(key, groups.input) is not None for key in finer):
        yield f"Rows in which {names} is NULL form a group per unit, where SQL has one group; {missing}."
        return
    yield (
        f"Groups of {names} are formed within each unit, since the policy declares that rows of one {names} belong to one "
        "unit: a value that several units have forms a group per unit"
        + (f", and so does NULL; {missing}." if nullable else ".")
    )


def _iterate_parts(part: object) -> Iterator[object]:
    """Yield the parts of a plan, each once."""
    waiting, seen = [part], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += reversed(list_children(found))
