"""Below the release boundary rows stay with their unit: what would choose, mix or show them is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from worlds import close_all, person, prepared, spent, world

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.expressions import Column, ColumnInfo, Expr, WindowCall
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    JoinKind,
    Key,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    Project,
    Release,
    SemiJoin,
    Values,
)
from dpsql.plan.types import Type

STAFF = {"unit": "row", "columns": {"grade": {"type": "integer", "bounds": [0, 9]}}}


@pytest.fixture(scope="module")
def town() -> Iterator[Connection]:
    """People, each with an id, and staff, each a row."""
    setup = ["CREATE TABLE staff AS SELECT unnest([1, 2, 3]) AS grade"]
    yield world(person(1), person(2, city="Kiel"), setup=setup, tables={"staff": STAFF})
    close_all()


@pytest.mark.parametrize(
    "rows",
    [
        # where each row is a unit, no two rows are known to be one unit's
        "(SELECT grade FROM staff UNION ALL SELECT grade FROM staff) AS s",
        "(SELECT grade FROM staff EXCEPT SELECT grade FROM staff) AS s",
        "staff AS a JOIN staff AS b ON a.grade = b.grade",
        "staff JOIN people ON grade = age",
        # distinct rows of nobody in particular
        "(SELECT city FROM (SELECT DISTINCT city FROM people)) AS s",
        "(SELECT city FROM (SELECT city FROM people UNION SELECT word FROM people)) AS s",
        "(SELECT city FROM (SELECT city FROM people INTERSECT SELECT word FROM people)) AS s",
        "(SELECT DISTINCT ON (city) id, city FROM people) AS s",
        # public rows among private ones
        "(SELECT city FROM people UNION ALL SELECT name FROM regions) AS s",
        "(SELECT name FROM regions EXCEPT SELECT city FROM people) AS s",
        "regions LEFT JOIN people ON name = city",
        "regions WHERE name IN (SELECT city FROM people)",
        # a row chosen by its place
        "(SELECT id FROM people ORDER BY cost LIMIT 1) AS s",
        "(SELECT id FROM people LIMIT 1) AS s",
        "(SELECT id FROM people OFFSET 1) AS s",
        # one row's value as everybody's
        "people WHERE cost > (SELECT cost FROM people)",
        "people WHERE age > (SELECT rank FROM regions)",
        # a subquery that looks past the query around it
        (
            "people AS p WHERE EXISTS (SELECT 1 FROM regions AS r WHERE EXISTS "
            "(SELECT 1 FROM regions AS q WHERE q.rank > r.rank AND q.name = p.city))"
        ),
    ],
)
def test_mixing_rows_of_units_is_refused(rows: str, town: Connection) -> None:
    """Refused at its place before anything is charged, as a derived table, a join or a condition."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(town, f"SELECT COUNT(*) FROM {rows}")
    assert caught.value.position is not None
    assert spent(town) == 0


@pytest.mark.parametrize("sum_", ["SUM(free)", "AVG(free)", "SUM(free * cost)"])
def test_sums_of_doubles_within_a_unit_need_bounds(sum_: str, town: Connection) -> None:
    """A sum of floats without bounds has no lattice, and depends on the order of rows."""
    query = "SELECT COUNT(*) FROM (SELECT id, {} AS total FROM people GROUP BY id) AS s WHERE total > 1"
    with pytest.raises(dpsql.QueryRejected) as caught:
        prepared(town, query.format(sum_))
    assert caught.value.code == "unbounded"
    prepared(town, query.format(sum_.replace("free", "LEAST(GREATEST(free, 0), 9)")))


ROWS = Values(((True,),), "v", (Column("v", "x", ColumnInfo(Type.BOOLEAN, "")),))
(X,) = ROWS.columns
RANK = WindowCall("max", (X,), (), (), None, ignore_nulls=False, type=Type.BOOLEAN)
NAMED = (Column("t", "x", X.facts),)


@pytest.mark.parametrize(
    "node",
    [
        lambda expr: Filter(ROWS, expr),
        lambda expr: SemiJoin(ROWS, ROWS, expr),
        lambda expr: Join(ROWS, ROWS, JoinKind.INNER, (), expr),
        lambda expr: Join(ROWS, ROWS, JoinKind.INNER, ((expr, X),)),
        lambda expr: Project(ROWS, "t", (expr,), NAMED),
        lambda expr: PerUnitGroupBy(ROWS, "t", (expr,), (), NAMED),
        lambda expr: PerUnitGroupBy(ROWS, "t", (), (PerUnitAggregate("max", expr),), NAMED),
        lambda expr: Release(ROWS, (Key("k0", expr),), ()),
        lambda expr: Release(ROWS, (), (Aggregation("a0", "count", expr, Type.INTEGER),)),
        lambda expr: OuterQuery(ROWS, (Output("x", X),), expr),
    ],
)
def test_windows_below_the_release_boundary_are_refused(node: Callable[[Expr], object]) -> None:
    """No node but the outermost part of a query can be made of what looks at several rows."""
    node(X)
    for expr in (RANK, WindowCall("max", (X,), (RANK,), (), None, ignore_nulls=False, type=Type.BOOLEAN)):
        with pytest.raises(ValueError, match="window functions are only allowed in the outputs"):
            node(expr)
