"""No neighbour moves the statistics of any plan further than was derived for it.

Plans come from the whole accepted language, databases are tiny and full of special values, and every
neighbour of each is tried. A failure is printed as a query, the policy's rules and two databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args
from zlib import crc32

import pytest
from hypothesis import given, seed, settings
from hypothesis.strategies import SearchStrategy
from laws.oracle import Bench, Case, cases
from laws.plans import applied, expressions
from laws.profiles import DEEP, DRAWN, FAST, FEATURED

from dpsql.aggregates import AGGREGATES
from dpsql.aggregates.within import WITHIN
from dpsql.analysis.choose import Measured
from dpsql.functions import FUNCTIONS
from dpsql.mechanisms import DiscreteGaussian, Geometric
from dpsql.plan.expr import Expr, Released, Scalar, walk
from dpsql.plan.nodes import (
    Filter,
    Grouped,
    Join,
    JoinKind,
    Matching,
    Project,
    Relation,
    SetKind,
    SetOperation,
    Source,
    inputs,
    is_answered,
    is_private,
)
from dpsql.plan.tables import Scan, UnitKind
from dpsql.policy.fields import Accountant, Neighbors

BENCH = Bench()
BLOCKS = ("rows", "units", "count of x", "presence of x", "total of x", "partition of x")


@pytest.mark.parametrize("part", range(4))
def test_no_neighbour_moves_a_statistic_further_than_derived(part: int) -> None:
    """The laws of the oracle hold for plans of all kinds."""
    search(FAST, f"part {part}", cases(BENCH), BENCH.check)


@pytest.mark.deep
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_neighbour_moves_a_statistic_that_a_function_is_part_of(function: str) -> None:
    """The same for plans of which at least every third applies one function, for each function."""
    applying: list[bool] = []

    def law(case: Case) -> None:
        BENCH.check(case)
        applying.append(function in applied(case.post.release))

    search(FEATURED, function, cases(BENCH, function), law)
    assert sum(applying) >= len(applying) / 3


@pytest.mark.deep
@pytest.mark.parametrize("deepest", [2, 3])
def test_no_neighbour_found_in_a_long_search_moves_a_statistic_further(deepest: int) -> None:
    """The same over new cases in each run, with deeper expressions too."""
    DEEP(given(cases(BENCH, deepest=deepest))(BENCH.check))()


def test_the_search_leaves_no_kind_out() -> None:
    """Every aggregate, node, unit, neighbouring relation, block and noise is among the cases drawn."""
    seen: set[str] = set()
    search(DRAWN, "kinds", cases(BENCH), lambda case: seen.update(kinds(case, BENCH.prepare(case).plan)))
    assert not EVERY_KIND - seen


def search(length: settings, name: str, strategy: SearchStrategy[Case], law: Callable[[Case], None]) -> None:
    """Runs a law over cases, under a name the same ones in each run."""
    seed(crc32(name.encode()))(length(given(strategy)(law)))()


EVERY_KIND = frozenset(
    {
        *(f"aggregate {name}" for name in AGGREGATES),
        *(f"within {name}" for name in WITHIN),
        *(node.__name__ for node in (*get_args(Relation), *get_args(Expr)) if node is not Released),
        *map(str, (*JoinKind, *SetKind, *UnitKind)),
        *("matching", "anti matching", "distinct", "private join", "proven join", "linked table"),
        *(f"neighbors {name}" for name in get_args(Neighbors)),
        *(f"accountant {name}" for name in get_args(Accountant)),
        *(f"noise {mechanism.name}" for mechanism in (Geometric, DiscreteGaussian)),
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
    }
)
"""What a search must have met."""


def kinds(case: Case, plan: Measured) -> Iterator[str]:
    """What a case is an example of."""
    release, analysis = case.post.release, plan.analysis
    yield from _nodes(release.input)
    yield from ("value in a key" for key in release.keys if _valued(key.expr))
    yield from ("value in an aggregate" for item in release.aggregations if _valued(item.argument))
    for expr in expressions(release):
        yield from (type(part).__name__ for part in walk(expr))
    yield from (f"aggregate {item.function}" for item in release.aggregations)
    for measured in plan.blocks:
        yield f"block {measured.block.name.rstrip('0123456789')}"
        yield f"noise {measured.mechanism.name}"
    yield from (f"neighbors {case.rules.neighbors}", f"accountant {case.rules.accountant}")
    yield f"{len(release.keys)} keys"
    yield "selected keys" if analysis.selects else "public keys"
    facts = {
        "few units": analysis.bound.min_frequency > 1,
        "one group of a unit": case.rules.partition and analysis.bound.groups == 1 < analysis.bound.rows,
        "limited groups": analysis.bound.limited,
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
            yield str(relation.kind)
            if is_private(relation.right):
                yield "proven join" if relation.proven else "private join"
            elif is_answered(relation.right):
                yield "left joined answer" if relation.kind is JoinKind.LEFT else "joined answer"
        case Matching():
            yield "anti matching" if relation.anti else "matching"
            yield from _matched(relation.right)
        case Project():
            yield "distinct" if relation.distinct else "project"
            if relation.distinct and isinstance(relation.input, Grouped):
                yield "distinct groups"
        case Grouped():
            yield from (f"within {item.function}" for item in relation.aggregates)
            if any(map(_valued, (*relation.keys, *(item.argument for item in relation.aggregates)))):
                yield "value in groups"
        case SetOperation():
            yield str(relation.kind)
            yield from _sides(relation)
        case Filter():
            if _valued(relation.predicate):
                yield "value in a condition"
    for part in inputs(relation):
        yield from _nodes(part)


def _valued(expr: Expr | None) -> bool:
    """Whether an expression reads a single released value."""
    return expr is not None and any(isinstance(part, Scalar) for part in walk(expr))


def _matched(right: Source) -> Iterator[str]:
    """What rows are matched with."""
    if is_answered(right):
        yield "answer matched"
    if is_private(right) and any(isinstance(part, (Project, SetOperation)) for part in inputs(right)):
        yield "derived rows matched"


def _sides(operation: SetOperation) -> Iterator[str]:
    """What is put together, where it is private."""
    for side in inputs(operation):
        if is_private(side) and isinstance(side, SetOperation):
            yield "set of sets"
        if is_private(side) and isinstance(side, Project) and isinstance(side.input, Grouped):
            yield "set of groups"
