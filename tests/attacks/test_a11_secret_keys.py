"""A11, secret group keys: a key that few units bring is not shown, and no unit can spell a shown one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from attacks.naive import Naive
from attacks.releases import RUNS, shown, without_threshold
from worlds import COLUMNS, Declared, Row, assert_within, cells, engine_of, hold, person, prepared, world


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT word, COUNT(*) FROM people GROUP BY word",
        "SELECT word, city, AVG(cost) FROM people GROUP BY word, city",
        "SELECT word FROM people GROUP BY word",
        "SELECT word, COUNT(DISTINCT id), SUM(age) FROM people GROUP BY word HAVING COUNT(*) > -9",
        "SELECT LOWER(word) FROM people GROUP BY ALL",
        "SELECT DISTINCT word FROM people",
        "SELECT COUNT(*), x FROM (SELECT word AS x FROM people) AS p GROUP BY x",
    ],
)
@pytest.mark.parametrize("unit", ["id", "row"])
def test_key_of_one_unit_is_never_shown(sql: str, unit: str) -> None:
    """GROUP BY a social security number shows none of 50 in 200 runs."""
    sql = sql.replace("COUNT(DISTINCT id)", "COUNT(*)") if unit == "row" else sql
    connection = world(*(person(who, word=f"123-45-{who:04}") for who in range(50)), unit=unit)
    assert all(keys == [] for keys in shown(connection, sql))


@pytest.mark.parametrize("declared", [False, True], ids=["unknown", "declared"])
def test_small_department_is_never_shown(*, declared: bool) -> None:
    """No noise shows a key below the minimum frequency; a crowd's key is shown."""
    kept = {"type": "varchar", **({"values": ["crowd", "alone", "empty"]} if declared else {})}
    columns = COLUMNS | {"word": ("VARCHAR", kept)}
    rows: list[Row] = [person(who, word="crowd") for who in range(150)]
    rows += [person(1000 + who, word="alone") for who in range(4)]
    connection = world(*rows, columns=columns, table={"min_frequency": 5})
    sql = "SELECT word, COUNT(*) FROM people GROUP BY word"
    keys = [key for keys in shown(connection, sql, Fraction(1, 2)) for key in keys]
    assert keys == [("crowd",)] * RUNS
    assert without_threshold(connection, sql) == [("crowd",)]


def test_many_rows_of_one_unit_count_as_one_unit() -> None:
    """A unit cannot raise its own group over the threshold by repeating itself."""
    connection = world(*(person(7, word="mine") for _ in range(300)))
    for aggregate in ("COUNT(*)", "SUM(cost), COUNT(cost)", "AVG(age)"):
        assert all(
            keys == [] for keys in shown(connection, f"SELECT word, {aggregate} FROM people GROUP BY word")
        )


