"""Statements of many aggregates: what the engine is asked to do is linear in their number, with groups and without."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from worlds import close_all, person, prepared, world

from dpsql.backends.dialect import Dialect
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.postgres.dialect import POSTGRES
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.statement import ReleaseStatement, emit_release

_READS = re.compile(
    r"\b(?:SUM|COUNT|MAX|LIST|ARRAY_AGG|COLLECT_LIST|HISTOGRAM)\(|GROUPING SETS \((?P<sets>(?:\([^()]*\),? ?)+)\)"
)
SIZES = (12, 36)
ITEMS: dict[str, Callable[[int], str]] = {
    "sums": lambda place: f"SUM(age + {place})",
    "conditions": lambda place: f"SUM(age) FILTER (WHERE age <> {place})",
    "branches": lambda place: f"SUM(CASE WHEN age <> {place} THEN age ELSE 0 END)",
}
DIALECTS: list[Dialect] = [DUCKDB, POSTGRES, make_spark_dialect()]


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


def sent(statement: ReleaseStatement) -> list[str]:
    """What an engine runs to choose clamps: in stages, where there are any."""
    stages = statement.stages
    if stages is not None:
        return [*(query for _, query in stages.tables), stages.histograms]
    return [statement.sql, *(query for _, query in statement.held_queries)]


def work(statement: ReleaseStatement) -> int:
    """The aggregates that are computed of a row: those of a query with several grouping sets once for each set."""
    found = 0
    for text in sent(statement):
        aggregates, sets = 0, 1
        for part in _READS.finditer(text):
            if part["sets"] is None:
                aggregates += 1
            else:
                sets = max(sets, part["sets"].count("("))
        found += aggregates * sets
    return found


def statements(dialect: Dialect, item: Callable[[int], str], group: str) -> Iterator[ReleaseStatement]:
    """The statements of a query with each number of items, which learns a clamp for each."""
    connection = world(person(1), table={"rows_per_unit": 100})
    for size in SIZES:
        items = ", ".join(item(place) for place in range(size))
        plan = prepared(connection, f"SELECT {items} FROM people{group}").plan
        assert len(plan.clamps) >= size
        yield emit_release(Compiler(dialect), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)


@pytest.mark.parametrize("group", ["", " GROUP BY city", " GROUP BY word"])
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: type(each).__name__)
def test_work_is_linear_in_the_number_of_clamps(dialect: Dialect, item: str, group: str) -> None:
    """Three times as many items take three times as many aggregates of a row, and as much text."""
    few, many = statements(dialect, ITEMS[item], group)
    times = SIZES[1] / SIZES[0] * 1.1
    assert work(many) <= times * work(few)
    assert sum(map(len, sent(many))) <= times * sum(map(len, sent(few)))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: type(each).__name__)
def test_few_sums_are_one_statement(dialect: Dialect) -> None:
    """One or two sums without groups need no more statements than a sum without a clamp."""
    connection = world(person(1), table={"rows_per_unit": 100})
    for items in ("SUM(age)", "SUM(age), SUM(age + 1)"):
        plan = prepared(connection, f"SELECT {items} FROM people").plan
        statement = emit_release(Compiler(dialect), plan.analysis, plan.quantiles, plan.top_k, plan.clamps)
        assert plan.clamps
        assert statement.stages is None
        assert "GROUPING SETS" not in statement.sql


@pytest.mark.parametrize("item", ITEMS)
def test_many_sums_of_all_rows_are_read_in_stages(item: str) -> None:
    """DuckDB takes ten times as long for 90 of them in one statement as in stages."""
    assert all(statement.stages for statement in statements(DUCKDB, ITEMS[item], ""))


def test_sets_of_keys_multiply_the_aggregates() -> None:
    """A query that adds up two sums by three sets takes six."""
    sql = "SELECT SUM(x), SUM(y) FROM t GROUP BY GROUPING SETS ((a), (b), (c, d))"
    assert work(ReleaseStatement(sql, ())) == 6
