"""What a statement leaves open until its releases are analysed: public groups, histograms, top-k selections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.analysis.analyse import analyse
from dpsql.analysis.images import conditions_on_keys
from dpsql.analysis.listed_keys import PRESENT, lists_keys
from dpsql.analysis.stability import PublicFacts, require_bounded_joins
from dpsql.analysis.text_bounds import require_bounded_texts
from dpsql.functions import call
from dpsql.plan.dependencies import children, substitute
from dpsql.plan.expr import Column, Expr, Function, Literal, Released, Scalar, WorkRule
from dpsql.plan.fields import INIT_FIELDS
from dpsql.plan.nodes import OuterQuery, PerUnitGroupBy, PublicSubquery, Release, Values, is_private
from dpsql.plan.types import Value
from dpsql.sql.lower.aggregates.arg_max import BEST, best
from dpsql.sql.lower.public_groups import Lowered, OfPublicGroups, UncomputedGroups
from dpsql.sql.lower.top_k import top_k

_LEAVES = (Function, Column, Literal, Released)


def finish(lowered: Lowered, facts: PublicFacts, work: Mapping[str, WorkRule]) -> OuterQuery:
    """The statement as its releases decide it. `facts` looks public tables up, `work` is the engine's of functions.

    Raises QueryRejected if groups must be public that are not, or one row or unit could be too much for the engine.
    """
    outer = _finished(lowered, facts)
    require_bounded_texts(outer, work)
    require_bounded_joins(outer, facts)
    return outer


def _finished(lowered: Lowered, facts: PublicFacts) -> OuterQuery:
    written: dict[Scalar | PublicSubquery, Expr | Values] = {}
    computed = _computed(lowered.outer)
    for need in lowered.needs:
        if isinstance(need, UncomputedGroups):
            if need.release in computed and _are_secret(need.release, facts):
                need.refuse()
            continue
        domains = _public_groups(need.release, facts)
        if domains is None:
            need.refuse()
        if isinstance(need, OfPublicGroups):
            written[need.placeholder] = need.value(domains)
    outer: OuterQuery = _Rewriting(lambda part: _selecting(part, facts)).of(
        substitute(lowered.outer, written)
    )
    one = best(outer)
    if one is None:
        return outer
    domains = _public_groups(one.release, facts)
    return outer if domains is None or None in domains[one.place] else one.outer


def _selecting(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """The query with its best groups selected, if that is all it asks for, and its groups are public; else as it is."""
    found = top_k(outer)
    if found is not None and _public_groups(found.release, facts) is not None:
        return found
    return _of_possible_groups(_of_present_groups(outer, facts), facts)


def _of_present_groups(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """The query with a count of units beside its keys, if it asks for these alone, and conditions say which have rows."""
    release = outer.source
    if (
        not isinstance(release, Release)
        or release.aggregations
        or not release.keys
        or release.all_public_rows
    ):
        return outer
    analysis = analyse(release, facts, replace=False)
    if (
        analysis.selects
        or analysis.domains is None
        or (lists_keys(release, facts) and not analysis.undecided)
    ):
        return outer
    return replace(outer, source=replace(release, aggregations=(PRESENT,)))


def _of_possible_groups(outer: OuterQuery, facts: PublicFacts) -> OuterQuery:
    """The query without groups that no row can have, since a condition on several keys is not true of them."""
    if not isinstance(outer.source, Release) or outer.source.top is not None:
        return outer
    having = outer.having
    for condition in conditions_on_keys(outer.source, facts):
        having = condition if having is None else call("and", condition, having)
    return replace(outer, having=having)


def _public_groups(release: Release, facts: PublicFacts) -> Sequence[Sequence[Value]] | None:
    """The public values of each key, if the groups of a release are public and none is hidden; else None."""
    analysis = analyse(release, facts, replace=False)
    return None if analysis.selects else analysis.domains


def _computed(outer: OuterQuery) -> set[Release]:
    """The releases of whose groups, taken together, something is computed, other than which is the best."""
    groups = (part for part in _parts(outer, ()) if isinstance(part, PerUnitGroupBy) and not is_private(part))
    return {
        part
        for group in groups
        if not {item.function for item in group.aggregates} <= BEST
        for part in _parts(group.input, (Release, Scalar))
        if isinstance(part, Release)
    }


def _parts(part: object, ends: tuple[type, ...]) -> Iterator[object]:
    """The parts of a plan, each once, and none within those of some types."""
    waiting, seen = [part], set[int]()
    while waiting:
        found = waiting.pop()
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += () if isinstance(found, ends) else children(found)


def _are_secret(release: Release, facts: PublicFacts) -> bool:
    """Whether the values of some key are not public, so that groups of few units are not released."""
    return analyse(release, facts, replace=False).domains is None


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """A rule applied to each query above the boundary, the innermost first."""

    rule: Callable[[OuterQuery], OuterQuery]
    done: dict[int, tuple[object, object]] = field(default_factory=dict)

    def of(self, part: Any) -> Any:
        if isinstance(part, tuple):
            found = tuple(map(self.of, part))
            return part if all(map(_same, found, part)) else found
        if isinstance(part, (*_LEAVES, Values)) or not INIT_FIELDS[type(part)]:
            return part
        known = self.done.get(id(part))
        if known is None:
            # The part is kept beside the result, so that its identity is not given to another.
            known = self.done[id(part)] = (part, self._rebuilt(part))
        return known[1]

    def _rebuilt(self, part: Any) -> Any:
        before = {name: getattr(part, name) for name in INIT_FIELDS[type(part)]}
        after = {name: self.of(value) for name, value in before.items()}
        changed = {name: value for name, value in after.items() if value is not before[name]}
        built = replace(part, **changed) if changed else part
        return self.rule(built) if isinstance(built, OuterQuery) else built


def _same(one: object, other: object) -> bool:
    return one is other
