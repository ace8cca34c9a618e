"""Rows for tables of DuckDB, many to a statement: a statement for each row takes most of the time of a small test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

_AT_ONCE = 500


def insert(
    database: duckdb.DuckDBPyConnection,
    table: str,
    rows: Sequence[Sequence[Any]],
    holes: Sequence[str] | None = None,
) -> None:
    """Inserts rows, in order; `holes` are the expressions of a row with `?` for its values."""
    if not rows:
        return
    row = f"({', '.join(holes or '?' * len(rows[0]))})"
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        database.execute(
            f"INSERT INTO {table} VALUES {', '.join([row] * len(part))}",
            [value for each in part for value in each],
        )
