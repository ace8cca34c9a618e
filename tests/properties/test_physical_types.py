"""Columns of every type of the engine, with every extreme value: none fails, none is taken for another.

Claim: what the engine holds is read infallibly as the type that the policy declares; ids that differ stay different units.
Why: a column is read by expressions that give NULL, or a bound, for a value without counterpart; an id is compared as it is
stored, or as a text that differs where the ids do.
Source: attacks A5, A26 and A39; DuckDB's documentation, "Data types".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import pyarrow
import pytest
from properties.test_infallible import run
from worlds import assert_within, cells, close_all, connected, engine_of, prepared

import dpsql
from dpsql.api.connection import Connection
from dpsql.plan.types import Type
from dpsql.planning.statistics import ROWS
from dpsql.policy.engine_types import can_declare_type, infer_column_type
from dpsql.verification.stored_types import EXTREMES, READABLE

IDS = {**{kind: values for kind, values in EXTREMES.items() if kind != "BOOLEAN"},
       "BIT": ("0", "1", "00", "01", "000000001"), "BIGNUM": ("0", "1", "1" + "0" * 60, "-1" + "0" * 60)}  # fmt: skip
NO_IDS = (
    "INTERVAL",
    "INTEGER[]",
    "INTEGER[2]",
    "STRUCT(a INTEGER)",
    "MAP(INTEGER, INTEGER)",
    "TIMESTAMP_NS",
    "TIME WITH TIME ZONE",
)
ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")
QUERIES = (
    "SELECT v, COUNT(*) FROM people GROUP BY v",
    "SELECT COUNT(DISTINCT v), COUNT(v), COUNT(*) FROM people",
    "SELECT COUNT(*) FROM people WHERE v IS NULL",
    "SELECT CAST(v AS VARCHAR) AS t, COUNT(*) FROM people GROUP BY t",
    "SELECT COUNT(*) FROM people AS a JOIN people AS b ON a.who = b.who AND a.v = b.v",
    "SELECT COUNT(*) FROM people WHERE v IN (SELECT v FROM pool)",
    "SELECT COUNT(*) FROM people JOIN pool ON people.v = pool.v",
    "SELECT COUNT(*) FROM (SELECT who, v FROM people GROUP BY who, v) AS s",
    "SELECT v, COUNT(DISTINCT who) FROM people GROUP BY v",
    "SELECT COUNT(*) FROM people WHERE v < v OR v = v",
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Worlds end with their test."""
    yield
    close_all()


