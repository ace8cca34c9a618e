"""A drawn plan is what `lower_statement` makes of a query: printed, read and lowered it is itself again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from properties.oracle import Bench, Case, cases
from properties.printing import user_sql
from properties.profiles import WIDE
from properties.schema import Rules

from dpsql.analysis.number_types import is_float
from dpsql.engine.plan_completion import finish_statement
from dpsql.plan.expressions import Call, Function, Literal, iterate_columns
from dpsql.plan.nodes import Filter, Join, OuterQuery, PerUnitWindows, Release
from dpsql.plan.text import compute_canonical_text
from dpsql.plan.types import INIT_FIELDS
from dpsql.sql.lower.joins import build_conjunction, iterate_factored_conjuncts
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.parse import parse_statement
from tests.sql.sentences import in_grammar
from tests.sql.study import NOON

BENCH = Bench()


@WIDE
@given(cases(BENCH))
def test_plan_is_read_back_from_its_text(case: Case) -> None:
    """The printed query lowers to the same plan, except for table numbers and places of filters."""
    assume(not any(map(_unlike, parts(case.outer))))
    assume(
        all(part.aggregations for part in parts(case.outer) if isinstance(part, Release))
    )  # presence is measured
    catalog, facts = BENCH.engine(case.rules).catalog, BENCH.facts(case.database.tables)
    lowered = lower_statement(
        parse_statement(user_sql(case.outer)), catalog, facts, (), case.outer.release.max_groups, at=NOON
    )
    assert renumbered(finish_statement(lowered, facts, {})) == renumbered(case.outer)


@WIDE
@given(cases(BENCH))
def test_printed_plan_is_a_sentence(case: Case) -> None:
    """The printed query is a sentence of the grammar, and SQL to DuckDB."""
    assume(not any(isinstance(part, PerUnitWindows) for part in parts(case.outer)))
    text = user_sql(case.outer)
    assert in_grammar(text)
    assert BENCH.backend.can_parse(text)


@pytest.mark.parametrize(
    "condition",
    [
        "m // 2 = m + x",
        "x * m + 1 < CAST(x AS FLOAT) / 3",
        "CAST(CAST(m AS FLOAT) AS FLOAT) = x - 1",
        "ROUND(x * 2, 1) IN (0.1, 0.5)",
        "x IN (0.1e0, 0.5)",
        "NULLIF(m * 1000000, x) > 0",
        "GREATEST(x + m, m) BETWEEN 0.1 AND x",
    ],
)
def test_rounding_to_float_is_read_back(condition: str) -> None:
    """What lowering rounds to FLOAT is printed with CAST, which is not rounded once more."""
    catalog, facts = BENCH.engine(Rules()).catalog, BENCH.facts({})
    texts = [f"SELECT COUNT(*) AS c FROM y WHERE {condition}"]
    for _ in range(2):
        lowered = lower_statement(parse_statement(texts[-1]), catalog, facts, (), None, at=NOON)
        texts.append(user_sql(finish_statement(lowered, facts, {})))
    assert texts[1] == texts[2]


def parts(part: Any) -> Iterator[Any]:
    """All parts of a plan."""
    yield part
    if isinstance(part, tuple):
        for each in part:
            yield from parts(each)
    elif not isinstance(part, Function):
        for name in INIT_FIELDS.get(type(part), ()):
            yield from parts(getattr(part, name))


def _unlike(part: Any) -> bool:
    """What is not read as it is drawn: functions of constants, extremes of what the keys determine, no rows, joins of a FLOAT to another type.

    Windows are not printed.
    """
    match part:
        case OuterQuery():
            return part.limit == 0
        case Call():
            return part.arguments != () and all(isinstance(each, Literal) for each in part.arguments)
        case Join():
            return any(is_float(ours) != is_float(theirs) for ours, theirs in part.on)
        case Release():
            keys = {key.expr for key in part.keys}
            return any(
                item.argument is not None and keys.issuperset(iterate_columns(item.argument))
                for item in part.aggregations
            )
        case _:
            return isinstance(part, PerUnitWindows)


def renumbered(outer: OuterQuery) -> str:
    """A plan as text in which nameless tables are numbered as they come."""
    numbers: dict[str, str] = {}
    text = compute_canonical_text(lifted(outer))
    return re.sub(r"#\d+", lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), text)


def lifted(part: Any) -> Any:
    """A plan whose filters stand above the joins of their FROM clause, where a text has them: they mean the same there.

    Filters of one place are one, whose conditions are in an order, each once: a text has them in one WHERE clause.
    """
    if isinstance(part, tuple):
        return tuple(map(lifted, part))
    if isinstance(part, Function) or not INIT_FIELDS.get(type(part)):
        return part
    part = replace(part, **{name: lifted(getattr(part, name)) for name in INIT_FIELDS[type(part)]})
    if isinstance(part, Join) and isinstance(part.left, Filter):
        below = part.left
        return lifted(Filter(replace(part, left=below.input), below.predicate))
    if isinstance(part, Filter):
        below, found = part.input, list(iterate_factored_conjuncts(part.predicate))
        while isinstance(below, Filter):
            found += iterate_factored_conjuncts(below.predicate)
            below = below.input
        return Filter(
            below,
            build_conjunction(sorted(dict.fromkeys(found), key=compute_canonical_text)) or part.predicate,
        )
    return part
