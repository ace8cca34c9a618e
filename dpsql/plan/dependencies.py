"""What has to be done before a statement can be answered, in order, and how one result enters the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from dpsql.plan.expr import Column, Expr, Function, Literal, Released, Scalar
from dpsql.plan.fields import INIT_FIELDS
from dpsql.plan.nodes import OuterQuery, PublicSubquery, Relation, Release, Values

Part = TypeVar("Part")
Step = Release | Scalar | PublicSubquery
_LEAVES = (Function, Column, Literal, Released)
Known = Mapping[Scalar | PublicSubquery, Expr | Values]
"""The values of scalar queries, and the rows of answers that are read with private rows."""


def steps(post: OuterQuery) -> tuple[Step, ...]:
    """What is answered before a statement, each once and after what it needs.

    These are its releases, the scalar queries over them, and the answers that are read with private rows.
    """
    found: dict[Step, None] = {}
    _find(post, found, below=False)
    return tuple(found)


def needs(relation: Relation) -> tuple[Step, ...]:
    """What is answered before the rows of a relation can be read, each once and after what it needs."""
    found: dict[Step, None] = {}
    _find(relation, found, below=True)
    return tuple(found)


def releases(post: OuterQuery) -> tuple[Release, ...]:
    """The releases of a statement, each once: what is asked twice is answered and charged once."""
    return tuple(step for step in steps(post) if isinstance(step, Release))


def final_releases(post: OuterQuery) -> tuple[Release, ...]:
    """The releases that only the statement itself reads: no query whose value stands in it comes after them."""
    found = steps(post)
    last = max((place for place, step in enumerate(found) if not isinstance(step, Release)), default=-1)
    return tuple(step for step in found[last + 1 :] if isinstance(step, Release))


def needed(release: Release) -> tuple[Scalar | PublicSubquery, ...]:
    """The queries whose values stand in a release, each once and after what it needs."""
    found: dict[Step, None] = {}
    for part in _children(release):
        _find(part, found, below=True)
    return tuple(step for step in found if not isinstance(step, Release))


def _find(part: object, found: dict[Step, None], *, below: bool) -> None:
    """`below` says that the part lies below the release boundary."""
    step = (
        part if isinstance(part, (Release, Scalar)) or (below and isinstance(part, PublicSubquery)) else None
    )
    if step in found:
        return
    inside = isinstance(part, Release) or (below and not isinstance(part, (Scalar, PublicSubquery)))
    for child in _children(part):
        _find(child, found, below=inside)
    if step is not None:
        found[step] = None


def _children(part: object) -> Sequence[object]:
    """What a part is made of, less what no step is in."""
    if isinstance(part, tuple):
        return part
    return [
        child
        for child in [getattr(part, name) for name in INIT_FIELDS[type(part)]]
        if type(child) is tuple or (INIT_FIELDS[type(child)] and not isinstance(child, _LEAVES))
    ]


def substitute(part: Part, values: Known, *, within_releases: bool = True) -> Part:
    """The plan with what is known in its places."""
    if not values:
        return part
    done: Part = _Resolution(values, within_releases=within_releases).of(part)
    return done


@dataclasses.dataclass(frozen=True, slots=True)
class _Resolution:
    values: Known
    within_releases: bool
    done: dict[int, tuple[object, object]] = dataclasses.field(default_factory=dict)

    def of(self, part: Any) -> Any:
        if isinstance(part, (Scalar, PublicSubquery)) and part in self.values:
            return self.values[part]
        if isinstance(part, Release) and not self.within_releases:
            return part
        if isinstance(part, tuple):
            return tuple(map(self.of, part))
        if isinstance(part, Function) or not INIT_FIELDS[type(part)]:
            return part
        known = self.done.get(id(part))
        if known is None:
            # The part is kept beside the result, so that its identity is not given to another.
            known = self.done[id(part)] = (part, self._rebuilt(part))
        return known[1]

    def _rebuilt(self, part: Any) -> Any:
        before = {name: getattr(part, name) for name in INIT_FIELDS[type(part)]}
        after = {name: self.of(value) for name, value in before.items()}
        changed = {
            name: value
            for name, value in after.items()
            if value is not before[name] and value != before[name]
        }
        return dataclasses.replace(part, **changed) if changed else part
