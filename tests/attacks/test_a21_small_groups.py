"""A21, empty and one-unit groups: a fine key shows nobody, and below the minimum frequency nothing shows a group."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from attacks.naive import Naive
from attacks.releases import shown, without_threshold
from worlds import COLUMNS, Declared, Refused, Row, observed, person, spent, world

from dpsql.engine.postprocess import empty_groups
from dpsql.planning.measurement import MeasurementPlan

LEAST = 5


def several(count: int, first: int = 0, **values: Any) -> list[Row]:
    """So many people with these values."""
    return [person(first + who, **values) for who in range(count)]


FINE = [
    "cost, age, day",
    "CAST(id AS VARCHAR)",
    "id * 1",
    "id + age",
    "seen",
    "word, city, member",
    "LOWER(word), DATE_TRUNC('hour', seen)",
    "ROUND(cost, 2)",
    "SUBSTRING(word, 1, 4)",
]


UNITS = ("CAST(id AS VARCHAR)", "id")
"""Keys that are the unit's id, where the policy says so."""


@pytest.mark.parametrize(
    ("keys", "unit"),
    [*((keys, "id") for keys in FINE if keys not in UNITS), *((keys, "row") for keys in FINE)],
)
def test_key_as_fine_as_a_person_shows_nobody(keys: str, unit: str) -> None:
    """None of sixty people, each alone in a group, is shown at any tried loss."""
    rows = [
        person(
            who, cost=who + 0.37, word=f"w{who:03}", seen=f"2020-02-{1 + who % 28:02} 0{who % 10}:{who:02}:00"
        )
        for who in range(60)
    ]
    columns = {name: kind for name, kind in COLUMNS.items() if name != "id"} | {
        "id": ("INTEGER", {"type": "integer"})
    }
    connection = world(*rows, unit=unit, columns=columns)
    sql = f"SELECT COUNT(*), AVG(age) FROM people GROUP BY {keys}"
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(8)):
        assert not any(shown(connection, sql, epsilon))


def test_key_of_one_person_is_refused(refused: Refused) -> None:
    """The text of the query decides, whatever function is applied to the id."""
    for key in UNITS:
        assert refused(f"SELECT COUNT(*), AVG(age) FROM people GROUP BY {key}") == "group_by_unit"


def test_careless_engine_lists_small_groups() -> None:
    """The attack works where groups are those of the data: the one patient of a rare disease is named."""
    rows = [*several(50, word="cold"), person(99, word="kuru")]
    sql = "SELECT word, COUNT(*) FROM people GROUP BY word"
    assert {word for word, _ in Naive(world(*rows)).query(sql)} == {"cold", "kuru"}
    assert {word for word, _ in Naive(world(*rows[:-1])).query(sql)} == {"cold"}
    for keys in shown(world(*rows), sql, Fraction(5)):
        assert keys == [("cold",)]


class Frequent(Naive):
    """Holds groups of fewer than five rows back, as many statistical offices do, counting rows."""

    def released(self, sql: str) -> list[Any]:
        """The names of the groups that it shows."""
        return [name for name, count in self.query(sql, epsilon=1000) if count > LEAST - 0.5]


REPEATED = {
    # name: the query, what one person brings
    "rows": ("SELECT word, COUNT(*) FROM people GROUP BY word", 300),
    "joins": ("SELECT word, COUNT(*) FROM people JOIN copies ON city = place GROUP BY word", 1),
}


@pytest.mark.parametrize("case", REPEATED)
@pytest.mark.parametrize("least", [1, LEAST])
def test_repeated_person_counts_once(case: str, least: int) -> None:
    """A person's many rows, or rows that a join repeats, lift no group over a threshold or a minimum frequency.

    The attack works on an engine that counts rows: there the group of one person is shown.
    """
    sql, times = REPEATED[case]
    setup = ["CREATE TABLE copies AS SELECT 'Bonn' AS place FROM range(300)"]
    rows = [*several(150, word="crowd", city="Kiel"), *(person(99, word="mine") for _ in range(times))]
    connection = world(
        *rows, setup=setup, table={"min_frequency": least}, tables={"copies": {"public": True}}
    )
    assert "mine" in Frequent(connection).released(sql)
    assert all(("mine",) not in keys for keys in shown(connection, sql))
    assert ("mine",) not in without_threshold(connection, sql) or least == 1