def database(kind: str, values: tuple[str, ...], zone: str = "UTC") -> duckdb.DuckDBPyConnection:
    """Each value of a type thrice, and NULL, of people with three rows each; and each value once in a public table."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(f"SET TimeZone = '{zone}'")
    opened.execute(f"CREATE TABLE people (who INTEGER, v {kind}, s STRUCT(v {kind}))")
    opened.execute(f"CREATE TABLE pool (v {kind})")
    for place, value in enumerate((*values, None)):
        for _ in range(3):
            opened.execute(
                f"INSERT INTO people SELECT $1, CAST($2 AS {kind}), {{'v': CAST($2 AS {kind})}}",
                [place, value],
            )
        opened.execute(f"INSERT INTO pool SELECT CAST($1 AS {kind})", [value])
    opened.execute("INSERT INTO people VALUES (99, NULL, NULL)")
    return opened


def clinic(opened: Any, declared: str | None, unit: str = "who", rows: int = 3) -> Connection:
    """A connection to these people, whose column `v` and field `s.v` are declared as said."""
    columns = {} if declared is None else {"v": {"type": declared}, "s.v": {"type": declared}}
    people = {"unit": unit, "rows_per_unit": rows, "columns": {"who": {"type": "int"}, **columns}}
    pool = {"public": True, "columns": {"v": {"type": declared}} if declared else {}}
    tables = {"people": people, "pool": pool}
    return connected(opened, {"budget": {"epsilon": 100, "delta": 1e-6}, "tables": tables})


def counted(connection: Connection, sql: str) -> dict[tuple[Any, ...], int]:
    """The exact number of rows of each group."""
    plan = prepared(connection, sql)
    block, weights = plan.plan.get_estimator(ROWS)
    return {
        key: int(sum(weight * cell for weight, cell in zip(weights, parts[block], strict=True)))
        for key, parts in cells(connection, plan).items()
    }


@pytest.mark.parametrize(("kind", "declared"), READABLE)
def test_no_value_of_a_type_fails(kind: str, declared: str) -> None:
    """Values of each type, and of fields of a STRUCT, work as keys, in conditions, joins and counts."""
    connection = clinic(database(kind, EXTREMES[kind]), declared)
    for sql in QUERIES:
        run(connection, sql)
    for sql in (QUERIES[0], QUERIES[1], QUERIES[3], QUERIES[8]):
        run(
            connection,
            sql.replace("v,", "s.v AS f,")
            .replace("BY v", "BY f")
            .replace("T(v", "T(s.v")
            .replace("NCT v", "NCT s.v"),
        )


@pytest.mark.parametrize(("kind", "declared"), READABLE)
def test_each_value_is_its_own_group_or_none(kind: str, declared: str) -> None:
    """Groups of an exactly read type are DuckDB's own, with their values; elsewhere no row is lost."""
    opened = database(kind, EXTREMES[kind])
    connection = clinic(opened, declared)
    found = counted(connection, QUERIES[0])
    assert sum(found.values()) == 3 * len(EXTREMES[kind]) + 4
    exactly = {"UUID": "uuid", "BLOB": "blob", "VARCHAR": "varchar", "BOOLEAN": "boolean", "DECIMAL(15,2)": "double",
               "DECIMAL(2,2)": "double", "DECIMAL(18,0)": "integer", "JSON": "varchar"}  # fmt: skip
    if exactly.get(kind) == declared:
        plain = opened.execute("SELECT v, COUNT(*) FROM people GROUP BY v").fetchall()
        read = float if declared == "double" else int if declared == "integer" else lambda value: value
        assert {(None if key is None else read(key),): count for key, count in plain} == found


@pytest.mark.parametrize("kind", IDS)
def test_distinct_ids_are_distinct_units(kind: str) -> None:
    """Undeclared, and as varchar where that is read: each id is a unit of its own, also over joins and links."""
    values = IDS[kind]
    for declared in (None, "varchar"):
        if declared and not can_declare_type("varchar", kind):
            continue
        opened = database(kind, values)
        assert opened.execute("SELECT COUNT(DISTINCT v) FROM people").fetchone() == (len(values),)
        connection = clinic(opened, declared, unit="v", rows=1)
        known = len(values)
        assert cells(connection, prepared(connection, "SELECT COUNT(*) FROM people")) == {(): ((known,),)}
        units = prepared(connection, "SELECT COUNT(DISTINCT v) FROM people")
        assert cells(connection, units) == {(): ((known,),)}
        run(connection, "SELECT COUNT(*) FROM people AS a JOIN people AS b ON a.v = b.v")


@pytest.mark.parametrize("kind", EXTREMES)
def test_linked_rows_are_found_by_ids_of_any_type(kind: str) -> None:
    """Each row of a table that has the id alone belongs to the unit that has it, and no other."""
    opened = database(kind, EXTREMES[kind])
    opened.execute("CREATE TABLE visits AS SELECT v AS ref, 1 AS n FROM people WHERE v IS NOT NULL")
    opened.execute("CREATE TABLE heads AS SELECT DISTINCT v, who FROM people WHERE v IS NOT NULL")
    inexact = kind in (
        "UBIGINT",
        "HUGEINT",
        "UHUGEINT",
        "DECIMAL(38,0)",
        "DECIMAL(38,10)",
        "DECIMAL(38,38)",
        "DECIMAL(18,0)",
        "DECIMAL(18,18)",
    )
    declared = "varchar" if inexact else infer_column_type(kind)
    link = {"column": "ref", "references": "heads.v"}
    tables = {
        "heads": {"unit": "who", "rows_per_unit": 1, "columns": {"v": {"type": declared}}},
        "visits": {"link": link, "rows_per_unit": 2},
    }
    connection = connected(opened, {"budget": {"epsilon": 100}, "tables": tables})
    assert cells(connection, prepared(connection, "SELECT COUNT(*) FROM visits")) == {
        (): ((2 * len(EXTREMES[kind]),),)
    }


