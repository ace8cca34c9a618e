"""The small clinic that the corpus of statements asks about: private visits and staff, public regions and plans.

Every declared key has rows, every group has several patients, and no patient exceeds a bound, so that without noise an answer
is what DuckDB answers.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb

_SCHEMA = """
    CREATE TABLE visits (
        patient_id BIGINT, plan VARCHAR, region BIGINT, age INTEGER, cost DOUBLE, day DATE, seen TIMESTAMP,
        note VARCHAR, weight DOUBLE, urgent BOOLEAN, "Ward No" INTEGER
    );
    CREATE TABLE staff (name VARCHAR, grade INTEGER, salary DOUBLE);
    CREATE TABLE samples (visit_id BIGINT, value DOUBLE);
    CREATE TABLE surveys (answer VARCHAR, score INTEGER);
    CREATE TABLE pulses (patient_id BIGINT, plan VARCHAR);
    CREATE TYPE device AS ENUM ('pump', 'lamp', 'bed');
    CREATE TABLE devices AS
    SELECT i % 60 AS patient_id,
           CAST('00000000-0000-0000-0000-00000000000' || i % 4 AS UUID) AS model,
           TIME '08:00:00' + to_minutes(CAST(i % 5 * 30 AS INTEGER)) AS starts,
           TIMESTAMPTZ '2026-01-01 23:30:00+00' + to_hours(CAST(i % 6 AS INTEGER)) AS woken,
           encode(CAST(i % 3 AS VARCHAR)) AS mark,
           CAST(['pump', 'lamp', 'bed'][i % 3 + 1] AS device) AS kind,
           CAST(i % 40 / 4 AS DECIMAL(10, 2)) AS price,
           CAST(18446744073709551000 + i % 60 AS UBIGINT) AS serial,
           CASE WHEN i % 9 = 4 THEN NULL
                ELSE {'city': ['Bonn', 'Kiel'][i % 2 + 1], 'at': {'floor': i % 4}} END AS place,
           CASE i % 8 WHEN 5 THEN NULL WHEN 6 THEN [] ELSE ['new', 'loud', NULL][: 1 + i % 3] END AS tags
    FROM range(360) AS r(i);
    CREATE TABLE regions (id BIGINT, name VARCHAR, country VARCHAR);
    CREATE TABLE plans (plan VARCHAR, label VARCHAR, price DOUBLE);
    CREATE TABLE prices (plan VARCHAR, price DOUBLE);
    INSERT INTO regions VALUES (0, 'north', 'X'), (1, 'south', 'X'), (2, 'west', 'Y');
    INSERT INTO plans VALUES ('A', 'basic', 10), ('B', 'extra', 20), ('C', 'full', 30);
    INSERT INTO prices VALUES ('A', 1), ('A', 2), ('B', 3);
"""

_DEVICES = {
    "model": {"type": "uuid"},
    "starts": {"type": "time"},
    "woken": {"type": "timestamptz", "bounds": [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 31)]},
    "mark": {"type": "bytea"},
    "kind": {"type": "enum", "values": ["pump", "lamp", "bed"]},
    "price": {"type": "numeric(10,2)", "bounds": [0, 20]},
    "serial": {"type": "varchar"},
    "place.city": {"type": "text", "values": ["Bonn", "Kiel"]},
    "place.at.floor": {"type": "int", "bounds": [0, 3]},
    "tags": {"type": "text", "values": ["new", "loud"], "max_elements": 3},
}

_VISITS = {
    "plan": {"type": "varchar", "values": ["A", "B", "C"], "nullable": False},
    "region": {"type": "integer", "values": [0, 1, 2]},
    "age": {"type": "integer", "bounds": [20, 69]},
    "cost": {"type": "double", "bounds": [0, 1000]},
    "day": {"type": "date", "bounds": [dt.date(2026, 1, 1), dt.date(2026, 3, 31)]},
    "seen": {
        "type": "timestamp",
        "bounds": [dt.datetime(2026, 1, 1), dt.datetime(2026, 3, 31, 23, 59, 59)],
        "nullable": False,
    },
    "note": {"type": "varchar"},
    "weight": {"type": "double"},
    "urgent": {"type": "boolean"},
    "Ward No": {"type": "integer", "bounds": [1, 3], "nullable": False},
}

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "visits": {"unit": "patient_id", "rows_per_unit": 12, "columns": _VISITS},
        "devices": {"unit": "patient_id", "rows_per_unit": 6, "columns": _DEVICES},
        "staff": {
            "unit": "row",
            "columns": {
                "grade": {"type": "integer", "values": [1, 2, 3], "nullable": False},
                "salary": {"type": "double", "bounds": [0, 9000]},
            },
        },
        "samples": {
            "link": {"column": "visit_id", "references": "visits.region"},
            "rows_per_unit": 5,
            "columns": {"value": {"type": "double", "bounds": [0, 1]}},
        },
        "surveys": {
            "unit": "row",
            "budget": {"accountant": "pure", "delta": 0},
            "columns": {"answer": {"type": "varchar"}, "score": {"type": "integer", "bounds": [0, 10]}},
        },
        "pulses": {
            "unit": "patient_id",
            "rows_per_unit": 10**9,
            "columns": {"plan": {"type": "varchar", "values": ["A", "B", "C"]}},
        },
        "regions": {"public": True, "columns": {"id": {"type": "integer", "nullable": False}}},
        "plans": {"public": True},
        "prices": {"public": True},
    },
}


def make_clinic() -> duckdb.DuckDBPyConnection:
    """Make the clinic's database."""
    connection = duckdb.connect()
    connection.execute(_SCHEMA)
    for table, rows in (("visits", [*map(_visit, range(360))]), ("staff", [*map(_employee, range(60))])):
        row = f"({', '.join('?' * len(rows[0]))})"
        values = [value for each in rows for value in each]
        connection.execute(f"INSERT INTO {table} VALUES {', '.join([row] * len(rows))}", values)
    return connection


def _visit(i: int) -> tuple[Any, ...]:
    return (
        i % 60,
        "ABC"[i % 3],
        (0, 1, 2, None)[i // 3 % 4],
        None if i % 11 == 0 else 20 + i * 7 % 50,
        None if i % 10 == 3 else i * 37 % 1000 + 0.25 * (i % 4),
        None if i % 9 == 4 else dt.date(2026, 1, 1) + dt.timedelta(days=i * 13 % 90),
        dt.datetime(2026, 1, 1) + dt.timedelta(minutes=i * 359, seconds=i % 60),
        ("Fever", "cough", "ab_c", "100%", "", "naïve", None)[i % 7],
        40.5 + i * 17 % 60,
        (True, False, None)[i // 5 % 3],
        1 + i % 3,
    )


def _employee(i: int) -> tuple[Any, ...]:
    return f"employee {i}", 1 + i % 3, 1000.0 + 50 * i
