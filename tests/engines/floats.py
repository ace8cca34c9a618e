"""FLOAT columns, on every engine: conditions with the number of rows for which they hold in DuckDB."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

VALUES = "(1, 0.1, 0.7, 1), (2, 0.1, 0.7, 2), (3, 0.3, 0.7, 3), (4, -5, 0.7, 4), (5, 3e38, 0.7, 5), (6, 1e-30, 0.7, 6)"
"""Rows of an id, a FLOAT, a DOUBLE and a whole number."""
COLUMNS = {
    "f": {"type": "float"},
    "x": {"type": "double"},
    "n": {"type": "integer", "bounds": [0, 10]},
}
CONDITIONS = (
    *(
        "f = 0.1",
        "f IN (0.1, 0.3)",
        "f <= 0.1",
        "f BETWEEN 0.1 AND 0.3",
        "f = CAST(0.1 AS DOUBLE)",
        "0.1 < f",
    ),
    *(
        "f + 0.2 = 0.3",
        "f * 3 = 0.3",
        "f = n / 10.0",
        "f - n > -0.9",
        "f * f < 1",
        "f / 3 > 0.1",
        "COALESCE(f, 0.3) = 0.3",
    ),
    *(
        "CAST(x AS FLOAT) = 0.7",
        "CAST(x AS REAL) = x",
        "GREATEST(f, 0.3) = 0.3",
        "f = x - 0.6",
        "ABS(f * n) = 0.9",
    ),
)


def expected() -> Mapping[str, int]:
    """The rows for which each condition holds in DuckDB."""
    with duckdb.connect() as database:
        rows = f"(SELECT id, f::FLOAT AS f, x::DOUBLE AS x, n FROM (VALUES {VALUES}) AS v(id, f, x, n))"
        counts = ", ".join(f"COUNT(*) FILTER ({condition})" for condition in CONDITIONS)
        found = database.execute(f"SELECT {counts} FROM {rows}").fetchall()[0]
    return dict(zip(CONDITIONS, found, strict=True))
