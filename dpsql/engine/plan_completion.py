"""Finish a statement once its releases are analyzed: public groups, histograms and top-k selections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.analysis.images import iterate_key_conditions
from dpsql.analysis.listed_keys import PRESENT, reads_whole_table
from dpsql.analysis.public_work import require_bounded_products
from dpsql.analysis.release_analysis import analyze_release
from dpsql.analysis.stability import PublicFacts, require_bounded_joins
from dpsql.analysis.text_bounds import require_bounded_texts
from dpsql.plan.expressions import Column, Expr, Function, Literal, ReleasedColumn, Scalar, WorkRule
from dpsql.plan.functions import build_function_call
from dpsql.plan.nodes import OuterQuery, PerUnitGroupBy, PublicSubquery, Release, Values, is_private
from dpsql.plan.steps import list_children, substitute_subqueries
from dpsql.plan.types import INIT_FIELDS, Value
from dpsql.sql.lower.aggregates.chosen_values import BEST, find_best_group, rewrite_as_top_k
from dpsql.sql.lower.coarse_groups import CoarseGroups
from dpsql.sql.lower.statement_context import (
    CompleteGroupsRequirement,
    LoweredStatement,
    PublicValuesRequirement,
)

_LEAVES = (Function, Column, Literal, ReleasedColumn)


def finish_statement(
    lowered: LoweredStatement, facts: PublicFacts, work: Mapping[str, WorkRule]
) -> OuterQuery:
    """Return the statement as its releases decide it; `facts` looks up public tables, `work` are the engine's rules for functions.

    Raises QueryRejected if groups must be public and are not, or if one row or unit, or the public rows, could be too much work.
    """
    outer = _resolve_needs(lowered, facts)
    require_bounded_products(outer, facts)
    require_bounded_texts(outer, work)
    require_bounded_joins(outer, facts)
    return outer


def _resolve_needs(lowered: LoweredStatement, facts: PublicFacts) -> OuterQuery:
    written: dict[Scalar | PublicSubquery, Expr | Values] = {}
    needs = [need for need in lowered.requirements if isinstance(need, CompleteGroupsRequirement)]
    hidden = {need.release for need in needs if _has_secret_keys(need.release, facts)}
    groups = CoarseGroups.from_plan(lowered.outer, hidden)
    # What is below a release stays as it is: requirements name releases as they were lowered.
    coarse = _QueryRewriter(groups.rewrite_part, (OuterQuery, PerUnitGroupBy), (Release,)).rewrite_part(
        lowered.outer
    )
    computed = _collect_computed_releases(coarse)
    for need in lowered.requirements:
        if isinstance(need, CompleteGroupsRequirement):
            for release in groups.list_versions(need.release):
                if release in computed and _has_secret_keys(release, facts):
                    need.refuse()
            continue
        domains = _find_public_groups(need.release, facts)
        if domains is None:
            need.refuse()
        if isinstance(need, PublicValuesRequirement):
            written[need.placeholder] = need.build_value(domains)
    outer: OuterQuery = _QueryRewriter(lambda part: _select_best_groups(part, facts)).rewrite_part(
        substitute_subqueries(coarse, written)
    )
    one = find_best_group(outer)
    if one is None:
        return outer
    domains = _find_public_groups(one.release, facts)
    return outer if domains is None or None in domains[one.key_index] else one.outer


def _select_best_groups(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """Return the query with its best groups selected, if it asks for nothing else and its groups are public; else as it is."""
    found = rewrite_as_top_k(outer)
    if found is not None and _find_public_groups(found.release, facts) is not None:
        return found
    return _exclude_impossible_groups(_add_presence_count(outer, facts), facts)


def _add_presence_count(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """Return the query with a count of units added to its keys, if it asks only for keys and conditions decide which have rows."""
    release = outer.source
    if (
        not isinstance(release, Release)
        or release.aggregations
        or not release.keys
        or release.all_public_rows
    ):
        return outer
    analysis = analyze_release(release, facts, replace=False)
    if (
        analysis.selects_keys
        or analysis.domains is None
        or (reads_whole_table(release, facts) and not analysis.undecided_conditions)
    ):
        return outer
    return replace(outer, source=replace(release, aggregations=(PRESENT,)))


def _exclude_impossible_groups(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """Return the query without the groups that cannot have rows, because a condition on several keys is false for them."""
    if not isinstance(outer.source, Release) or outer.source.top is not None:
        return outer
    having = outer.having
    for condition in iterate_key_conditions(outer.source, facts):
        having = condition if having is None else build_function_call("and", condition, having)
    return replace(outer, having=having)


def _find_public_groups(release: Release, facts: PublicFacts) -> Sequence[Sequence[Value]] | None:
    """Return the public values of each key, if the groups of a release are public and none is hidden; else None."""
    analysis = analyze_release(release, facts, replace=False)
    return None if analysis.selects_keys else analysis.domains


def _collect_computed_releases(outer: OuterQuery) -> set[Release]:
    """Return the releases over whose groups the query computes something other than the best group."""
    groups = (
        part
        for part in _iterate_parts(outer, ())
        if isinstance(part, PerUnitGroupBy) and not is_private(part)
    )
    return {
        part
        for group in groups
        if not {item.function for item in group.aggregates} <= BEST
        for part in _iterate_parts(group.input, (Release, Scalar))
        if isinstance(part, Release)
    }


def _iterate_parts(part: object, ends: tuple[type, ...]) -> Iterator[object]:
    """Yield the parts of a plan once each, and none within those of some types."""
    waiting, seen = [part], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += () if isinstance(found, ends) else list_children(found)


def _has_secret_keys(release: Release, facts: PublicFacts) -> bool:
    """Return whether the values of some key are not public, so that groups of few units are not released."""
    return analyze_release(release, facts, replace=False).domains is None


@dataclass(frozen=True, slots=True)
class _QueryRewriter:
    """A rule that is applied to each part of some kinds, the innermost first; by default to each query above the privacy boundary.

    Parts of the types `ends` stay as they are.
    """

    rule: Callable[[Any], Any]
    kinds: tuple[type, ...] = (OuterQuery,)
    ends: tuple[type, ...] = ()
    results: dict[int, tuple[object, object]] = field(default_factory=dict)

    def rewrite_part(self, part: Any) -> Any:
        if isinstance(part, tuple):
            found = tuple(map(self.rewrite_part, part))
            return part if all(map(_is_same, found, part)) else found
        if isinstance(part, (*_LEAVES, Values, *self.ends)) or not INIT_FIELDS[type(part)]:
            return part
        known = self.results.get(id(part))
        if known is None:
            # The part is kept with the result, so that no other object gets its id.
            known = self.results[id(part)] = (part, self._rebuild_part(part))
        return known[1]

    def _rebuild_part(self, part: Any) -> Any:
        before = {name: getattr(part, name) for name in INIT_FIELDS[type(part)]}
        after = {name: self.rewrite_part(value) for name, value in before.items()}
        changed = {name: value for name, value in after.items() if value is not before[name]}
        built = replace(part, **changed) if changed else part
        return self.rule(built) if isinstance(built, self.kinds) else built


def _is_same(one: object, other: object) -> bool:
    return one is other
