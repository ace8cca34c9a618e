"""Requirements on the groups of a release before it is planned: that they are public, and their values.

Lowering states what a release must fulfill; the engine decides it once the release is analyzed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from dpsql.errors import Position
from dpsql.plan.expressions import Expr, Scalar
from dpsql.plan.nodes import OuterQuery, Release
from dpsql.plan.types import Value


@dataclass(frozen=True, slots=True, eq=False)
class PublicGroupsRequirement:
    """A release that must release all its groups: all of them are public, and none is hidden for being rare.

    `refuse` raises the refusal of any other release, at its place in the text.
    """

    release: Release
    refuse: Callable[[], NoReturn]


@dataclass(frozen=True, slots=True, eq=False)
class CompleteGroupsRequirement(PublicGroupsRequirement):
    """A release that must release all its groups if something is computed over all of them, as in SQL."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicValuesRequirement(PublicGroupsRequirement):
    """A release with the same requirement, whose public values are written into the statement.

    `build_value` returns the expression that replaces `placeholder`, from the public values of each key. It may refuse them.
    """

    placeholder: Scalar
    build_value: Callable[[Sequence[Sequence[Value]]], Expr]


@dataclass(frozen=True, slots=True)
class LoweredStatement:
    """The plan of a statement's text, and the requirements on its releases."""

    outer: OuterQuery
    requirements: tuple[PublicGroupsRequirement, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    """The constants that the statement reads from its time, by name."""
    sample: Position | None = None
    """The position of the statement's sample of units, if it has one."""
