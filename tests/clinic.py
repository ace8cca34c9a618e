"""A small clinic: the database that the tests of the public faces ask."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb

POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "budget": {"epsilon": 30, "delta": 1e-6},
    "max_epsilon": 2,
    "tables": {
        "visits": {
            "unit": "patient_id",
            "rows_per_unit": 4,
            "columns": {
                "plan": {"type": "varchar", "values": ["A", "B"], "nullable": False},
                "ward": {"type": "varchar"},
                "cost": {"type": "double", "bounds": [0, 1000]},
                "days": {"type": "integer", "bounds": [0, 30]},
                "day": {"type": "date", "bounds": [dt.date(2024, 1, 1), dt.date(2024, 12, 31)]},
            },
        },
        "wards": {"public": True, "columns": {"beds": {"type": "integer", "bounds": [0, 50]}}},
    },
}

PATIENTS = 200


def database() -> duckdb.DuckDBPyConnection:
    """200 patients with four visits each, by arithmetic, so that exact answers are known."""
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE visits AS
        SELECT p AS patient_id,
               CASE WHEN p % 2 = 0 THEN 'A' ELSE 'B' END AS plan,
               CASE WHEN v = 3 THEN 'north' ELSE 'south' END AS ward,
               CAST(100 * v + p AS DOUBLE) AS cost,
               v AS days,
               DATE '2024-01-01' + CAST(v * 60 AS INTEGER) AS day
        FROM range(200) AS patients(p), range(4) AS visit(v);
        CREATE TABLE wards AS SELECT * FROM (VALUES ('north', 10), ('south', 20)) AS w(name, beds);
        CREATE TABLE secrets AS SELECT 42 AS answer;
        """
    )
    return connection
