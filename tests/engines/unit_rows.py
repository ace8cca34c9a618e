"""Windows and aggregates over the rows of one unit, with ties, NULLs and special values, as each engine is asked for them."""

from __future__ import annotations

import random
from typing import Any

import duckdb

BY = "PARTITION BY who ORDER BY day"
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
KINDS = {
    "day": "DATE", "moment": "TIMESTAMP", "n": "BIGINT", "x": "DOUBLE", "raw": "BIGINT", "wild": "DOUBLE",
    "s": "VARCHAR", "k": "VARCHAR", "yes": "BOOLEAN", "h": "BLOB", "uid": "UUID",
}  # fmt: skip
_POOLS: dict[str, tuple[Any, ...]] = {
    "day": ("2024-01-01", "2024-01-02", "2024-01-03", None),
    "moment": ("2024-01-01 23:30:00.000001", "2024-03-10 02:30:00", "1969-12-31 23:59:59", None),
    "n": (1, 1, 2, 5, -3, None),
    "x": (0.0, -0.0, 1.5, -4.0, 0.1, 4.0, float("nan"), None),
    "raw": (2**63 - 1, -(2**63), 3, 4, None),
    "wild": (float("inf"), float("-inf"), float("nan"), 1.7e308, -1.7e308, 5e-324, 0.1, None),
    "s": ("a", "A", "", "é", "z", "Z", "\U0001f600", "\uffff", None),
    "k": ("a", "b", None),
    "yes": (True, False, None),
    "h": (b"", b"\x00", b"\xff", b"\x7f\x00", None),
    "uid": ("00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000000", None),
}
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 10**30, "delta": 1e-6},
    "tables": {
        "t": {
            "unit": "who",
            "rows_per_unit": 12,
            "columns": {
                "day": {"type": "date"},
                "moment": {"type": "timestamp"},
                "n": {"type": "integer", "bounds": [-5, 9]},
                "x": {"type": "double", "bounds": [-4, 4]},
                "raw": {"type": "integer"},
                "wild": {"type": "double"},
                "s": {"type": "varchar"},
                "k": {"type": "varchar", "values": ["a", "b"]},
                "yes": {"type": "boolean"},
                "h": {"type": "blob"},
                "uid": {"type": "uuid"},
            },
        },
    },
}

