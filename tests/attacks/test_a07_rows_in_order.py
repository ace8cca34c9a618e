"""A7, ranks, windows and limits on raw rows: what depends on other people's rows is refused below the release."""

from __future__ import annotations

import pytest
from attacks.naive import Naive
from worlds import Refused, Row, person, world

from dpsql.api.connection import Connection

EVERY_OTHER = (
    "SELECT SUM(cost) FROM people WHERE id IN (SELECT id FROM "
    "(SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS place FROM people) AS ranked WHERE place % 2 = 0)"
)
WINDOWS = [
    "ROW_NUMBER() OVER (ORDER BY cost)",
    "RANK() OVER (ORDER BY cost DESC)",
    "DENSE_RANK() OVER (PARTITION BY city ORDER BY age)",
    "PERCENT_RANK() OVER (ORDER BY cost)",
    "CUME_DIST() OVER (ORDER BY cost)",
    "NTILE(2) OVER (ORDER BY id)",
    "LAG(cost) OVER (ORDER BY id)",
    "LEAD(cost, 2, 0) OVER (ORDER BY id)",
    "FIRST_VALUE(cost) OVER (ORDER BY cost)",
    "LAST_VALUE(cost IGNORE NULLS) OVER (ORDER BY cost)",
    "NTH_VALUE(cost, 2) OVER (ORDER BY cost)",
    "SUM(cost) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)",
    "AVG(cost) OVER (PARTITION BY word)",
    "MAX(cost) OVER w",
    "SUM(cost) FILTER (WHERE age > 3) OVER ()",
    "FILL(cost) OVER (ORDER BY day)",
]
GROUPS = ["ROW_NUMBER() OVER ()", "COUNT(*) OVER ()"]
"""What looks at rows below an aggregate, and at released groups above it."""
BELOW = [
    "SELECT SUM({}) FROM people",
    "SELECT COUNT(*) FROM people WHERE {} > 1",
    "SELECT COUNT(*) FROM people GROUP BY {}",
    "SELECT COUNT(*) FROM people JOIN regions ON city = name AND {} > 1",
    "SELECT SUM(CASE WHEN {} > 1 THEN 1 ELSE 0 END) FROM people",
    "SELECT SUM(place) FROM (SELECT id, {} AS place FROM people)",
    "SELECT COUNT(*) FROM (SELECT id FROM people QUALIFY {} > 1)",
    "SELECT COUNT(*) FROM (SELECT id, COUNT(*) FROM people GROUP BY id QUALIFY {} > 1)",
    "SELECT COUNT(*) FROM people HAVING {} > 1",
]
ABOVE = [
    "SELECT COUNT(*) FROM people QUALIFY {} > 1",
    "SELECT city, COUNT(*), {} FROM people GROUP BY city",
    "SELECT COUNT(*) FROM people ORDER BY {}",
]
ROWS = [
    "SELECT id, ROW_NUMBER() OVER () AS cost FROM people",
    "SELECT * FROM people LIMIT 1",
    "SELECT * FROM people ORDER BY cost DESC LIMIT 1",
    "SELECT * FROM people OFFSET 1",
    "SELECT * FROM people ORDER BY id FETCH FIRST 1 ROWS ONLY",
    "SELECT * FROM people LIMIT 50%",
    "SELECT * FROM people USING SAMPLE 1",
    "SELECT DISTINCT cost FROM people",
    "SELECT DISTINCT ON (city) * FROM people ORDER BY cost",
    "SELECT ANY_VALUE(cost) AS cost FROM people GROUP BY city",
    "SELECT FIRST(cost ORDER BY cost) AS cost FROM people",
    "SELECT ARG_MAX(cost, age) AS cost FROM people",
    "SELECT UNNEST(LIST(cost)) AS cost FROM people",
    "SELECT * FROM people QUALIFY ROW_NUMBER() OVER (PARTITION BY city) = 1",
    "SELECT * FROM people POSITIONAL JOIN regions",
    "SELECT * FROM people ASOF JOIN regions ON age >= rank",
    "FROM people LIMIT 1",
]
"""Below an aggregate each lets one person's row decide what becomes of another's."""
AROUND = [
    "SELECT SUM(cost) FROM ({}) AS people",
    "WITH chosen AS ({}) SELECT SUM(cost) FROM chosen",
    "WITH people AS ({}) SELECT SUM(cost) FROM people",
    "SELECT SUM(cost) FROM people WHERE cost IN (SELECT cost FROM ({}) AS chosen)",
    "SELECT SUM(cost) FROM people SEMI JOIN ({}) AS chosen USING (cost)",
    "SELECT SUM(cost) FROM people, LATERAL ({}) AS chosen",
]
MODIFIERS = [
    "LIMIT (SELECT COUNT(*) FROM people)",
    "LIMIT age",
    "OFFSET age",
    "LIMIT 1 BY city",
    "ORDER BY cost LIMIT 1 WITH TIES",
    "WINDOW w AS (ORDER BY id)",
    "POSITIONAL JOIN regions",
    "ASOF JOIN regions ON city = name",
]


