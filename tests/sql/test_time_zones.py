"""AT TIME ZONE of named zones: the local time is that of DuckDB's and PostgreSQL's own zone data."""

from __future__ import annotations

import datetime as dt
import random
import zoneinfo
from collections.abc import Iterator
from typing import Any

import duckdb
import postgres
import psycopg
import pytest

import dpsql
from dpsql.sql.lower.time_zones import _compute_offset, list_transitions

ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "Africa/Casablanca",
    "Pacific/Apia", "Europe/London", "Asia/Tehran", "America/Sao_Paulo",
)  # fmt: skip
"""Zones with changes of half an hour, of a whole day, and without any, on both halves of the globe."""
_CHANCE = random.Random(7)
MOMENTS = sorted(
    {
        *(dt.datetime(1972, 1, 1) + dt.timedelta(seconds=_CHANCE.randrange(50 * 365 * 86_400)) for _ in range(400)),
        *(
            at + dt.timedelta(seconds=around)
            for zone in ZONES
            for year in (1981, 2011, 2024)
            for at, _ in list_transitions(zone, year)
            for around in (-1, 0, 1, 3_600)
        ),
    }
)  # fmt: skip
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 1e18, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "utc": {"type": "timestamp", "bounds": [dt.datetime(1960, 1, 1), dt.datetime(2030, 1, 1)]},
                "woken": {"type": "timestamptz"},
                "place": {"type": "varchar", "values": ["x", "y"]},
            },
        },
    },
}


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Connection]]:
    """DuckDB and dpsql, without noise but in one answer of many."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (id INTEGER, utc TIMESTAMP, woken TIMESTAMPTZ, place VARCHAR)")
        rows = [
            (number, at, at.replace(tzinfo=dt.UTC), "xy"[number % 2]) for number, at in enumerate(MOMENTS)
        ]
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=10**9) as connection:
            yield database, connection


def _get_offset(zone: str, at: dt.datetime) -> int:
    """Return the offset in seconds that the transitions give."""
    offset = _compute_offset(zoneinfo.ZoneInfo(zone), dt.datetime(1960, 1, 1))
    for year in range(1960, at.year + 1):
        for change, seconds in list_transitions(zone, year):
            offset = seconds if change <= at else offset
    return offset


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_offsets_are_those_of_postgresql(zone: str) -> None:
    """PostgreSQL has the same local time at each moment, also a second before and after clocks change."""
    with postgres.running() as server, psycopg.connect(server.url) as connection:
        found = connection.execute(
            "SELECT a, (a AT TIME ZONE 'UTC') AT TIME ZONE %s FROM unnest(%s::timestamp[]) u(a)",
            (zone, MOMENTS),
        ).fetchall()
    assert [local for _, local in found] == [
        at + dt.timedelta(seconds=_get_offset(zone, at)) for at, _ in found
    ]


@pytest.mark.parametrize("zone", ZONES)
def test_local_times_are_those_of_duckdb(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], zone: str
) -> None:
    """Hours, days and sums of local times match, of moments with a time zone and of those in UTC."""
    database, connection = both
    local = f"utc AT TIME ZONE 'UTC' AT TIME ZONE '{zone}'"
    for text in (
        f"SELECT SUM(HOUR({local})), SUM(MINUTE({local})), SUM(DAY({local})) FROM t",
        f"SELECT SUM(HOUR(woken AT TIME ZONE '{zone}')), SUM(MONTH(woken AT TIME ZONE '{zone}')) FROM t",
        f"SELECT SUM(DATE_DIFF('minute', utc, {local})) FROM t",
        f"SELECT COUNT(*) FROM t WHERE CAST(timezone('{zone.lower()}', timezone('UTC', utc)) AS DATE) <> CAST(utc AS DATE)",
        f"SELECT place, COUNT(*) FROM t WHERE (woken AT TIME ZONE '{zone}') < TIMESTAMP '2000-07-01 00:00:00' GROUP BY place",
    ):
        ours = [tuple(map(int, row[-1:])) for row in connection.query(text).rows]
        assert sorted(ours) == sorted(
            tuple(map(int, row[-1:])) for row in database.execute(text).fetchall()
        ), text


@pytest.mark.parametrize(
    ("expr", "hint"),
    [
        ("utc AT TIME ZONE 'Europe/Berlin'", "AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'"),
        ("woken AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'Europe/Berlin'", "AT TIME ZONE 'UTC' AT TIME ZONE"),
        ("woken AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo'", "AT TIME ZONE 'UTC' AT"),
        ("date_trunc('hour', woken) AT TIME ZONE 'Europe/Berlin'", "apply AT TIME ZONE to the column"),
        ("woken AT TIME ZONE 'Mars/Phobos'", "or 'UTC'"),
        ("woken AT TIME ZONE place", "or 'UTC'"),
    ],
)  # fmt: skip
def test_other_conversions_are_refused(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], expr: str, hint: str
) -> None:
    """A local time, a value whose zone is not known and an unknown zone are refused with what to write."""
    _, connection = both
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.query(f"SELECT COUNT(*) FROM t WHERE {expr} > TIMESTAMP '2024-01-01 00:00:00'")
    assert refused.value.code == "constant"
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM (SELECT woken AT TIME ZONE 'Asia/Tokyo' AS l FROM t) q WHERE q.l AT TIME ZONE 'Asia/Tokyo' > '2024-01-01'",
        "SELECT COUNT(*) FROM (SELECT woken AS l FROM t) q WHERE q.l AT TIME ZONE 'UTC' AT TIME ZONE 'Asia/Tokyo' > '2024-01-01'",
        "SELECT woken AT TIME ZONE 'Asia/Tokyo' AS l, COUNT(*) FROM t WHERE l AT TIME ZONE 'Asia/Tokyo' > '2024-01-01' GROUP BY l",
    ],
)  # fmt: skip
def test_values_of_unknown_zone_are_refused(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Connection], text: str
) -> None:
    """A converted value that is read by another name is not converted once more as if it were an instant."""
    _, connection = both
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.query(text)
    assert refused.value.code == "constant"
