"""The size of a whole statement: the work of planning it, and of the engine's own planner.

Claim: the SQL that is sent has operations in proportion to the size of the plan, and so has what an engine makes of it by
writing derived tables out.
Why: each part of a plan is written a bounded number of times for each place that it has in the plan, where a part that is
shared has several. The size of an expression counts what its columns are computed from.
Source: none but the definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.plan.expressions import (
    Call,
    Column,
    Expr,
    Function,
    Literal,
    ReleasedColumn,
    Scalar,
    WindowCall,
    compute_expression_size,
    walk,
)
from dpsql.plan.nodes import Filter, Join, OuterQuery, SemiJoin, SetOperation, Values
from dpsql.plan.tags import INIT_FIELDS

MAX_STATEMENT = 10_000
"""The most operations of a statement with its derived tables expanded: planning takes about a tenth of a millisecond for each."""
MAX_CONDITIONS = 300
"""Most conditions of one row that are joined by AND: an engine compares each of them with all others."""
_COUNTED_LEAVES = (Function, Column, Literal, ReleasedColumn, Values)


def compute_statement_size(outer: OuterQuery) -> int:
    """Count the calls, windows and relations of a statement, each as often as it is emitted."""
    return _SizeCounter().compute_size(outer)


@dataclass(frozen=True, slots=True)
class _SizeCounter:
    """The sizes of the parts of a plan, by identity, since plans share many; the plan outlives it."""

    found: dict[int, int] = field(default_factory=dict)

    def compute_size(self, part: object) -> int:
        if isinstance(part, _COUNTED_LEAVES):
            return 0
        if id(part) not in self.found:
            self.found[id(part)] = self._compute_part_size(part)
        return self.found[id(part)]

    def _compute_part_size(self, part: object) -> int:
        if isinstance(part, (Call, WindowCall)):
            return compute_expression_size(part) + sum(
                self.compute_size(each) for each in walk(part) if isinstance(each, Scalar)
            )
        if isinstance(part, tuple):
            return sum(map(self.compute_size, part))
        names = INIT_FIELDS[type(part)]
        return sum(self.compute_size(getattr(part, name)) for name in names) + bool(names)


def bound_conditions(outer: OuterQuery) -> int:
    """Return how many conditions an engine may bring together at one scan: all that a row passes on its way to the statement."""
    return _ConditionCounter().count_conditions(outer)


@dataclass(frozen=True, slots=True)
class _ConditionCounter:
    """The most conditions on the rows of a part of a plan, by identity; the plan outlives it."""

    found: dict[int, int] = field(default_factory=dict)

    def count_conditions(self, part: object) -> int:
        if isinstance(part, (*_COUNTED_LEAVES, Call, WindowCall)):
            return 0
        if id(part) not in self.found:
            self.found[id(part)] = self._count_part_conditions(part)
        return self.found[id(part)]

    def _count_part_conditions(self, part: object) -> int:
        children = (
            part if isinstance(part, tuple) else [getattr(part, name) for name in INIT_FIELDS[type(part)]]
        )
        inner = [self.count_conditions(child) for child in children]
        if isinstance(part, SetOperation):
            return max(inner)
        own = [part.predicate] if isinstance(part, Filter) else []
        own += [part.on] if isinstance(part, SemiJoin) else []
        own += [part.condition] if isinstance(part, Join) and part.condition is not None else []
        return sum(inner) + sum(map(_count_conjuncts, own))


def _count_conjuncts(expr: Expr) -> int:
    """Return how many conditions are joined by AND."""
    if isinstance(expr, Call) and expr.function.name == "and":
        return sum(map(_count_conjuncts, expr.arguments))
    return 1