SPELT: dict[str, tuple[str, str, str, list[str]]] = {
    # name: engine type, key, what the crowd holds, what one unit may hold that is equal or looks equal
    "case-insensitive collation": ("VARCHAR COLLATE NOCASE", "k", "bonn", ["BONN", "Bonn"]),
    "accent-insensitive collation": ("VARCHAR COLLATE NOACCENT", "k", "cafe", ["café"]),
    "trailing space": ("VARCHAR", "k", "a", ["a ", "a\t", "a\u00a0"]),
    "minus zero": ("DOUBLE", "k", "0.0", ["-0.0"]),
    "zero": ("DOUBLE", "k", "-0.0", ["0.0"]),
    "rounded to minus zero": ("DOUBLE", "ROUND(k)", "0.2", ["-0.2", "-0.0"]),
    "minus zero as text": ("DOUBLE", "CAST(k AS VARCHAR)", "0.0", ["-0.0"]),
    "infinite day": ("VARCHAR", "CAST(k AS DATE)", "9999-12-31", ["infinity"]),
    "first day": ("VARCHAR", "CAST(k AS DATE)", "0001-01-01", ["-infinity", "0001-01-01 (BC)"]),
    "infinite moment": ("VARCHAR", "CAST(k AS TIMESTAMP)", "9999-12-31 23:59:59.999999", ["infinity"]),
    "nanoseconds": ("TIMESTAMP_NS", "k", "2020-01-01 00:00:00", ["2020-01-01 00:00:00.000000001"]),
    "not a number": ("DOUBLE", "k - k", "inf", ["-inf", "nan"]),
}
KINDS = {"VARCHAR": "varchar", "DOUBLE": "double", "TIMESTAMP_NS": "timestamp"}


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("case", SPELT)
def test_one_unit_cannot_change_the_spelling_of_a_key(case: str, unit: str) -> None:
    """The crowd's key and its counts are the same whether or not a unit with an equal value is there."""
    engine, key, common, odd = SPELT[case]
    columns: Declared = {"id": ("INTEGER", None), "k": (engine, {"type": KINDS[engine.split()[0]]})}
    sql = f"SELECT {key} AS key, COUNT(*) FROM people GROUP BY key"
    crowd: list[Row] = [{"id": 100 + who, "k": common} for who in range(40)]
    connection = world(*crowd, columns=columns, unit=unit)
    plan = prepared(connection, sql)
    before = cells(connection, plan)
    for value in odd:
        for rows in ([{"id": 1, "k": value}, *crowd], [*crowd, {"id": 999, "k": value}]):
            hold(connection, rows, columns)
            after = cells(connection, plan)
            assert_within(plan, before, after)
            assert {repr(k) for k in before} <= {repr(k) for k in after}


@pytest.mark.parametrize("unit", ["id", "row"])
@pytest.mark.parametrize("setup", [(), ("SET default_collation = 'nocase'",)], ids=["column", "default"])
def test_collation_does_not_empty_a_declared_group(unit: str, setup: tuple[str, ...]) -> None:
    """A value that a collation holds equal to a declared one moves that group by its own rows at most."""
    engine = "VARCHAR" if setup else "VARCHAR COLLATE NOCASE"
    columns = {"id": ("INTEGER", None), "k": (engine, {"type": "varchar", "values": ["Bonn", "Kiel"]})}
    crowd: list[Row] = [{"id": 100 + who, "k": "Bonn"} for who in range(40)]
    ours = world(*crowd, columns=columns, unit=unit)
    theirs = world({"id": 1, "k": "bonn"}, *crowd, columns=columns, unit=unit)
    for statement in setup:  # which would be refused before, and before a charge
        engine_of(ours).execute(statement)
        engine_of(theirs).execute(statement)
    for sql in ("SELECT k, COUNT(*) FROM people GROUP BY k", "SELECT COUNT(*) FROM people WHERE k = 'Bonn'"):
        plan = prepared(ours, sql)
        assert_within(plan, cells(ours, plan), cells(theirs, plan))


def test_careless_engine_shows_every_key() -> None:
    """The attack works where groups are those of the data: everybody's number is in the answer."""
    numbers = {f"123-45-{who:04}" for who in range(50)}
    naive = Naive(world(*(person(who, word=number) for who, number in enumerate(sorted(numbers)))))
    assert {word for word, _ in naive.query("SELECT word, COUNT(*) FROM people GROUP BY word")} == numbers


def test_engine_lets_one_row_spell_a_key() -> None:
    """The attack works on the engine itself: which of two equal values stands for the group follows the rows."""
    columns = {"id": ("INTEGER", None), "k": ("DOUBLE", {"type": "double"})}
    crowd: list[Row] = [{"id": 2, "k": "0.0"}, {"id": 3, "k": "0.0"}]
    shown = set()
    for rows in (crowd, [{"id": 1, "k": "-0.0"}, *crowd]):
        ((key,),) = (
            engine_of(world(*rows, columns=columns)).execute("SELECT k FROM people GROUP BY k").fetchall()
        )
        shown.add(repr(key))
    assert shown == {"0.0", "-0.0"}
