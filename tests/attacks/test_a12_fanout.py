"""A12, fan-out: however a query repeats one person's rows, that person counts within the bound.

Joins that multiply, self-joins, set operations that swap columns, and people with more rows than the policy
expects: the bound is on what is really added up, person by person, after the joins.
"""

from __future__ import annotations

import pytest
from attacks.naive import Naive
from worlds import (
    Refused,
    Row,
    assert_within,
    cells,
    engine_of,
    joined_by,
    observed,
    person,
    prepared,
    spent,
    world,
)

import dpsql

MILLION = 10**6
COPIES = f"CREATE TABLE copies AS SELECT 'Bonn' AS place, i AS number FROM range({MILLION}) AS r(i)"
PUBLIC = {"copies": {"public": True}}
JOINED = "SELECT COUNT(*) FROM people JOIN copies ON city = place"
BOTH = "SELECT id, age FROM people UNION ALL SELECT age, id FROM people"
SWAPPED = f"SELECT COUNT(*) FROM ({BOTH}) AS found"
MANY = 99_000
CROWD = [person(who, city="Kiel") for who in range(5)]


def test_careless_engine_counts_one_person_a_million_times() -> None:
    """The attack works where the bound is believed before the join: noise of one hides a million of nobody's rows."""
    ours, theirs = (
        Naive(world(*CROWD, *more, setup=[COPIES], tables=PUBLIC)) for more in ([], [person(99, city="Bonn")])
    )
    assert abs(theirs.number(JOINED) - ours.number(JOINED)) > 0.99 * MILLION


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_join_that_repeats_a_row_is_bounded_after_the_join(join: str, unit: str) -> None:
    """One person moves the count by as much as was derived: a million for each of their rows, and no more."""
    connection = world(*CROWD, unit=unit, setup=[COPIES], tables=PUBLIC)
    plan = prepared(connection, f"SELECT COUNT(*) FROM people {join} copies ON city = place")
    before = cells(connection, plan)
    mine = [person(99, city="Bonn")] * (1 if unit == "row" else 5)
    with joined_by(connection, mine):
        moved = assert_within(plan, before, cells(connection, plan))
    most = MILLION * (1 if unit == "row" else 2)
    assert plan.plan.analysis.bound.rows == most
    assert plan.plan.clamps  # at the point that is expected, up to which a unit's rows count
    assert plan.plan.vectors[0].sensitivity.l1 == moved == plan.plan.clamps[0].points[0]


REPEATED = {
    "SELECT COUNT(*) FROM people JOIN (VALUES (30), (30), (30)) AS v(a) ON age = a": 3,
    "SELECT COUNT(*) FROM people CROSS JOIN (VALUES (1), (2)) AS v(a)": 2,
    "SELECT COUNT(*) FROM people, (SELECT name FROM regions UNION ALL SELECT name FROM regions) AS v": 4,
    "SELECT COUNT(*) FROM people JOIN (SELECT rank * 0 AS z FROM regions) AS v ON age * 0 = z": 2,
    f"SELECT COUNT(*) FROM people JOIN (VALUES ({2**53}), ({2**53 + 1})) AS v(a) ON free * 0 + {2**53}e0 = a": 2,
    "SELECT COUNT(*) FROM people JOIN regions ON city = name OR rank > 0": 2,
}
"""Joins with rows that the query itself makes, and how often they repeat one row."""


@pytest.mark.parametrize("unit", ["row", "id"])
@pytest.mark.parametrize("sql", REPEATED)
def test_rows_that_the_query_repeats_are_counted(sql: str, unit: str) -> None:
    """The bound counts the repetitions, however a query repeats public rows."""
    connection = world(person(7, age=5, city="Kiel"), unit=unit)
    plan = prepared(connection, sql)
    before = cells(connection, plan)
    with joined_by(connection, [person(99)] * (1 if unit == "row" else 5)):
        moved = assert_within(plan, before, cells(connection, plan))
    most = REPEATED[sql] * (1 if unit == "row" else 2)
    assert plan.plan.analysis.bound.rows == most
    assert moved == (plan.plan.clamps[0].points[0] if plan.plan.clamps else most)
    assert moved == plan.plan.vectors[0].sensitivity.l1


