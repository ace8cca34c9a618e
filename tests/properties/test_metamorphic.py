"""Exact statistics are the same bit by bit, however the same rows are stored and the same query is written.

Rows in any order, on one thread or two, in parts, in files or in frames; conditions, joins, aliases and
spellings in any form that means the same. The doubles among the rows add up to another float in each
order: naive sums, bounds and digests, which follow the order or the text, do not pass.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pytest
from properties.rewrites import REWRITES, SPELLINGS
from worlds import close_all, connected, engine_of, prepared

from dpsql.api.connection import Connection
from dpsql.engine.query_run import QueryRun
from dpsql.plan.text import compute_canonical_text, compute_digest
from tests.sql.fixture_files import Fixture, accepted
from tests.sql.study import prepare, study

ROWS = 130_000
"""More than one row group of DuckDB's, which is what its threads share out."""
LOAD = f"""
    CREATE TABLE people AS SELECT
        CASE WHEN i % 1009 = 0 THEN NULL ELSE i % 50000 END AS id,
        CASE i % 5 WHEN 0 THEN 'Bonn' WHEN 1 THEN 'Kiel' WHEN 2 THEN 'kiel' WHEN 3 THEN 'Köln' END AS city,
        CASE WHEN i % 11 = 0 THEN NULL ELSE 'w' || (hash(i) % 13) || 'ß' END AS word,
        CASE i % 7 WHEN 0 THEN 1e16 WHEN 1 THEN -1e16 WHEN 2 THEN 1.0 WHEN 3 THEN 0.1 WHEN 4 THEN i / 7
             WHEN 5 THEN CASE i % 3 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE ELSE -1e308 END
             ELSE NULL END AS cost,
        CASE WHEN i % 13 = 0 THEN NULL ELSE i * 7919 % 140 END AS age,
        DATE '2024-01-01' + CAST(hash(i) % 500 AS INTEGER) AS day,
        TIMESTAMP '2024-01-01' + to_seconds(CAST(hash(i) % 40000000 AS BIGINT)) AS seen,
        CASE i % 3 WHEN 0 THEN TRUE WHEN 1 THEN FALSE END AS member
    FROM range({ROWS}) AS r(i)
"""
COLUMNS: dict[str, Any] = {
    "city": {"type": "varchar", "values": ["Bonn", "Kiel", "Ulm"]},
    "word": {"type": "varchar"},
    "cost": {"type": "double", "bounds": [-(10**16), 10**16]},
    "age": {"type": "integer", "bounds": [0, 110]},
    "day": {"type": "date", "bounds": [dt.date(2024, 1, 1), dt.date(2024, 12, 31)]},
    "seen": {"type": "timestamp"},
    "member": {"type": "boolean"},
}
BY_UNIT = {"unit": "id", "rows_per_unit": 2, "max_groups": 1, "columns": COLUMNS}
BY_ROW = {"unit": "row", "columns": COLUMNS}
QUERIES = [
    "SELECT COUNT(*), SUM(cost), AVG(cost), COUNT(cost) FROM people",
    "SELECT city, word, COUNT(*), SUM(age * 2), AVG(cost / 3) FROM people GROUP BY city, word",
    "SELECT member, COUNT(*), SUM(cost + 0.1) FROM people WHERE cost * 1.1 > 0.1 OR age < 50 GROUP BY member",
    "SELECT DATE_TRUNC('quarter', day) AS q, AVG(age), SUM(LEAST(LENGTH(word), 9)) FROM people GROUP BY q",
    "SELECT ROUND(cost, 1) AS c, COUNT(seen) FROM people WHERE seen >= '2024-02-01' AND cost < 1e4 GROUP BY c",
    "SELECT SUM(CASE WHEN member THEN cost * cost / 1e20 ELSE COALESCE(cost, age) END) FROM people",
]
RULES = {"by unit": BY_UNIT, "by row": BY_ROW}
Exactly = list[tuple[Any, ...]]


