"""Columns without names are called as PostgreSQL calls them, by a server of its own."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import psycopg
import pytest
from sqlglot import exp

from dpsql.sql.parse.dialect import parse_foreign_tokens, require_dialect
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.translate import name_outputs

ITEMS = (
    "count(*)", "COUNT(DISTINCT age)", "avg(cost)", "sum(age) + 1", "max(day)::text", "min(cost)::int", "stddev_samp(cost)",
    "count(*) FILTER (WHERE age > 3)", "sum(age) OVER ()", "row_number() OVER ()", "plan", "v.plan", "(plan)", "lower(plan)",
    "plan || 'a'", "age::text", "(age + 1)::text", "1", "1::bigint", "'a'", "true", "NULL", "-age", "NOT age > 3",
    "age > 3", "age IS NULL", "age IN (1, 2)", "CASE WHEN age > 3 THEN 1 END", "CASE WHEN age > 3 THEN 1 ELSE age END",
    "CASE WHEN age > 3 THEN 1 ELSE 2 END", "coalesce(age, 1)", "nullif(age, 1)", "greatest(age, 1)", "least(age, 1)",
    "extract(year FROM day)", "date_trunc('month', day)", "round(cost)", "abs(age)", "position('a' IN plan)",
    "strpos(plan, 'a')", "trim(plan)", "substring(plan, 1, 1)", "left(plan, 1)", "length(plan)", "replace(plan, 'a', 'b')",
    "(SELECT max(x.age) FROM v AS x)", "(SELECT x.age AS oldest FROM v AS x LIMIT 1)", "EXISTS (SELECT 1)",
    "date '2024-01-01'", "interval '1 day'", "current_date", "corr(cost, cost)", 'age AS "Other"',
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY cost)",
)  # fmt: skip


def parsed(text: str) -> exp.Select:
    (tree,) = parse_foreign_tokens(require_dialect("postgres").tokenize(text), text, dialect="postgres")
    assert isinstance(tree, exp.Select)
    return tree


def names(text: str) -> list[str]:
    tree = parsed(text)
    name_outputs(QueryText(text), tree)
    return [item.output_name for item in tree.selects]


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as started:
        yield started


def test_output_names_are_those_of_postgresql(server: postgres.Server) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute(
            "CREATE TEMPORARY TABLE v AS SELECT 'A' AS plan, 5 AS age, 1.5::float8 AS cost, DATE '2024-01-01' AS day"
        )
        for item in ITEMS:
            text = f"SELECT {item} FROM v"
            described = connection.execute(text).description or []
            assert (item, names(text)) == (item, [each.name for each in described])


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("SELECT t.count FROM (SELECT count(*) FROM v) AS t", "count"),
        ("WITH t AS (SELECT count(*) FROM v) SELECT count FROM t", "count"),
        ("SELECT * FROM (SELECT sum(a), sum(b) FROM v) AS t", None),
        ("SELECT * FROM (SELECT a + 1 FROM v) AS t", None),
        ("SELECT a FROM v WHERE a IN (SELECT max(a) FROM v)", None),
    ],
)
def test_name_is_added_where_it_is_readable_and_unambiguous(text: str, inner: str | None) -> None:
    tree = parsed(text)
    before = tree.copy()
    name_outputs(QueryText(text), tree)
    added = [each.alias for each in tree.find_all(exp.Alias)]
    assert added == ([] if inner is None else [inner])
    assert (tree == before) is (inner is None)
