"""What is shown, and what aggregates over released groups read: the groups that SQL has, that of NULL where somebody is in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from worlds import engine_of, person, prepared, world

from dpsql.api.connection import Connection
from dpsql.engine.postprocess.empty_groups import list_possibly_empty_releases

COUNTED = "(SELECT city, COUNT(*) AS n FROM people GROUP BY city) AS g"
BOTH = "(SELECT city, member, COUNT(*) AS n FROM people GROUP BY city, member) AS g"
OVER = [
    f"SELECT AVG(n) FROM {COUNTED}",
    f"SELECT COUNT(*), MIN(n), MAX(n), SUM(n) FROM {COUNTED}",
    f"SELECT COUNT_IF(n < 5), SUM(n) FROM {COUNTED}",
    f"SELECT COUNT(n), SUM(n * n) FROM {COUNTED} WHERE n < 50",
    "SELECT AVG(n) FROM (SELECT city, COUNT(*) AS n FROM people WHERE member GROUP BY city) AS g",
    "SELECT AVG(n) FROM (SELECT COUNT(DISTINCT id) AS n FROM people GROUP BY city) AS g",
    "SELECT COUNT(a), AVG(a) FROM (SELECT AVG(cost) AS a, COUNT(*) AS n FROM people GROUP BY city) AS g",
    "SELECT COUNT(*) FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city HAVING COUNT(*) < 5) AS g",
    "SELECT AVG(n) FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY n LIMIT 1) AS g",
    f"WITH t AS (SELECT n + 1 AS m FROM {COUNTED}) SELECT MIN(m) FROM t",
    f"SELECT (SELECT AVG(n) FROM {COUNTED}) + 1 AS one FROM regions LIMIT 1",
    f"SELECT COUNT(*) FROM people WHERE id > (SELECT AVG(n) FROM {COUNTED})",
    f"SELECT COUNT(*) FROM {COUNTED} CROSS JOIN regions",
    f"SELECT COUNT(*) FROM (SELECT n FROM {COUNTED} UNION ALL SELECT n FROM {COUNTED}) AS u",
    f"SELECT COUNT(*), AVG(n) FROM {BOTH} WHERE member GROUP BY city ORDER BY 2",
    f"SELECT AVG(s) FROM (SELECT city, SUM(n) AS s FROM {BOTH} WHERE member GROUP BY city) AS h",
]
SHOWN = [
    "SELECT city, COUNT(*) FROM people GROUP BY city",
    "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY city",
    "SELECT city, COUNT(*) AS n FROM people GROUP BY city ORDER BY n LIMIT 2",
    "SELECT COALESCE(city, 'none') AS c, AVG(cost) AS a, COUNT(*) FROM people GROUP BY city ORDER BY city",
    "SELECT city, COUNT(*) FROM people GROUP BY ROLLUP (city) ORDER BY 2",
    f"SELECT city, n FROM {COUNTED} ORDER BY city",
    "SELECT city, HISTOGRAM(age, [30, 60]), COUNT(*) FROM people GROUP BY city ORDER BY city",
    f"SELECT city, RANK() OVER (ORDER BY n) AS r FROM {COUNTED} ORDER BY city",
]
"""What shows the released groups themselves."""
ADDED = [f"SELECT city, SUM(n) FROM {COUNTED} GROUP BY city ORDER BY city"]
"""What adds them up alone, which is the count of the rows themselves."""


def town(lost: int) -> Connection:
    """Twelve people of Bonn and four of Kiel, and as many whose city is not known, of whom all are members."""
    cities = [*["Bonn"] * 12, *["Kiel"] * 4, *[None] * lost]
    rows = [person(who, city=city) for who, city in enumerate(cities)]
    return world(*rows, table={"partition": "member"}, budget={"epsilon": 10**7, "delta": 1e-6})


@pytest.fixture(scope="module")
def towns() -> dict[int, Connection]:
    """Without and with people in the group of NULL."""
    return {lost: town(lost) for lost in (0, 3)}


@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("sql", OVER)
def test_empty_null_group_is_in_no_outer_aggregate(sql: str, lost: int, towns: dict[int, Connection]) -> None:
    """The answer is the engine's own with hardly any noise, and a replay is the same."""
    expected = engine_of(towns[lost]).execute(sql).fetchall()
    result = towns[lost].query(sql, epsilon=10_000)
    assert [*result.rows] == [pytest.approx(row, rel=0.01) for row in expected]
    assert towns[lost].query(sql, epsilon=10_000).rows == result.rows


@pytest.mark.parametrize("lost", [0, 3])
@pytest.mark.parametrize("sql", SHOWN)
def test_empty_null_group_is_not_shown(sql: str, lost: int, towns: dict[int, Connection]) -> None:
    """A group of NULL is shown only where it has people."""
    expected = engine_of(towns[lost]).execute(sql).fetchall()
    found = towns[lost].query(sql, epsilon=10_000).rows
    assert Counter(city for city, *_ in found) == Counter(city for city, *_ in expected)


def test_listed_groups_are_shown() -> None:
    """A value that the policy lists is shown even if nobody has it."""
    found = world(person(1, city="Bonn"), budget={"epsilon": 10**7, "delta": 1e-6}).query(
        SHOWN[0], epsilon=100
    )
    assert [city for city, _ in found.rows] == ["Bonn", "Kiel"]


@pytest.mark.parametrize("sql", ADDED)
def test_sums_over_groups_read_all_groups(sql: str, towns: dict[int, Connection]) -> None:
    """No person in a small group is lost, and no group of nobody is added: the sum of counts is the count of the rows."""
    for lost, town_of in towns.items():
        assert len(town_of.query(sql, epsilon=10_000).rows) == (3 if lost else 2)


def members(connection: Connection, epsilon: float) -> tuple[Any, ...]:
    """How many groups there are, and how many people are in them."""
    (row,) = connection.query(f"SELECT COUNT(*), SUM(n) FROM {COUNTED}", epsilon=epsilon).rows
    return row


def test_groups_within_the_noise_are_left_out(towns: dict[int, Connection]) -> None:
    """Three people look like nobody in 3% of cases where the noise is far larger, else never.

    In more than half of twenty they are with a probability of 2e-12.
    """
    noisy = [members(towns[3], 0.05 + number / 1000)[0] for number in range(20)]
    assert noisy.count(2) >= 10
    assert members(towns[3], 50)[0] == 3


def test_groups_without_a_count_are_kept(towns: dict[int, Connection]) -> None:
    """Nothing shows that a group is empty without a count of rows or people."""
    sql = "SELECT COUNT(*) FROM (SELECT city, SUM(cost) AS s FROM people GROUP BY city) AS g"
    for asked, found in ((sql, 0), (OVER[0], 1)):
        part = prepared(towns[0], asked).single_release
        assert len(list_possibly_empty_releases({part.release: part.plan})) == found
    assert towns[0].query(sql, epsilon=10_000).rows == ((3,),)


def test_explain_mentions_groups_left_out(towns: dict[int, Connection]) -> None:
    """EXPLAIN mentions them, for the release that an aggregate reads, too."""
    said = "a NULL group is left out"
    assert all(said in str(towns[0].explain(sql)) for sql in [*OVER, *SHOWN, *ADDED])
