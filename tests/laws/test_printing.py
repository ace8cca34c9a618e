"""A drawn plan is what `lower` makes of a query: printed, read and lowered it is itself again."""

from __future__ import annotations

import re

from hypothesis import given
from laws.oracle import Bench, Case, cases
from laws.printing import user_sql
from laws.profiles import WIDE
from sql.sentences import in_grammar

from dpsql.plan.nodes import Post
from dpsql.plan.show import canonical
from dpsql.sql.lower import lower
from dpsql.sql.parse import parse

BENCH = Bench()


@WIDE
@given(cases(BENCH))
def test_a_plan_is_read_back_from_its_text(case: Case) -> None:
    """The printed query lowers to the same plan, but for the numbers of tables that have no name."""
    catalog, facts = BENCH.engine(case.rules).catalog, BENCH.facts(case.database.tables)
    read = lower(parse(user_sql(case.post)), catalog, facts, (), case.post.release.max_groups)
    assert renumbered(read) == renumbered(case.post)


@WIDE
@given(cases(BENCH))
def test_a_printed_plan_is_a_sentence(case: Case) -> None:
    """The printed query is a sentence of the grammar, and SQL to DuckDB."""
    text = user_sql(case.post)
    assert in_grammar(text)
    assert BENCH.backend.parses(text)


def renumbered(post: Post) -> str:
    """A plan as text in which nameless tables are numbered as they come."""
    numbers: dict[str, str] = {}
    return re.sub(r"#\d+", lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), canonical(post))