@pytest.mark.parametrize(("kind", "declared"), READABLE)
def test_declared_id_is_exact_or_refused(kind: str, declared: str) -> None:
    """No two ids of a declared column become one unit, and none is lost, whatever the type."""
    with suppress(dpsql.PolicyError):
        connection = clinic(database(kind, EXTREMES[kind]), declared, unit="v", rows=1)
        held_exactly(connection, len(EXTREMES[kind]))


def held_exactly(connection: Connection, people: int) -> None:
    """Asserts that each of so many people has a row that counts."""
    plan = prepared(connection, "SELECT COUNT(*) FROM people")
    assert cells(connection, plan) == {(): ((people,),)}
    _, identity = connection.engine.catalog.tables["people"].columns["v"]
    if identity.type not in (
        Type.DATE,
        Type.TIMESTAMP,
        Type.TIME,
    ):  # whose days beyond the calendar join nothing
        joined = prepared(connection, "SELECT COUNT(*) FROM people AS a JOIN people AS b ON a.v = b.v")
        assert cells(connection, joined) == {(): ((people,),)}


@pytest.mark.parametrize("kind", NO_IDS)
def test_inexactly_compared_type_is_no_id(kind: str) -> None:
    """It is refused when the policy is read."""
    opened = duckdb.connect()
    opened.execute(f"CREATE TABLE people (v {kind})")
    with pytest.raises(dpsql.PolicyError) as caught:
        connected(opened, {"budget": {"epsilon": 1}, "tables": {"people": {"unit": "v", "rows_per_unit": 1}}})
    assert caught.value.code == "unit_type"
    assert "cast" in (caught.value.hint or "")


@pytest.mark.parametrize("zone", ZONES)
def test_moment_with_a_time_zone_is_in_utc(zone: str) -> None:
    """Keys, parts and comparisons use the UTC instant in any session zone."""
    kind = "TIMESTAMP WITH TIME ZONE"
    opened = database(kind, EXTREMES[kind][:4], zone)
    connection = clinic(opened, "timestamptz")
    found = counted(connection, "SELECT v, COUNT(*) FROM people GROUP BY v")
    instants = {str(key): count for (key,), count in found.items()}
    assert instants == {
        "2024-03-10 06:30:00": 3, "2024-03-10 06:30:00.000001": 3, "2024-11-03 05:30:00": 3, "2024-11-03 06:30:00": 3,
        "None": 4,
    }  # fmt: skip
    for condition, count in (
        ("v = TIMESTAMPTZ '2024-11-03 01:30:00-04'", 3),
        ("v = '2024-11-03 01:30:00-05'", 3),
        ("v > TIMESTAMPTZ '2024-03-10 06:30:00Z'", 9),
        ("v >= '2024-03-10 06:30:00'", 12),
        ("EXTRACT(hour FROM v) = 6", 9),
        ("CAST(v AS TIME) = '05:30:00'", 3),
        ("v AT TIME ZONE 'UTC' = TIMESTAMP '2024-11-03 06:30:00'", 3),
    ):
        plan = prepared(connection, f"SELECT COUNT(*) FROM people WHERE {condition}")
        assert cells(connection, plan) == {(): ((count,),)}, condition


def test_invalid_moments_and_times_make_no_query_fail() -> None:
    """Invalid values in a file are NULL, and nobody's id."""
    us = (-(2**63), -(2**63) + 1, 2**63 - 1, -9223372022400000001, -9223372022400000000, 0)
    day = (-1, 0, 86_399_999_999, 86_400_000_000, 2**62, -(2**63))
    for name, kind, bits, there in (
        ("timestamptz", pyarrow.timestamp("us", "UTC"), us, 1),
        ("time", pyarrow.time64("us"), day, 2),
    ):
        table = pyarrow.table(
            {"v": pyarrow.array(bits, pyarrow.int64()).view(kind), "who": list(range(len(bits)))}
        )
        columns = {"v": {"type": name}, "who": {"type": "int"}}
        people = {"unit": "who", "rows_per_unit": 1, "columns": columns}
        tables = {"people": people, "pool": {"public": True, "columns": {"v": {"type": name}}}}
        opened = duckdb.connect(config={"threads": 1})
        opened.register("bits", table)
        opened.execute("CREATE TABLE people AS FROM bits; CREATE TABLE pool AS FROM bits; DROP VIEW bits")
        connection = connected(opened, {"budget": {"epsilon": 9, "delta": 1e-6}, "tables": tables})
        for sql in QUERIES:
            run(connection, sql)
        assert cells(connection, prepared(connection, "SELECT COUNT(v) FROM people")) == {(): ((there,),)}


