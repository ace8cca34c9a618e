"""A small study for tests of the face: 300 patients, 1,500 visits, a secret in a text column."""

from __future__ import annotations

from pathlib import Path

import duckdb

SECRET = "xyzzy-secret"
POLICY = """\
version: 1
privacy_unit: patient
budget: {epsilon: 50, delta: 1e-6}
tables:
  visits:
    unit: patient_id
    rows_per_unit: 10
    max_groups: 3
    columns:
      plan: {type: varchar, values: [A, B, C], nullable: false}
      region: {type: integer}
      cost: {type: double, bounds: [0, 1000]}
      day: {type: date, bounds: [2020-01-01, 2025-12-31]}
      note: {type: varchar}
  regions: {public: true}
"""


def write_study(directory: Path) -> tuple[Path, Path]:
    """Writes study.duckdb and study.yaml; returns their paths."""
    database, policy = directory / "study.duckdb", directory / "study.yaml"
    with duckdb.connect(str(database)) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i % 300 AS patient_id, substr('ABC', 1 + i % 3, 1) AS plan, "
            "i % 4 AS region, (i * 7919) % 1000 + 0.25 AS cost, DATE '2024-01-01' + (i % 365)::INTEGER AS day, "
            f"'{SECRET}-' || i AS note, i AS undeclared FROM range(1500) t(i)"
        )
        connection.execute(
            "CREATE TABLE regions AS SELECT * FROM (VALUES (0, 'north'), (1, 'south')) t(id, name)"
        )
        connection.execute("CREATE TABLE wages AS SELECT 1 AS id")
    policy.write_text(POLICY, encoding="utf-8")
    return database, policy