WINDOWS = (
    f"ROW_NUMBER() OVER ({BY})",
    "RANK() OVER (PARTITION BY who ORDER BY n NULLS FIRST)",
    "DENSE_RANK() OVER (PARTITION BY who ORDER BY s DESC)",
    "RANK() OVER (PARTITION BY who)",
    "PERCENT_RANK() OVER (PARTITION BY who ORDER BY x)",
    "CUME_DIST() OVER (PARTITION BY who ORDER BY wild DESC)",
    "RANK() OVER (PARTITION BY who ORDER BY -x)",
    "NTILE(4) OVER (PARTITION BY who ORDER BY moment)",
    f"LAG(n) OVER ({BY})",
    f"LEAD(n, 2, 7) OVER ({BY})",
    "LEAD(x, 1, 0.5) OVER (PARTITION BY who, k ORDER BY yes DESC)",
    f"FIRST_VALUE(n) OVER ({BY})",
    f"LAST_VALUE(n) OVER (PARTITION BY who ORDER BY s {_WHOLE})",
    f"NTH_VALUE(x, 3) OVER (PARTITION BY who ORDER BY raw {_WHOLE})",
    f"LENGTH(MIN(s) OVER ({BY}))",
    f"COUNT(s) OVER ({BY})",
    f"COUNT(*) OVER ({BY} ROWS 2 PRECEDING)",
    f"SUM(n) OVER ({BY})",
    f"SUM(x) OVER ({BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "AVG(x) OVER (PARTITION BY who)",
    f"AVG(n) OVER ({BY} ROWS 3 PRECEDING)",
    f"MIN(x) OVER ({BY})",
    f"MAX(raw) OVER ({BY} ROWS 1 PRECEDING) % 1000",
    "day - LAG(day) OVER (PARTITION BY who ORDER BY moment)",
    f"EXTRACT(hour FROM MAX(moment) OVER ({BY}))",
    f"CASE WHEN MIN(yes) OVER ({BY}) THEN 1 ELSE 0 END",
    f"CASE WHEN MAX(h) OVER ({BY}) = h THEN 1 ELSE 0 END",
    "RANK() OVER (PARTITION BY who ORDER BY n ROWS 2 PRECEDING EXCLUDE CURRENT ROW)",
    "SUM(n) OVER (PARTITION BY who ORDER BY n GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "AVG(x) OVER (PARTITION BY who ORDER BY s DESC, x GROUPS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING)",
    "COUNT(s) OVER (PARTITION BY who, k ORDER BY wild NULLS FIRST GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
    f"MAX(raw) OVER ({BY} GROUPS BETWEEN 1000000 PRECEDING AND 1 FOLLOWING) % 1000",
    "MIN(x) OVER (PARTITION BY who GROUPS 1 PRECEDING)",
)
"""Windows that every engine is asked for."""
VALUED = (
    f"LAG(n IGNORE NULLS) OVER ({BY})",
    f"NTH_VALUE(n, 2 IGNORE NULLS) OVER (PARTITION BY who ORDER BY s {_WHOLE})",
    f"LAST_VALUE(x IGNORE NULLS) OVER (PARTITION BY who ORDER BY s {_WHOLE})",
    f"LEAD(n, 2, 7 IGNORE NULLS) OVER ({BY})",
    "LAG(x, 3, 0.5 IGNORE NULLS) OVER (PARTITION BY who, k ORDER BY yes DESC)",
    f"LAG(n, 0, 7 IGNORE NULLS) OVER ({BY})",
    f"LENGTH(FIRST_VALUE(s IGNORE NULLS) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING))",
    f"LAST_VALUE(wild IGNORE NULLS) OVER ({BY} ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING)",
    f"NTH_VALUE(raw, 3 IGNORE NULLS) OVER ({BY} ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING) % 1000",
    "FIRST_VALUE(n IGNORE NULLS) OVER (PARTITION BY who)",
)
"""Windows that ignore NULLs."""
EXCLUDED = f"FIRST_VALUE(n IGNORE NULLS) OVER ({BY} ROWS 2 PRECEDING EXCLUDE CURRENT ROW)"
"""A window that is not supported on PostgreSQL."""
FRAMES = (
    f"SUM(n) OVER ({BY} GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
    f"COUNT(n) OVER ({BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
)
"""Windows that are not supported on Spark."""
AGGREGATES = (
    "MEDIAN(n)",
    "MEDIAN(x)",
    "MEDIAN(x / 3)",
    "LEAST(GREATEST(MEDIAN(wild), -9), 9)",
    "QUANTILE_CONT(n, 0.5)",
    "QUANTILE_DISC(n, 0.25)",
    "QUANTILE_DISC(x, 0)",
    "QUANTILE_DISC(x, 1)",
    "QUANTILE_DISC(raw, 0.07) % 1000",
    "EXTRACT(minute FROM QUANTILE_DISC(moment, 0.7))",
    "CASE QUANTILE_DISC(s, 0.333) WHEN 'Z' THEN 2 WHEN 'é' THEN 5 WHEN '' THEN 7 ELSE 9 END",
    "ARG_MIN(n, day)",
    "ARG_MAX(n, x)",
    "ARG_MAX(x, s)",
    "ARG_MIN(raw, n) % 1000",
    "ARG_MAX(n, wild)",
    "CASE ARG_MAX(k, n) WHEN 'a' THEN 2 WHEN 'b' THEN 5 ELSE 9 END",
    "SUM(DISTINCT n)",
    "SUM(DISTINCT x)",
    "AVG(DISTINCT x)",
    "COUNT(DISTINCT s)",
    "CASE WHEN MAX(yes) THEN 1 ELSE 0 END",
    "CASE WHEN MIN(yes) THEN 1 ELSE 0 END",
    "CASE WHEN MIN(h) < MAX(h) THEN 1 ELSE 0 END",
    "SUM(x)",
    "QUANTILE_CONT(n, 0.25)",
    "QUANTILE_CONT(n * n - 3, 0.984375)",
    "QUANTILE_CONT(x, 0)",
    "LEAST(GREATEST(QUANTILE_CONT(wild, 1), -9), 9)",
)
"""Aggregates of a unit's rows that every engine is asked for."""
UUIDS = ("CASE WHEN MIN(uid) < MAX(uid) THEN 1 ELSE 0 END", "COUNT(DISTINCT uid)")


def database() -> duckdb.DuckDBPyConnection:
    """Rows of 30 people, some of whom have one, with ties of all kinds."""
    draw = random.Random(5)
    connection = duckdb.connect()
    declared = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    connection.execute(f"CREATE TABLE t (who BIGINT, {declared})")
    rows = [
        [who, *(draw.choice(_POOLS[name]) for name in KINDS)]
        for who in range(30)
        for _ in range(who % 10 + 1)
    ]
    connection.executemany(f"INSERT INTO t VALUES ({', '.join(['?'] * (len(KINDS) + 1))})", rows)
    return connection


def of_windows(windows: tuple[str, ...]) -> str:
    """Sums and counts of windows' values, by what else the rows have."""
    return _of(windows, "k, n, day", "SELECT k, n, day", "")


def of_groups(aggregates: tuple[str, ...], key: str = "k") -> str:
    """Sums and counts of aggregates of each unit's rows, by their key."""
    return _of(aggregates, key, f"SELECT who, {key}", f" GROUP BY who, {key}")


def _of(values: tuple[str, ...], keys: str, items: str, end: str) -> str:
    named = ", ".join(f"{value} AS v{place}" for place, value in enumerate(values))
    taken = ", ".join(
        f"SUM(LEAST(GREATEST(v{place}, -1000), 1000)) AS s{place}, COUNT(v{place}) AS c{place}"
        for place in range(len(values))
    )
    return f"SELECT {keys}, {taken} FROM ({items}, {named} FROM t{end}) AS d GROUP BY {keys}"