def exactly(connection: Connection, plan: QueryRun) -> Exactly:
    """The rows that only the noise ever sees, in the order of their keys."""
    return sorted(connection.engine.backend.run_statement(plan.statement.sql).reveal(), key=repr)


def people(database: Any, rules: Mapping[str, Any]) -> Connection:
    """A connection to the one table `people`."""
    return connected(database, {"budget": {"epsilon": 9, "delta": 1e-6}, "tables": {"people": rules}})


@cache
def whole() -> duckdb.DuckDBPyConnection:
    """All rows in a database with one thread."""
    return duckdb.connect(config={"threads": 1}).execute(LOAD)


@cache
def arrow() -> pyarrow.Table:
    """All rows as an Arrow table."""
    return whole().sql("FROM people").to_arrow_table()


def opened(*statements: str, threads: int = 1) -> duckdb.DuckDBPyConnection:
    """A database in which the statements have run, with all rows at hand as `rows`."""
    database = duckdb.connect(config={"threads": threads})
    database.register("rows", arrow())
    for statement in statements:
        database.execute(statement)
    return database


def pandas() -> Any:
    """All rows as a pandas frame: dates, texts and booleans with NULL are columns of objects."""
    import pandas

    return arrow().to_pandas(types_mapper={pyarrow.int64(): pandas.Int64Dtype()}.get)


def polars() -> Any:
    """All rows as a polars frame in several chunks."""
    import polars

    return polars.from_arrow(pyarrow.concat_tables([arrow().slice(99_999), arrow().slice(0, 99_999)]))


def file(folder: Path) -> str:
    """The path of a database file that was written in parts."""
    path = folder / "people.duckdb"
    with duckdb.connect(path) as database:
        database.register("rows", arrow())
        database.execute("CREATE TABLE people AS FROM rows LIMIT 0")
        for part in range(7):
            database.execute(f"INSERT INTO people FROM rows WHERE hash(age, seen) % 7 = {part}")
    return str(path)


def parquet(folder: Path) -> duckdb.DuckDBPyConnection:
    """A table that Parquet files were read into: a view of them is refused."""
    for part in range(3):
        where = f"hash(seen) % 3 = {part}"
        opened(f"COPY (FROM rows WHERE {where}) TO '{folder}/{part}.parquet' (ROW_GROUP_SIZE 5000)")
    return opened(f"CREATE TABLE people AS FROM read_parquet('{folder}/*.parquet')", threads=2)


FORMS: dict[str, Callable[[Path], Any]] = {
    "two threads": lambda _: opened("CREATE TABLE people AS FROM rows", threads=2),
    "any order": lambda _: opened("CREATE TABLE people AS FROM rows ORDER BY hash(seen, age)", threads=2),
    "backwards": lambda _: opened("CREATE TABLE people AS FROM rows ORDER BY seen DESC"),
    "many inserts": lambda _: opened(
        "CREATE TABLE people AS FROM rows LIMIT 0",
        *(f"INSERT INTO people FROM rows WHERE hash(id, seen) % 9 = {part}" for part in range(9)),
    ),
    "a view of parts": lambda _: opened(
        *(f"CREATE TABLE part{part} AS FROM rows WHERE hash(seen) % 3 = {part}" for part in range(3)),
        "CREATE VIEW people AS FROM part2 UNION ALL FROM part0 UNION ALL FROM part1",
        threads=2,
    ),
    "Parquet files": parquet,
    "a database file": file,
    "a pandas frame": lambda _: {"people": pandas()},
    "a polars frame": lambda _: {"people": polars()},
    "an Arrow table": lambda _: {"people": arrow()},
}
"""Every way to hold the rows."""
SPECIAL_VISITS = """
    INSERT INTO visits SELECT 900 + i, v.* FROM range(3) AS t(i), (VALUES
        ('A', 0, 20, 'nan'::DOUBLE, DATE 'infinity', TIMESTAMP 'infinity', 'F', 'nan'::DOUBLE, TRUE, 1),
        ('B', NULL, 69, 'inf', '0001-01-01', '0001-01-01', 'naïve', 'inf', NULL, 3),
        ('zz', 9223372036854775807, -2147483648, '-inf', '-infinity', '-infinity', NULL, '-inf', FALSE, -1),
        (NULL, 1, NULL, 1e308, NULL, '2026-02-01', '', -0.0, NULL, 2),
        ('C', 2, 2147483647, 0.1, '2026-02-28', '2026-02-28', 'none', 5e-324, TRUE, 2),
        ('C', 2, 41, 1e16, '2026-02-01', '2026-02-28', 'none', -1e16, TRUE, 2)) AS v(p, r, a, c, d, s, n, w, u, o)
"""
"""Rows beside those of the study's patients, with doubles that add up to another float in each order."""


