"""Conditions confine a scan to the places at which they can be true, and to no fewer."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.analysis.partitions.assignment import compute_boxes
from dpsql.engine.query_run import QueryRun
from dpsql.plan.nodes import list_private_scans
from dpsql.privacy.accounting.partitions.boxes import WHOLE

_COLUMNS: dict[str, dict[str, Any]] = {
    "day": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"]},
    "seen": {"type": "timestamp", "bounds": ["2024-01-01", "2024-12-31"]},
    "region": {"type": "varchar", "values": ["S", "N"]},
    "ok": {"type": "boolean"},
    "k": {"type": "integer", "bounds": [2, 15]},
    "n": {"type": "integer", "values": [3, 1, 2]},
    "free": {"type": "integer"},
}
_ROWS = """
    CREATE TABLE v AS SELECT
        i % 97 AS id, DATE '2023-12-28' + CAST(i % 380 AS INTEGER) AS day,
        TIMESTAMP '2024-01-01' + to_days(CAST(i % 366 AS INTEGER)) + to_minutes(i % 1440) AS seen,
        ['N', 'S', NULL, 'X'][1 + i % 4] AS region, CASE WHEN i % 7 < 5 THEN i % 7 = 0 END AS ok,
        i % 20 AS k, i % 5 AS n, i % 3 AS free
    FROM range(9000) AS t(i)