def test_groups_made_by_a_join_are_bounded() -> None:
    """A person whom a join puts into a thousand groups counts in as many as the policy says, with as many rows."""
    few = "CREATE TABLE copies AS SELECT 'Bonn' AS place, i AS number FROM range(1000) AS r(i)"
    connection = world(*CROWD, setup=[few], tables=PUBLIC, table={"max_groups": 3})
    for aggregates in ("COUNT(*)", "COUNT(DISTINCT id)", "SUM(cost), COUNT(DISTINCT id), AVG(age)"):
        sql = f"SELECT number, {aggregates} FROM people JOIN copies ON city = place GROUP BY number"
        plan = prepared(connection, sql)
        with joined_by(connection, [person(7, city="Bonn"), person(8, city="Bonn")]):
            before = cells(connection, plan)
            with_mine = [person(99, city="Bonn", cost=100)] * 40
        with joined_by(connection, [person(7, city="Bonn"), person(8, city="Bonn"), *with_mine]):
            after = cells(connection, plan)
        assert_within(plan, before, after)
        changed = [key for key in after if before.get(key) != after[key]]
        assert 1 <= len(changed) <= 3


def test_multiplying_joins_are_refused_in_time() -> None:
    """A million times a million rows for one person: refused before anything is read, with no charge."""
    connection = world(*CROWD, setup=[COPIES], tables=PUBLIC)
    sql = "SELECT COUNT(*) FROM people JOIN copies AS a ON city = a.place JOIN copies AS b ON city = b.place"
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.query(sql)
    assert caught.value.code == "fanout"
    assert spent(connection) == 0


@pytest.mark.parametrize("rows_per_unit", [1, 2, 7])
def test_rows_beyond_the_policy_limit_are_cut(rows_per_unit: int) -> None:
    """A person with 99,009 rows moves each statistic by what the bound allows; a careless count moves by all of them."""
    connection = world(*CROWD, table={"rows_per_unit": rows_per_unit})
    mine = [person(99, cost=cost, city=city) for cost in (100, -5, None) for city in ("Bonn", "Kiel", None)]
    multiply = f"INSERT INTO people SELECT people.* FROM people, range({MANY} // 9) WHERE id = 99"
    for sql in (
        "SELECT COUNT(*) FROM people",
        "SELECT SUM(cost), COUNT(*) FROM people",
        "SELECT AVG(cost), COUNT(cost) FROM people WHERE age > 3",
        "SELECT city, COUNT(*), SUM(age) FROM people GROUP BY city",
    ):
        plan = prepared(connection, sql)
        before = cells(connection, plan)
        with joined_by(connection, mine):
            engine_of(connection).execute(multiply)
            assert assert_within(plan, before, cells(connection, plan)) > 0
            assert Naive(connection).number("SELECT COUNT(*) FROM people") > 0.99 * MANY


REFUSED = [
    "SELECT COUNT(*) FROM people AS a JOIN people AS b ON a.city = b.city",
    "SELECT COUNT(*) FROM people AS a, people AS b",
    "SELECT COUNT(*) FROM people AS a CROSS JOIN people AS b",
    "SELECT COUNT(*) FROM people AS a FULL JOIN people AS b ON a.city = b.city",
    "SELECT COUNT(*) FROM people AS a SEMI JOIN people AS b ON a.age = b.age",
    "SELECT COUNT(*) FROM people AS a ANTI JOIN people AS b ON a.age = b.age",
    "SELECT COUNT(*) FROM people AS a JOIN regions ON a.city = name JOIN people AS b ON b.city = name",
    "SELECT COUNT(*) FROM regions LEFT JOIN people ON city = name",
    "SELECT COUNT(*) FROM regions FULL OUTER JOIN people ON city = name",
    "SELECT COUNT(*) FROM people, range(1000000)",
    "SELECT COUNT(UNNEST([1, 2, 3])) FROM people",
    "SELECT COUNT(*) FROM (SELECT * FROM people UNION ALL BY NAME SELECT * FROM people) AS twice",
    "SELECT COUNT(*) FROM (PIVOT people ON city USING SUM(cost)) AS wide",
]


