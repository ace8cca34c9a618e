"""The steps of a plan: which depend on which, how many rows they have, how large they are, and whether units are sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any, TypeVar

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
from dpsql.plan.nodes import (
    Filter,
    Join,
    OuterQuery,
    PerUnitGroupBy,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetOperation,
    Source,
    Values,
    list_private_scans,
)
from dpsql.plan.types import INIT_FIELDS

# The steps of a statement in order of dependency (releases, scalar subqueries, public subqueries), and substitution.


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


# Bounds on the rows of a public source for any released values: unique columns, and at most one row.


def is_unique(answer: Source, columns: Iterable[Column]) -> bool:
    """Return whether these columns are a unique key of a source, whatever is released."""
    if not isinstance(answer, PublicSubquery) or not isinstance(answer.outer.source, Release):
        return False
    named = {column.name for column in columns}
    selected = {
        output.expr.name
        for output, column in zip(answer.outer.outputs, answer.columns, strict=True)
        if isinstance(output.expr, ReleasedColumn) and column.name in named
    }
    return selected >= {key.name for key in answer.outer.source.keys}


def is_single_row(source: Source) -> bool:
    """Return whether a public source has at most one row."""
    match source:
        case PublicSubquery(outer=outer):
            whole = isinstance(outer.source, Release) and not outer.source.keys
            below = isinstance(outer.source, (Project, Values, PublicSubquery)) and is_single_row(
                outer.source
            )
            return outer.limit in (0, 1) or whole or below
        case (
            Project(input=PerUnitGroupBy() | Project() | PublicSubquery() as rows)
            | Project(input=Filter(input=PerUnitGroupBy() | Project() | PublicSubquery() as rows))
        ):
            return is_single_row(rows)
        case PerUnitGroupBy():
            return not source.keys
        case Values():
            return len(source.rows) <= 1
        case _:
            return False


# The Poisson sample of privacy units that a release reads.


def find_sampling_rate(relation: Relation) -> Fraction | None:
    """Return the probability that a unit is in the sample of a relation; None without a sample.

    Claim: what follows from the relation over a sample is what follows from it over a database of the sampled units alone.
    Why: a private row of a relation depends on rows of its own unit and on public rows, and all private tables are read from
    the same sample; so leaving out the rows of the other units at the end is leaving out these units before.
    Source: McSherry 2009, "Privacy integrated queries", section 3.2 (rows grouped by their source).

    Raises ValueError where tables differ in it.
    """
    rates = {scan.sample for scan in list_private_scans(relation)}
    if len(rates) > 1:
        raise ValueError("a release must read either all or none of its private tables from one sample")
    return next(iter(rates), None)


def format_percent(rate: Fraction) -> str:
    """Return a rate for people.

    >>> format_percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(rate * 100):.6g}%"


# The size of a whole statement: the work of planning it, and of the engine's own planner.


MAX_STATEMENT = 10_000
"""The most operations of a statement with its derived tables expanded: planning takes about a tenth of a millisecond for each."""
MAX_CONDITIONS = 300
"""Most conditions of one row that are joined by AND: an engine compares each of them with all others."""
_COUNTED_LEAVES = (Function, Column, Literal, ReleasedColumn, Values)


def compute_statement_size(outer: OuterQuery) -> int:
    """Count the calls, windows and relations of a statement, each as often as it is emitted.

    Claim: the SQL that is sent has operations in proportion to the size of the plan, and so has what an engine makes of it by
    writing derived tables out.
    Why: each part of a plan is written a bounded number of times for each place that it has in the plan, where a part that is
    shared has several. The size of an expression counts what its columns are computed from.
    Source: none but the definitions.
    """
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
