"""The names of the dialects that a query may be written in."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.errors import ProgrammingError

DUCKDB = "duckdb"
TITLES: Mapping[str, str] = {
    "postgres": "PostgreSQL",
    "spark": "Spark",
    "snowflake": "Snowflake",
    "bigquery": "BigQuery",
    "tsql": "T-SQL",
}
"""The dialects that are read in addition to DuckDB's."""


def require_dialect_name(name: str) -> None:
    """Raise ProgrammingError (`dialect`) unless a dialect has this name.

    >>> require_dialect_name("postgres")
    """
    if name != DUCKDB and name not in TITLES:
        raise ProgrammingError(
            f"there is no dialect {name}", code="dialect", hint=f"there are: {', '.join([DUCKDB, *TITLES])}"
        )
