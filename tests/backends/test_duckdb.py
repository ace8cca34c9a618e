"""DuckDB as dpsql opens it: to read, and no more."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from worlds import close_all, connected, engine_of

from dpsql.backends.duckdb import DuckDBBackend

POLICY = {
    "budget": {"epsilon": 1},
    "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
}


def test_a_file_is_opened_to_read(tmp_path: Path) -> None:
    """A statement that changes the owner's database fails on the connection itself."""
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE people AS SELECT 30 AS age")
    connection = connected(str(path), POLICY)
    for change in ("DELETE FROM people", "CREATE TABLE more (x INTEGER)", "DROP TABLE people"):
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            engine_of(connection).execute(change)
    close_all()


def test_an_owner_s_connection_prints_no_progress_and_is_left_as_it_was() -> None:
    """What DuckDB says of how far a query is would stand among the answers; it may print it in its own queries."""
    setting = "SELECT current_setting('enable_progress_bar')"
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        backend = DuckDBBackend(owner)
        for told in (True, False):
            owner.execute(f"SET enable_progress_bar = {told}")
            assert backend.public_rows(setting) == ([(False,)], ["BOOLEAN"])
            assert backend.run(setting).reveal() == [(False,)]
            assert backend.public_number("SELECT 3") == 3
            assert owner.execute(setting).fetchall() == [(told,)]
