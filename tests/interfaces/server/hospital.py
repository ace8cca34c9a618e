"""A hospital with keys and schemas, as tools of business intelligence look at it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb

POLICY: dict[str, Any] = {
    "version": 1,
    "database": "clinic",
    "privacy_unit": "patient",
    "budget": {"epsilon": 30, "delta": 1e-6},
    "analysts": {"ana": {"epsilon": 20}, "bob": {"epsilon": 5}},
    "tables": {
        "patients": {
            "unit": "patient_id",
            "rows_per_unit": 1,
            "columns": {
                "patient_id": {"type": "integer"},
                "sex": {"type": "varchar", "values": ["F", "M"]},
                "born": {"type": "date", "bounds": [dt.date(1920, 1, 1), dt.date(2024, 12, 31)]},
            },
        },
        "visits": {
            "link": {"column": "patient_id", "references": "patients.patient_id"},
            "rows_per_unit": 4,
            "unique": ["visit_id"],
            "columns": {
                "visit_id": {"type": "integer"},
                "patient_id": {"type": "integer"},
                "ward": {"type": "varchar"},
                "cost": {"type": "double", "bounds": [0, 1000]},
                "day": {"type": "date", "bounds": [dt.date(2024, 1, 1), dt.date(2024, 12, 31)]},
                "urgent": {"type": "boolean"},
            },
        },
        "wards": {"public": True, "columns": {"beds": {"type": "integer", "bounds": [0, 50]}}},
        "emr.labs": {
            "link": {"column": "patient_id", "references": "patients.patient_id"},
            "rows_per_unit": 10,
            "columns": {
                "code": {"type": "varchar", "values": ["HB", "NA"]},
                "value": {"type": "double", "bounds": [0, 200]},
            },
        },
    },
}


def make_database() -> duckdb.DuckDBPyConnection:
    """Return a database of 100 patients, their visits and laboratory values."""
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE SCHEMA emr;
        CREATE TABLE patients AS
        SELECT p AS patient_id, CASE WHEN p % 2 = 0 THEN 'F' ELSE 'M' END AS sex, DATE '1950-01-01' + p::INTEGER AS born,
               'name ' || p AS full_name
        FROM range(100) AS of_patients(p);
        CREATE TABLE visits AS
        SELECT 4 * p + v AS visit_id, p AS patient_id, CASE WHEN v = 3 THEN 'north' ELSE 'south' END AS ward,
               CAST(100 * v + p AS DOUBLE) AS cost, DATE '2024-01-01' + CAST(v * 60 AS INTEGER) AS day, v = 1 AS urgent
        FROM range(100) AS of_patients(p), range(4) AS of_visits(v);
        CREATE TABLE wards AS SELECT * FROM (VALUES ('north', 10), ('south', 20)) AS w(name, beds);
        CREATE TABLE emr.labs AS
        SELECT p AS lab_id, p AS patient_id, 'HB' AS code, CAST(p AS DOUBLE) AS value FROM range(100) AS of_patients(p);
        CREATE TABLE secrets AS SELECT 42 AS answer;
        """
    )
    return connection
