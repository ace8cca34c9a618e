"""The demo's data as a database, and true answers from it: what no other part of dpsql may give.

It talks to DuckDB itself, because dpsql has no way to ask for an exact value.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import duckdb

from dpsql.errors import OperationalError

NAME = "rand_hie"
_DATA = files("dpsql.demo").joinpath(f"{NAME}.parquet")
_POLICY = files("dpsql.demo").joinpath(f"{NAME}.yaml")


def write_demo_files(directory: Path) -> tuple[Path, Path]:
    """Writes the database and its policy; returns their paths. Raises OperationalError if one is there."""
    database, policy = directory / f"{NAME}.duckdb", directory / f"{NAME}.yaml"
    for path in (database, policy, policy.with_suffix(".ledger")):
        if path.exists():
            raise OperationalError(
                f"{path} exists already", code="file_exists", hint="name another directory, or a new one"
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
    """The true rows of a query to the public file."""
    with as_file(_DATA) as data, duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {NAME} AS SELECT * FROM read_parquet(?)", [str(data)])
        return connection.execute(sql).fetchall()