@pytest.fixture(scope="module")
def visits() -> Iterator[Connection]:
    """The study and the special rows."""
    with study() as connection:
        engine_of(connection).execute(SPECIAL_VISITS)
        yield connection


@pytest.fixture(scope="module", autouse=True)
def _worlds_end() -> Iterator[None]:
    """The worlds of this file are closed with it."""
    yield
    close_all()
    for cached in (exact_as_written, arrow, whole):
        cached.cache_clear()


def assert_alike(found: Sequence[Any]) -> None:
    """What is found is the same in every form."""
    first, *others = found
    for other in others:
        assert other == first


@cache
def exact_as_written(rules: str) -> list[Exactly]:
    """The exact rows of each query, with the rows of the table in the order in which they were written."""
    connection = people(whole(), RULES[rules])
    return [exactly(connection, prepared(connection, sql)) for sql in QUERIES]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_are_the_same_in_every_form(form: str, rules: str, tmp_path: Path) -> None:
    """Order, threads, parts, files and frames change no exact row by a bit."""
    connection = people(FORMS[form](tmp_path), RULES[rules])
    for sql, expected in zip(QUERIES, exact_as_written(rules), strict=True):
        assert len(expected) > 0
        assert_alike([expected, exactly(connection, prepared(connection, sql))])


def test_threads_share_the_rows(tmp_path: Path) -> None:
    """Two threads find more than one row group to read; again and again they count the same."""
    database = FORMS["two threads"](tmp_path)
    shared = "SELECT current_setting('threads'), COUNT(DISTINCT row_group_id) > 1 FROM pragma_storage_info('people')"
    assert database.execute(shared).fetchone() == (2, True)
    connection = people(database, BY_UNIT)
    plan = prepared(connection, QUERIES[1])
    assert_alike([exactly(connection, plan) for _ in range(5)])


NAIVE = {
    "a sum of floats": "SELECT SUM(cost) FROM people WHERE abs(cost) < 1e17",
    "a mean of floats": "SELECT city, AVG(cost + 0.1) FROM people WHERE abs(cost) < 1e17 GROUP BY city ORDER BY city",
    "the first rows of a unit": "SELECT SUM(age) FROM (FROM people QUALIFY ROW_NUMBER() OVER (PARTITION BY id) <= 2)",
    "a representative": "SELECT FIRST(word) FROM people",
}


@pytest.mark.parametrize("naive", NAIVE)
def test_naive_statistics_depend_on_the_order(naive: str, tmp_path: Path) -> None:
    """A DuckDB statistic without a lattice or a rank differs between orders of the rows."""
    databases = [whole(), FORMS["any order"](tmp_path), FORMS["backwards"](tmp_path)]
    found = [database.execute(NAIVE[naive]).fetchall() for database in databases]
    with pytest.raises(AssertionError):
        assert_alike(found)


def pairs(text: str) -> list[tuple[str, str, str]]:
    """The lines of a table: a query, another, and the values of `?`."""
    lines = (line.strip().partition(" | ") for line in text.strip().splitlines())
    return [(*queries.split(" <=> "), values or "[]") for queries, _, values in lines]  # type: ignore[misc]