@pytest.mark.parametrize(("kind", "declared"), READABLE)
def test_no_unit_moves_an_answer_by_type_beyond_its_sensitivity(kind: str, declared: str) -> None:
    """Units may be persons, or the values of the type themselves."""
    values = EXTREMES[kind]
    for unit in (
        ("who", "v")
        if declared == "varchar" or kind not in ("DECIMAL(38,0)", "HUGEINT", "UBIGINT")
        else ("who",)
    ):
        try:
            before = clinic(database(kind, values), declared, unit, rows=2)
        except dpsql.PolicyError:
            assert unit == "v"
            continue
        queries = QUERIES[1:3] if unit == "v" else (*QUERIES[:4], QUERIES[8])
        plans = [prepared(before, sql) for sql in queries]
        old = [cells(before, plan) for plan in plans]
        for who in (0, len(values) - 1):
            after = database(kind, values)
            after.execute(f"DELETE FROM people WHERE who = {who}")
            neighbour = clinic(after, declared, unit, rows=2)
            for plan, was in zip(plans, old, strict=True):
                assert_within(plan, was, cells(neighbour, plan))


@pytest.mark.parametrize(
    "kind", ["UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(18,18)"]
)
def test_number_compared_with_a_text_id_is_compared_as_text(kind: str) -> None:
    """Numbers of any size, with any zeros before and behind, compare as in the engine."""
    opened = database(kind, EXTREMES[kind])
    connection = clinic(opened, None, unit="v", rows=3)
    for written, operator in itertools.product(
        ("0", "00", "-0", *EXTREMES[kind], "12345"), ("=", "<>", "IN")
    ):
        condition = f"v {operator} ({written})" if operator == "IN" else f"v {operator} {written}"
        (expected,) = opened.execute(f"SELECT COUNT(*) FROM people WHERE {condition}").fetchone() or ()
        plan = prepared(connection, f"SELECT COUNT(*) FROM people WHERE {condition}")
        assert cells(connection, plan) == {(): ((expected,),)}, condition
    assert engine_of(connection) is not None


@pytest.mark.parametrize(
    "condition",
    [
        "a + b = 0.3", "0.3 = a + b", "a + b IN (0.3, 1.21)", "a * 3 = 0.3", "a * b = c", "a + b <> c", "b - a = 0.1",
        "a * 1.1 = 0.11", "(a + b) * 2 IS NOT DISTINCT FROM 0.6", "a = 0.10", "CASE WHEN a > 0 THEN a + b END = 0.3",
    ],
)  # fmt: skip
def test_decimals_are_equal_as_in_duckdb(condition: str) -> None:
    """Equality holds for computed decimals, too, which in DOUBLE give 0.30000000000000004."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute(
        "CREATE TABLE t AS SELECT i * 10 + j AS id, CAST(i / 10 AS DECIMAL(5, 2)) AS a, CAST(j / 10 AS DECIMAL(9, 1)) AS b,"
        " CAST((i * j) / 100 AS DECIMAL(12, 4)) AS c FROM range(10) AS r(i), range(10) AS s(j)"
    )
    column = {"type": "numeric(12,4)", "bounds": [0, 100]}
    people = {"unit": "id", "rows_per_unit": 1, "columns": dict.fromkeys("abc", column)}
    connection = connected(opened, {"budget": {"epsilon": 9}, "tables": {"t": people}})
    (expected,) = opened.execute(f"SELECT COUNT(*) FROM t WHERE {condition}").fetchone() or ()
    plan = prepared(connection, f"SELECT COUNT(*) FROM t WHERE {condition}")
    assert cells(connection, plan) == {(): ((expected,),)}