def alternating() -> list[Row]:
    """Two hundred people of whom every other one costs something."""
    return [person(who, cost=100.0 * (who % 2)) for who in range(200)]


def test_one_person_changes_every_rank() -> None:
    """The attack works on a careless engine: a first row shifts the others' ranks, and the sum by far more than its bound."""
    ours, theirs = (Naive(world(*first, *alternating()), bound=100) for first in ([], [person(-1, cost=0)]))
    assert abs(ours.number(EVERY_OTHER) - theirs.number(EVERY_OTHER)) > 90 * 100


def test_ranking_rows_is_refused(refused: Refused) -> None:
    """The query of the attack and its parts are refused without a charge."""
    refused(EVERY_OTHER)
    refused("SELECT SUM(cost) FROM people WHERE rowid % 2 = 0")
    refused("SELECT SUM(cost) FROM people QUALIFY ROW_NUMBER() OVER (ORDER BY id) % 2 = 0")


@pytest.mark.parametrize("window", [*WINDOWS, *GROUPS])
def test_windows_over_rows_are_refused(window: str, refused: Refused) -> None:
    """They are refused in arguments, filters, keys, joins, branches, derived tables, QUALIFY and HAVING."""
    for place in BELOW:
        refused(place.format(window))


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_over_columns_of_rows_are_refused(window: str, refused: Refused) -> None:
    """They are refused in QUALIFY, outputs and ORDER BY of a release."""
    for place in ABOVE:
        refused(place.format(window))


@pytest.mark.parametrize("rows", ROWS)
def test_choosing_rows_below_an_aggregate_is_refused(rows: str, refused: Refused) -> None:
    """Choosing rows in a derived table, a common table expression, a filter or a join is refused."""
    for around in AROUND:
        refused(around.format(rows))


@pytest.mark.parametrize("modifier", MODIFIERS)
def test_row_order_clauses_below_the_aggregate_are_refused(modifier: str, refused: Refused) -> None:
    """A limit that depends on rows, a named window, a join by place: refused."""
    refused(f"SELECT COUNT(*) FROM people {modifier}")


@pytest.mark.parametrize("call", ["ANY_VALUE", "FIRST", "LAST", "ARBITRARY", "LIST", "MODE"])
def test_aggregate_that_shows_a_row_is_refused(call: str, refused: Refused) -> None:
    """An aggregate whose value is some row's own: refused."""
    refused(f"SELECT {call}(cost) FROM people")
    refused(f"SELECT city, {call}(cost ORDER BY id) FROM people GROUP BY city")
    refused("SELECT MEDIAN(cost ORDER BY id) FROM people")


def test_outer_limit_sees_released_rows_only(town: Connection) -> None:
    """LIMIT and ORDER BY of the outer query are answered: they choose among released rows."""
    sql = "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY n DESC LIMIT 1"
    assert len(town.query(sql, epsilon=1)) == 1
    statement = town.explain(sql, epsilon=1).prepared.statement.sql
    assert "LIMIT" not in statement
    assert "DESC" not in statement
