"""The size of a whole statement: the work of planning it, and of the engine's own planner.

Claim: the SQL that is sent has operations in proportion to the size of the plan, and so has what an engine makes of it by
writing derived tables out.
Why: each part of a plan is written a bounded number of times for each place that it has in the plan, where a part that is
shared has several. The size of an expression counts what its columns are computed from.
Source: none but the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.plan.expr import Call, Column, Expr, Function, Literal, Released, Scalar, Windowed, size_of, walk
from dpsql.plan.fields import INIT_FIELDS
from dpsql.plan.nodes import Filter, Join, OuterQuery, SemiJoin, SetOperation, Values

MAX_STATEMENT = 10_000
"""Most operations of a statement, its derived tables written out: planning takes about a tenth of a millisecond for each."""
MAX_CONDITIONS = 300
"""Most conditions of one row that are joined by AND: an engine compares each of them with all others."""
_LEAVES = (Function, Column, Literal, Released, Values)


def statement_size(outer: OuterQuery) -> int:
    """How many operations a statement has, each as often as it is written: calls, windows and relations."""
    return _Sizes().of(outer)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of the parts of a plan, which outlives this, by identity: plans share many."""

    found: dict[int, int] = field(default_factory=dict)

    def of(self, part: object) -> int:
        if isinstance(part, _LEAVES):
            return 0
        if id(part) not in self.found:
            self.found[id(part)] = self._counted(part)
        return self.found[id(part)]

    def _counted(self, part: object) -> int:
        if isinstance(part, (Call, Windowed)):
            return size_of(part) + sum(self.of(each) for each in walk(part) if isinstance(each, Scalar))
        if isinstance(part, tuple):
            return sum(map(self.of, part))
        names = INIT_FIELDS[type(part)]
        return sum(self.of(getattr(part, name)) for name in names) + bool(names)


def most_conditions(outer: OuterQuery) -> int:
    """How many conditions an engine may bring together at one scan: all that a row passes on its way to the statement."""
    return _Conditions().of(outer)


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The most conditions that are put on the rows of a part of a plan, which outlives this, by identity."""

    found: dict[int, int] = field(default_factory=dict)

    def of(self, part: object) -> int:
        if isinstance(part, (*_LEAVES, Call, Windowed)):
            return 0
        if id(part) not in self.found:
            self.found[id(part)] = self._counted(part)
        return self.found[id(part)]

    def _counted(self, part: object) -> int:
        children = (
            part if isinstance(part, tuple) else [getattr(part, name) for name in INIT_FIELDS[type(part)]]
        )
        inner = [self.of(child) for child in children]
        if isinstance(part, SetOperation):
            return max(inner)
        own = [part.predicate] if isinstance(part, Filter) else []
        own += [part.on] if isinstance(part, SemiJoin) else []
        own += [part.also] if isinstance(part, Join) and part.also is not None else []
        return sum(inner) + sum(map(_conjuncts, own))


def _conjuncts(expr: Expr) -> int:
    """How many conditions are joined by AND."""
    if isinstance(expr, Call) and expr.function.name == "and":
        return sum(map(_conjuncts, expr.arguments))
    return 1