def run_query(connection: Connection, sql: str, values: str = "[]") -> QueryRun:
    """The plan of a query, with as many of the values as it has `?`."""
    return prepare(connection, sql, eval(values)[: sql.count("?")])


@pytest.mark.parametrize(("one", "other"), [("[0.0]", "[-0.0]"), ("[2.0]", "[2]")])
def test_digest_depends_on_the_plan_only(visits: Connection, one: str, other: str) -> None:
    """Plans with constants that are equal in Python have digests of their own, in either order."""
    first, second, again = (
        compute_digest(run_query(visits, "SELECT COUNT(*) / ? AS n FROM visits", values).outer)
        for values in (one, other, one)
    )
    assert first == again != second


@pytest.mark.parametrize(("one", "other", "values"), pairs(SPELLINGS))
def test_spellings_have_one_plan(visits: Connection, one: str, other: str, values: str) -> None:
    """Two spellings of a query are one plan with one digest and one statement; their texts are not."""
    plans = [run_query(visits, sql, values) for sql in (one, other)]
    assert_alike([compute_digest(plan.outer) for plan in plans])
    assert_alike([(plan.plan, plan.statement, plan.outer_sql) for plan in plans])
    with pytest.raises(AssertionError):
        assert_alike([hashlib.sha256(sql.encode()).hexdigest() for sql in (one, other)])


@pytest.mark.parametrize(("one", "other", "_"), pairs(REWRITES))
def test_rewrites_have_the_same_exact_rows(visits: Connection, one: str, other: str, _: str) -> None:
    """Two queries that mean the same have the same exact rows, to the bit."""
    found = [exactly(visits, run_query(visits, sql)) for sql in (one, other)]
    assert any(any(row) for row in found[0])
    assert_alike(found)


def test_naive_sum_depends_on_the_rewrite(visits: Connection) -> None:
    """A sum of floats over the same rows, joined or sorted in another way, does not pass."""
    rows = "(SELECT cost FROM visits WHERE isfinite(cost) AND cost < 1e17 ORDER BY {})"
    orders = ("cost", "cost DESC", "hash(cost)", "age, cost")
    sums = (f"SELECT SUM(cost) FROM {rows.format(order)}" for order in orders)
    found = [engine_of(visits).execute(sql).fetchall() for sql in sums]
    with pytest.raises(AssertionError):
        assert_alike(found)


_WORD = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\w+|\s+|.", re.DOTALL)
_SPACES = (" ", "\n", "\t  ", "\r\n ")
_COMMENTS = ("", "/* SELECT 'x */", " -- ; \n", " /**/ ")


def respelt(query: str, seed: str) -> str:
    """The query with the case of its words and the space between them changed."""
    random_ = random.Random(seed)
    words = []
    for word in _WORD.findall(query):
        if word.isspace():
            words.append(random_.choice(_SPACES))
        elif word.isascii() and word[0].isalnum():
            words.append(random_.choice((str.upper, str.lower, str.swapcase, str.title))(word))
        elif word in (",", "(", ")"):
            words += [word, random_.choice(_COMMENTS)]
        else:
            words.append(word)
    return "".join(words)


def folded(plan: QueryRun) -> tuple[str, ...]:
    """A plan, what is told of it and what is run, but for the case of names: a column's is as it was written."""
    texts = (
        compute_canonical_text(plan.outer),
        str(plan.explain),
        *(part.statement.sql for part in plan.releases),
    )
    return tuple(text.lower() for text in texts)


@pytest.mark.parametrize("fixture", accepted(), ids=str)
def test_case_space_and_comments_change_no_plan(visits: Connection, fixture: Fixture) -> None:
    """They change nothing in a plan except the case of its columns' names."""
    other = respelt(fixture.query, str(fixture))
    assert other != fixture.query
    plans = [prepare(visits, text, fixture.parameters) for text in (fixture.query, other)]
    assert_alike([folded(plan) for plan in plans])
