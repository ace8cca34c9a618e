"""Write the demo's data to a database, and compute true answers from it, which no other part of dpsql may do.

This module uses DuckDB directly, because dpsql has no way to return an exact value.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import duckdb

from dpsql.errors import OperationalError

NAME = "rand_hie"
_DATA = files("dpsql.interfaces.demo").joinpath(f"{NAME}.parquet")
_POLICY = files("dpsql.interfaces.demo").joinpath(f"{NAME}.yaml")


def write_demo_files(directory: Path) -> tuple[Path, Path]:
    """Write the database and its policy, and return their paths. Raises OperationalError if one already exists."""
    database, policy = directory / f"{NAME}.duckdb", directory / f"{NAME}.yaml"
    for path in (database, policy, policy.with_suffix(".ledger")):
        if path.exists():
            raise OperationalError(
                f"{path} already exists", code="file_exists", hint="choose another directory"
            )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        policy.write_text(_POLICY.read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        raise OperationalError(f"cannot write {policy}: {error.strerror}", code="not_written") from None
    with as_file(_DATA) as data, duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE TABLE {NAME} AS SELECT * FROM read_parquet(?)", [str(data)])
    return database, policy


def compute_true_rows(sql: str) -> list[tuple[Any, ...]]:
    """Return the true rows of a query on the public file."""
    with as_file(_DATA) as data, duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {NAME} AS SELECT * FROM read_parquet(?)", [str(data)])
        return connection.execute(sql).fetchall()
