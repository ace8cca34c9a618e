"""What a drawn case is an example of, and what a search must have met."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from properties.oracle import Case
from properties.plans import expressions

from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Expr, ReleasedColumn, Scalar, WindowCall, walk
from dpsql.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    PerUnitGroupBy,
    Project,
    Relation,
    SemiJoin,
    SetKind,
    SetOperation,
    has_public_subquery,
    is_private,
    list_inputs,
)
from dpsql.plan.tables import Scan, UnitKind
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy.fields import Accountant, Neighbors
from dpsql.privacy.mechanisms import MECHANISMS

BLOCKS = (
    "rows",
    "units",
    "count of x",
    "presence of x",
    "total of x",
    "partition of x",
    "values of x",
    "joint",
)
_ABOVE = (ReleasedColumn, WindowCall)
"""Expressions that stand above the release boundary alone."""

EVERY_KIND = frozenset(
    {
        *(f"aggregate {name}" for name in AGGREGATES),
        *(f"within {name}" for name in WITHIN),
        *(node.__name__ for node in (*get_args(Relation), *get_args(Expr)) if node not in _ABOVE),
        *map(str, (*JoinKind, *SetKind, *UnitKind)),
        *("matching", "anti matching", "distinct", "private join", "proven join", "linked table"),
        *(f"neighbors {name}" for name in get_args(Neighbors)),
        *(f"accountant {name}" for name in get_args(Accountant)),
        *(f"noise {mechanism.name}" for mechanism in MECHANISMS),
        *(f"block {name}" for name in BLOCKS),
        *(f"{number} keys" for number in range(3)),
        *(
            "public keys",
            "selected keys",
            "few units",
            "one group of a unit",
            "limited groups",
            "rows of rows",
        ),
        *("value in a key", "value in an aggregate", "value in groups", "value in a condition"),
        *("joined answer", "left joined answer", "answer matched", "derived rows matched"),
        *("set of sets", "set of groups", "distinct groups"),
    }
)
"""What a search must have met."""


def kinds(case: Case, plan: MeasurementPlan) -> Iterator[str]:
    """What a case is an example of."""
    release, analysis = case.outer.release, plan.analysis
    yield from _nodes(release.input)
    yield from ("value in a key" for key in release.keys if _valued(key.expr))
    yield from ("value in an aggregate" for item in release.aggregations if _valued(item.argument))
    for expr in expressions(release):
        yield from (type(part).__name__ for part in walk(expr))
    yield from (f"aggregate {item.function}" for item in release.aggregations)
    for measured in plan.vectors:
        name = "joint" if measured.vector.joint else measured.vector.name
        yield f"block {name.rstrip('0123456789')}"
        yield f"noise {measured.mechanism.name}"
    yield from (f"neighbors {case.rules.neighbors}", f"accountant {case.rules.accountant}")
    yield f"{len(release.keys)} keys"
    yield "selected keys" if analysis.selects_keys else "public keys"
    facts = {
        "few units": analysis.bound.min_frequency > 1,
        "one group of a unit": case.rules.partition and analysis.bound.groups == 1 < analysis.bound.rows,
        "limited groups": analysis.bound.limits_groups,
        "rows of rows": case.rules.by_row and analysis.bound.rows > 1,
    }
    yield from (fact for fact, holds in facts.items() if holds)


def _nodes(relation: Relation) -> Iterator[str]:
    """The nodes of a relation and of those that it is made of, and what they do."""
    yield type(relation).__name__
    match relation:
        case Scan():
            yield str(relation.unit.kind)
            yield "linked table" if relation.unit.link else "table"
        case Join():
            yield from _joined(relation)
        case SemiJoin():
            yield from _matched(relation)
        case Project():
            yield "distinct" if relation.distinct else "project"
            if relation.distinct and isinstance(relation.input, PerUnitGroupBy):
                yield "distinct groups"
        case PerUnitGroupBy():
            yield from _grouped(relation)
        case SetOperation():
            yield from _put_together(relation)
        case Filter() if _valued(relation.predicate):
            yield "value in a condition"
    for part in list_inputs(relation):
        yield from _nodes(part)


def _valued(expr: Expr | None) -> bool:
    return expr is not None and any(isinstance(part, Scalar) for part in walk(expr))


def _joined(join: Join) -> Iterator[str]:
    yield str(join.kind)
    if is_private(join.right):
        yield "proven join" if join.proven else "private join"
    elif has_public_subquery(join.right):
        yield "left joined answer" if join.kind is JoinKind.LEFT else "joined answer"


def _matched(matching: SemiJoin) -> Iterator[str]:
    yield "anti matching" if matching.anti else "matching"
    right = matching.right
    if is_private(right) and any(isinstance(part, (Project, SetOperation)) for part in list_inputs(right)):
        yield "derived rows matched"
    elif has_public_subquery(right):
        yield "answer matched"


def _grouped(groups: PerUnitGroupBy) -> Iterator[str]:
    yield from (f"within {item.function}" for item in groups.aggregates)
    if any(map(_valued, (*groups.keys, *(expr for item in groups.aggregates for expr in item.arguments)))):
        yield "value in groups"


def _put_together(operation: SetOperation) -> Iterator[str]:
    yield str(operation.kind)
    for side in list_inputs(operation):
        if is_private(side) and isinstance(side, SetOperation):
            yield "set of sets"
        if is_private(side) and isinstance(side, Project) and isinstance(side.input, PerUnitGroupBy):
            yield "set of groups"