@pytest.mark.parametrize("people", [0, 1, LEAST - 1])
@pytest.mark.parametrize("declared", [False, True], ids=["unknown", "declared"])
@pytest.mark.parametrize("unit", ["id", "row"])
def test_group_below_min_frequency_is_never_shown(people: int, unit: str, *, declared: bool) -> None:
    """No noise shows a group of fewer people than the policy's minimum."""
    rule = {"type": "varchar", **({"values": ["crowd", "few", "none"]} if declared else {})}
    columns: Declared = COLUMNS | {"word": ("VARCHAR", rule)}
    rows = [*several(200, word="crowd"), *several(people, 1000, word="few", cost=99)]
    connection = world(*rows, columns=columns, unit=unit, table={"min_frequency": LEAST})
    for sql in (
        "SELECT word, COUNT(*) FROM people GROUP BY word",
        "SELECT word FROM people GROUP BY word",
        "SELECT word, SUM(cost), AVG(cost) FROM people GROUP BY word HAVING COUNT(*) < 50 OR COUNT(*) > 50",
        "SELECT word, member, COUNT(*) FROM people GROUP BY word, member",
        "SELECT word, COUNT(*) FROM people JOIN regions ON city = name GROUP BY word",
    ):
        assert {key[0] for key in without_threshold(connection, sql)} == {"crowd"}
    assert all(
        keys == [("crowd",)] for keys in shown(connection, "SELECT word, COUNT(*) FROM people GROUP BY word")
    )


def test_group_at_min_frequency_can_be_shown() -> None:
    """The test can fail: a group of exactly as many people is let through where no noise holds it back."""
    rows = [*several(200, word="crowd"), *several(LEAST, 1000, word="few")]
    connection = world(*rows, table={"min_frequency": LEAST})
    assert without_threshold(connection, "SELECT word, COUNT(*) FROM people GROUP BY word") == [
        ("crowd",),
        ("few",),
    ]


@pytest.mark.parametrize("least", [1, LEAST])
def test_leaving_last_person_of_a_group_is_not_observable(least: int) -> None:
    """Neighbours of which one has a group more have the same rows and the same rest."""
    crowd = [*several(200, word="crowd"), *several(least - 1, 1000, word="few")]
    ours, theirs = (
        world(*crowd, *more, table={"min_frequency": least}) for more in ([], [person(99, word="few")])
    )
    sql = "SELECT word, COUNT(*), AVG(age) FROM people GROUP BY word ORDER BY 2"
    (first, rows), (second, others) = observed(ours, sql), observed(theirs, sql)
    assert first == second
    assert [row[0] for row in rows] == [row[0] for row in others] == ["crowd"]
    assert spent(ours) == spent(theirs) == 1


@pytest.mark.parametrize("delta", [None, Fraction(1, 10**9), Fraction(4, 10**7)])
def test_larger_delta_never_reveals_a_person_for_sure(delta: Fraction | None) -> None:
    """A lone key passes with no more than the query's share of delta."""
    connection = world(*several(100, word="crowd"), person(99, word="alone"))
    plan = connection.explain("SELECT word, COUNT(*) FROM people GROUP BY word", delta=delta).prepared.plan
    assert plan.selection is not None
    block = plan.vectors[plan.selection.vector]
    surplus = plan.selection.threshold - plan.selection.scale
    groups = plan.analysis.bound.groups
    assert (
        groups * Fraction(block.mechanism.bound_sum_tail(len(plan.selection.components), surplus))
        <= plan.selection.delta
    )
    assert delta is None or plan.selection.delta <= delta


