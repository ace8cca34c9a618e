"""A5, errors that depend on the data: what is accepted cannot fail on any row, the rest is refused."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest
from attacks.naive import Naive, distinguishes_worlds
from worlds import Declared, Refused, Row, cells, engine_of, prepared, spent, world

from dpsql.api.connection import Connection
from dpsql.errors import BackendError, PolicyError

REFUSED = [
    "SUBSTRING(word, age)",
    "SUBSTRING(word, 1, age)",
    "ROUND(cost, age)",
    "REPEAT(word, age)",
    "word SIMILAR TO word",
    "word ~ '('",
    "REGEXP_MATCHES(word, word)",
    "REGEXP_REPLACE(word, '(', '')",
    "word LIKE word",
    "word LIKE 'a%' ESCAPE word",
    "word GLOB word",
    "ERROR(word)",
    "CAST(ERROR('x') AS INTEGER)",
    "STRFTIME(day, word)",
    "AGE(seen)",
    "TO_TIMESTAMP(cost)",
    "UNHEX(word)",
    "FROM_BASE64(word)",
    "[1, 2][age]",
    "LIST_EXTRACT([1], age)",
    "STRING_SPLIT(word, 'a')[age]",
    "word[age]",
    "JSON_EXTRACT(word, '$')",
    "word::JSON",
    "word::INTEGER[]",
    "word::BIT",
    "word::INTERVAL",
    "ENUM_CODE(word)",
    "(SELECT cost FROM people)",
    "(SELECT 1 UNION SELECT 2)",
    "age IN (SELECT age FROM people)",
    "age = ANY (SELECT age FROM people)",
    "STRUCT_PACK(a := age).b",
]
"""Each could fail on one row and not on another; none is known to be safe."""


@pytest.mark.parametrize("expression", REFUSED)
def test_fallible_expressions_are_refused(expression: str, refused: Refused) -> None:
    """Expressions that can fail are refused in an argument, a filter and a key, without a charge."""
    refused(f"SELECT COUNT({expression}) FROM people")
    refused(f"SELECT COUNT(*) FROM people WHERE ({expression}) IS NOT NULL")
    refused(f"SELECT COUNT(*) FROM people GROUP BY {expression}")


ACCEPTED = """
    COUNT(CAST(s AS INTEGER)) | SUM(LEAST(GREATEST(CAST(s AS BIGINT), 0), 9)) | COUNT(CAST(e AS TINYINT))
    COUNT(CAST(s AS DOUBLE)) | COUNT(CAST(s AS BOOLEAN)) | COUNT(CAST(s AS DATE)) | COUNT(CAST(s AS TIMESTAMP))
    COUNT(CAST(d AS TINYINT)) | COUNT(CAST(hg AS SMALLINT)) | COUNT(CAST(i64 AS INTEGER))
    COUNT(CAST(d AS BIGINT)) | COUNT(CAST(f AS VARCHAR)) | COUNT(CAST(ts AS VARCHAR)) | COUNT(CAST(dt AS VARCHAR))
    AVG(LEAST(GREATEST(1 / (i32 - 50), 0), 1)) | AVG(LEAST(GREATEST(d / d, 0), 1)) | COUNT(i64 / (hg - hg))
    COUNT(i64 + i64) | COUNT(i64 - hg) | COUNT(i64 * i64 * i64) | COUNT(-i64) | COUNT(ABS(i64)) | COUNT(ub + ub)
    SUM(LEAST(GREATEST(i64 * i64, -1), 1)) | SUM(LEAST(GREATEST(ABS(i64) - 1, 0), 5)) | COUNT(hg * 9223372036854775807)
    COUNT(d * 1e308 * d) | COUNT(d - d) | SUM(LEAST(GREATEST(d * d, -1), 1)) | COUNT(FLOOR(d)) | COUNT(CEIL(dec))
    COUNT(ROUND(d, 15)) | COUNT(ROUND(hg, -15)) | COUNT(ROUND(f)) | SUM(LEAST(GREATEST(ROUND(d), -9), 9))
    COUNT(LEAST(d, i64, hg)) | COUNT(GREATEST(dec, f)) | COUNT(COALESCE(i64, d)) | COUNT(NULLIF(d, i64))
    COUNT(SUBSTRING(s, 2147483647, -2147483647)) | COUNT(SUBSTRING(s, -3, 2)) | SUM(LEAST(LENGTH(s), 9))
    COUNT(CASE WHEN UPPER(s) LIKE '%\\' THEN 1 END) | COUNT(CASE WHEN s ILIKE 'İ%' THEN LOWER(s) END)
    COUNT(EXTRACT(year FROM dt)) | COUNT(EXTRACT(week FROM ts)) | COUNT(EXTRACT(second FROM tns))
    COUNT(EXTRACT(isodow FROM CAST(s AS DATE))) | SUM(LEAST(GREATEST(YEAR(CAST(s AS TIMESTAMP)), 0), 3000))
    COUNT(DATE_TRUNC('year', dt)) | COUNT(DATE_TRUNC('week', ts)) | COUNT(DATE_TRUNC('quarter', CAST(s AS TIMESTAMP)))
    COUNT(CASE WHEN dt < ts THEN 1 END) | COUNT(CASE WHEN CAST(s AS DATE) < CAST(s AS TIMESTAMP) THEN 1 END)
    COUNT(CASE WHEN dt BETWEEN tns AND ts THEN 1 END) | COUNT(COALESCE(CAST(s AS DATE), ts)) | COUNT(CAST(ts AS DATE))
    COUNT(CASE WHEN i64 = d THEN 1 END) | COUNT(CASE WHEN ub > hg THEN 1 END) | COUNT(CASE dec WHEN f THEN 1 END)
    COUNT(CASE WHEN i64 IN (1, 9223372036854775807, NULL) THEN 1 END) | COUNT(CASE WHEN b = (d > 0) THEN 1 END)
    COUNT(1 // (i64 - 50)) | COUNT(i64 % (i64 - 50)) | COUNT(MOD(i64, 0)) | COUNT(REGEXP_EXTRACT(s, 'a', 9))
    COUNT(SQRT(d - 100)) | COUNT(LN(d)) | COUNT(POWER(d, 1e9)) | COUNT(ACOS(d))
    COUNT(FACTORIAL(i64)) | COUNT(GAMMA(d)) | COUNT(i64 << i64) | COUNT(STRPTIME(s, '%d'))
    COUNT(MAKE_DATE(i64, i64, i64)) | COUNT(dt + i64) | COUNT(dt + INTERVAL (i64) DAY) | COUNT(DATE_ADD(dt, INTERVAL 1 DAY))
    COUNT(DATE_DIFF('day', dt, ts)) | COUNT(EPOCH_MS(i64)) | COUNT(CHR(i64)) | COUNT(ASCII(s))
    COUNT(s::DECIMAL(3, 1)) | COUNT(s::HUGEINT)
"""
KEYS = [
    "CAST(s AS INTEGER)",
    "CAST(s AS DATE)",
    "CAST(s AS TIMESTAMP), b",
    "DATE_TRUNC('month', ts)",
    "d - d",
    "ROUND(d), ub",
    "i64 * i64",
    "SUBSTRING(s, -2147483647, 2147483647)",
    "CAST(d AS VARCHAR)",
    "tns, dt",
]
WHOLE = [
    f"SELECT {aggregate.strip()} FROM people"
    for aggregate in ACCEPTED.replace("\n", "|").split("|")
    if aggregate.strip()
]
GROUPED = [f"SELECT COUNT(*), AVG(LEAST(GREATEST(d, 0), 1)) FROM people GROUP BY {key}" for key in KEYS]

BIG = 2**63 - 1
_WHOLE = ["0", "1", "50", "-1", "9", None]
_FLOATS = ["0", "-0.0", "0.5", "nan", "inf", "-inf", "1e38", None]
_MOMENTS = [
    "infinity",
    "-infinity",
    "0001-01-01",
    "9999-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.999999",
    None,
]
_TEXT = [
    "", "a", " a ", "secret", "1", "-1", "128", "1e400", "nan", "inf", "-inf", "9223372036854775808", "true",
    "2020-02-30", "2020-02-29", "9999-12-31", "200000-01-01", "infinity", "-infinity", "epoch", "0044-03-15 (BC)",
    "294247-01-10", "5881580-07-10", "290309-12-22 (BC)", "12:00", "2020-01-01 00:00:00+05", "İ", "ß", "ﬁ",
    "\U0010ffff", "%", "_", "\\", "'", '"', "x" * 300, None,
]  # fmt: skip
NASTY: dict[str, tuple[str, str, list[str | None]]] = {
    "i32": ("INTEGER", "integer", [*_WHOLE, str(2**31 - 1), str(-(2**31))]),
    "i64": (
        "BIGINT",
        "integer",
        [*_WHOLE, str(BIG), str(-BIG - 1), str(2**62), str(-(2**62)), str(2**53 + 1)],
    ),
    "ub": ("UBIGINT", "integer", ["0", "1", str(2**64 - 1), str(2**63), None]),
    "hg": ("HUGEINT", "integer", [*_WHOLE, str(2**127 - 1), str(-(2**127)), str(2**63), str(-(2**63) - 1)]),
    "d": ("DOUBLE", "double", [*_FLOATS, "1e308", "-1e308", "5e-324", "9.3e18", "-9.3e18"]),
    "f": ("FLOAT", "double", _FLOATS),
    "dec": ("DECIMAL(18,4)", "double", ["0", "1.5", "99999999999999.9999", "-99999999999999.9999", None]),
    "s": ("VARCHAR", "varchar", _TEXT),
    "e": ("ENUM('a', 'B', '1', '9999-12-31')", "varchar", ["a", "B", "1", "9999-12-31", None]),
    "dt": (
        "DATE",
        "date",
        [*_MOMENTS[:3], "9999-12-31", "5881580-07-10", "5877642-06-25 (BC)", "200000-01-01", None],
    ),
    "ts": (
        "TIMESTAMP",
        "timestamp",
        [*_MOMENTS, "294247-01-10 04:00:54.775806", "290309-12-22 (BC) 00:00:00"],
    ),
    "tns": ("TIMESTAMP_NS", "timestamp", ["infinity", "2262-04-11 23:47:16.854775806", "1677-09-22", None]),
    "b": ("BOOLEAN", "boolean", ["true", "false", None]),
}
COLUMNS: Declared = {"id": ("INTEGER", None)} | {
    name: (engine, {"type": kind}) for name, (engine, kind, _) in NASTY.items()
}
CLAMPED = COLUMNS | {
    name: (NASTY[name][0], {"type": "integer", "bounds": [0, 10]}) for name in ("i32", "i64", "ub", "hg")
}


def nasty(seed: int, count: int) -> list[Row]:
    """Rows of random special values; every value of every column comes up in the first ones."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for index in range(count):
        values = {
            name: choices[index] if index < len(choices) else chance.choice(choices)
            for name, (_, _, choices) in NASTY.items()
        }
        rows.append({"id": index % 7, **values})
    return rows


@pytest.fixture(scope="module")
def worst() -> Connection:
    """Sixty rows in which every special value of every type occurs."""
    return world(*nasty(1, 60), columns=COLUMNS)


@pytest.mark.parametrize("unit", ["id", "row"])
def test_accepted_queries_never_fail(unit: str) -> None:
    """About seventy queries over every special value, in two orders: the engine raises nothing."""
    for seed in (1, 2):
        rows = nasty(seed, 50)
        connection = world(*rows[:: 1 if seed == 1 else -1], columns=COLUMNS, unit=unit)
        for sql in (*WHOLE, *GROUPED):
            cells(connection, prepared(connection, sql))


@pytest.mark.parametrize("column", ["i32", "i64", "ub", "hg"])
@pytest.mark.parametrize("unit", ["id", "row"])
def test_integers_too_wide_for_64_bits_are_clamped(column: str, unit: str) -> None:
    """A bounded column of any integer type is read without an error."""
    connection = world(*nasty(3, 40), columns=CLAMPED, unit=unit)
    assert cells(connection, prepared(connection, f"SELECT SUM({column}), AVG(-{column}) FROM people"))


@pytest.mark.parametrize("kind", ["UHUGEINT", "BIGNUM"])
def test_incomparable_type_is_refused_or_read(kind: str) -> None:
    """A whole-number type that the engine compares by a failing cast is refused by the policy, or never fails."""
    columns: Declared = {"id": ("INTEGER", None), "x": (kind, {"type": "integer", "bounds": [0, 10]})}
    rows: list[Row] = [{"id": 1, "x": 3}, {"id": 2, "x": 2**128 - 1}]
    try:
        connection = world(*rows, columns=columns)
    except PolicyError:
        return
    assert cells(connection, prepared(connection, "SELECT SUM(x), AVG(-x) FROM people"))


@pytest.mark.parametrize("sql", GROUPED)
def test_keys_of_any_kind_raise_no_error(sql: str, worst: Connection) -> None:
    """Far dates, infinities and strange text as group keys: an answer, empty or not, and a charge."""
    before = spent(worst)
    worst.query(sql, epsilon=0.01)
    assert spent(worst) == before + 1


def test_frequent_far_dates_are_released() -> None:
    """A key beyond the calendar of Python is shown, or not, but never raises once it has been read."""
    odd: list[Any] = ["200000-01-01", "infinity", "0044-03-15 (BC)", "9999-12-31", "-infinity"]
    rows = [{"id": 100 * index + who, "s": value} for index, value in enumerate(odd) for who in range(60)]
    connection = world(*rows, columns={"id": ("INTEGER", None), "s": ("VARCHAR", {"type": "varchar"})})
    for kind in ("DATE", "TIMESTAMP", "VARCHAR"):
        result = connection.query(
            f"SELECT CAST(s AS {kind}) AS k, COUNT(*) FROM people GROUP BY k", epsilon=5
        )
        assert len(result) >= 2


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(s AS INTEGER)",
        "CAST(s AS DATE)",
        "i64 + i64",
        "ABS(i64)",
        "CAST(hg AS BIGINT)",
        "CAST(d AS INTEGER)",
    ],
)
def test_engine_fails_without_the_whitelist(expression: str, worst: Connection) -> None:
    """The attack works without the whitelist: each of these raises on some row, and says which."""
    with pytest.raises(duckdb.Error):
        engine_of(worst).execute(f"SELECT COUNT({expression}), MAX({expression}) FROM people").fetchall()


def test_error_of_a_careless_engine_is_an_answer() -> None:
    """The attack works where errors pass: a failing cast reveals one person's row, again and again, free."""
    row, secret = {"id": 1, "s": "12"}, {"id": 99, "s": "secret"}
    ours, theirs = world(row, columns=COLUMNS), world(row, secret, columns=COLUMNS)

    def failure(naive: Naive) -> str:
        try:
            naive.query("SELECT COUNT(*) FROM people WHERE id = 99 AND CAST(s AS INTEGER) > 3")
        except duckdb.Error as error:
            return f"{error}, charged {naive.spent}"
        return ""

    assert distinguishes_worlds(failure, ours, theirs)
    assert "secret" in failure(Naive(theirs))
    assert "charged 0.0" in failure(Naive(theirs))


def test_failure_on_one_row_is_observable(worst: Connection) -> None:
    """The test can fail: a statement that the engine cannot run is a BackendError here too."""
    with pytest.raises(BackendError):
        worst.engine.backend.run_statement("SELECT MAX(CAST(s AS INTEGER)) FROM people")
