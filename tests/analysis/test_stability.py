"""Contribution bounds and the fan-out of joins."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from properties.worlds import World, policy

import dpsql
from dpsql.analysis.stability import ContributionBound
from dpsql.plan.nodes import Project, SetKind, SetOperation

_COUNTED = "t JOIN (SELECT u, COUNT(*) AS n FROM t GROUP BY u) AS c ON t.u = c.u"
_NAMES = "(VALUES (1, 'one'), (2, 'two')) AS l(m, name)"


def bound(sql: str, max_groups: int | None = None, **rules: Any) -> ContributionBound:
    """The contribution bound of a query over the tiny schema."""
    return World(policy(**rules)).prepare(sql, max_groups).plan.analysis.bound


@pytest.mark.parametrize(
    ("sql", "rules", "rows", "groups", "limited"),
    [
        ("SELECT COUNT(*) FROM t", {}, 2, 1, False),
        ("SELECT COUNT(*) FROM t GROUP BY k", {}, 2, 2, False),
        ("SELECT COUNT(*) FROM t GROUP BY k", {"rows": 20}, 20, 3, False),  # A, B and NULL
        ("SELECT COUNT(*) FROM t GROUP BY k", {"rows": 20, "groups": 2}, 20, 2, True),
        ("SELECT COUNT(*) FROM t GROUP BY k", {"rows": 20, "groups": 9}, 20, 3, False),
        ("SELECT COUNT(*) FROM t GROUP BY s", {"rows": 20}, 20, 20, False),
        ("SELECT COUNT(*) FROM t GROUP BY k", {"rows": 20, "partition": True}, 20, 1, True),
        ("SELECT COUNT(*) FROM t GROUP BY k, s", {"rows": 20, "partition": True}, 20, 20, False),
        ("SELECT COUNT(*) FROM t GROUP BY k", {"rows": 1}, 1, 1, False),
        ("SELECT COUNT(*) FROM t GROUP BY k", {"unit": "row"}, 1, 1, False),
        ("SELECT COUNT(*) FROM (SELECT u FROM t GROUP BY u)", {"rows": 20}, 1, 1, False),
        ("SELECT COUNT(*) FROM (SELECT u, k FROM t GROUP BY u, k)", {"rows": 20}, 3, 1, False),
        ("SELECT COUNT(*) FROM (SELECT u, k FROM t GROUP BY k, u) GROUP BY k", {"rows": 20}, 3, 3, False),
        (
            "SELECT COUNT(*) FROM (SELECT u, k FROM t WHERE x > 1 GROUP BY u, k, x > 2)",
            {"rows": 20},
            9,
            1,
            False,
        ),
        ("SELECT COUNT(*) FROM (SELECT u, k FROM t GROUP BY u, k)", {"rows": 2}, 2, 1, False),
        ("SELECT COUNT(*) FROM (SELECT u, s FROM t GROUP BY u, k, s)", {"rows": 20}, 20, 1, False),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT u, k FROM t)", {"rows": 20}, 3, 1, False),
        ("SELECT COUNT(*) FROM (SELECT u, k FROM t UNION ALL SELECT u, s FROM t)", {"rows": 3}, 6, 1, False),
        ("SELECT COUNT(*) FROM t JOIN p ON t.k = p.k", {"rows": 3}, 6, 1, False),
        ("SELECT COUNT(*) FROM t JOIN p a ON t.k = a.k JOIN p b ON t.k = b.k", {"rows": 1}, 4, 1, False),
        # what one row of a unit says, and what is looked up for that, is one key of the unit
        ("SELECT COUNT(*) FROM t JOIN p ON t.k = p.k GROUP BY t.k", {"rows": 1}, 2, 1, True),
        ("SELECT COUNT(*) FROM t JOIN p ON t.k = p.k GROUP BY p.w", {"rows": 1}, 2, 2, False),
        (f"SELECT COUNT(*) FROM {_COUNTED} GROUP BY c.n", {"rows": 5}, 5, 1, True),
        (f"SELECT COUNT(*) FROM {_COUNTED} GROUP BY c.n, k", {"rows": 5}, 5, 3, True),
        (f"SELECT COUNT(*) FROM {_COUNTED} GROUP BY c.n, s", {"rows": 5}, 5, 5, False),
        (
            f"SELECT COUNT(*) FROM (SELECT t.u, c.n + 1 AS m, s FROM {_COUNTED}) GROUP BY m",
            {"rows": 5},
            5,
            1,
            True,
        ),
        (
            f"SELECT COUNT(*) FROM (SELECT t.u, c.n + 1 AS m, s FROM {_COUNTED}) GROUP BY m, s",
            {"rows": 5},
            5,
            5,
            False,
        ),
        (
            "SELECT COUNT(*) FROM (SELECT u, k AS m FROM t) GROUP BY m",
            {"rows": 5, "partition": True},
            5,
            1,
            True,
        ),
        (
            "SELECT COUNT(*) FROM t LEFT JOIN (SELECT u, k AS m FROM t) AS c ON t.u = c.u GROUP BY m",
            {"rows": 2, "partition": True},
            4,
            1,
            True,
        ),
        (f"SELECT COUNT(*) FROM {_COUNTED} GROUP BY c.n, k", {"rows": 2}, 2, 2, False),
        (f"SELECT COUNT(*) FROM {_COUNTED} GROUP BY c.n, k", {"rows": 5, "groups": 2}, 5, 2, True),
        (
            f"SELECT COUNT(*) FROM {_COUNTED} JOIN {_NAMES} ON c.n = l.m GROUP BY name",
            {"rows": 5},
            5,
            1,
            True,
        ),
        (
            f"SELECT COUNT(*) FROM {_COUNTED} LEFT JOIN {_NAMES} ON c.n = l.m GROUP BY name",
            {"rows": 5},
            5,
            1,
            True,
        ),
        (f"SELECT COUNT(*) FROM {_COUNTED} JOIN {_NAMES} ON i = l.m GROUP BY name", {"rows": 5}, 5, 2, False),
        (
            f"SELECT COUNT(*) FROM {_COUNTED} LEFT JOIN {_NAMES} ON c.n = l.m AND i > 2 GROUP BY name",
            {"rows": 5},
            5,
            3,  # both names and NULL
            False,
        ),
        (
            f"SELECT COUNT(*) FROM {_COUNTED.replace('JOIN', 'LEFT JOIN')} GROUP BY c.n",
            {"rows": 5},
            5,
            1,
            True,
        ),
        (
            f"SELECT COUNT(*) FROM {_COUNTED.replace('JOIN', 'LEFT JOIN')} AND i > 2 GROUP BY c.n",
            {"rows": 5},
            5,
            5,
            False,
        ),
    ],
)
def test_bounds_follow_joins_keys_and_limits(
    sql: str, rules: dict[str, Any], rows: int, groups: int, limited: bool
) -> None:
    """Rows are multiplied by joins; groups never pass rows, keys or what is stated."""
    found = bound(sql, **rules)
    assert (found.rows, found.groups, found.limits_groups) == (rows, groups, limited)


def test_query_may_only_lower_the_bound() -> None:
    """The smaller of the policy's and the query's max_groups counts."""
    sql = "SELECT COUNT(*) FROM t GROUP BY s"
    assert bound(sql, max_groups=5, rows=20, groups=3).groups == 3
    assert bound(sql, max_groups=2, rows=20, groups=3).groups == 2


def test_choice_per_unit_keeps_the_bound_of_a_join() -> None:
    """Rows of a unit that are joined to others of it multiply, whether or not an answer chose among them."""
    for chosen in ("", " WHERE k IN (SELECT k FROM t GROUP BY k)"):
        sql = f"SELECT COUNT(*) FROM t JOIN (SELECT u, x FROM t{chosen}) AS d ON t.u = d.u"
        plan = World(policy(rows=3)).prepare(sql).releases[-1].plan
        assert plan.analysis.bound.rows == 9


@pytest.mark.parametrize(
    ("keys", "column", "expected"),
    [
        ("1, 1, 2", {"type": "integer"}, 2),
        ("1, 2, 3", {"type": "integer"}, 1),
        ("NULL, NULL, 3", {"type": "integer"}, 1),
        ("5, 50, 500", {"type": "integer", "bounds": [0, 5]}, 3),  # all clamped to 5
        ("1, 2, 3", {"type": "integer", "values": [1]}, 1),  # the others are read as NULL
        ("9007199254740992, 9007199254740993", {"type": "integer"}, 2),  # equal as DOUBLE
        ("CAST(0.0 AS DOUBLE), CAST(-0.0 AS DOUBLE)", {"type": "double"}, 2),
        ("CAST('NaN' AS DOUBLE), CAST('NaN' AS DOUBLE)", {"type": "double"}, 1),
    ],
)
def test_fanout_is_counted_as_the_join_compares(keys: str, column: dict[str, Any], expected: int) -> None:
    """Public keys that differ as stored but are equal when joined count together."""
    database = duckdb.connect()
    database.execute(
        f"CREATE TABLE t AS SELECT CAST(1 AS DOUBLE) AS x; CREATE TABLE q AS SELECT unnest([{keys}]) AS y"
    )
    rules = policy(unit="row")
    rules["tables"] = {
        "t": {"unit": "row", "columns": {"x": {"type": "double"}}},
        "q": {"public": True, "columns": {"y": column}},
    }
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=1) as con:
        prepared = con.explain("SELECT COUNT(*) FROM t JOIN q ON x = y").prepared
        assert prepared.plan.analysis.bound.rows == expected


@pytest.mark.parametrize(
    ("keys", "condition", "expected"),
    [
        ("NULL, NULL, NULL, 1, 1", "x IS NOT DISTINCT FROM y", 3),
        ("NULL, 1, 1", "y IS NOT DISTINCT FROM x", 2),
        ("NULL, NULL, 1, 2", "x IS NOT DISTINCT FROM y AND y > 1", 2),
        ("1, 2, 3", "x IS NOT DISTINCT FROM x", 3),
        ("1, 2, 3", "x IS NOT DISTINCT FROM y OR y = 2", 3),
    ],
)
def test_fanout_counts_null_where_the_join_matches_it(keys: str, condition: str, expected: int) -> None:
    """IS NOT DISTINCT FROM joins a row with NULL to all public rows with NULL."""
    database = duckdb.connect()
    database.execute(f"CREATE TABLE t AS SELECT 1 AS x; CREATE TABLE q AS SELECT unnest([{keys}]) AS y")
    rules = policy(unit="row")
    rules["tables"] = {
        "t": {"unit": "row", "columns": {"x": {"type": "integer"}}},
        "q": {"public": True, "columns": {"y": {"type": "integer"}}},
    }
    with dpsql.connect(database, policy=rules, ledger=":memory:", epsilon=1) as con:
        prepared = con.explain(f"SELECT COUNT(*) FROM t LEFT JOIN q ON {condition}").prepared
        assert prepared.plan.analysis.bound.rows == expected


def test_too_large_a_fanout_is_refused() -> None:
    """A join that could repeat a unit's rows beyond what sums can hold is refused."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        bound("SELECT COUNT(*) FROM t JOIN p ON t.k = p.k", rows=10**9)
    assert caught.value.code == "fanout"


def test_rows_that_are_units_are_on_one_side() -> None:
    """A plan that reads such a table on both sides of a set operation cannot be built, whoever builds it."""
    release = (
        World(policy(unit="row")).prepare("SELECT COUNT(*) FROM (SELECT k, x FROM t)").plan.analysis.release
    )
    side = release.input
    assert isinstance(side, Project)
    with pytest.raises(ValueError, match="read only once"):
        SetOperation(side, side, side.alias, SetKind.UNION_ALL, side.columns)
