"""MIN, MAX and quantiles of times of day: points are microseconds after midnight, of which a day has a public number.

Claim: one unit changes the number of values at each point, and below it, by at most the rows of it that count.
Why: a value has one point, whatever the other rows are; the choice among points is that of numbers.
Source: McSherry, Talwar 2007, section 3.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence

import duckdb
import pytest
from speeds import thinned
from worlds import cells, close_all, connected, engine_of, prepared

from dpsql.api.connection import Connection
from dpsql.planning.quantiles import RankWindow

TIMES = ("00:00:00", "23:59:59.999999", "06:30:00.25", "06:30:00.25", "24:00:00", None)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Worlds end with their test."""
    yield
    close_all()


def world(rows: Sequence[tuple[int, str | None]]) -> Connection:
    """The times of people, of whom one has at most two rows."""
    opened = duckdb.connect(config={"threads": 1})
    opened.execute("CREATE TABLE t (id INTEGER, k VARCHAR, at_ TIME)")
    for place, (who, time) in enumerate(rows):
        opened.execute("INSERT INTO t VALUES (?, ?, CAST(? AS TIME))", [who, "ab"[place % 2], time])
    columns = {"k": {"type": "text", "values": ["a", "b"], "nullable": False}, "at_": {"type": "time"}}
    table = {"unit": "id", "rows_per_unit": 2, "columns": columns}
    return connected(opened, {"budget": {"epsilon": 10**9}, "tables": {"t": table}})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MIN(at_), MAX(at_), COUNT(at_) FROM t",
        "SELECT k, MIN(at_), MAX(at_) FROM t GROUP BY k",
        "SELECT MAX(at_) FILTER (WHERE k = 'a'), QUANTILE_DISC(at_, 0.5) FROM t",
        "SELECT MAX(at_) FROM t WHERE at_ < TIME '12:00:00'",
        "SELECT MIN(a), MAX(b) FROM (SELECT id, MAX(at_) AS a, MIN(at_) AS b FROM t GROUP BY id)",
        "SELECT MAX(a) FROM (SELECT k, MIN(at_) AS a FROM t GROUP BY k)",
        "SELECT COUNT(*) FROM t WHERE at_ >= (SELECT MIN(at_) FROM t WHERE k = 'b')",
    ],
)
def test_extremes_are_those_of_duckdb(sql: str) -> None:
    """With NULL, duplicates and both ends of the day; 24:00:00 is read as NULL, so it is left out here."""
    times = [time for time in TIMES if time != "24:00:00"]
    connection = world([(number // 2, time) for number, time in enumerate((*times, *times[1:]))])
    found = connection.query(sql, epsilon=10**6)
    assert sorted(found.rows, key=str) == sorted(engine_of(connection).execute(sql).fetchall(), key=str)


def test_a_median_is_a_time_of_day() -> None:
    """One near it where two are in the middle."""
    connection = world([(1, "08:00:00"), (2, "09:00:00"), (3, "10:00:00")])
    ((median,),) = connection.query("SELECT MEDIAN(at_) FROM t", epsilon=10**6).rows
    assert median == dt.time(9)


PAIRS = tuple(itertools.combinations_with_replacement(TIMES, 2))


def test_no_unit_moves_the_values_further_than_its_rows() -> None:
    """The number of all values, of those before a point and at it, for each two times of one more person."""
    others = ((7, "06:30:00.25"), (8, "12:00:00"))
    base = world(others)
    for sql in ("SELECT MIN(at_) FROM t", "SELECT MEDIAN(at_) FROM t"):
        plan = prepared(base, sql)
        bound = plan.plan.analysis.bound.rows
        (old,) = (part for part in cells(base, plan)[()] if isinstance(part, RankWindow))
        for times in (*thinned(PAIRS, 4), TIMES[:4]):
            found = cells(world((*others, *((1, time) for time in times))), plan)
            (new,) = (part for part in found[()] if isinstance(part, RankWindow))
            assert 0 <= new.count - old.count <= bound
            assert all(0 <= point < 24 * 3600 * 10**6 for point, _ in new.runs)