"""


def _connected(partition: list[str]) -> dpsql.Connection:
    database = duckdb.connect()
    database.execute(_ROWS)
    table = {"unit": "row", "columns": _COLUMNS} | ({"partition": partition} if partition else {})
    policy = {"version": 1, "privacy_unit": "row", "budget": {"epsilon": 9}, "tables": {"v": table}}
    return dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1)


@pytest.fixture(scope="module")
def both() -> tuple[dpsql.Connection, dpsql.Connection]:
    """One connection without partitions, one where all columns are."""
    return _connected([]), _connected(list(_COLUMNS))


def _prepared(connection: dpsql.Connection, condition: str) -> QueryRun:
    return connection.explain(f"SELECT COUNT(*) FROM v WHERE {condition}").prepared


_FEBRUARY = "day 2024-02-01 to 2024-02-29"
_CASES = [
    ("day BETWEEN '2024-02-01' AND '2024-02-29'", _FEBRUARY),
    ("day >= DATE '2024-02-01' AND day < DATE '2024-02-01' + INTERVAL 1 MONTH", _FEBRUARY),
    ("date_trunc('month', day) = DATE '2024-02-01'", _FEBRUARY),
    ("last_day(day) = DATE '2024-02-29'", _FEBRUARY),
    ("year(day) = 2024 AND month(day) = 2", _FEBRUARY),
    ("EXTRACT(month FROM day) IN (2, 3)", "day 2024-02-01 to 2024-03-31"),
    ("NOT month(day) IN (2, 3)", "day 2024-01-01 to 2024-01-31, 2024-04-01 to 2024-12-31"),
    ("quarter(day) IN (1, 3)", "day 2024-01-01 to 2024-03-31, 2024-07-01 to 2024-09-30"),
    ("month(seen) < 2", "seen 2024-01-01 00:00:00 to 2024-01-31 23:59:59.999999"),
    ("CAST(seen AS DATE) = DATE '2024-02-01'", "seen 2024-02-01 00:00:00 to 2024-02-01 23:59:59.999999"),
    ("seen < DATE '2024-02-01'", "seen 2024-01-01 00:00:00 to 2024-01-31 23:59:59.999999"),
    ("day > TIMESTAMP '2024-02-01 01:00:00'", "day 2024-02-02 to 2024-12-31"),
    ("DATE '2024-05-01' > day", "day 2024-01-01 to 2024-04-30"),
    ("NOT (day < DATE '2024-05-01')", "day 2024-05-01 to 2024-12-31"),
    ("day <> DATE '2024-05-01'", "day 2024-01-01 to 2024-04-30, 2024-05-02 to 2024-12-31"),
    ("date_trunc('week', day) = DATE '2024-01-29'", "day 2024-01-29 to 2024-02-04"),
    ("isoyear(day) = 2025", "day 2024-12-30 to 2024-12-31"),
    ("day < DATE '2020-01-01'", "day 2024-01-01"),  # nothing counts, and the least is charged
    ("day < DATE '2024-03-01' OR day > DATE '2024-11-01' AND k > 3",
     "day 2024-01-01 to 2024-02-29, 2024-11-02 to 2024-12-31"),
    ("NOT (k < 4 OR day > DATE '2024-05-01')", "day 2024-01-01 to 2024-05-01; k 4 to 15"),
    ("region = 'N'", "region N"),
    ("region <> 'N'", "region S"),
    ("region NOT IN ('N', 'Q')", "region S"),
    ("region IS NOT DISTINCT FROM 'N'", "region N"),
    ("region < 'P'", "region N"),
    ("region = 'Q'", "region N"),
    ("ok", "ok True"),
    ("NOT ok", "ok False"),
    ("ok IS FALSE", "ok False"),
    ("ok = TRUE", "ok True"),
    ("k = 2.5", "k 2"),
    ("k < 2.5", "k 2"),
    ("k >= 20", "k 2"),
    ("k IN (3, 5, 7)", "k 3, 5, 7"),
    ("k BETWEEN 3 AND 5 AND k <> 4", "k 3, 5"),
    ("n > 1.5", "n 2 to 3"),
    ("n = 2", "n 2"),
]  # fmt: skip
_NOT_CONFINING = [
    "region = 'N' OR region = 'S'",  # everywhere but NULL
    "region = 'N' OR k < 4",
    "region IS NULL",
    "region IS DISTINCT FROM 'N'",
    "region LIKE 'N'",
    "day IS NULL OR day = DATE '2024-05-01'",
    "ok IS NOT TRUE",
    "NOT (ok IS TRUE)",
    "COALESCE(day, DATE '2024-05-01') = DATE '2024-05-01'",
    "strftime(day, '%Y-%m') = '2024-02'",
    "day - k < DATE '2024-02-01'",
    "day < DATE '2024-01-01' + k",
    "CASE WHEN day < DATE '2024-02-01' THEN TRUE ELSE k > 3 END",
    "k = k",
    "free < 2",
    "region IN ('N', NULL) IS NULL",
    "NOT (region IN ('N', NULL))",
]


@pytest.mark.parametrize(("condition", "words"), [*_CASES, *((case, "") for case in _NOT_CONFINING)])
def test_condition_narrows_the_scan_and_loses_no_row(
    both: tuple[dpsql.Connection, dpsql.Connection], condition: str, words: str
) -> None:
    """The scan reads these parts and no others, and the exact count is that of a table without parts."""
    free, parted = (_prepared(connection, condition) for connection in both)
    (scan,) = list_private_scans(parted.single_release.plan.analysis.release.input)
    assert "; ".join(map(str, scan.partition_filters)) == words
    assert (compute_boxes(parted.single_release.plan.analysis.release)["v"] == WHOLE) == (not words)
    runs = [
        connection.engine.backend.run_statement(found.single_release.statement.sql).reveal()
        for connection, found in zip(both, (free, parted), strict=True)
    ]
    assert runs[0] == runs[1]


def test_replaced_units_narrow_no_scan() -> None:
    """One who is replaced may leave one part for another, so every charge is to the whole."""
    database = duckdb.connect()
    database.execute(_ROWS)
    table = {"unit": "row", "columns": _COLUMNS, "partition": "day"}
    rules = {"version": 1, "privacy_unit": "row", "neighbors": "replace", "budget": {"epsilon": 9}}
    policy = {**rules, "tables": {"v": table}}
    with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=1) as connection:
        assert [bill.box for bill in _prepared(connection, "day < DATE '2024-02-01'").table_charges] == [
            WHOLE
        ]