CELLS = (
    "SELECT COUNT(*) FROM people WHERE word = 'few'",
    "SELECT COUNT(DISTINCT id) FROM people WHERE word = 'few'",
    "SELECT SUM(cost), AVG(cost), MAX(age), MEDIAN(cost), VAR_POP(cost) FROM people WHERE word = 'few'",
    "SELECT COUNT(*) + 1 FROM people WHERE word = 'few'",
    "SELECT COUNT(*) FILTER (WHERE word = 'few'), COUNT_IF(word = 'few') FROM people",
    "SELECT SUM(cost) FILTER (WHERE word = 'few'), AVG(cost) FILTER (WHERE word = 'few') FROM people",
    "SELECT MAX(age) FILTER (WHERE word = 'few') FROM people",
    "SELECT COUNT(CASE WHEN word = 'few' THEN cost END) FROM people",
    "PIVOT (SELECT city, word, cost FROM people) ON word IN ('few') USING COUNT(*) AS n, SUM(cost) AS s GROUP BY city",
    "SELECT DP_INTERVAL_LOW(COUNT(*)), DP_INTERVAL_HIGH(AVG(cost)) FROM people WHERE word = 'few'",
    "SELECT n / 2 FROM (SELECT COUNT(*) AS n FROM people WHERE word = 'few')",
    "SELECT AVG(n) FROM (SELECT member, COUNT(*) AS n FROM people WHERE word = 'few' GROUP BY ROLLUP (member))",
)


@pytest.mark.parametrize("people", [1, LEAST - 1])
@pytest.mark.parametrize("sql", CELLS)
def test_value_below_min_frequency_is_never_shown(sql: str, people: int) -> None:
    """Neither a value of a small condition nor its interval is shown, where hardly any noise is left."""
    rows = [
        *several(200, word="crowd", city="Oslo"),
        *several(people, 1000, word="few", cost=99, city="Oslo"),
    ]
    connection = world(*rows, table={"min_frequency": LEAST}, budget={"epsilon": 10**6, "delta": 1e-6})
    result = connection.query(sql, epsilon=1000)
    values = [value for row in result.rows for value in row["PIVOT" in sql :]]
    assert all(value is None for value in values), values
    assert all(ends is None for row in result.intervals(0.95) for ends in row)
    if "AVG(n)" not in sql and "PIVOT" not in sql:
        assert any("min_frequency" in notice for notice in result.notices)


@pytest.mark.parametrize("sql", CELLS)
def test_value_from_min_frequency_on_is_shown(sql: str) -> None:
    """The test can fail: with twice as many people each has a value."""
    rows = [
        *several(200, word="crowd", city="Oslo"),
        *several(2 * LEAST, 1000, word="few", cost=99, city="Oslo"),
    ]
    connection = world(*rows, table={"min_frequency": LEAST}, budget={"epsilon": 10**6, "delta": 1e-6})
    result = connection.query(sql, epsilon=1000)
    assert result.rows
    assert not any(value is None for row in result.rows for value in row["PIVOT" in sql :])
    assert not any("min_frequency" in notice for notice in result.notices)


def test_large_total_without_a_condition_is_shown() -> None:
    """A count of 200 people is shown under a limit of five."""
    connection = world(*several(200, word="crowd"), table={"min_frequency": LEAST})
    ((count, mean),) = connection.query("SELECT COUNT(*), AVG(age) FROM people", epsilon=1).rows
    assert count > LEAST
    assert mean is not None


def test_unmeasured_value_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is treated as rare where no count measures the units behind it."""
    con = world(*several(200, word="crowd"), table={"min_frequency": 5})
    monkeypatch.setattr(
        empty_groups, "estimate_moments", lambda *_: pytest.fail("a count is read that was not measured")
    )
    monkeypatch.setattr(MeasurementPlan, "is_measured", lambda *_: False)
    ((total,),) = con.query("SELECT SUM(cost) FROM people", epsilon=1).rows
    assert total is None
