"""The steps of a statement in order of dependency (releases, scalar subqueries, public subqueries), and substitution."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from dpsql.plan.expressions import Column, Expr, Function, Literal, ReleasedColumn, Scalar
from dpsql.plan.nodes import OuterQuery, PerUnitGroupBy, PublicSubquery, Relation, Release, Values
from dpsql.plan.tags import INIT_FIELDS

Part = TypeVar("Part")
Step = Release | Scalar | PublicSubquery
_LEAVES = (Function, Column, Literal, ReleasedColumn)
_Replaced = Scalar | PublicSubquery | PerUnitGroupBy
KnownValues = Mapping[Scalar | PublicSubquery, Expr | Values]
"""The values of scalar subqueries, and the rows of public subqueries that private rows are joined to."""
PublicGroups = Mapping[PerUnitGroupBy, Values]
"""The rows of groups of public rows that private rows are joined to."""


def list_steps(outer: OuterQuery) -> tuple[Step, ...]:
    """List the steps that precede a statement, each once, in order of dependency.

    A step is a release, a scalar subquery, or a public subquery that private rows are joined to.
    """
    return tuple(_StepSearch().add_steps(outer, below=False).found)


def list_required_steps(relation: Relation) -> tuple[Step, ...]:
    """List the steps that precede reading a relation, each once, in order of dependency."""
    return tuple(_StepSearch().add_steps(relation, below=True).found)


def list_releases(outer: OuterQuery) -> tuple[Release, ...]:
    """List the releases of a statement, each once: a release that occurs twice is charged once."""
    return tuple(step for step in list_steps(outer) if isinstance(step, Release))


def list_final_releases(found: Sequence[Step]) -> tuple[Release, ...]:
    """List the releases that only the statement itself reads, without scalar and public subqueries that other steps need."""
    last = max((place for place, step in enumerate(found) if not isinstance(step, Release)), default=-1)
    return tuple(step for step in found[last + 1 :] if isinstance(step, Release))


def list_required_subqueries(release: Release) -> tuple[Scalar | PublicSubquery, ...]:
    """List the subqueries whose values a release uses, each once, in order of dependency."""
    search = _StepSearch()
    for part in list_children(release):
        search.add_steps(part, below=True)
    return tuple(step for step in search.found if not isinstance(step, Release))


@dataclasses.dataclass(frozen=True, slots=True)
class _StepSearch:
    """The steps that were found, in order, and the parts that were searched, by identity: plans share many."""

    found: dict[Step, None] = dataclasses.field(default_factory=dict)
    searched: set[tuple[int, bool]] = dataclasses.field(default_factory=set)

    def add_steps(self, part: object, *, below: bool) -> _StepSearch:
        """Add the steps of a part, which must stay alive meanwhile; `below` if it is below the release boundary."""
        self.searched.add((id(part), below))
        inside = isinstance(part, Release) or (below and not isinstance(part, (Scalar, PublicSubquery)))
        for child in list_children(part):
            if (id(child), inside) not in self.searched:
                self.add_steps(child, below=inside)
        if isinstance(part, (Release, Scalar)) or (below and isinstance(part, PublicSubquery)):
            self.found[part] = None
        return self


def list_children(part: object) -> Sequence[object]:
    """List the children of a part that are no leaves of an expression, and have children or are tuples of them."""
    if isinstance(part, Values):
        return ()
    found = part if isinstance(part, tuple) else [getattr(part, name) for name in INIT_FIELDS[type(part)]]
    return [
        child
        for child in found
        if type(child) is tuple or (INIT_FIELDS[type(child)] and not isinstance(child, _LEAVES))
    ]


def substitute_subqueries(
    part: Part, values: KnownValues, groups: PublicGroups | None = None, *, within_releases: bool = True
) -> Part:
    """Return the plan with known subqueries, and known groups of public rows, replaced by their values."""
    if not values and not groups:
        return part
    known = dict[_Replaced, Expr | Values](chain(values.items(), (groups or {}).items()))
    done: Part = _Resolution(known, within_releases=within_releases).resolve_part(part)
    return done


@dataclasses.dataclass(frozen=True, slots=True)
class _Resolution:
    values: Mapping[_Replaced, Expr | Values]
    within_releases: bool
    done: dict[int, tuple[object, object]] = dataclasses.field(default_factory=dict)

    def resolve_part(self, part: Any) -> Any:
        if isinstance(part, _Replaced) and part in self.values:
            return self.values[part]
        if isinstance(part, Release) and not self.within_releases:
            return part
        if isinstance(part, tuple):
            return tuple(map(self.resolve_part, part))
        if isinstance(part, (Function, Values)) or not INIT_FIELDS[type(part)]:
            return part
        known = self.done.get(id(part))
        if known is None:
            # The part is kept beside the result, so that its identity is not given to another.
            known = self.done[id(part)] = (part, self._rebuild_part(part))
        return known[1]

    def _rebuild_part(self, part: Any) -> Any:
        before = {name: getattr(part, name) for name in INIT_FIELDS[type(part)]}
        after = {name: self.resolve_part(value) for name, value in before.items()}
        changed = {
            name: value
            for name, value in after.items()
            if value is not before[name] and value != before[name]
        }
        return dataclasses.replace(part, **changed) if changed else part
