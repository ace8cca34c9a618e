"""The small clinic that the SQL tests ask about: private visits and staff, public regions and plans.

Patients have visits, visits have samples, and samples have assays; whose a sample or an assay is, is found
through these. Every declared key has rows, every group has several patients, and no patient exceeds a
bound, so that without noise an answer is what DuckDB answers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import duckdb

import dpsql
from dpsql.connection import Connection
from dpsql.engine import Asked, Prepared
from dpsql.plan.types import Value

NO_NOISE = 10**15
"""A loss at which no noise is left: what is answered is the exact statistic."""

_SCHEMA = """
    CREATE TABLE visits (
        patient_id BIGINT, plan VARCHAR, region BIGINT, age INTEGER, cost DOUBLE, day DATE, seen TIMESTAMP,
        note VARCHAR, weight DOUBLE, urgent BOOLEAN, "Ward No" INTEGER, visit_id BIGINT
    );
    CREATE TABLE patients (patient_id BIGINT, born INTEGER, sex VARCHAR, city VARCHAR);
    CREATE TABLE staff (name VARCHAR, grade INTEGER, salary DOUBLE);
    CREATE TABLE samples (sample_id BIGINT, visit_id BIGINT, value DOUBLE);
    CREATE TABLE assays (sample_id BIGINT, score INTEGER, kit VARCHAR);
    CREATE TABLE surveys (answer VARCHAR, score INTEGER);
    CREATE TABLE pulses (patient_id BIGINT, plan VARCHAR);
    CREATE TABLE regions (id BIGINT, name VARCHAR, country VARCHAR);
    CREATE TABLE plans (plan VARCHAR, label VARCHAR, price DOUBLE);
    CREATE TABLE prices (plan VARCHAR, price DOUBLE);
    INSERT INTO regions VALUES (0, 'north', 'X'), (1, 'south', 'X'), (2, 'west', 'Y');
    INSERT INTO plans VALUES ('A', 'basic', 10), ('B', 'extra', 20), ('C', 'full', 30);
    INSERT INTO prices VALUES ('A', 1), ('A', 2), ('B', 3);
"""

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
    "visit_id": {"type": "integer"},
}

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "visits": {"unit": "patient_id", "rows_per_unit": 12, "columns": _VISITS},
        "staff": {
            "unit": "row",
            "columns": {
                "grade": {"type": "integer", "values": [1, 2, 3], "nullable": False},
                "salary": {"type": "double", "bounds": [0, 9000]},
            },
        },
        "patients": {
            "unit": "patient_id",
            "rows_per_unit": 1,
            "columns": {
                "born": {"type": "integer", "bounds": [1940, 2020]},
                "sex": {"type": "varchar", "values": ["F", "M"], "nullable": False},
                "city": {"type": "varchar"},
            },
        },
        "samples": {
            "link": {"column": "visit_id", "references": "visits.visit_id"},
            "rows_per_unit": 12,
            "columns": {
                "sample_id": {"type": "integer"},
                "value": {"type": "double", "bounds": [0, 1]},
            },
        },
        "assays": {
            "link": {"column": "sample_id", "references": "samples.sample_id"},
            "rows_per_unit": 24,
            "columns": {
                "score": {"type": "integer", "bounds": [0, 100]},
                "kit": {"type": "varchar", "values": ["X", "Y"], "nullable": False},
            },
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


def clinic() -> duckdb.DuckDBPyConnection:
    """The clinic's database."""
    connection = duckdb.connect()
    connection.execute(_SCHEMA)
    for table, rows in (
        ("patients", [*map(_patient, range(60))]),
        ("visits", [*map(_visit, range(360))]),
        ("samples", [*map(_sample, range(240))]),
        ("assays", [*map(_assay, range(480))]),
        ("staff", [*map(_employee, range(60))]),
    ):
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return connection


def _patient(i: int) -> tuple[Any, ...]:
    return i, 1950 + i * 7 % 50, "FM"[i // 2 % 2], ("Bonn", "Kiel", None)[i // 4 % 3]


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
        1000 + i,
    )


def _sample(i: int) -> tuple[Any, ...]:
    """Of three visits, one has two samples and the others none."""
    return 5000 + i, 1000 + 3 * (i // 2), None if i % 8 == 5 else i % 16 / 16


def _assay(i: int) -> tuple[Any, ...]:
    """Of two samples, one has four assays and the other none."""
    return 5000 + 2 * (i // 4), i * 13 % 101, "XY"[i // 4 % 2]


def _employee(i: int) -> tuple[Any, ...]:
    return f"employee {i}", 1 + i % 3, 1000.0 + 50 * i


def study() -> Connection:
    """A connection to the clinic, which answers without noise."""
    return dpsql.connect(clinic(), policy=POLICY, ledger=":memory:", epsilon=NO_NOISE)


def prepare(connection: Connection, query: str, parameters: Sequence[Value] = ()) -> Prepared:
    """Everything that is decided about a query before it is charged."""
    return connection.engine.prepare(Asked(query, tuple(parameters), Fraction(NO_NOISE)))