REPEATING = [
    "SELECT COUNT(*), SUM(a.cost) FROM people AS a JOIN people AS b ON a.id = b.id",
    "SELECT COUNT(*) FROM people AS a JOIN people AS b USING (id) JOIN people AS c ON c.id = b.id",
    "SELECT SUM(a.cost - b.cost) FROM people AS a LEFT JOIN people AS b ON a.id = b.id AND b.cost > 3",
    "SELECT a.city, COUNT(*) FROM people AS a RIGHT JOIN people AS b ON a.id = b.id GROUP BY a.city",
    "SELECT COUNT(*) FROM regions RIGHT JOIN people ON city = name",
    "SELECT COUNT(*) FROM people NATURAL JOIN people AS b",
    "SELECT COUNT(*) FROM people, UNNEST([1, 2, 3]) AS u(n)",
    "SELECT COUNT(*), AVG(cost) FROM people JOIN regions ON rank > 0",
    "SELECT COUNT(*) FROM people JOIN regions ON city <> name",
    "SELECT COUNT(*) FROM people JOIN LATERAL (SELECT * FROM regions) AS r ON city = name",
    "SELECT COUNT(*) FROM people JOIN regions ON city = name OR rank = 1",
    "SELECT name, COUNT(*) FROM people CROSS JOIN regions GROUP BY name",
    SWAPPED,
    f"SELECT SUM(LEAST(GREATEST(id, 0), 9)), COUNT(*) FROM ({BOTH}) AS found",
    "SELECT COUNT(*) FROM (SELECT id, cost FROM people UNION ALL SELECT id, age FROM people) AS found",
    "SELECT COUNT(*), SUM(amount) FROM (UNPIVOT people ON age, cost INTO NAME what VALUE amount) AS long",
    "SELECT SUM(cost) FROM (SELECT id, cost FROM people UNION SELECT id, age FROM people) AS found",
    "SELECT SUM(cost) FROM (SELECT id, cost FROM people EXCEPT SELECT id, age FROM people) AS found",
    "WITH twice AS (SELECT * FROM people) SELECT COUNT(*) FROM twice AS a JOIN twice AS b ON a.id = b.id",
    "SELECT SUM(n) FROM (SELECT id, city, COUNT(*) AS n FROM people GROUP BY id, city) AS counts",
    "SELECT n, COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM people GROUP BY id) AS counts GROUP BY n",
    "SELECT COUNT(*) FROM people AS a WHERE EXISTS (SELECT 1 FROM people AS b WHERE b.id = a.id AND b.cost > a.cost)",
]


@pytest.mark.parametrize("sql", REPEATING)
def test_repeated_rows_are_bounded_per_person(sql: str) -> None:
    """Self-joins, joins on no equality, set operations by position, groups of a person: within what was derived."""
    connection = world(*CROWD, *CROWD, person(7, city="Bonn", cost=50, age=3))
    plan = prepared(connection, sql)
    before = cells(connection, plan)
    for many in (1, 40):
        mine = [
            person(99, cost=cost, city=city, age=1000 + row)
            for row in range(many)
            for cost, city in ((100, "Bonn"), (-5, "Kiel"), (None, None))
        ]
        with joined_by(connection, mine):
            assert assert_within(plan, before, cells(connection, plan)) > 0


@pytest.mark.parametrize("sql", REFUSED)
def test_repeating_rows_without_a_bound_is_refused(sql: str, refused: Refused) -> None:
    """Joins of different people's rows, of places, of rows without a person, unnesting: refused, nothing charged."""
    refused(sql)


def test_careless_engine_confuses_columns_of_a_union() -> None:
    """The attack works where a UNION's unit is found by name: swapped, a person's 99,000 rows are 99,000 people's."""
    ours, theirs = Naive(world(*CROWD)), Naive(world(*CROWD))
    engine_of(theirs.connection).execute(
        f"INSERT INTO people (id, age) SELECT 99, 1000 + i FROM range({MANY}) AS r(i)"
    )
    one_row_each = f"SELECT COUNT(DISTINCT id) FROM ({BOTH}) AS found"
    assert theirs.number(one_row_each) - ours.number(one_row_each) > 0.99 * MANY


def test_neighbours_of_a_join_differ_in_values_only(rows: list[Row]) -> None:
    """Only the values depend on whether the person is there whose rows a join repeats."""
    for sql in (JOINED, "SELECT number % 2, COUNT(*) FROM people JOIN copies ON city = place GROUP BY 1"):
        ours, theirs = (
            world(*rows, *more, setup=[COPIES.replace(str(MILLION), "10")], tables=PUBLIC)
            for more in ([], [person(99)])
        )
        assert observed(ours, sql)[0] == observed(theirs, sql)[0]
